"""Products of two tensors on the tile engines, where programs write the matrix memory.

The first factor is what the product reads, position by position; the vectors of the second one are written as rows of
the matrix in front of it. Both must have the axis that is summed in the same lanes. Where an axis lies along positions,
a product with unit vectors moves it into lanes: the vectors are rows of a matrix, and each unit vector takes one lane
of all of them.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np

from concord.compiler.ir.layers import Layer, LayerWindow, MatrixRows, Reduction
from concord.compiler.ir.layout import LayoutError, Storage, Walk
from concord.compiler.lowering import legality
from concord.compiler.lowering.inputs import moved
from concord.compiler.lowering.lower import Computation, Lowering, NodeBuilder
from concord.graph.ir import Node
from concord.graph.ops import operator_of
from concord.spec.operations import Op
from concord.utils.arrays import Ids

#: Cycles that a chain waits for the one before, roughly.
CHAIN = 60
#: Name of the storage of unit vectors.
_UNIT_VECTORS = "unit vectors"


def separated(lowering: Lowering, node: Node) -> list[Node]:
    """Products of matrices in the place of one of stacks of them."""
    shapes, (y,) = lowering.graph.shapes, node.outputs
    stack, (rows, columns) = shapes[y][:-2], shapes[y][-2:]
    build = NodeBuilder(lowering, node)
    if prod(shapes[node.inputs[1]][:-2]) == 1:  # the same matrix for all rows
        factors = [
            build.add("Reshape", "matrix", name, shape=(prod(shapes[name][:-1]), shapes[name][-1]))
            for name in node.inputs
        ]
        return build.ending("Reshape", build.add("MatMul", "product", *factors), shape=shapes[y])
    parts = []
    for index in product(*map(range, stack)):
        factors = [
            build.add("Reshape", "matrix", _taken(build, name, index), shape=shapes[name][-2:]) for name in node.inputs
        ]
        part = build.add("MatMul", "product", *factors)
        parts.append(build.add("Reshape", "part", part, shape=(1, rows, columns)))
    whole = build.add("Concat", "products", *parts, axis=0) if len(parts) > 1 else parts[0]
    return build.ending("Reshape", whole, shape=shapes[y])


def _taken(build: NodeBuilder, name: str, index: tuple[int, ...]) -> str:
    """One matrix of a stack, axes of length 1 being broadcast."""
    shape = build.lowering.graph.shapes[name][:-2]
    own = index[len(index) - len(shape) :]
    places = [(axis, k) for axis, (k, size) in enumerate(zip(own, shape, strict=True)) if size > 1]
    if not places:
        return name
    axes, starts = zip(*places, strict=True)
    stops, steps = tuple(k + 1 for k in starts), (1,) * len(starts)
    return build.add("Slice", "taken", name, axes=axes, starts=starts, stops=stops, steps=steps)


def by_columns(lowering: Lowering, node: Node) -> list[Node] | None:
    """A stack of products of one row each, as one product that reads the second factor and has the rows as its matrix.

    Each row of the matrix has the elements of one matrix of the stack, and zeros in the lanes of the others. So columns
    stay where they are, such as the keys of a decoder, and only the rows are written. ``None`` if the columns of all
    matrices do not lie beside each other.
    """
    shapes, (first, second), (y,) = lowering.graph.shapes, node.inputs, node.outputs
    stack, (rows, inner), columns = prod(shapes[first][:-2]), shapes[first][-2:], shapes[second][-1]
    if rows != 1 or columns == 1 or stack > lowering.config.native or shapes[first][:-2] != shapes[second][:-2]:
        return None
    if _beside(lowering, _factors(lowering, node)[1]) is None:
        return None
    build, size = NodeBuilder(lowering, node), stack * inner
    apart = np.kron(np.eye(stack), np.ones(inner))
    flat = build.add("Reshape", "row", first, shape=(1, size))
    blocks = build.add("Mul", "rows", flat, constant=apart)
    each = build.add("Reshape", "each", second, shape=(stack, inner, columns))
    by_column = build.add("Transpose", "by column", each, perm=(2, 0, 1))
    read = build.add("Reshape", "columns", by_column, shape=(columns, size))
    matrix = build.add("Transpose", "matrix", blocks, perm=(1, 0))
    scores = build.add("MatMul", "product", read, matrix)
    by_row = build.add("Transpose", "by row", scores, perm=(1, 0))
    return build.ending("Reshape", by_row, shape=shapes[y])


def cycles_by_columns(lowering: Lowering, node: Node) -> int:
    """Estimate of the cycles of a stack of products where the second factor is read (:func:`by_columns`)."""
    config, shapes = lowering.config, [lowering.graph.shapes[name] for name in node.inputs]
    stack, columns = prod(lowering.graph.shapes[node.outputs[0]][:-2]), shapes[1][-1]
    cols = -(-stack * shapes[0][-1] // config.native)
    return stack * cols * config.beats + columns * max(config.beats, cols * config.steps) + 3 * CHAIN


def is_stacked(lowering: Lowering, node: Node) -> bool:
    """True if one product computes a stack of them: each has its vectors beside the others', and one tile of rows."""
    shapes, native = [lowering.graph.shapes[name] for name in node.inputs], lowering.config.native
    if shapes[0][:-2] != shapes[1][:-2] or lowering.config.engines > 1 or shapes[1][-1] > native:
        return False
    return all(
        _beside(lowering, ids) is not None or _transposable(lowering, ids.swapaxes(1, 2))
        for ids in _factors(lowering, node)
    )


