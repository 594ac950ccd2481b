"""Rules by which nodes of a graph become operations of the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from concord.functions import function
from concord.graph.host_functions import HOST_FUNCTIONS, between, negated, one_more, sigmoid, size_of
from concord.graph.host_operations import Action, HostOperation, Operand, OperationBuilder
from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops.elementwise import (
    BinaryAttributes,
    ClipAttributes,
    FunctionAttributes,
    NormaliseAttributes,
    ReduceMaxAttributes,
    ReductionAttributes,
    SoftmaxAttributes,
    codes_of,
)
from concord.graph.ops.host import (
    COUPLING_ROUNDS,
    LEAST_SHARE,
    WHOLE,
    ArgumentAttributes,
    CategoriesAttributes,
    CouplingAttributes,
    FillAttributes,
    ImputeAttributes,
    LookupAttributes,
    SelectAttributes,
    TakeAttributes,
    TopKAttributes,
    TreesAttributes,
    WrapAttributes,
)
from concord.graph.ops.linear import ConvAttributes, DenseAttributes
from concord.graph.ops.moving import (
    ConcatAttributes,
    PadAttributes,
    PickAttributes,
    SliceAttributes,
    TransposeAttributes,
)
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes, WindowAttributes, divisors, window_counts
from concord.utils.arrays import FloatArray

#: Products of a node for one sample that are in memory at a time.
MOST_PRODUCTS = 1 << 22


def operations(partition: Graph) -> list[HostOperation]:
    """The operations of a host's part, in order; ``ValueError`` with the operator if there are none for one."""
    make = OperationBuilder({name: tuple(partition.shapes[name]) for name in partition.inputs})
    for node in partition.nodes:
        if node.op not in _RULES:
            raise ValueError(_refusal(node, node.op))
        results = _RULES[node.op](make, node, list(node.inputs))
        for name, result in zip(node.outputs, [results] if isinstance(results, str) else results, strict=True):
            if name:
                make.add(Action.RESHAPE, name, (result,), tuple(partition.shapes[name]))
    return make.operations


def has_operations(node: Node) -> bool:
    """True if there are operations of the host for a node."""
    return node.op in _RULES and (node.op != "Function" or _are_of_host(node.attributes(FunctionAttributes)))


def _are_of_host(attributes: FunctionAttributes) -> bool:
    return attributes.segment is None and all(name in HOST_FUNCTIONS for name in attributes.names)


def _refusal(node: Node, what: str) -> str:
    names = ", ".join(_RULES)
    return (
        f"operator {what} ({node.name}) cannot be computed by the host with the same bits everywhere; "
        f"what the host computes must be of {names}, with functions among {', '.join(HOST_FUNCTIONS)}"
    )


def _operands(node: Node, inputs: list[str]) -> list[Operand]:
    """Both operands, of which one may be constant."""
    attributes = node.attributes(BinaryAttributes)
    if attributes.constant is None:
        return [*inputs]
    return [attributes.constant, *inputs] if attributes.constant_first else [*inputs, attributes.constant]


