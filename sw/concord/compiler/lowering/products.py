"""Convolutions, matrix products, pooling and means: everything that reduces a window."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from concord.compiler.ir.layers import Border, Layer, LayerWindow, MfuStep, Reduction, pair
from concord.compiler.ir.layout import PAD, LayoutError, Storage, Walk, placed, spread
from concord.compiler.ir.quantized import held_weight
from concord.compiler.lowering import operands
from concord.compiler.lowering.inputs import as_map
from concord.compiler.lowering.lower import Computation, Lowering
from concord.compiler.lowering.padding import framed
from concord.compiler.lowering.reductions import groups_of_reader, places_apart, power_below
from concord.compiler.lowering.tensor_products import channels_of_stack
from concord.compiler.lowering.unfolding import unfolded
from concord.graph.ir import Node
from concord.graph.ops import divisors
from concord.graph.ops.linear import AffineAttributes, ConvAttributes, WeightedSumAttributes, ungrouped
from concord.graph.ops.moving import SliceAttributes
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes, WindowAttributes
from concord.spec.isa import Op
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import LARGEST_SPREAD, check_size, eye


def from_map(target: Storage, walk_lanes: Ids, rank: int) -> Ids:
    """The view ``[1, C, *spatial]`` of a storage whose channels are in ``walk_lanes``."""
    ids = target.view(target.tiles * target.native)[..., walk_lanes]
    return np.asarray(ids.transpose(2, 0, 1)[None] if rank == 2 else ids[0].T[None])


def _geometry(node: Node, kernel: tuple[int, ...], size: tuple[int, int]) -> LayerWindow:
    return LayerWindow.of(node.attributes(WindowAttributes), kernel, size)


def _counts(lowering: Lowering, node: Node) -> tuple[int, int]:
    return pair(lowering.graph.shapes[node.outputs[0]][2:])


def _bias(lowering: Lowering, node: Node, layer: Layer, axis: int, rows: Ids, offset: float = 0.0) -> None:
    """Add the bias, one number per index of an axis, unless it is zero.

    It takes over the mean of what the rounding of weights changes, and the ``offset`` of the input; ``rows``
    are those of the weights by output.
    """
    bias = node.attributes(AffineAttributes).bias
    if bias.any():
        bias = bias + _chosen_shift(lowering, node) + _shift(lowering, node, layer)[rows]
        if offset:
            bias = bias + offset * _rounded(lowering, layer).sum(axis=(1, 2, 3))[rows]
        shape = [1] * layer.ids.ndim
        shape[axis] = -1
        layer.mfu_ops.append(MfuStep(Op.VV_ADD, operands.constant(bias.reshape(shape), layer.ids, layer.target)))


def _weight(lowering: Lowering, node: Node) -> FloatArray:
    """The weights of a node, or what formats have in their place."""
    weight = node.attributes(AffineAttributes).weight
    chosen = lowering.formats.weights.get(node.name, weight)
    if chosen.shape != weight.shape:
        raise ValueError(f"weights of {node.name} must have the shape {weight.shape}, not {chosen.shape}")
    return chosen


def _chosen_shift(lowering: Lowering, node: Node) -> FloatArray:
    """Mean of what every output loses by the weights that formats have in the place of its own."""
    mean = lowering.formats.means.get(node.name)
    attributes = node.attributes(AffineAttributes)
    lost = attributes.weight - _weight(lowering, node)
    if mean is None or not lost.any():
        return np.zeros(len(lost))
    group = attributes.group if isinstance(attributes, ConvAttributes) else 1
    taps = lost.reshape(group, len(lost) // group, lost.shape[1], -1).sum(axis=3)
    return np.asarray(np.einsum("goc,gc->go", taps, np.reshape(mean, (group, -1))).reshape(-1))


def _shift(lowering: Lowering, node: Node, layer: Layer) -> FloatArray:
    """Mean of what every row of the weights loses by rounding, where the mean input is known."""
    weight, mean = layer.weight, lowering.formats.means.get(node.name)
    assert weight is not None
    if mean is None:
        return np.zeros(weight.size)
    lost = weight - _rounded(lowering, layer)
    # Taps that the host has unfolded are channels of the walk; an element that is several channels has one mean.
    lanes, channels = layer.source.lanes, np.zeros(layer.source.tiles * lowering.config.native)
    channels[lanes[lanes != PAD]] = np.tile(mean, len(lanes) // len(mean))[lanes != PAD]
    return np.asarray(
        lost.sum(axis=(1, 2)) * channels
        if layer.reduction is Reduction.DEPTHWISE
        else (lost * channels).sum(axis=(1, 2, 3))
    )


def _rounded(lowering: Lowering, layer: Layer) -> FloatArray:
    """The weights as the tile engines have them."""
    return held_weight(layer, lowering.config, lowering.formats.mantissa(layer, lowering.config))


def conv(lowering: Lowering, node: Node) -> None:
    """A convolution: depthwise where every channel has its own kernel, else dense."""
    weight, attributes = _weight(lowering, node), node.attributes(ConvAttributes)
    group = attributes.group
    rank = weight.ndim - 2
    weight = weight if rank == 2 else weight[:, :, None]
    source, offset = "", 0.0
    if group == 1 and (packed := unfolded(lowering, node, weight)) is not None:
        source, ids, weight, window = packed
    else:
        ids = as_map(lowering.view(node.inputs[0]))
        window = _geometry(node, weight.shape[2:] if rank == 2 else weight.shape[3:], (ids.shape[0], ids.shape[1]))
    height, width = _counts(lowering, node)
    made_up = attributes.bias.any() or source in lowering.formats.input_offsets  # by a bias, or by what follows
    if source and made_up and not window.padded((height, width)):
        lowering.done.offsettable.add(source)
        offset = lowering.formats.input_offsets.get(source, 0.0)
    walk = lowering.walk(ids, "input")
    if group > 1 and group == ids.shape[2] == len(weight) and walk.distinct:
        layer = _depthwise(lowering, node, walk, weight[:, 0], window, (height, width), rank)
        channels = walk.lanes
    else:
        full = spread(ungrouped(weight, group).transpose(0, 2, 3, 1), walk)
        channels, full = _aligned(lowering, node, 1, full)
        tiles = -(-len(full) // lowering.config.native)
        work = Computation(Reduction.DENSE, full, window)
        layer = lowering.add(node, walk, work, (height, width, tiles), lambda t: from_map(t, channels, rank))
    _bias(lowering, node, layer, 1, channels, offset)


def _aligned(lowering: Lowering, node: Node, axis: int, weight: FloatArray) -> tuple[Ids, FloatArray]:
    """Elements of a position for the outputs of a product, and its weights with rows of zeros for the others.

    Where what follows takes the outputs apart, every part begins with a native vector of its own, so that parts can
    meet in element-wise operations. Groups of outputs that are compared with each other are written apart, unless that
    takes more steps than to move them.
    """
    count, native = len(weight), lowering.config.native
    groups = groups_of_reader(lowering, node.outputs[0], axis)
    if groups is not None:
        where = np.empty(count, np.int64)
        where[groups] = places_apart(groups.shape[0], groups.shape[1], native)
        before, after = -(-count // native), int(where.max()) // native + 1
        if (after - before) * math.prod(weight.shape[1:]) <= after * before * native:
            return where, _placed_rows(weight, where)
    stack = channels_of_stack(lowering, node.outputs[0], axis)
    if stack is not None:
        where = np.empty(count, np.int64)
        size = -(-stack.shape[1] // native) * native
        where[stack] = np.arange(len(stack))[:, None] * size + np.arange(stack.shape[1])
        return where, _placed_rows(weight, where)
    cuts = {0, count}
    for reader in lowering.graph.consumers(node.outputs[0]):
        if reader.op != "Slice":
            continue
        part = reader.attributes(SliceAttributes)
        if axis in part.axes and part.steps[k := part.axes.index(axis)] == 1:
            cuts |= {part.starts[k], part.stops[k]}
    places: list[int] = []
    for begin, end in pairwise(sorted(cuts)):
        first = -(-(places[-1] + 1) // native) * native if places else 0
        places += range(first, first + end - begin)
    return np.array(places), _placed_rows(weight, np.array(places))


def _placed_rows(weight: FloatArray, places: Ids) -> FloatArray:
    """Weights with their rows at ``places``, and zeros elsewhere."""
    shape = int(places.max()) + 1, *weight.shape[1:]
    check_size("weights between rows of zeros", *shape, most=LARGEST_SPREAD)
    full = np.zeros(shape)
    full[places] = weight
    return full


def _depthwise(
    lowering: Lowering, node: Node, walk: Walk, weight: FloatArray, window: LayerWindow, out: tuple[int, int], rank: int
) -> Layer:
    """A product of every channel with its own kernel ``[C, kh, kw]``: channels stay in their lanes.

    Those that are the same element have the same kernel.
    """
    kernels = placed(weight.transpose(1, 2, 0), walk).transpose(2, 0, 1)
    work = Computation(Reduction.DEPTHWISE, kernels, window)
    return lowering.add(node, walk, work, (*out, walk.tiles), lambda target: from_map(target, walk.lanes, rank))


def dense(lowering: Lowering, node: Node) -> None:
    """A matrix product of the last axis, at every position of the others."""
    ids = lowering.view(node.inputs[0])
    walk = lowering.walk(ids.reshape(1, -1, ids.shape[-1]), "input")
    weight = spread(_weight(lowering, node), walk)
    channels, full = _aligned(lowering, node, ids.ndim - 1, weight[:, None, None])
    tiles = -(-len(full) // lowering.config.native)

    def view(target: Storage) -> Ids:
        return target.view(target.tiles * target.native)[..., channels]

    layer = lowering.add(node, walk, Computation(Reduction.DENSE, full), (1, walk.width, tiles), view)
    _bias(lowering, node, layer, -1, channels)


def weighted_sum(lowering: Lowering, node: Node) -> None:
    """A product of two tensors: one weight each, in two taps that read the same vectors.

    The first tap has the upper bits of the weights, the second one the rest: each has an exponent of its own. Both
    tensors are read where they are, by a row of the window each, or lie beside each other.
    """
    attributes, config = node.attributes(WeightedSumAttributes), lowering.config
    views = [np.moveaxis(lowering.view(name), attributes.axis, -1)[0] for name in node.inputs]
    size = views[0].shape
    maps = [view.reshape(*(1,) * (3 - len(size)), *size) for view in views]
    upper = config.wgt_mant - 1
    digits = [divide_weight(weight, config.wgt_mant) for weight in attributes.weights]
    own = eye("a weighted sum", size[-1])
    weights = [np.stack([own * high * 2.0**upper, own * low], axis=1)[:, None] for high, low in digits]
    walks = _at_equal_distances(lowering, maps)
    if walks is None:
        walk, second = lowering.walk(np.concatenate(maps, axis=-1), "input"), None
        weight = spread(np.concatenate(weights, axis=-1), walk)
    else:
        walk, second = walks
        weight = np.concatenate([spread(part, place) for part, place in zip(weights, walks, strict=True)], axis=1)
    channels, full = _aligned(lowering, node, attributes.axis, np.ldexp(weight, attributes.unit))
    out = walk.height, walk.width, -(-len(full) // config.native)

    def view(target: Storage) -> Ids:
        lanes = target.view(target.tiles * target.native)[..., channels]
        return np.asarray(np.moveaxis(lanes.reshape(1, *size), -1, attributes.axis))

    window = LayerWindow(kernel=(weight.shape[1], 2), dilation=(1, 0))
    lowering.add(node, walk, Computation(Reduction.DENSE, full, window), out, view).second = second


def _at_equal_distances(lowering: Lowering, maps: list[Ids]) -> tuple[Walk, Walk] | None:
    """Walks through two tensors, each in a storage, whose vectors have equal distances; one may get room for that."""
    try:
        first, second = (lowering.done.storages.walk(ids, "input") for ids in maps)
        places = [walk.in_root() for walk in (first, second)]
    except LayoutError:
        return None
    a, b = places
    if (a.tiles, a.row, a.stride) != (b.tiles, b.row, b.stride) or a.row != 1:
        return None
    equal = a.row_stride == b.row_stride
    equal = equal or _widened(lowering, second, a.row_stride) or _widened(lowering, first, b.row_stride)
    return (first, second) if equal else None


def _widened(lowering: Lowering, walk: Walk, row: int) -> bool:
    """True if rows of a layer that computes what is walked are ``row`` vectors apart from now on."""
    storage, tiles = walk.storage, walk.storage.tiles
    makers = [layer for layer in lowering.done.layers if layer.target is storage]
    whole = walk.start, walk.height, walk.width, walk.tiles, walk.row_stride, walk.stride
    plain = whole == (0, storage.height, storage.width, tiles, storage.width * tiles, tiles)
    if not plain or row <= storage.width * tiles or row % tiles or len(makers) != 1:
        return False
    size = storage.height, row // tiles
    if not isinstance(layer := makers[0], Layer) or (frame := framed(lowering, storage, (0, 0), size)) is None:
        return False
    layer.border = Border(None, frame, 0, 0, storage.height, storage.width)
    return True


def divide_weight(weight: int, mant: int) -> tuple[int, int]:
    """Upper bits and rest of a whole number: each has mantissas of ``mant`` bits; ``ValueError`` if they do not."""
    base = 1 << mant - 1
    upper = (weight + base // 2) // base
    if abs(upper) >= base:
        raise ValueError(f"weight must have two mantissas of {mant} bits, not be {weight!r}")
    return upper, weight - upper * base


def largest_weight(mant: int) -> int:
    """The greatest number that :func:`divide_weight` takes."""
    base = 1 << mant - 1
    return (base - 1) * base + base // 2 - 1


def _pooled(lowering: Lowering, node: Node) -> tuple[Walk, LayerWindow, int]:
    """Source of a pooling, its window, and its number of spatial axes."""
    kernel, ids = node.attributes(PoolAttributes).kernel, as_map(lowering.view(node.inputs[0]))
    window = _geometry(node, kernel, (ids.shape[0], ids.shape[1]))
    return lowering.walk(ids, "input"), window, len(kernel)


def max_pool(lowering: Lowering, node: Node) -> None:
    """The maximum of every window."""
    walk, window, rank = _pooled(lowering, node)
    out = (*_counts(lowering, node), walk.tiles)
    work = Computation(Reduction.MAX, window=window)
    lowering.add(node, walk, work, out, lambda target: from_map(target, walk.lanes, rank))


def average_pool(lowering: Lowering, node: Node) -> None:
    """Sums of every window by a depthwise product with a power of two, times what is left of the reciprocal count."""
    (walk, window, rank), shape = _pooled(lowering, node), lowering.graph.shapes[node.inputs[0]]
    share = power_below(math.prod(window.kernel), lowering.config)
    equal = np.full((shape[1], *window.kernel), share)
    layer = _depthwise(lowering, node, walk, equal, window, _counts(lowering, node), rank)
    factors = 1.0 / (share * divisors(node.attributes(AveragePoolAttributes), shape[2:]))
    layer.mfu_ops.append(MfuStep(Op.VV_MUL, operands.constant(factors, layer.ids, layer.target)))
