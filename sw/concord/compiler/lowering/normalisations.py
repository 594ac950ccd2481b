"""Normalisation: a tensor over the root of the mean of its squares.

Squares in binary16 overflow or vanish where the tensor is far from 1, a narrow mean of them has a least step, and a
table of the root has the same step everywhere. So what is squared is scaled before, in one of two ways, and the root
is found by one table for all normalisations, which is looked up once for a coarse scale and once more for the rest.

A normalisation that is made for the variances of samples has no entries for far smaller ones: the last look-up raises
``TABLE_CLAMPED`` for these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from concord.compiler.ir.layout import LayoutError
from concord.compiler.ir.table_specs import Domain
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.group_means import GroupLayout, group_layout
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.compiler.lowering.lowered import VarianceRange
from concord.compiler.lowering.reductions import Form, choose_form
from concord.functions.segmented import TableSegment
from concord.graph.ir import Node
from concord.graph.ops.elementwise import NormaliseAttributes
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX

#: Least variance that is scaled by a power of two.
_SMALLEST = 2.0**-12
#: Greatest inputs of the table of the root and of that of the reciprocal.
_TOP = {"rsqrt": 2.25, "reciprocal": 1.5}
#: A code of the table of the root from which on it is exact to 0.5 % at worst, 0.2 % as a rule.
_FINE = 48
#: The least code of the table of the root where samples tell the variances: it errs there by up to 13 %, at 1 by 29 %.
_LEAST_CODE = 2
#: Variances of samples are covered as much further: upwards, where the table ends, and downwards.
_ABOVE, _BELOW = 1.5, 1.25
#: log2 of the greatest number that is brought to 1, and of how much less others may be.
_LARGEST, _OCTAVES = 14, 21
#: Largest error of the mean, relative to the deviation, that needs no second mean of what is left.
_MEAN_ERROR = 1e-3
#: Deviations that a mean may be away from zero where no samples tell.
_UNKNOWN_OFFSET = 10.0
#: Deviations that means of channels may be away from that of their group, which a second mean does not make less.
_OWN_MEANS = 3.0
#: Native vectors of one group that are added up by a product, where that may be done by positions first.
_MOST_VECTORS = 32
#: Least and greatest shifts whose powers of two are binary16 numbers.
_LEAST, _GREATEST = -15, 24


def fineness(config: NpuConfig) -> int:
    """log2 of codes per unit of the tables."""
    return 7 if config.table_depth >= 512 else 5


@dataclass(frozen=True)
class _Scale:
    """Squares are multiplied by ``2**-shift``, variances for the first of ``lookups`` by ``4**-first``."""

    shift: int
    lookups: int
    first: int


def _for_up_to(variance: float, lookups: int) -> _Scale | None:
    """``None`` if squares would be too small to be narrow."""
    first = 3 * (lookups - 1)
    shift = math.ceil(math.log2(variance / _TOP["rsqrt"])) - 2 * first
    beyond = max(0, shift - _GREATEST) - max(0, _LEAST - shift)
    more = math.copysign(math.ceil(abs(beyond) / 2), beyond)
    scale = _Scale(int(shift - 2 * more), lookups, int(first + more))
    return scale if scale.first >= -2 else None


def _for_range(low: float, high: float, config: NpuConfig) -> _Scale | None:
    """For variances from ``low`` to ``high``; ``None`` if they are too far apart, or too small."""
    for lookups in (1, 2):
        if math.log2(high / low) <= _octaves(config, lookups):
            return _for_up_to(high, lookups)
    return None


def _octaves(config: NpuConfig, lookups: int) -> float:
    """log2 of how far apart variances may be."""
    return math.log2(_TOP["rsqrt"] * (1 << fineness(config)) / _FINE) + (lookups - 1) * fineness(config)


def assumed_variances(node: Node, variance_range: VarianceRange, formats: Formats, config: NpuConfig) -> Domain | None:
    """Variances to cover where the program has no room for numbers of any size: around the expected ones.

    ``None`` if samples tell the variances.
    """
    if f"{node.name}/variance" in formats.ranges:
        return None
    span = 2.0 ** _octaves(config, 1 if variance_range is VarianceRange.ONE_LOOKUP else 2)
    low, high = formats.bounds.get(f"{node.name}/expected", (1.0, 1.0))
    epsilon = node.attributes(NormaliseAttributes).epsilon
    middle = math.sqrt((low + epsilon) * (high + epsilon))
    middle = min(max(middle, _SMALLEST), BINARY16_MAX**2)
    return middle / math.sqrt(span), middle * math.sqrt(span)


class _Nodes(NodeBuilder):
    """The nodes that compute together what a normalisation does, of a tensor that lies as ``layout`` says, if any."""

    def __init__(self, lowering: Lowering, node: Node, layout: GroupLayout | None):
        super().__init__(lowering, node)
        self.fineness = fineness(lowering.config)
        known = f"{node.name}/variance" in lowering.formats.ranges
        self.least = {"rsqrt": _LEAST_CODE if known else 1, "reciprocal": 1}
        self.layout = layout
        axes = node.attributes(NormaliseAttributes).axes if layout is None else layout.positions
        self.axes = {"axes": axes, "keepdims": True}

    def mean(self, what: str, x: str) -> str:
        """The mean over all axes that are reduced, where it meets the elements that it is of."""
        if self.layout is None:
            return self.add("ReduceMean", what, x, **self.axes)
        if self.layout.positions:
            x = self.add("ReduceMean", f"{what} of positions", x, **self.axes)
        if self.layout.single:
            return self.add("ReduceMean", what, x, axes=self.layout.within, keepdims=True)
        return self.add("GroupMean", what, x, axes=self.layout.within)

    def times(self, what: str, x: str, factor: float, *, alone: bool = True) -> str:
        """A product with a constant; unless an element is ``alone``, what is none of the tensor's becomes zero."""
        if factor == 1 and alone:
            return x
        return self.add("Mul", what, x, constant=np.asarray(float(factor)), **({} if alone else {"beyond": 0.0}))

    def looked_up(self, function: str, what: str, x: str, flagged: bool = False) -> str:
        """The function of the larger of x and the least number of the table; an x that is less may be ``flagged``."""
        least = self.least[function]
        if flagged:  # not where there are no elements
            limited = self.add("Max", f"{what} limited", x, constant=np.asarray(0.0), beyond=1.0)
        else:
            limited = self.add("Clip", f"{what} limited", x, min=least * 2.0**-self.fineness, max=math.inf)
        table = TableSegment(least, int(_TOP[function] * (1 << self.fineness)), self.fineness)
        return self.add("Function", what, limited, functions=((function, {}),), segment=table)

    def largest_is_one(self, x: str, least: float) -> tuple[str, str]:
        """Numbers times a factor that makes their largest magnitude about 1, or ``least`` if that is more; and it.

        Where groups are in lanes, it is the mean of the largest of every channel that becomes 1.
        """
        size = self.add("Max", "magnitude", self.add("Mul", "negative", x, constant=np.asarray(-1.0)), x)
        largest = self.add("ReduceMax", "largest", size, **self.axes, masked=True) if self.axes["axes"] else size
        if self.layout is not None and self.layout.single:
            attrs = {"axes": self.layout.within, "keepdims": True, "masked": True}
            largest = self.add("ReduceMax", "largest of all lanes", largest, **attrs)
        elif self.layout is not None:
            largest = self.add("GroupMean", "mean of the largest", largest, axes=self.layout.within)
        largest = self.add("Clip", "largest limited", largest, min=least, max=math.inf)
        factor = self.times("in range", largest, 2.0**-_LARGEST)
        factor = self.times("factor", self.looked_up("reciprocal", "reciprocal", factor), 2.0**-_LARGEST)
        for _ in range(math.ceil(_OCTAVES / self.fineness) - 1):
            size = self.add("Mul", "about one", largest, factor)
            factor = self.add("Mul", "factor", self.looked_up("reciprocal", "reciprocal", size), factor)
        return self.add("Mul", "scaled", x, factor), factor

    def root(self, variance: str, lookups: int, first: int, *, flagged: bool) -> str:
        """One over the root, of a variance of less than about ``2 * 4**first``; too small a one may be ``flagged``."""
        flags = [*[False] * (lookups - 1), flagged]
        factor = self.times("variance in range", variance, 4.0**-first)
        factor = self.times("coarse", self.looked_up("rsqrt", "root", factor, flags[0]), 2.0**-first)
        for flag in flags[1:]:
            rest = self.add("Mul", "rest", self.add("Mul", "part", factor, variance), factor)
            factor = self.add("Mul", "finer", self.looked_up("rsqrt", "root", rest, flag), factor)
        return factor


