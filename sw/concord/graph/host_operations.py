"""What the host computes behind the NPU, as operations that every backend has with the same bits.

Operations are single operations of IEEE 754 in float64, data movement, and the functions of
:mod:`concord.golden.host_math`. So their results do not depend on how many samples are computed together, and zeros
that are results are +0, as in :meth:`concord.compiler.emission.package.Package.host_outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from concord.functions import function
from concord.graph.ir import Graph, Node, Quantization, Shape
from concord.utils.arrays import FloatArray


class Action(Enum):
    """What an operation does; axes are those of a sample."""

    RESHAPE = "reshape"  # to ``shape``
    TRANSPOSE = "transpose"  # ``numbers``: axis of the operand for every axis
    CONCAT = "concat"  # ``numbers``: the axis
    SLICE = "slice"  # ``numbers``: axis, start, stop and step; stop -1 is before the first
    SOFTMAX = "softmax"  # ``numbers``: the axis
    LOG_SOFTMAX = "log softmax"  # ``numbers``: the axis
    SUM = "sum"  # ``numbers``: the axis, which stays, and its length
    LOG = "log"
    ROOT = "root"
    FILL = "fill"  # a tensor of any shape, and a constant that is broadcast to ``shape`` for each of its samples
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"
    MIN = "min"


#: The actions that have two operands of one rank, which broadcast.
ARITHMETIC = (Action.ADD, Action.SUB, Action.MUL, Action.DIV, Action.MAX, Action.MIN)
#: A tensor by name, or a constant without an axis of samples.
Operand = str | FloatArray


@dataclass(frozen=True)
class HostOperation:
    """One operation.

    Parameters
    ----------
    action : Action
    output : str
        What it computes.
    operands : tuple
        Names of tensors, or constants.
    shape : Shape
        Of a sample of the output.
    numbers : tuple of int
        See :class:`Action`.
    """

    action: Action
    output: str
    operands: tuple[Operand, ...]
    shape: Shape
    numbers: tuple[int, ...] = ()


def operations(partition: Graph) -> list[HostOperation]:
    """The operations of a host's part, in order; ``ValueError`` with the operator if one cannot be derived."""
    return list(_Lowering(partition).go())


@dataclass
class _Lowering:
    """Makes operations; tensors in between have names that no tensor of the graph has."""

    partition: Graph
    _made: list[HostOperation] = field(default_factory=list)
    _shapes: dict[str, Shape] = field(default_factory=dict)

    def go(self) -> Iterator[HostOperation]:
        self._shapes |= {name: tuple(self.partition.shapes[name]) for name in self.partition.inputs}
        for node in self.partition.nodes:
            if node.op not in _LOWERED:
                raise ValueError(_refusal(node, node.op))
            result = _LOWERED[node.op](self, node, list(node.inputs))
            self._add(Action.RESHAPE, node.outputs[0], (result,), tuple(self.partition.shapes[node.outputs[0]]))
        return iter(self._made)

    def operation(
        self, action: Action, operands: tuple[Operand, ...], shape: Shape, numbers: tuple[int, ...] = ()
    ) -> str:
        """Add an operation, and return the name of what it computes."""
        return self._add(action, f"behind:{len(self._made)}", operands, shape, numbers)

    def _add(
        self, action: Action, output: str, operands: tuple[Operand, ...], shape: Shape, numbers: tuple[int, ...] = ()
    ) -> str:
        self._made.append(HostOperation(action, output, operands, shape, numbers))
        self._shapes[output] = shape
        return output

    def shape(self, operand: Operand) -> Shape:
        """Of a sample."""
        return self._shapes[operand] if isinstance(operand, str) else operand.shape

    def arithmetic(self, action: Action, a: Operand, b: Operand) -> str:
        """An operation with two operands that broadcast as in NumPy."""
        rank = max(len(self.shape(a)), len(self.shape(b)))
        a, b = self._ranked(a, rank), self._ranked(b, rank)
        return self.operation(action, (a, b), tuple(np.broadcast_shapes(self.shape(a), self.shape(b))))

    def _ranked(self, operand: Operand, rank: int) -> Operand:
        missing = (1,) * (rank - len(self.shape(operand)))
        shape = (*missing, *self.shape(operand))
        if isinstance(operand, str):
            return self.operation(Action.RESHAPE, (operand,), shape) if missing else operand
        return operand.reshape(shape)


def _refusal(node: Node, what: str) -> str:
    names = ", ".join(_LOWERED)
    return (
        f"operator {what} ({node.name}) behind the NPU cannot be derived with the bits of the driver; "
        f"what the host computes must be of {names}, with functions among {', '.join(HOST_FUNCTIONS)}"
    )