def cycles(lowering: Lowering, node: Node) -> int:
    """Estimate of the cycles of the products of a node, with the chains that write their matrices."""
    config, shapes = lowering.config, [lowering.graph.shapes[name] for name in node.inputs]
    stack, (rows, inner), columns = prod(lowering.graph.shapes[node.outputs[0]][:-2]), shapes[0][-2:], shapes[1][-1]
    chains = 1 if is_stacked(lowering, node) else stack

    def product(rows: int, inner: int, columns: int) -> int:
        """Cycles of the matrix and of all rows; three chains."""
        cols, tiles = -(-inner // config.native), -(-columns // config.native)
        written = columns * cols * config.beats
        return stack * (written + rows * tiles * max(config.beats, cols * config.steps)) + 3 * chains * CHAIN

    _, second = _factors(lowering, node)
    try:
        lies_well = len(lowering.done.storages.of(second)) > 1 or bool(
            lowering.done.storages.walk(second[:1], "factor")
        )
    except LayoutError:
        lies_well = False
    return product(rows, inner, columns) + (0 if lies_well else product(columns, config.native, inner))


def _transposable(lowering: Lowering, ids: Ids) -> bool:
    """True if matrices ``[stack, positions, lanes]`` of one vector per position are transposed together."""
    walk = _beside(lowering, ids)
    return walk is not None and walk.tiles == len(ids) and ids.shape[1] <= lowering.config.native


def _factors(lowering: Lowering, node: Node) -> tuple[Ids, Ids]:
    """Elements of the factors: ``[stack, positions, summed]``, of the second one by its columns."""
    first, second = (lowering.view(name) for name in node.inputs)
    a, b = (ids.reshape(-1, *ids.shape[-2:]) for ids in (first, second))
    return a, b.swapaxes(1, 2)


def _beside(lowering: Lowering, ids: Ids) -> Walk | None:
    """Loops for matrices ``[stack, positions, lanes]`` whose vectors lie beside each other, each in equal lanes."""
    storages = lowering.done.storages
    if (ids < 0).any() or len(storages.of(ids)) != 1:
        return None
    stack, positions, lanes = ids.shape
    try:
        walk = storages.walk(ids.swapaxes(0, 1).reshape(1, positions, stack * lanes), "factors")
    except LayoutError:
        return None
    places = walk.lanes.reshape(stack, lanes)
    begins = np.arange(stack)[:, None] * (walk.tiles // stack * lowering.config.native)
    return walk if walk.tiles % stack == 0 and np.array_equal(places, places[0] + begins) else None


def channels_of_stack(lowering: Lowering, tensor: str, axis: int) -> Ids | None:
    """Channels of a tensor by the matrix of a stack that they are part of, ``[stack, size]``, where that is multiplied.

    In native vectors of their own, matrices meet others in the same lanes, and all of a stack may be one product.
    ``None`` if there is more than views between the tensor and a product of stacks.

    Parameters
    ----------
    tensor : str
        The result of a product with constant weights.
    axis : int
        Axis of its channels.
    """
    graph, name = lowering.graph, tensor
    shape = graph.shapes[tensor]
    ids = np.arange(prod(shape)).reshape(shape)
    while lowering.config.has(Op.M_WR) and name not in graph.outputs:
        reader, *others = graph.consumers(name)
        if any(other is not reader for other in others):
            return None
        if reader.op == "MatMul":
            if ids.ndim < 3:
                return None
            channel = ids // prod(shape[axis + 1 :]) % shape[axis]
            groups = list({tuple(np.unique(part).tolist()) for part in channel.reshape(-1, prod(ids.shape[-2:]))})
            apart = len({len(group) for group in groups}) == 1 and sum(map(len, groups)) == shape[axis]
            return np.array(sorted(groups)) if apart and len(set().union(*groups)) == shape[axis] else None
        moves = operator_of(reader).view and set(reader.inputs) == {name} and len(reader.outputs) == 1
        if not moves or reader.op == "Pad":  # what is padded has elements of no channel
            return None
        ids, (name,) = moved(reader, [ids] * len(reader.inputs)), reader.outputs
    return None


def tensor_product(lowering: Lowering, node: Node) -> None:
    """A product of two matrices, or of a stack of them."""
    a, b = _factors(lowering, node)
    source, rows = _aligned_walks(lowering, node, a, b)
    native, (stack, columns, _) = lowering.config.native, b.shape
    tiles = -(-columns // native)

    size = (1, source.width, stack * tiles)
    work = Computation(Reduction.DENSE, stack=stack)
    layer = lowering.add(node, source, work, size, lambda target: _matrices(target, stack, columns))
    used = np.zeros(rows.tiles * native)
    used[rows.lanes] = 1.0
    layer.rows = MatrixRows(rows, node.inputs[1], None if used.all() else used.reshape(-1, native))
    legality.check(layer, lowering.config)


def _aligned_walks(lowering: Lowering, node: Node, a: Ids, b: Ids) -> tuple[Walk, Walk]:
    """Loops for two stacks of matrices ``[stack, positions, lanes]`` with the same lanes, few of them transposed."""
    if (a < 0).any() or (b < 0).any():
        raise LayoutError("factors must be computed, none of their elements be padding")
    done = len(lowering.done.layers)
    for transpositions in ((False, False), (False, True), (True, False), (True, True)):
        try:
            source, rows = (
                _walk(lowering, ids, f"{node.name}/{what} transposed" if transpose else None, node)
                for what, ids, transpose in zip(("first", "second"), (a, b), transpositions, strict=True)
            )
        except LayoutError:
            _leave_out(lowering, done)
            continue
        if source.tiles == rows.tiles and np.array_equal(source.lanes, rows.lanes):
            return source, rows
        _leave_out(lowering, done)
    raise LayoutError("what is summed must be in the same lanes of both factors")


def _leave_out(lowering: Lowering, done: int) -> None:
    """Leave out the layers after the first ``done``, which have transposed factors."""
    for layer in lowering.done.layers[done:]:
        del lowering.done.copied[layer.name]
    del lowering.done.layers[done:]


def _walk(lowering: Lowering, ids: Ids, transposed: str | None, node: Node) -> Walk:
    """Loops for matrices ``[stack, positions, lanes]``; with a name they are transposed in front of that."""
    ids = _transposed(lowering, node, transposed, ids.swapaxes(1, 2)) if transposed else ids
    walk = lowering.walk(ids, "factor") if len(ids) == 1 else _beside(lowering, ids)
    if walk is None:
        raise LayoutError("factors must lie beside each other")
    return walk


def _transposed(lowering: Lowering, node: Node, name: str, ids: Ids) -> Ids:
    """The elements ``[stack, lanes, positions]`` of matrices ``[stack, positions, lanes]``, the other axis in lanes."""
    done, native, (stack, count, channels) = lowering.done, lowering.config.native, ids.shape
    walk = lowering.walk(ids, "factor") if stack == 1 else _beside(lowering, ids)
    if walk is None or (stack > 1 and walk.tiles > stack):
        raise LayoutError("factors must lie beside each other")
    units = _unit_vectors(lowering)
    whole = done.storages.new(name, 1, channels, stack * -(-count // native) * native)
    legality.check_storage(whole)
    places = walk.lanes[:channels]
    cuts = [0, *(np.flatnonzero(_breaks(places, native)) + 1).tolist(), channels]
    for k, (begin, end) in enumerate(pairwise(cuts)):
        tile, lane = divmod(int(places[begin]), native)
        source = Walk(units, lane, 1, end - begin, stack, 0, 1, np.arange(native), 0)
        part = done.storages.new(f"{name}.{k}", 1, end - begin, whole.tiles * native)
        part.place(whole, begin * whole.tiles, channels * whole.tiles, whole.tiles)
        rows = Walk(walk.storage, walk.start + tile, 1, count, stack, walk.row_stride, walk.stride, np.arange(native))
        where = (part.name, part, _matrices(part, stack, count).reshape(-1), units.name)
        size = (1, end - begin, whole.tiles)
        layer = Layer(part.name, source, Reduction.DENSE, None, LayerWindow(), size, *where, stack=stack)
        layer.nodes.append(node.name)
        layer.rows = MatrixRows(rows, walk.storage.name)
        legality.check(layer, lowering.config)
        done.layers.append(layer)
        done.copied[layer.name] = ids[..., begin:end].swapaxes(1, 2).reshape(-1)
    return _matrices(whole, stack, count)


def _matrices(storage: Storage, stack: int, count: int) -> Ids:
    """Elements ``[stack, positions, count]`` of matrices that lie beside each other."""
    lanes = storage.view(storage.tiles * storage.native).reshape(storage.width, stack, -1)[..., :count]
    return np.asarray(lanes.swapaxes(0, 1))


def _breaks(lanes: Ids, native: int) -> Ids:
    """Mask of places where neighbouring channels are not in neighbouring lanes of one vector."""
    return np.asarray((np.diff(lanes) != 1) | (np.diff(lanes // native) != 0))


def _unit_vectors(lowering: Lowering) -> Storage:
    """The storage of a vector for every lane, which is one there and zero elsewhere."""
    done, native = lowering.done, lowering.config.native
    for storage in done.constants:
        if storage.name == _UNIT_VECTORS:
            return storage
    storage = done.storages.new(_UNIT_VECTORS, 1, native, native)
    storage.fixed = True
    done.constants[storage] = np.eye(native)
    return storage
