"""Products of two tensors, and softmax.

Where the matrix memory holds constants alone, a product of two tensors is made of element-wise products and a sum.
There are three ways; the layouts of the factors decide between them:

* The elements of both factors are in the same lanes already: one chain multiplies every pair of vectors.
* A product with a matrix of zeros and ones moves the first factor to the lanes of the second one, and the
  multifunction units multiply the result by the second factor.
* The same with the factors exchanged.

The sum is a product with ones: depthwise over positions, dense over lanes.
"""

from __future__ import annotations

import math

import numpy as np

from concord.compiler.ir.layers import Layer, MfuStep, Operand, Reduction
from concord.compiler.ir.layout import LayoutError, Storage, Walk
from concord.compiler.lowering import legality, tensor_products
from concord.compiler.lowering.broadcasting import align, broadcast, own_indices, select_lanes, summable
from concord.compiler.lowering.lower import Computation, Lowering, NodeBuilder
from concord.compiler.lowering.reductions import choose_form, groups_apart, masked
from concord.graph.ir import Node
from concord.graph.ops.elementwise import ExpandAttributes, SoftmaxAttributes
from concord.spec.formats import MASKED
from concord.spec.isa import VECTOR_ADDR_BITS, Op
from concord.utils.arrays import Ids

#: Exponentials that a softmax takes for zero have a sum below exp of minus this, beside 1 for the largest.
_NEGLIGIBLE = 5.5


def _placed(places: tuple[Ids, Ids], target: Storage) -> Ids:
    return np.asarray(target.base + places[0] * target.native + places[1])


def expand(lowering: Lowering, node: Node) -> None:
    """A product with a matrix of zeros and ones."""
    (tensor,), attributes = node.inputs, node.attributes(ExpandAttributes)
    like, shape = attributes.like, attributes.shape
    storages = lowering.done.storages
    a, other = (broadcast(storages, lowering.whole(name), shape) for name in (tensor, like))
    selection = select_lanes(a, other, own_indices(shape, lowering.graph.shapes[like]))
    height, width, _ = selection.size
    source = selection.source
    walk = Walk(a.storage, source.start, height, width, a.storage.tiles, source.outer, source.inner, np.arange(0))
    work = Computation(Reduction.DENSE, selection.weight[:, None, None])
    lowering.add(node, walk, work, selection.size, lambda target: _placed(selection.places, target))


def outer(lowering: Lowering, node: Node, op: Op) -> Layer:
    """An element-wise operation of two tensors, both of which are broadcast."""
    shape, storages = lowering.graph.shapes[node.outputs[0]], lowering.done.storages
    a, b = (broadcast(storages, lowering.whole(name), shape) for name in node.inputs)
    pairing = align(a, b)
    first, second = pairing.first, pairing.second
    walk = Walk(a.storage, first.start, *pairing.size, first.outer, first.inner, np.arange(0), first.row)
    layer = lowering.add(node, walk, Computation(), pairing.size, lambda target: _placed(pairing.places, target))
    layer.target.uniform = a.storage.uniform
    operand = Operand(b.storage, None, second.start, second.row, second.inner, second.outer, node.inputs[1])
    layer.append([MfuStep(op, operand)])
    legality.check_reads(layer)
    return layer