def _binary(action: Action) -> _Lower:
    def lower(make: _Lowering, node: Node, inputs: list[str]) -> str:
        operands: list[Operand] = [*inputs]
        if (constant := node.attrs.get("constant")) is not None:
            constants = np.asarray(constant, dtype=np.float64)
            operands = [constants, *operands] if node.attrs.get("reversed") else [*operands, constants]
        return make.arithmetic(action, operands[0], operands[1])

    return lower


def _between(make: _Lowering, x: str, low: float, high: float) -> str:
    return make.arithmetic(Action.MIN, make.arithmetic(Action.MAX, x, np.array(low)), np.array(high))


def _slice(make: _Lowering, node: Node, inputs: list[str]) -> str:
    x, attrs = inputs[0], node.attrs
    for axis, *taken in zip(attrs["axes"], attrs["starts"], attrs["stops"], attrs["steps"], strict=True):
        x = _taken(make, x, axis, range(*taken))
    return x


def _taken(make: _Lowering, x: str, axis: int, taken: range) -> str:
    """These indices of an axis."""
    shape = list(make.shape(x))
    shape[axis] = len(taken)
    return make.operation(Action.SLICE, (x,), tuple(shape), (axis, taken.start, taken.stop, taken.step))


def _filled(make: _Lowering, like: str, shape: Shape, value: float) -> str:
    """A tensor of one number, with as many samples as another."""
    return make.operation(Action.FILL, (like, np.full((1,) * len(shape), value)), shape)


def _joined(make: _Lowering, parts: list[str], axis: int) -> str:
    if len(parts) == 1:
        return parts[0]
    shape = list(make.shape(parts[0]))
    shape[axis] = sum(make.shape(part)[axis] for part in parts)
    return make.operation(Action.CONCAT, tuple(parts), tuple(shape), (axis,))


def _padded(make: _Lowering, x: str, axis: int, pads: tuple[int, int], value: float) -> str:
    shape = make.shape(x)
    sizes = ((*shape[:axis], pad, *shape[axis + 1 :]) for pad in pads)
    before, after = ([_filled(make, x, size, value)] if size[axis] else [] for size in sizes)
    return _joined(make, [*before, x, *after], axis)


def _pad(make: _Lowering, node: Node, inputs: list[str]) -> str:
    x, pads, mode = inputs[0], node.attrs["pads"], node.attrs["mode"]
    rank = len(pads) // 2
    for axis, widths in enumerate(zip(pads[:rank], pads[rank:], strict=True)):
        if not any(widths):
            continue
        if mode == "constant":
            x = _padded(make, x, axis, widths, float(node.attrs["value"]))
        else:
            order = np.pad(np.arange(make.shape(x)[axis]), widths, mode=mode)
            x = _joined(make, [_taken(make, x, axis, part) for part in _ranges(order.tolist())], axis)
    return x


def _ranges(order: list[int]) -> list[range]:
    """Indices as ranges that go up or down by one, one after the other."""
    ranges = [range(order[0], order[0] + 1)]
    for index in order[1:]:
        last = ranges[-1]
        by = index - last[-1]
        if abs(by) == 1 and (len(last) == 1 or by == last.step):
            ranges[-1] = range(last.start, index + by, by)
        else:
            ranges.append(range(index, index + 1))
    return ranges


def _reduce_max(make: _Lowering, node: Node, inputs: list[str]) -> str:
    """An element may count twice: parts overlap where their number is odd."""
    x = inputs[0]
    for axis in node.attrs["axes"]:
        while (count := make.shape(x)[axis]) > 1:
            size = count - count // 2
            parts = [_taken(make, x, axis, range(start, start + size)) for start in (0, count - size)]
            x = make.arithmetic(Action.MAX, parts[0], parts[1])
    return x


def _max_pool(make: _Lowering, node: Node, inputs: list[str]) -> str:
    """Along one axis after the other; padding counts as minus infinity."""
    x, attrs = inputs[0], node.attrs
    rank = len(attrs["kernel"])
    for k, (taps, by, apart) in enumerate(zip(attrs["kernel"], attrs["strides"], attrs["dilations"], strict=True)):
        axis = len(make.shape(x)) - rank + k
        x = _padded(make, x, axis, (attrs["pads"][k], attrs["pads"][rank + k]), -np.inf)
        last = make.shape(x)[axis] - (taps - 1) * apart
        greatest, *others = (_taken(make, x, axis, range(tap * apart, tap * apart + last, by)) for tap in range(taps))
        for other in others:
            greatest = make.arithmetic(Action.MAX, greatest, other)
        x = greatest
    return x


def _same(action: Action, key: str) -> _Lower:
    def lower(make: _Lowering, node: Node, inputs: list[str]) -> str:
        numbers = node.attrs[key]
        numbers = tuple(numbers) if key == "perm" else (int(numbers),)
        return make.operation(action, tuple(inputs), tuple(make.partition.shapes[node.outputs[0]]), numbers)

    return lower