def _binary(action: Action) -> _Rule:
    def lower(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
        a, b = _operands(node, inputs)
        return make.arithmetic(action, a, b)

    return lower


def _reduced(rule: Callable[[OperationBuilder, str, tuple[int, ...]], str]) -> _Rule:
    return lambda make, node, inputs: rule(make, inputs[0], node.attributes(ReductionAttributes).axes)


def _slice(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    x, part = inputs[0], node.attributes(SliceAttributes)
    for axis, *taken in zip(part.axes, part.starts, part.stops, part.steps, strict=True):
        x = make.taken(x, axis, range(*taken))
    return x


def _picked(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    (x,), attributes = inputs, node.attributes(PickAttributes)
    axis, shape = attributes.axis, make.shape(inputs[0])
    whole = (*shape[:axis], len(attributes.indices), *shape[axis + 1 :])
    line = np.array(attributes.indices, np.float64).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return make.operation(Action.ALONG, (x, make.filled(x, whole, line)), whole, (axis,))


def _joined(make: OperationBuilder, parts: list[str], axis: int) -> str:
    if len(parts) == 1:
        return parts[0]
    shape = list(make.shape(parts[0]))
    shape[axis] = sum(make.shape(part)[axis] for part in parts)
    return make.operation(Action.CONCAT, tuple(parts), tuple(shape), (axis,))


def _padded(make: OperationBuilder, x: str, axis: int, pads: tuple[int, int], value: float) -> str:
    shape = make.shape(x)
    sizes = ((*shape[:axis], pad, *shape[axis + 1 :]) for pad in pads)
    before, after = ([make.filled(x, size, np.array(value))] if size[axis] else [] for size in sizes)
    return _joined(make, [*before, x, *after], axis)


def _pad(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    x, attributes = inputs[0], node.attributes(PadAttributes)
    pads, mode = attributes.pads, attributes.mode
    rank = len(pads) // 2
    for axis, widths in enumerate(zip(pads[:rank], pads[rank:], strict=True)):
        if not any(widths):
            continue
        if mode == "constant":
            x = _padded(make, x, axis, widths, attributes.value)
        else:
            order = np.pad(np.arange(make.shape(x)[axis]), widths, mode=mode)
            x = _joined(make, [make.taken(x, axis, part) for part in _ranges(order.tolist())], axis)
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


def _reduce_max(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """An element may count twice: parts overlap where their number is odd."""
    x = inputs[0]
    for axis in node.attributes(ReduceMaxAttributes).axes:
        x = _greatest(make, x, axis)
    return x


def _greatest(make: OperationBuilder, x: str, axis: int) -> str:
    """The greatest element along an axis, which stays."""
    while (count := make.shape(x)[axis]) > 1:
        size = count - count // 2
        parts = [make.taken(x, axis, range(start, start + size)) for start in (0, count - size)]
        x = make.arithmetic(Action.MAX, parts[0], parts[1])
    return x


def _max_pool(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """Along one axis after the other; padding counts as minus infinity."""
    x, pool = inputs[0], node.attributes(PoolAttributes)
    rank = len(pool.kernel)
    for k, (taps, by, apart) in enumerate(zip(pool.kernel, pool.strides, pool.dilations, strict=True)):
        axis = len(make.shape(x)) - rank + k
        x = _padded(make, x, axis, (pool.pads[k], pool.pads[rank + k]), -np.inf)
        last = make.shape(x)[axis] - (taps - 1) * apart
        greatest, *others = (make.taken(x, axis, range(tap * apart, tap * apart + last, by)) for tap in range(taps))
        for other in others:
            greatest = make.arithmetic(Action.MAX, greatest, other)
        x = greatest
    return x


def _along_axis(action: Action) -> _Rule:
    def lower(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
        return make.operation(action, tuple(inputs), make.shape(inputs[0]), (node.attributes(SoftmaxAttributes).axis,))

    return lower


def _transposed(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    shape, perm = make.shape(inputs[0]), node.attributes(TransposeAttributes).perm
    return make.operation(Action.TRANSPOSE, (inputs[0],), tuple(shape[axis] for axis in perm), perm)


def _function(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    x = inputs[0]
    attributes = node.attributes(FunctionAttributes)
    for name, parameters in attributes.functions:
        if name not in HOST_FUNCTIONS or attributes.segment is not None:
            raise ValueError(_refusal(node, f"{node.op} {name}"))
        x = HOST_FUNCTIONS[name](make, x, **function(name).complete(parameters))
    return x


def _summed(make: OperationBuilder, x: str, axes: tuple[int, ...]) -> str:
    """Along one axis after the other, which stay."""
    for axis in axes:
        shape = list(make.shape(x))
        length, shape[axis] = shape[axis], 1
        x = make.operation(Action.SUM, (x,), tuple(shape), (axis, length))
    return x


def _mean(make: OperationBuilder, x: str, axes: tuple[int, ...]) -> str:
    """Mean as :func:`concord.golden.host_math.host_mean` computes it."""
    count = math.prod(make.shape(x)[axis] for axis in axes)
    return make.arithmetic(Action.DIV, _summed(make, x, axes), np.array(float(count)))


def _normalised(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    x, attributes = inputs[0], node.attributes(NormaliseAttributes)
    if attributes.centred:
        x = make.arithmetic(Action.SUB, x, _mean(make, x, attributes.axes))
    square = _mean(make, make.arithmetic(Action.MUL, x, x), attributes.axes)
    spread = make.unary(Action.ROOT, make.arithmetic(Action.ADD, square, np.array(float(attributes.epsilon))))
    return make.arithmetic(Action.MUL, make.arithmetic(Action.DIV, x, spread), attributes.scale)


def _dot(make: OperationBuilder, a: Operand, b: Operand, axis: int) -> str:
    """Products of two operands that broadcast, added up along an axis, which goes; of many products one part each."""
    whole = np.broadcast_shapes(make.shape(a), make.shape(b))
    axis %= len(whole)
    longest = max((k for k in range(len(whole)) if k != axis), key=whole.__getitem__)
    if (work := math.prod(whole)) > MOST_PRODUCTS and (count := whole[longest]) > 1:
        size = max(1, count * MOST_PRODUCTS // work)
        places = [range(first, min(first + size, count)) for first in range(0, count, size)]
        split = longest - len(whole)
        parts = [_dot(make, _part(make, a, split, taken), _part(make, b, split, taken), axis) for taken in places]
        return _joined(make, parts, longest - (longest > axis))
    product = make.arithmetic(Action.MUL, a, b)
    shape = make.shape(product)
    total = _summed(make, product, (axis,))
    kept = list(shape)
    del kept[axis]
    return make.reshaped(total, tuple(kept))


def _part(make: OperationBuilder, x: Operand, axis: int, taken: range) -> Operand:
    """These indices of an axis, which is counted from the end; all of an operand that is broadcast along it."""
    shape = make.shape(x)
    if len(shape) < -axis or shape[axis] == 1:
        return x
    if isinstance(x, str):
        return make.taken(x, axis % len(shape), taken)
    return np.take(x, np.asarray(taken), axis)


def _dense(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    attributes, shape = node.attributes(DenseAttributes), make.shape(inputs[0])
    rows = make.reshaped(inputs[0], (*shape[:-1], 1, shape[-1]))
    return make.arithmetic(Action.ADD, _dot(make, rows, attributes.weight, -1), attributes.bias)


def _matmul(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    a, b = inputs
    *front, rows, length = make.shape(a)
    *others, _, columns = make.shape(b)
    b = make.moved(b, len(others) + 1, len(others))
    return _dot(
        make,
        make.reshaped(a, (*front, rows, 1, length)),
        make.reshaped(b, (*others, 1, columns, length)),
        -1,
    )


def _taps(make: OperationBuilder, x: str, attributes: WindowAttributes, kernel: Sequence[int]) -> tuple[str, Shape]:
    """All elements of all windows, ``[taps, channels, positions]``, and how many windows there are along each axis."""
    rank, pads = len(kernel), attributes.pads
    counts = window_counts(attributes, kernel, make.shape(x)[-rank:])
    first = len(make.shape(x)) - rank
    for k in range(rank):
        if pads[k] or pads[rank + k]:
            x = _padded(make, x, first + k, (pads[k], pads[rank + k]), 0.0)
    channels, positions = math.prod(make.shape(x)[:first]), math.prod(counts)
    parts = []
    for tap in np.ndindex(*kernel):
        part = x
        for k, (at, by, apart, count) in enumerate(
            zip(tap, attributes.strides, attributes.dilations, counts, strict=True)
        ):
            part = make.taken(part, first + k, range(at * apart, at * apart + (count - 1) * by + 1, by))
        parts.append(make.reshaped(part, (1, channels, positions)))
    return _joined(make, parts, 0), counts


def _conv(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    attributes, weight = node.attributes(ConvAttributes), node.attributes(ConvAttributes).weight
    outputs, depth, *kernel = weight.shape
    taps, counts = _taps(make, inputs[0], attributes, kernel)
    weights = np.moveaxis(weight.reshape(outputs, depth, -1), 2, 1)  # [outputs, taps, channels of a group]
    positions = math.prod(counts)
    each = outputs // attributes.group
    if depth == each == 1:
        y = _dot(make, taps, np.moveaxis(weights, 0, 1), 0)
    else:
        rows = []
        for group in range(attributes.group):
            part = make.taken(taps, 1, range(group * depth, (group + 1) * depth))
            part = make.reshaped(part, (1, make.shape(taps)[0] * depth, positions))
            own = weights[group * each : (group + 1) * each].reshape(each, -1, 1)
            rows.append(_dot(make, part, own, 1))
        y = _joined(make, rows, 0)
    y = make.arithmetic(Action.ADD, y, attributes.bias.reshape(-1, 1))
    return make.reshaped(y, (*make.shape(inputs[0])[: -len(kernel) - 1], outputs, *counts))


def _average_pool(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    attributes = node.attributes(AveragePoolAttributes)
    rank, shape = len(attributes.kernel), make.shape(inputs[0])
    taps, counts = _taps(make, inputs[0], attributes, attributes.kernel)
    total = make.reshaped(_summed(make, taps, (0,)), (*shape[:-rank], *counts))
    return make.arithmetic(Action.DIV, total, divisors(attributes, shape[-rank:]))


def _fake_quantize(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """Values of :meth:`concord.golden.codes.Codes.rounded`; beside the number added there are no fractions."""
    codes = codes_of(node)
    rank = len(make.shape(inputs[0]))
    scale, low, high = (codes.along(end, rank) for end in (codes.steps, *codes.offsets))
    x = make.arithmetic(Action.DIV, inputs[0], scale)
    x = make.arithmetic(Action.MIN, make.arithmetic(Action.MAX, x, low), high)
    for action in (Action.ADD, Action.SUB):
        x = make.arithmetic(action, x, np.array(1.5 * 2.0**52))
    return make.arithmetic(Action.MUL, x, scale)


def _ceil(make: OperationBuilder, x: str) -> str:
    return negated(make, make.unary(Action.FLOOR, negated(make, x)))


def _truncated(make: OperationBuilder, x: str) -> str:
    negative = make.arithmetic(Action.LESS, x, np.array(0.0))
    return make.select(negative, _ceil(make, x), make.unary(Action.FLOOR, x))


def _sign(make: OperationBuilder, x: str) -> str:
    positive = make.arithmetic(Action.LESS, np.array(0.0), x)
    return make.arithmetic(Action.SUB, positive, make.arithmetic(Action.LESS, x, np.array(0.0)))


def _compared(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    a, b = _operands(node, inputs)
    return make.arithmetic(Action.SUB, make.arithmetic(Action.LESS, b, a), make.arithmetic(Action.LESS, a, b))


def _modulo(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    operands = _operands(node, inputs)
    whole = make.unary(Action.FLOOR, make.arithmetic(Action.DIV, *operands))
    return make.arithmetic(Action.SUB, operands[0], make.arithmetic(Action.MUL, whole, operands[1]))


def _wrapped(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """Numbers as :func:`concord.graph.ops.host.wrapped` makes them."""
    attributes, x = node.attributes(WrapAttributes), inputs[0]
    if attributes.modulus > WHOLE:
        size = make.arithmetic(Action.MAX, x, make.arithmetic(Action.MUL, x, np.array(-1.0)))
        large = make.arithmetic(Action.LESS, np.array(WHOLE - 1), size)
        return make.arithmetic(Action.SUB, x, make.operation(Action.LOOK_UP, (np.zeros(1), large), make.shape(large)))
    low, count = np.array(float(attributes.low)), np.array(float(attributes.modulus))
    turns = make.unary(Action.FLOOR, make.arithmetic(Action.DIV, make.arithmetic(Action.SUB, x, low), count))
    return make.arithmetic(Action.SUB, x, make.arithmetic(Action.MUL, turns, count))


def _selected(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    attributes, computed = node.attributes(SelectAttributes), iter(inputs)
    constants = (attributes.condition, attributes.chosen, attributes.other)
    return make.select(*(next(computed) if constant is None else constant for constant in constants))


def _looked_up(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    attributes = node.attributes(LookupAttributes)
    axis, table = attributes.axis, np.moveaxis(attributes.table, attributes.axis, 0)
    shape = make.shape(inputs[0])
    y = make.operation(Action.LOOK_UP, (table, inputs[0]), (*shape, *table.shape[1:]))
    for k in range(axis):  # the axes of the table in front of it
        y = make.moved(y, len(shape) + k, k)
    return y


def _taken_by(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    axis, (x, indices) = node.attributes(TakeAttributes).axis, inputs
    shape, count = make.shape(x), math.prod(make.shape(indices))
    line = make.operation(Action.RESHAPE, (indices,), (*(1,) * axis, count, *(1,) * (len(shape) - axis - 1)))
    whole = (*shape[:axis], count, *shape[axis + 1 :])
    y = make.operation(Action.ALONG, (x, make.spread(line, whole)), whole, (axis,))
    return make.operation(Action.RESHAPE, (y,), (*shape[:axis], *make.shape(indices), *shape[axis + 1 :]))


def _numbers(make: OperationBuilder, x: str, otherwise: float) -> str:
    """Replace NaN, which every library orders in its own way, by another number."""
    return make.select(make.arithmetic(Action.EQUAL, x, x), x, np.array(otherwise))


def _argument(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    attributes, x = node.attributes(ArgumentAttributes), inputs[0]
    axis, size = attributes.axis, make.shape(x)[attributes.axis]
    x = _numbers(make, negated(make, x) if attributes.least else x, -np.inf)
    if attributes.last:
        x = make.taken(x, axis, range(size - 1, -1, -1))
    shape = (*make.shape(x)[:axis], 1, *make.shape(x)[axis + 1 :])
    place = make.operation(Action.GREATEST, (x,), shape, (axis,))
    return make.arithmetic(Action.SUB, np.array(size - 1.0), place) if attributes.last else place


def _top(make: OperationBuilder, node: Node, inputs: list[str]) -> list[str]:
    attributes, x = node.attributes(TopKAttributes), inputs[0]
    keys = _numbers(make, negated(make, x) if attributes.largest else x, np.inf)
    order = make.operation(Action.ORDER, (keys,), make.shape(x), (attributes.axis,))
    places = make.taken(order, attributes.axis, range(attributes.size))
    return [make.operation(Action.ALONG, (x, places), make.shape(places), (attributes.axis,)), places]


def _trees(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """All trees go down one node at a time; those that are at a leaf stay there."""
    attributes, (x,) = node.attributes(TreesAttributes), inputs
    rows, count = make.shape(x)[0], len(attributes.roots)
    places = make.filled(x, (rows, count), attributes.roots)

    def of_places(table: FloatArray) -> str:
        return make.operation(Action.LOOK_UP, (table, places), (rows, count, *table.shape[1:]))

    for _ in range(attributes.depth):
        features = make.operation(Action.ALONG, (x, of_places(attributes.features)), (rows, count), (1,))
        thresholds, low, high = map(of_places, (attributes.thresholds, attributes.low, attributes.high))
        if attributes.strict:
            places = make.select(make.arithmetic(Action.LESS, features, thresholds), low, high)
        else:
            places = make.select(make.arithmetic(Action.LESS, thresholds, features), high, low)
    total = _summed(make, of_places(attributes.values), (1,))
    return make.reshaped(total, (rows, attributes.values.shape[1]))


def _imputed(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """A number equals itself, NaN does not."""
    (x,) = inputs
    return make.select(make.arithmetic(Action.EQUAL, x, x), x, node.attributes(ImputeAttributes).values)


def _among(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    column = make.reshaped(inputs[0], (*make.shape(inputs[0]), 1))
    return make.arithmetic(Action.EQUAL, column, node.attributes(CategoriesAttributes).categories)


def _coupled(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    """Shares of classes from scores of pairs; rows and columns of all pairs of classes are the axes 1 and 2."""
    attributes, (x,) = node.attributes(CouplingAttributes), inputs
    rows, classes, count = make.shape(x)[0], attributes.classes, len(attributes.pairs)

    def of(action: Action, a: Operand, b: Operand) -> str:
        return make.arithmetic(action, a, b)

    total = of(Action.ADD, of(Action.MUL, x, attributes.slopes), attributes.offsets)
    first = between(make, sigmoid(make, negated(make, total)), LEAST_SHARE, 1 - LEAST_SHARE)
    both = _joined(make, [first, of(Action.SUB, np.array(1.0), first)], 1)
    places = np.zeros((classes, classes))
    for k, (i, j) in enumerate(attributes.pairs):
        places[i, j], places[j, i] = k, count + k
    taken = make.filled(x, (rows, classes * classes), places.reshape(-1))
    pairs = make.operation(Action.ALONG, (both, taken), (rows, classes * classes), (1,))
    pairs = of(Action.MUL, make.reshaped(pairs, (rows, classes, classes)), 1 - np.eye(classes))
    own = of(Action.MUL, _summed(make, of(Action.MUL, pairs, pairs), (1,)), np.eye(classes))
    square = of(Action.SUB, own, of(Action.MUL, pairs, make.moved(pairs, 2, 1)))
    lines = [make.taken(square, 1, range(t, t + 1)) for t in range(classes)]
    p = make.filled(x, (rows, 1, classes), np.array(1.0 / classes))
    for _ in range(COUPLING_ROUNDS):
        before, column = p, make.reshaped(p, (rows, classes, 1))
        slope = _summed(make, of(Action.MUL, square, column), (1,))
        value = _summed(make, of(Action.MUL, p, slope), (2,))
        greatest = _greatest(make, size_of(make, of(Action.SUB, slope, value)), 2)
        stays = of(Action.LESS, greatest, np.array(attributes.tolerance))
        for t, line in enumerate(lines):
            at, own = make.taken(slope, 2, range(t, t + 1)), make.taken(line, 2, range(t, t + 1))
            step = of(Action.DIV, of(Action.SUB, value, at), own)
            divisor = one_more(make, step)
            more = of(Action.ADD, of(Action.MUL, step, own), of(Action.MUL, at, np.array(2.0)))
            value = of(Action.ADD, value, of(Action.MUL, step, more))
            value = of(Action.DIV, value, of(Action.MUL, divisor, divisor))
            slope = of(Action.DIV, of(Action.ADD, slope, of(Action.MUL, step, line)), divisor)
            p = of(Action.DIV, of(Action.ADD, p, of(Action.MUL, step, np.eye(classes)[t])), divisor)
        p = make.select(stays, before, p)
    return make.reshaped(p, (rows, classes))


def _filled(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    value = node.attributes(FillAttributes).value
    return make.filled(inputs[0], value.shape, value)


def _clipped(make: OperationBuilder, node: Node, inputs: list[str]) -> str:
    ends = node.attributes(ClipAttributes)
    return between(make, inputs[0], ends.min, ends.max)


def _each(rule: Callable[[OperationBuilder, str], str]) -> _Rule:
    return lambda make, node, inputs: rule(make, inputs[0])


_Rule = Callable[[OperationBuilder, Node, list[str]], str | list[str]]
_RULES: dict[str, _Rule] = {
    "Softmax": _along_axis(Action.SOFTMAX),
    "LogSoftmax": _along_axis(Action.LOG_SOFTMAX),
    "Normalise": _normalised,
    "Reshape": lambda make, node, inputs: inputs[0],
    "Transpose": _transposed,
    "Concat": lambda make, node, inputs: _joined(make, inputs, node.attributes(ConcatAttributes).axis),
    "Slice": _slice,
    "Pick": _picked,
    "Add": _binary(Action.ADD),
    "Sub": _binary(Action.SUB),
    "Compare": _compared,
    "Mul": _binary(Action.MUL),
    "Max": _binary(Action.MAX),
    "Min": _binary(Action.MIN),
    "Relu": lambda make, node, inputs: make.arithmetic(Action.MAX, inputs[0], np.array(0.0)),
    "Clip": _clipped,
    "FakeQuantize": _fake_quantize,
    "Function": _function,
    "MaxPool": _max_pool,
    "ReduceMax": _reduce_max,
    "Pad": _pad,
    "PadCopy": _pad,
    "Conv": _conv,
    "Dense": _dense,
    "MatMul": _matmul,
    "AveragePool": _average_pool,
    "ReduceSum": _reduced(_summed),
    "ReduceMean": _reduced(_mean),
    "Truncate": _each(_truncated),
    "Round": _each(lambda make, x: make.unary(Action.ROUND, x)),
    "Sign": _each(_sign),
    "Not": _each(lambda make, x: make.arithmetic(Action.SUB, np.array(1.0), x)),
    "Less": _binary(Action.LESS),
    "Equal": _binary(Action.EQUAL),
    "Divide": _binary(Action.DIV),
    "Modulo": _modulo,
    "Wrap": _wrapped,
    "Select": _selected,
    "Lookup": _looked_up,
    "Take": _taken_by,
    "ArgMax": _argument,
    "TopK": _top,
    "Fill": _filled,
    "Trees": _trees,
    "Impute": _imputed,
    "Categories": _among,
    "Coupling": _coupled,
}
