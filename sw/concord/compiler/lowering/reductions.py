"""Sums, means and maxima over axes: of positions by a window over them, of the elements of a position by a product.

Which axes of a tensor are positions and which are lanes is found out from its view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from concord.compiler.ir.layers import Layer, LayerWindow, MfuStep, Reduction
from concord.compiler.ir.layout import LayoutError, Storage, Walk, placed, spread
from concord.compiler.lowering import inputs, large_windows, operands
from concord.compiler.lowering.lower import Computation, Lowering, NodeBuilder
from concord.graph.ir import Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import (
    AlignGroupsAttributes,
    ReduceMaxAttributes,
    ReductionAttributes,
    SoftmaxAttributes,
    SumAttributes,
)
from concord.operations import OPERATIONS
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.spec.isa import Op
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import check_size, zeros

#: Operators on every element by itself where they have no second operand.
_EACH = frozenset(["Clip", "Function", *(operation.node for operation in OPERATIONS.values() if operation.node)])


@dataclass(frozen=True)
class Form:
    """Form in which a tensor is walked to reduce some of its axes.

    Parameters
    ----------
    inside : bool
        The reduced elements are in one position; else each is in a position of its own.
    walk : Walk
        Rows and positions of the result by what is reduced; or, inside, rows and positions of the result.
    outside, lanes : tuple of int
        Axes that stay: those that are positions of the result, and those that are its lanes.
    """

    inside: bool
    walk: Walk
    outside: tuple[int, ...]
    lanes: tuple[int, ...]

    @property
    def kernel(self) -> tuple[int, int]:
        """The window over positions or, inside, over native vectors of one position."""
        if self.inside:
            return 1, self.walk.tiles
        return (1 if self.outside else self.walk.height), self.walk.width

    def cost(self, shape: Sequence[int], config: NpuConfig) -> int:
        """About how many cycles it takes."""
        positions = prod(shape[axis] for axis in self.outside)
        if not self.inside:
            return positions * self.walk.tiles * max(config.beats, self.walk.width)
        rows = -(-prod(shape[axis] for axis in self.lanes) // config.native)
        return positions * rows * max(config.beats, self.walk.tiles * config.native // config.lanes)


def choose_form(lowering: Lowering, tensor: str, axes: Sequence[int], together: Sequence[int] = ()) -> Form:
    """The cheapest way to walk a tensor that is reduced over ``axes``; those ``together`` become lanes if they can.

    Raises
    ------
    LayoutError
        If what is reduced is spread over lanes and positions in another way than whole axes.
    """
    return form_of_view(lowering, lowering.whole(tensor), axes, together)


def form_of_view(lowering: Lowering, ids: Ids, axes: Sequence[int], together: Sequence[int] = ()) -> Form:
    """Form of :func:`choose_form` for a view that lies in one storage."""
    forms = list(forms_of_view(lowering, ids, axes))
    if not forms:
        raise LayoutError(f"axes {list(axes)} must be positions or lanes of a position")
    wanted = [form for form in forms if together and set(form.lanes) == set(together)]
    wanted = wanted or [form for form in forms if not form.inside]
    if not wanted:
        least = min(len(form.lanes) for form in forms)  # what stays outside meets others, alone even in any lane
        wanted = [form for form in forms if len(form.lanes) == least]
    return min(wanted, key=lambda form: (form.cost(ids.shape, lowering.config), len(form.lanes)))


def _form_of(lowering: Lowering, node: Node) -> Form:
    """The form of a reduction, by its attributes."""
    attributes = node.attributes(ReductionAttributes)
    together = attributes.together if isinstance(attributes, SumAttributes) else None
    return choose_form(lowering, node.inputs[0], attributes.axes, together or ())


def forms_of_view(lowering: Lowering, ids: Ids, axes: Sequence[int]) -> Iterator[Form]:
    """All ways to walk a view that lies in one storage and is reduced over ``axes``."""
    axes = [axis for axis in axes if ids.shape[axis] > 1]
    kept = [axis for axis in range(ids.ndim) if axis not in axes and ids.shape[axis] > 1]
    ones = [axis for axis in range(ids.ndim) if axis not in axes and ids.shape[axis] == 1]
    count = prod(ids.shape[axis] for axis in axes)
    for size in range(len(kept) + 1):
        for lanes in combinations(kept, size):
            outside = tuple(axis for axis in kept if axis not in lanes)
            places = prod(ids.shape[axis] for axis in outside)
            width = ids.shape[outside[-1]] if outside else 1
            height = places if outside or len(axes) < 2 else ids.shape[axes[0]]
            by_window = ids.transpose(*ones, *outside, *axes, *lanes).reshape(height, places * count // height, -1)
            inside = ids.transpose(*ones, *outside, *lanes, *axes).reshape(places // width, width, -1)
            for whether, view in ((False, by_window), (True, inside)):
                try:
                    walk = lowering.done.storages.walk(view, "input")
                except LayoutError:
                    continue
                yield Form(whether, walk, outside, lanes)


def power_below(count: int, config: NpuConfig) -> float:
    """A weight for a mean of ``count`` elements: with ones a sum may be beyond binary16 where the mean is not.

    Elements that do not count, as padding, make the sum no larger.
    """
    return float(2.0 ** max(1 - count.bit_length(), config.wgt_exp_min))


def reduce(lowering: Lowering, node: Node) -> None:
    """A sum, mean or maximum."""
    tensor, axes = node.inputs[0], node.attributes(ReductionAttributes).axes
    shape = lowering.graph.shapes[tensor]
    form = _form_of(lowering, node)
    count = prod(shape[axis] for axis in axes) if node.op == "ReduceMean" else 1
    share = power_below(count, lowering.config)
    layer = (_inside if form.inside else _by_window)(lowering, node, form, shape, share)
    if share * count != 1:
        factor = np.full(layer.ids.shape, 1.0 / (share * count))
        layer.mfu_ops.append(MfuStep(Op.VV_MUL, operands.constant(factor, layer.ids, layer.target)))


def _view(form: Form, shape: Sequence[int], lanes: Ids, target: Storage) -> Ids:
    """Elements of a result in the order of the axes that stay."""
    ids = target.view(target.tiles * target.native)[..., lanes]
    order = (*form.outside, *form.lanes)
    return np.asarray(ids.reshape([shape[axis] for axis in order]).transpose(np.argsort(order)))


def _by_window(lowering: Lowering, node: Node, form: Form, shape: Sequence[int], share: float) -> Layer:
    """Reduced elements are in positions of their own, in the same lane: a depthwise product, or a maximum.

    The product is with ``share``, a power of two.
    """
    walk = form.walk
    rows, kernel = walk.height // form.kernel[0], form.kernel
    maximum = node.op == "ReduceMax"
    ones = None if maximum else placed(np.full((*kernel, len(walk.lanes)), share), walk).transpose(2, 0, 1)
    work = Computation(Reduction.MAX if maximum else Reduction.DEPTHWISE, ones, LayerWindow(kernel=kernel))
    size = (rows, 1, walk.tiles)
    return lowering.add(node, walk, work, size, lambda target: _view(form, shape, walk.lanes, target))


def _inside(lowering: Lowering, node: Node, form: Form, shape: Sequence[int], share: float) -> Layer:
    """The reduced elements are lanes of one position: a product with ``share`` or zero, or a maximum over all lanes."""
    walk = form.walk
    groups = prod(shape[axis] for axis in form.lanes)
    if node.op == "ReduceMax":
        return _maximum_of_lanes(lowering, node, form, shape)
    uniform = groups == 1
    check_size("sums of groups of elements", groups, len(walk.lanes))
    ones = np.kron(np.eye(groups), np.full((1, len(walk.lanes) // groups), share))
    rows: FloatArray = np.repeat(ones, lowering.config.native if uniform else 1, axis=0)
    weight = spread(rows, walk)
    size = (walk.height, walk.width, -(-len(weight) // lowering.config.native))
    work = Computation(Reduction.DENSE, weight[:, None, None])
    layer = lowering.add(node, walk, work, size, lambda target: _view(form, shape, np.arange(groups), target))
    layer.target.uniform = uniform
    return layer


def _maximum_of_lanes(lowering: Lowering, node: Node, form: Form, shape: Sequence[int]) -> Layer:
    walk = form.walk
    if form.lanes or walk.gaps:
        raise LayoutError("maximum must be over all elements of a position, not over some of them")
    if not walk.full and not node.attributes(ReduceMaxAttributes).masked:
        raise LayoutError("maximum must be over whole native vectors")
    # Maxima are one after the other in the order of what is read, which may be another one than that of the axes.
    firsts = (np.arange(walk.height)[:, None] * walk.row_stride + np.arange(walk.width) * walk.stride).reshape(-1)
    order = np.argsort(firsts)
    strides = np.diff(firsts[order])
    if len(set(strides.tolist())) > 1:
        raise LayoutError("maximum must be over positions at equal distances")
    count, stride = len(firsts), int(strides[0]) if len(firsts) > 1 else 0
    start = walk.start + int(firsts.min())
    vectors = Walk(walk.storage, start, count, walk.tiles, 1, stride, 1, np.arange(walk.storage.native))

    def view(target: Storage) -> Ids:
        ids = target.view(target.native).reshape(count, -1)[np.argsort(order), :1]
        return np.asarray(ids.reshape([shape[axis] for axis in form.outside]))

    work = Computation(Reduction.LANES, window=LayerWindow(kernel=(1, walk.tiles)))
    layer = lowering.add(node, vectors, work, (count, 1, 1), view)
    layer.target.uniform = True
    return layer


def masked(build: NodeBuilder, tensor: str, low: float = -float(BINARY16_MAX)) -> str:
    """The tensor with a low number in padding lanes, the least one there is unless told otherwise."""
    return build.add("Min", "masked", tensor, constant=np.asarray(float(BINARY16_MAX)), beyond=low)


def groups_apart(lowering: Lowering, node: Node, axes: Sequence[int]) -> list[Node] | None:
    """A node after another one that moves every group over which a maximum runs to native vectors of its own.

    ``None`` if groups have vectors of their own, each after the other.

    Raises
    ------
    LayoutError
        If groups that have been moved have none: their order is none that loops lead through.
    """
    (tensor,) = node.inputs
    form = choose_form(lowering, tensor, axes)
    if not (form.inside and (form.lanes or form.walk.gaps)):
        return None
    producer = lowering.graph.producer(tensor)
    if producer is not None and producer.op == "AlignGroups":
        raise LayoutError("groups of elements must have native vectors of their own")
    moved = lowering.new_node(node, "AlignGroups", "apart", (tensor,), axes=tuple(axes))
    return [moved, node.replace(inputs=moved.outputs)]


def places_apart(groups: int, size: int, native: int) -> Ids:
    """Elements of a position, ``[groups, size]``, at which no two groups are in the same lane of the same vector.

    Either every group begins with a native vector, or there is a vector for the first elements of all groups, and so
    on, whatever takes fewer vectors.
    """
    by_group, by_element = groups * -(-size // native), size * -(-groups // native)
    group, element = np.ogrid[:groups, :size]
    if by_group <= by_element:
        return np.asarray(group * (by_group // groups * native) + element)
    return np.asarray(element * (by_element // size * native) + group)


def align_groups(lowering: Lowering, node: Node) -> None:
    """A product with zeros and ones, which moves groups of lanes apart."""
    (tensor,), axes = node.inputs, node.attributes(AlignGroupsAttributes).axes
    shape, native = lowering.graph.shapes[tensor], lowering.config.native
    form = choose_form(lowering, tensor, axes)
    walk, size = form.walk, prod(shape[axis] for axis in axes)
    if len(walk.lanes) < size:
        raise LayoutError(f"axes {list(axes)} must be lanes of a position")
    places = places_apart(len(walk.lanes) // size, size, native).reshape(-1)
    tiles = int(places.max()) // native + 1
    weight = zeros("groups that are moved apart", tiles * native, len(walk.lanes))
    weight[places, np.arange(len(places))] = 1.0
    order = (*form.outside, *form.lanes, *axes)

    def view(target: Storage) -> Ids:
        ids = target.view(tiles * native)[..., places]
        rest = [axis for axis in range(len(shape)) if axis not in order]  # of length 1
        ids = ids.reshape([shape[axis] for axis in (*order, *rest)])
        return np.asarray(ids.transpose(np.argsort((*order, *rest))))

    work = Computation(Reduction.DENSE, spread(weight, walk)[:, None, None])
    lowering.add(node, walk, work, (walk.height, walk.width, tiles), view)


def groups_of_reader(lowering: Lowering, tensor: str, axis: int) -> Ids | None:
    """The channels that the only reader of a tensor compares with each other, ``[groups, size]``.

    Operations on every element by itself, with constants, may lie in between.

    Parameters
    ----------
    tensor : str
        The result of a product.
    axis : int
        Axis of its channels.

    Returns
    -------
    array or None
        ``None`` if no maximum or softmax of several groups reads it, or it does not compare all channels.
    """
    graph, name = lowering.graph, tensor
    shape = graph.shapes[tensor]
    ids = np.arange(prod(shape)).reshape(shape)
    while name not in graph.outputs and len(readers := graph.consumers(name)) == 1:
        (reader,) = readers
        if axes := _compared(reader):
            return _channel_groups(ids, axes, shape, axis)
        if reader.op in ("Reshape", "Transpose"):
            ids = inputs.moved(reader, [ids])
        elif len(reader.inputs) > 1 or reader.op not in _EACH or graph.shapes[reader.outputs[0]] != ids.shape:
            return None
        (name,) = reader.outputs
    return None


def _compared(node: Node) -> tuple[int, ...]:
    """Axes along which a maximum or a softmax compares elements."""
    if node.op == "ReduceMax":
        return node.attributes(ReduceMaxAttributes).axes
    if issubclass(operator_of(node).record, SoftmaxAttributes):
        return (node.attributes(SoftmaxAttributes).axis,)
    return ()


def _channel_groups(ids: Ids, axes: Sequence[int], shape: Sequence[int], axis: int) -> Ids | None:
    """Channels by group, of elements ``ids`` of a tensor that are compared along ``axes``."""
    size, channels = prod(ids.shape[k] for k in axes), shape[axis]
    if not 1 < size < channels:
        return None
    rows = np.moveaxis(ids, axes, range(-len(axes), 0)).reshape(-1, size)
    step = prod(shape[axis + 1 :])
    channel = rows // step % channels
    if (rows - channel * step != (rows - channel * step)[:, :1]).any():
        return None  # elements of several positions
    groups = np.unique(channel, axis=0)
    return groups if np.array_equal(np.sort(groups, axis=None), np.arange(channels)) else None


def staged(lowering: Lowering, node: Node) -> list[Node] | None:
    """Stages of a sum, mean or maximum over more positions than a window has."""
    shape = lowering.graph.shapes[node.inputs[0]]
    form = _form_of(lowering, node)
    if large_windows.fits(node.op, form.kernel, lowering.config, form.inside):
        return None
    axes = [axis for axis in node.attributes(ReductionAttributes).axes if shape[axis] > 1]
    return large_windows.reduction(lowering, node, axes, form.inside)


def _positions_first(lowering: Lowering, node: Node) -> list[Node] | None:
    """A maximum over positions and one over their lanes, where vectors of other results lie between those of one.

    ``None`` if it needs no stages, or if there are none.
    """
    form = _form_of(lowering, node)
    if not (form.inside and form.walk.gaps):
        return None
    (tensor,), attributes = node.inputs, node.attributes(ReduceMaxAttributes)
    axes = [axis for axis in attributes.axes if lowering.graph.shapes[tensor][axis] > 1]
    for size in reversed(range(1, len(axes))):
        for some in combinations(axes, size):
            try:
                inside = choose_form(lowering, tensor, some).inside
            except LayoutError:
                continue
            if not inside:
                attrs = {"axes": some, "keepdims": True, "masked": attributes.masked}
                stage = lowering.new_node(node, "ReduceMax", "positions", node.inputs, **attrs)
                return [stage, node.replace(inputs=stage.outputs)]
    return None


def maximum(lowering: Lowering, node: Node) -> list[Node] | None:
    """Stages of a large maximum, or a mask in front of one over lanes, if some of them are no elements."""
    stages = _positions_first(lowering, node) or staged(lowering, node)
    if stages is not None:
        return stages
    attributes = node.attributes(ReduceMaxAttributes)
    if (apart := groups_apart(lowering, node, attributes.axes)) is not None:
        return apart
    form = _form_of(lowering, node)
    if attributes.masked or not form.inside or form.walk.full:
        return None
    build = NodeBuilder(lowering, node)
    tensor = masked(build, node.inputs[0])
    return [*build.nodes, node.replace(inputs=(tensor,)).with_attrs(masked=True)]
