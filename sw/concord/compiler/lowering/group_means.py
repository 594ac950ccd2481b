"""Means over axes that lie in positions and in lanes: groups of channels over all positions of an image.

A mean over positions leaves every channel in its lane. A product with a block of equal numbers for every group makes
of these the mean of the group, in the lanes of all of its channels, where it meets their elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from concord.compiler.ir.layers import MfuStep, Reduction
from concord.compiler.ir.layout import PAD, LayoutError, Storage, spread
from concord.compiler.lowering import operands
from concord.compiler.lowering.lower import Computation, Lowering
from concord.compiler.lowering.reductions import Form, form_of_view, forms_of_view, power_below
from concord.graph.ir import Node
from concord.graph.ops.elementwise import GroupMeanAttributes
from concord.spec.isa import Op
from concord.utils.arrays import FloatArray, Ids
from concord.utils.matrices import zeros


@dataclass(frozen=True)
class GroupLayout:
    """Layout of a tensor whose reduced axes are in positions and in lanes, or in some of the lanes of a position.

    Parameters
    ----------
    factors : tuple of tuples of int
        By axis of the tensor: its length, or two lengths where the axis is partly in lanes and partly in positions.
    positions, within : tuple of int
        Axes of the shape of all factors that are reduced: those in positions, and those in lanes.
    single : bool
        Whether no other axes are in lanes.
    form : Form
        How the mean over positions is walked, or that over lanes if there are no positions.
    """

    factors: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]
    within: tuple[int, ...]
    single: bool
    form: Form

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all factors."""
        return tuple(size for factors in self.factors for size in factors)

    @property
    def count(self) -> int:
        """Channels of a group."""
        return prod(self.shape[axis] for axis in self.within)

    def like(self, values: FloatArray) -> FloatArray:
        """Values that are broadcast to the tensor, in a shape that is broadcast to :attr:`shape`."""
        lengths = (1,) * (len(self.factors) - values.ndim) + values.shape
        pairs = zip(lengths, self.factors, strict=True)
        return values.reshape([size for n, factors in pairs for size in (factors if n > 1 else (1,) * len(factors))])


def group_layout(lowering: Lowering, tensor: str, axes: Sequence[int]) -> GroupLayout:
    """Layout of a tensor that is reduced over ``axes``, in lanes and in positions or in some lanes of a position.

    Raises
    ------
    LayoutError
        If an axis is in lanes and in positions in another way than its first elements say, or the axes are all lanes
        of a position, or positions alone.
    """
    ids = lowering.whole(tensor)
    reduced = [axis for axis in axes if ids.shape[axis] > 1]
    factors: list[tuple[int, ...]] = []
    positions: list[int] = []
    within: list[int] = []
    for axis, size in enumerate(ids.shape):
        at = sum(map(len, factors))
        parts = list(_parts(lowering, ids, axis)) if axis in reduced else [(size, None)]
        factors.append(tuple(length for length, _ in parts))
        positions += [at + k for k, (_, in_lanes) in enumerate(parts) if in_lanes is False]
        within += [at + k for k, (_, in_lanes) in enumerate(parts) if in_lanes]
    view = ids.reshape([size for sizes in factors for size in sizes])
    form = form_of_view(lowering, view, positions or within)
    lanes = {*form.lanes, *(() if positions else within)}
    if form.inside == bool(positions) or not within or not lanes.issuperset(within):
        raise LayoutError(f"axes {list(axes)} must be positions and lanes of positions")
    single = lanes == set(within)
    if single and not positions:
        raise LayoutError(f"axes {list(axes)} must not be all lanes of a position")
    return GroupLayout(tuple(factors), tuple(positions), tuple(within), single, form)


def _parts(lowering: Lowering, ids: Ids, axis: int) -> Iterator[tuple[int, bool]]:
    """Lengths that an axis is the product of, each with whether its elements are in lanes, else in positions."""
    (storage,) = lowering.done.storages.of(ids)
    line = np.moveaxis(ids, axis, -1).reshape(-1, ids.shape[axis])[0]
    place = np.where(line == PAD, PAD, (line - storage.base) % (storage.tiles * storage.native))
    first, size = bool(place[0] != place[1]), len(place)
    others = np.flatnonzero((place[1:] == place[0]) if first else (place[1:] != place[0]))
    period = int(others[0]) + 1 if others.size else size
    if size % period:
        period = size
    if period < size:
        yield size // period, not first
    yield period, first


def group_mean(lowering: Lowering, node: Node) -> None:
    """A product with a power of two within a group and zeros elsewhere, times what is left of the reciprocal count.

    Every mean stands in the lanes of the elements that it is of.
    """
    (tensor,), axes = node.inputs, node.attributes(GroupMeanAttributes).axes
    shape, native = lowering.graph.shapes[tensor], lowering.config.native
    long = [axis for axis in axes if shape[axis] > 1]
    forms = [form for form in forms_of_view(lowering, lowering.whole(tensor), axes) if form.inside]
    forms = [form for form in forms if form.walk.distinct and (form.walk.lanes != PAD).all()]
    if not forms:
        raise LayoutError("elements that have one mean must be different lanes of a position")
    form = min(forms, key=lambda form: form.walk.tiles)
    walk, size = form.walk, prod(shape[axis] for axis in long)
    share = power_below(size, lowering.config)
    group = np.arange(len(walk.lanes)) // size
    weight = zeros("means of groups of elements", walk.tiles * native, len(walk.lanes))
    weight[walk.lanes] = np.where(group[:, None] == group, share, 0.0)
    order = (*form.outside, *form.lanes, *long)
    order = (*order, *(axis for axis in range(len(shape)) if axis not in order))

    def view(target: Storage) -> Ids:
        ids = target.view(target.tiles * native)[..., walk.lanes]
        return np.asarray(ids.reshape([shape[axis] for axis in order]).transpose(np.argsort(order)))

    work = Computation(Reduction.DENSE, spread(weight, walk)[:, None, None])
    layer = lowering.add(node, walk, work, (walk.height, walk.width, walk.tiles), view)
    if share * size != 1:
        factor = np.full(layer.ids.shape, 1.0 / (share * size))
        layer.mfu_ops.append(MfuStep(Op.VV_MUL, operands.constant(factor, layer.ids, layer.target)))
