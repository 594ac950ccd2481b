"""Nodes of a derived model as lines of Python, for NumPy or PyTorch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.constants_file import ConstantArrays
from concord.derive.backends.names import runs_of_layers
from concord.derive.backends.node_walk import EVEN, NodeWalk, weight_of
from concord.derive.backends.products import ProductPlan, norm
from concord.derive.backends.python_library import Library
from concord.derive.flags import every
from concord.golden import binary16
from concord.spec.formats import Flag, Rounding


@dataclass(frozen=True)
class LayerFunction:
    """Nodes of one layer that follow each other, as a function.

    Parameters
    ----------
    layer : str
        Name of the layer.
    nodes : tuple of ModelNode
        All but constants.
    parameters, results : tuple of Value
        What they read and do not compute, but for constants; and what others read of what they compute.
    flagged : bool
        Whether they may raise flags.
    """

    layer: str
    nodes: tuple[ir.ModelNode, ...]
    parameters: tuple[ir.Value, ...]
    results: tuple[ir.Value, ...]
    flagged: bool


def layer_functions(model: ir.Model) -> Iterable[LayerFunction]:
    """The functions of a model, in order; a layer that is done in several pieces has several."""
    constants = {node.output for node in every(model.body) if isinstance(node, ir.Constant)}
    nodes = [node for node in model.body if not isinstance(node, ir.Constant)]
    pieces = [(layer, tuple(piece)) for layer, piece in runs_of_layers(nodes)]
    for number, (layer, piece) in enumerate(pieces):
        later = {x for _, others in pieces[number + 1 :] for node in others for x in node.inputs} | {*model.outputs}
        made = [x for node in piece for x in node.outputs]
        read = dict.fromkeys(x for node in piece for x in node.inputs)
        parameters = tuple(x for x in read if x not in constants and x not in made)
        flagged = any(node.may for node in every(ir.Body(piece)))
        yield LayerFunction(layer, piece, parameters, tuple(x for x in made if x in later), flagged)


class PythonNodes(NodeWalk):
    """Writes nodes of a model. Variables have the names of their values, unless the file needs these itself.

    Parameters
    ----------
    model : ir.Model
    own : collection of str
        Names that the file needs.

    Members
    -------
    LIBRARY : Library
    LITERALS : bool
        Whether its functions take numbers for arrays of no axes.
    constants : ConstantArrays
        Those that the lines so far read.
    """

    LIBRARY: ClassVar[Library]
    LITERALS: ClassVar[bool]

    def __init__(self, model: ir.Model, own: Collection[str]) -> None:
        super().__init__()
        self.constants = ConstantArrays()
        self._lines: list[str] = []
        values = {*model.inputs, *(x for node in every(model.body) for x in (*node.inputs, *node.outputs))}
        values |= {x for node in every(model.body) if isinstance(node, ir.Loop) for x in node.params}
        self.names |= {value: value.name + "_" for value in values if value.name in own}
        for node in every(model.body):
            if isinstance(node, ir.Constant):
                self.emit(node)

    def lines(self, function: LayerFunction) -> list[str]:
        """The lines that compute the nodes of a function, and raise their flags."""
        self._lines = []
        for node in function.nodes:
            self.emit(node)
        return self._lines

    @abstractmethod
    def constant_name(self, hint: str) -> str:
        """The name of a new array."""

    # Texts --------------------------------------------------------------------------------------

    def _put(self, output: str | None, text: str) -> str:
        if output is None:
            return text
        self._lines.append(f"{output} = {text}")
        return output

    def keep(self, array: npt.NDArray[Any], hint: str) -> str:
        """The text of a constant with these numbers."""
        return f'W["{self.constants.name_of(array, self.constant_name(hint))}"]'

    def constant(self, values: npt.ArrayLike, dtype: Any, hint: str) -> str:
        array = np.ascontiguousarray(np.asarray(values, dtype=dtype)).reshape(np.shape(values))
        literal = isinstance(values, float) or (self.LITERALS and not array.ndim)
        return number(array.item()) if literal else self.keep(array, hint)

    def call(
        self, primitive: str, operands: Sequence[str], output: str | None = None, rounding: Rounding = EVEN, **args: Any
    ) -> str:
        words = [*operands, *(f"{key}={number(value)}" for key, value in args.items())]
        words += ["away=True"] if rounding is Rounding.NEAREST_AWAY else []
        return self._put(output, f"{primitive}({', '.join(words)})")

    def arithmetic(self, a: str, sign: str, b: str, output: str | None = None) -> str:
        text = f"{a} {sign} {b}"
        return f"({text})" if output is None else self._put(output, text)

    def on_grid(self, x: str, grid: ir.InputGrid) -> str:
        return f"on_grid({', '.join([x, *map(str, grid)])})"

    def limited(self, total: str, low: float, high: float) -> str:
        return f"{total}.clip({low!r}, {high!r})"

    def clipped(self, x: str, most: float) -> str:
        return f"{x}.clip({-most!r}, {most!r})"

    def wide(self, x: str) -> str:
        return x

    def product(self, node: ir.MatMul | ir.Depthwise, x: str, dtype: Any) -> str:
        return self.call(product_name(node), [x, self.weight(node, dtype)])

    def product_of(self, node: ir.ProductOf, x: str, matrix: str, dtype: Any) -> str:
        return self.call("product_of", [x, matrix], groups=len(node.groups))

    def weight(self, node: ir.MatMul | ir.Depthwise, dtype: Any) -> str:
        """The text of the weights of a product."""
        return self.constant(weight_of(node), dtype, f"{node.output.name}_weight")

    def ended(self, node: ir.MatMul | ir.Depthwise, x: str, how: ProductPlan) -> str:
        operands = [self.product(node, x, np.float64), x, self.weight(node, np.float64)]
        return self.call("ended", operands, end=how.register, norm=norm(node), starts=list(node.starts))

    def parts(self, x: str, divisors: tuple[float, ...]) -> list[str]:
        names = [f"part_{number}" for number in range(len(divisors) + 1)]
        self._put(", ".join(names), f"parts({x}, {divisors!r})")
        return names

    def sum_of(self, primitive: str, terms: Sequence[str]) -> list[str]:
        self.call(primitive, terms, "total, rest")
        return ["total", "rest"]

    def named(self, total: str) -> str:
        return self._put("total", total[1:-1] if total.startswith("(") else total)

    def batch(self, value: ir.Value) -> str:
        return f"{self.name(value)}.shape[0]"

    def expand(self, name: str, shape: ir.Shape, batch: str) -> str:
        return f"{self.LIBRARY.module}.broadcast_to({name}, ({batch}, {', '.join(map(str, shape))}))"

    def reshape(self, x: str, like: ir.Value, shape: ir.Shape, output: str | None = None) -> str:
        sizes = [self.batch(like)] if like.batched else []
        return self._put(output, f"{x}.reshape({', '.join([*sizes, *map(str, shape)])})")

    def transpose(self, x: str, perm: list[int], output: str) -> str:
        return self._put(output, f"{x}.{self.LIBRARY.permute}({', '.join(map(str, perm))})")

    def slice(self, node: ir.Slice) -> None:
        """Places in falling order are an index: PyTorch has no other way."""
        places, indices = slices(node), []
        for axis, (start, step) in enumerate(zip(node.starts, node.steps, strict=True)):
            if step < 0:
                index = start + step * np.arange(node.output.shape[axis])
                text = self.constant(index, self.INDEX, f"{node.output.name}_index")
                indices.append(f"[{':, ' * (axis + node.output.batched)}{text}]")
        at = [":"] * node.output.batched + places
        text = self.name(node.x) + (f"[{', '.join(at)}]" if set(at) != {":"} else "")
        self._put(self.name(node.output), text + "".join(indices))

    def part(self, x: str, start: int, stop: int) -> str:
        return f"{x}[..., {start}:{stop}]"

    def concat(self, xs: Sequence[str], axis: int, output: str | None = None) -> str:
        return self._put(output, f"{self.LIBRARY.join}([{', '.join(xs)}], {axis})")

    def take(self, x: str, index: str, axis: int, output: str) -> str:
        return self._put(output, f"{x}[{':, ' * axis}{index}]")

    def windows(self, node: ir.MapWindows) -> None:
        x, sizes = self.name(node.x), [node.output.shape[:2], node.kernel, node.stride, node.origin, node.dilation]
        fill = [] if node.fill == ir.ZERO else [number(float(binary16.decode(node.fill)))]
        self.call("windows", [x, *map(str, sizes), *fill], self.name(node.output))

    def note(self, node: ir.ModelNode, raised: Sequence[tuple[Flag, str]]) -> None:
        self._lines.append("if flags is not None:")
        self._lines += [f"    note(flags[{node.where!r}], {flag.name!r}, {where})" for flag, where in raised]

    def loop(self, node: ir.Loop) -> None:
        batch = self.batch(next(value for value in node.inputs if value.batched))
        for carried in node.carried:
            self._put(self.name(carried.param), self.expanded(carried.initial, batch))
        for stack in node.stacked:
            self._put(self.name(stack.output), "[]")
        outer, self._lines = self._lines, []
        for scan in node.scanned:
            self._put(self.name(scan.param), f"{self.expanded(scan.source, batch)}[:, t]")
        for inner in node.body:
            if not isinstance(inner, ir.Constant):
                self.emit(inner)
        for stack in node.stacked:
            self._lines.append(f"{self.name(stack.output)}.append({self.expanded(stack.result, batch)})")
        if node.carried:
            params = ", ".join(self.name(carried.param) for carried in node.carried)
            self._put(params, ", ".join(self.expanded(carried.result, batch) for carried in node.carried))
        self._lines = [*outer, f"for t in range({node.count}):", *("    " + line for line in self._lines)]
        for carried in node.carried:
            if carried.final is not None:
                self._put(self.name(carried.final), self.name(carried.param))
        for stack in node.stacked:
            name = self.name(stack.output)
            self._put(name, f"{self.LIBRARY.module}.stack({name}, 1)")


def product_name(node: ir.MatMul | ir.Depthwise) -> str:
    """The function of a product."""
    return "depthwise" if isinstance(node, ir.Depthwise) else "product"


def number(value: Any) -> str:
    """A number as text."""
    infinite = isinstance(value, float) and not np.isfinite(value)
    return f"float({str(value)!r})" if infinite else repr(value)


def slices(node: ir.Slice) -> list[str]:
    """The places along every axis of a sample, those in falling order in an index of their own."""
    texts = []
    for size, start, step, count in zip(node.x.shape, node.starts, node.steps, node.output.shape, strict=True):
        stop = min(start + count * step, size)
        whole = step < 0 or (start == 0 and step == 1 and count == size)
        texts.append(":" if whole else f"{start}:{stop}" + (f":{step}" if step > 1 else ""))
    return texts