def _function(make: _Lowering, node: Node, inputs: list[str]) -> str:
    x = inputs[0]
    for name, parameters in node.attrs["functions"]:
        if name not in HOST_FUNCTIONS or node.attrs.get("segment") is not None:
            raise ValueError(_refusal(node, f"{node.op} {name}"))
        x = HOST_FUNCTIONS[name](make, x, **function(name).complete(parameters))
    return x


def _unary(make: _Lowering, action: Action, x: str) -> str:
    return make.operation(action, (x,), make.shape(x))


def _mean(make: _Lowering, x: str, axes: tuple[int, ...]) -> str:
    """As :func:`concord.golden.host_math.host_mean`."""
    count = 1
    for axis in axes:
        shape = list(make.shape(x))
        length, shape[axis] = shape[axis], 1
        count *= length
        x = make.operation(Action.SUM, (x,), tuple(shape), (axis, length))
    return make.arithmetic(Action.DIV, x, np.array(float(count)))


def _normalised(make: _Lowering, node: Node, inputs: list[str]) -> str:
    x, attrs = inputs[0], node.attrs
    if attrs["centred"]:
        x = make.arithmetic(Action.SUB, x, _mean(make, x, attrs["axes"]))
    square = _mean(make, make.arithmetic(Action.MUL, x, x), attrs["axes"])
    spread = _unary(make, Action.ROOT, make.arithmetic(Action.ADD, square, np.array(float(attrs["epsilon"]))))
    return make.arithmetic(Action.MUL, make.arithmetic(Action.DIV, x, spread), np.asarray(attrs["scale"], np.float64))


def _linear(make: _Lowering, x: str, slope: float, offset: float) -> str:
    scaled = make.arithmetic(Action.MUL, np.array(float(slope)), x)
    return make.arithmetic(Action.ADD, scaled, np.array(float(offset)))


def _hard_sigmoid(make: _Lowering, x: str, alpha: float, beta: float) -> str:
    return _between(make, _linear(make, x, alpha, beta), 0.0, 1.0)


def _softsign(make: _Lowering, x: str) -> str:
    size = make.arithmetic(Action.MAX, x, make.arithmetic(Action.MUL, x, np.array(-1.0)))
    return make.arithmetic(Action.DIV, x, make.arithmetic(Action.ADD, size, np.array(1.0)))


def _fake_quantize(make: _Lowering, node: Node, inputs: list[str]) -> str:
    """As :meth:`concord.graph.ir.Quantization.rounded`; beside the number that is added there are no fractions."""
    codes: Quantization = node.attrs["quantization"]
    rank = len(make.shape(inputs[0]))
    scale, low, high = (codes.along(end, rank) for end in (codes.scale, *codes.offsets))
    x = make.arithmetic(Action.DIV, inputs[0], scale)
    x = make.arithmetic(Action.MIN, make.arithmetic(Action.MAX, x, low), high)
    for action in (Action.ADD, Action.SUB):
        x = make.arithmetic(action, x, np.array(1.5 * 2.0**52))
    return make.arithmetic(Action.MUL, x, scale)


_Lower = Callable[[_Lowering, Node, list[str]], str]
#: Functions of :mod:`concord.functions` that are made of such operations.
HOST_FUNCTIONS: dict[str, Callable[..., str]] = {
    "identity": lambda make, x: x,
    "relu": lambda make, x: make.arithmetic(Action.MAX, x, np.array(0.0)),
    "linear": _linear,
    "hardsigmoid": _hard_sigmoid,
    "softsign": _softsign,
    "log": lambda make, x: _unary(make, Action.LOG, x),
}
_LOWERED: dict[str, _Lower] = {
    "Softmax": _same(Action.SOFTMAX, "axis"),
    "LogSoftmax": _same(Action.LOG_SOFTMAX, "axis"),
    "Normalise": _normalised,
    "Reshape": lambda make, node, inputs: inputs[0],
    "Transpose": _same(Action.TRANSPOSE, "perm"),
    "Concat": _same(Action.CONCAT, "axis"),
    "Slice": _slice,
    "Add": _binary(Action.ADD),
    "Sub": _binary(Action.SUB),
    "Mul": _binary(Action.MUL),
    "Max": _binary(Action.MAX),
    "Min": _binary(Action.MIN),
    "Relu": lambda make, node, inputs: make.arithmetic(Action.MAX, inputs[0], np.array(0.0)),
    "Clip": lambda make, node, inputs: _between(make, inputs[0], node.attrs["min"], node.attrs["max"]),
    "FakeQuantize": _fake_quantize,
    "Function": _function,
    "MaxPool": _max_pool,
    "ReduceMax": _reduce_max,
    "Pad": _pad,
    "PadCopy": _pad,
}