def _centred(build: _Nodes, x: str, again: bool, alone: bool) -> str:
    """A tensor less its mean, and ``again`` less the mean of what is left: a narrow mean is off by part of a step."""
    for what in ("", " of the rest")[: 1 + again]:
        mean = build.mean(f"mean{what}", x)
        x = build.times(f"elements{what}", build.add("Sub", f"centred{what}", x, mean), 1.0, alone=alone)
    return x


def _layout(lowering: Lowering, x: str, axes: Sequence[int]) -> tuple[Form, GroupLayout | None]:
    """Form of the walk of a tensor, and its layout if means are of positions first, as a step takes a large matrix."""
    refused: LayoutError | None = None
    try:
        form = choose_form(lowering, x, axes)
        if not (form.inside and (form.lanes or form.walk.gaps or form.walk.tiles > _MOST_VECTORS)):
            return form, None
    except LayoutError as error:
        refused = error
    try:
        layout = group_layout(lowering, x, axes)
    except LayoutError:
        if refused is not None:
            raise refused from None
        return form, None
    return layout.form, layout


def normalise(lowering: Lowering, node: Node) -> list[Node]:
    """Mean, difference, squares, their mean, its root by a table, products."""
    attributes, config, (x,) = node.attributes(NormaliseAttributes), lowering.config, node.inputs
    shape = lowering.graph.shapes[x]
    form, layout = _layout(lowering, x, attributes.axes)
    build, count = _Nodes(lowering, node, layout), math.prod(shape[axis] for axis in attributes.axes)
    formats, epsilon = lowering.formats, attributes.epsilon
    alone = form.walk.full or not (form.inside if layout is None else layout.single)
    if layout is not None:
        x = build.add("Reshape", "groups", x, shape=layout.shape)
    scale, offset = None, _UNKNOWN_OFFSET
    if variances := formats.ranges.get(f"{node.name}/variance"):
        scale = _for_range((variances[0] + epsilon) / _BELOW, (variances[1] + epsilon) * _ABOVE, config)
        offset = max(map(abs, formats.ranges[f"{node.name}/mean"])) / math.sqrt(variances[0] + epsilon)
    variance_range = lowering.done.variance_range
    if variance_range is VarianceRange.ANY and layout is None and form.inside and form.lanes:
        variance_range = VarianceRange.TWO_LOOKUPS
    if variance_range is VarianceRange.ANY and layout is not None and scale is not None and scale.lookups > 1:
        scale = None  # variances of groups that share a block would lose their bits to the largest one
    wanted = scale is None and variance_range is not VarianceRange.ANY
    if wanted and (expected := assumed_variances(node, variance_range, formats, config)):
        scale = _for_up_to(expected[1], 1 if variance_range is VarianceRange.ONE_LOOKUP else 2)
    if attributes.centred:
        step = 2.0 ** (1.5 - config.act_mant)  # of a block whose largest number is 1
        error = (offset + 3) * step / math.sqrt(12 * (count if layout is None else layout.count))
        again = error > _MEAN_ERROR and (layout is None or offset > _OWN_MEANS)
        x = _centred(build, x, again, alone)
    else:
        x = build.times("elements", x, 1.0, alone=alone)
    if scale is None:
        x, factor = build.largest_is_one(x, math.sqrt(epsilon))
        small = build.add("Mul", "epsilon", build.times("small", factor, epsilon), factor)
        mean = build.mean("variance", build.add("Mul", "square", x, x))
        # A mean of squares is at most so many times the square of the mean of the largest.
        first = math.ceil(math.log(1 if layout is None or layout.single else layout.count, 4))
        root, back = build.root(build.add("Add", "shifted", mean, small), 2, first, flagged=False), 0
    else:
        square = build.add("Mul", "square", build.times("scaled", x, 2.0**-scale.shift), x)
        mean = build.mean("variance", square)
        shifted = build.add("Add", "shifted", mean, constant=np.asarray(epsilon * 2.0**-scale.shift))
        root, back = build.root(shifted, scale.lookups, scale.first, flagged=True), scale.shift
    gain = attributes.scale * 2.0 ** (-back / 2)
    if layout is not None:
        x = build.add("Mul", "normalised", x, root)
        if (gain != 1).any():
            x = build.add("Mul", "gain", x, constant=layout.like(gain))
        return build.ending("Reshape", x, shape=shape)
    if (gain == 1).all():
        return build.ending("Mul", x, root)
    return build.ending("Mul", build.add("Mul", "normalised", x, root), constant=gain)