def matmul(lowering: Lowering, node: Node) -> list[Node] | None:
    """A product of two tensors: on the tile engines, if programs can write the matrix and that takes fewer cycles.

    Else element-wise products and their sums.
    """
    graph, config = lowering.graph, lowering.config
    if not config.has(Op.M_WR):
        return _products(lowering, node)
    elements = math.prod(graph.shapes[node.outputs[0]]) * graph.shapes[node.inputs[0]][-1]
    apart = 2 * (elements // config.native * config.beats + tensor_products.CHAIN)
    by_rows = tensor_products.cycles(lowering, node)
    if tensor_products.cycles_by_columns(lowering, node) < min(apart, by_rows):
        made = tensor_products.by_columns(lowering, node)
        if made is not None:
            return made
    if apart < by_rows:
        try:
            return _products(lowering, node)
        except LayoutError:
            pass
    alone = len(graph.shapes[node.outputs[0]]) == 2 or tensor_products.is_stacked(lowering, node)
    return None if alone else tensor_products.separated(lowering, node)


def _products(lowering: Lowering, node: Node) -> list[Node]:
    """Element-wise products ``[..., I, J, K]`` and their sum over K, in the way that moves least."""
    graph = lowering.graph
    (first, second), y = node.inputs, node.outputs[0]
    rows, columns = graph.shapes[y][-2:]
    inner = graph.shapes[first][-1]
    full = (*graph.shapes[y][:-2], rows, columns, inner)
    if math.prod(full) > (limit := lowering.config.native << VECTOR_ADDR_BITS):
        raise LayoutError(f"products of the elements {list(full)} must be at most {limit}, not {math.prod(full)}")
    rank = len(graph.shapes[second])
    build = NodeBuilder(lowering, node)
    a = build.add("Reshape", "rows", first, shape=(*graph.shapes[first][:-1], 1, inner))
    transposed = build.add("Transpose", "turned", second, perm=(*range(rank - 2), rank - 1, rank - 2))
    b = build.add("Reshape", "columns", transposed, shape=(*graph.shapes[second][:-2], 1, columns, inner))
    for factor in (first, second):
        lowering.whole(factor)
    names = a, b
    way = _way(lowering, (first, second), names, full)
    if way is not None:
        like = names[1 - way]
        names = build.add("Expand", "spread", names[way], shape=full, like=like), like
    products = build.add("Mul", "products", *names)
    together = {"together": (len(full) - 2,)} if math.prod(full[:-2]) == 1 else {}
    return build.ending("ReduceSum", products, axes=(len(full) - 1,), keepdims=False, product=True, **together)


def _way(lowering: Lowering, tensors: tuple[str, str], names: tuple[str, str], shape: tuple[int, ...]) -> int | None:
    """Index of the factor to move to the lanes of the other one; ``None`` if both are in the same lanes already."""
    storages, graph, config = lowering.done.storages, lowering.graph, lowering.config
    views = [lowering.view(tensors[0]), lowering.view(tensors[1]).swapaxes(-1, -2)]
    factors = [
        broadcast(storages, view.reshape(graph.shapes[name]), shape) for view, name in zip(views, names, strict=True)
    ]
    reasons = []
    try:
        if summable(shape, align(*factors).places[1], *(each.position for each in factors)):
            return None
    except LayoutError as error:
        reasons.append(str(error))
    ways = []
    for k in (0, 1):
        try:
            selection = select_lanes(factors[k], factors[1 - k], own_indices(shape, graph.shapes[names[1 - k]]))
            beats, steps = config.beats, factors[k].storage.tiles * config.native // config.lanes
            if summable(shape, selection.places[1], factors[k].position):
                ways.append(
                    (math.prod(selection.size) * (max(beats, steps) + (0 if selection.same_loops else beats)), k)
                )
        except LayoutError as error:
            reasons.append(str(error))
    if not ways:
        reasons = list(dict.fromkeys(reasons)) or ["what is added must be in one lane, or in one position"]
        raise LayoutError("factors do not meet: " + "; ".join(reasons))
    return min(ways)[1]


def softmax(lowering: Lowering, node: Node) -> list[Node]:
    """Maximum, difference, exponential, sum, reciprocal, product; for LogSoftmax logarithm and difference instead."""
    (x,), axis = node.inputs, node.attributes(SoftmaxAttributes).axis
    if (apart := groups_apart(lowering, node, (axis,))) is not None:
        return apart
    reduced = {"axes": (axis,), "keepdims": True}
    size = lowering.graph.shapes[x][axis]
    form = choose_form(lowering, x, (axis,))
    build = NodeBuilder(lowering, node)
    compared = x
    if form.inside and not form.walk.full:
        # A logarithm is no result to mask: lanes that nobody reads would share the exponent of its blocks.
        compared = masked(build, x, MASKED)
        x = compared if node.op == "Softmax" else x
    least = -_NEGLIGIBLE - math.log(size)
    top = build.add("ReduceMax", "maximum", compared, **reduced, masked=True)
    below = difference = build.add("Sub", "difference", x, top)
    if not form.inside and not form.walk.full:
        # Their exponentials would be large, and the others lose bits in the same block.
        below = masked(build, below)
    power = build.add("Function", "exp", below, functions=(("exp", {}),), domain=(least, 0.0))
    total = build.add("ReduceSum", "sum", power, **reduced)
    last = "log" if node.op == "LogSoftmax" else "reciprocal"
    factor = build.add("Function", last, total, functions=((last, {}),), domain=(1.0, float(max(size, 2))))
    return build.ending("Sub", difference, factor) if last == "log" else build.ending("Mul", power, factor)
