"""Normalisation: a tensor over the root of the mean of its squares.

Squares in binary16 overflow or vanish where the tensor is far from 1, a narrow mean of them has a least step, and a
table of the root has the same step everywhere. So what is squared is scaled before, in one of two ways, and the root
is found by one table for all normalisations, which is looked up once for a coarse scale and once more for the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from concord.compiler.ir.table_specs import Domain
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lower import Lowering, NodeBuilder, VarianceRange
from concord.compiler.lowering.reductions import choose_form
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
#: Variances of samples are covered as much further: upwards, where the table ends, and downwards.
_ABOVE, _BELOW = 1.5, 1.25
#: log2 of the greatest number that is brought to 1, and of how much less others may be.
_LARGEST, _OCTAVES = 14, 21
#: Largest error of the mean, relative to the deviation, that needs no second mean of what is left.
_MEAN_ERROR = 1e-3
#: Deviations that a mean may be away from zero where no samples tell.
_UNKNOWN_OFFSET = 10.0
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
    """What is covered where the program has no room for numbers of any size: around what is to be expected.

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
    """The nodes that compute together what a normalisation does."""

    def __init__(self, lowering: Lowering, node: Node):
        super().__init__(lowering, node)
        self.fineness = fineness(lowering.config)
        self.axes = {"axes": node.attributes(NormaliseAttributes).axes, "keepdims": True}

    def times(self, what: str, x: str, factor: float, *, alone: bool = True) -> str:
        """A product with a constant; unless an element is ``alone``, what is none of the tensor's becomes zero."""
        if factor == 1 and alone:
            return x
        return self.add("Mul", what, x, constant=np.asarray(float(factor)), **({} if alone else {"beyond": 0.0}))

    def looked_up(self, function: str, what: str, x: str) -> str:
        """The function of the larger of x and the least number that the table has."""
        limited = self.add("Clip", f"{what} limited", x, min=2.0**-self.fineness, max=math.inf)
        table = TableSegment(1, int(_TOP[function] * (1 << self.fineness)), self.fineness)
        return self.add("Function", what, limited, functions=((function, {}),), segment=table)

    def largest_is_one(self, x: str, least: float) -> tuple[str, str]:
        """Numbers times a factor that makes their largest magnitude about 1, or ``least`` if that is more; and it."""
        size = self.add("Max", "magnitude", self.add("Mul", "negative", x, constant=np.asarray(-1.0)), x)
        largest = self.add("ReduceMax", "largest", size, **self.axes, masked=True)
        largest = self.add("Clip", "largest limited", largest, min=least, max=math.inf)
        factor = self.times("in range", largest, 2.0**-_LARGEST)
        factor = self.times("factor", self.looked_up("reciprocal", "reciprocal", factor), 2.0**-_LARGEST)
        for _ in range(math.ceil(_OCTAVES / self.fineness) - 1):
            size = self.add("Mul", "about one", largest, factor)
            factor = self.add("Mul", "factor", self.looked_up("reciprocal", "reciprocal", size), factor)
        return self.add("Mul", "scaled", x, factor), factor

    def root(self, variance: str, lookups: int, first: int) -> str:
        """One over the root, of a variance of less than about ``2 * 4**first``."""
        factor = self.times("variance in range", variance, 4.0**-first)
        factor = self.times("coarse", self.looked_up("rsqrt", "root", factor), 2.0**-first)
        for _ in range(lookups - 1):
            rest = self.add("Mul", "rest", self.add("Mul", "part", factor, variance), factor)
            factor = self.add("Mul", "finer", self.looked_up("rsqrt", "root", rest), factor)
        return factor


def _centred(build: _Nodes, x: str, again: bool, alone: bool) -> str:
    """A tensor less its mean, and ``again`` less the mean of what is left: a narrow mean is off by part of a step."""
    for what in ("", " of the rest")[: 1 + again]:
        mean = build.add("ReduceMean", f"mean{what}", x, **build.axes)
        x = build.times(f"elements{what}", build.add("Sub", f"centred{what}", x, mean), 1.0, alone=alone)
    return x


def normalise(lowering: Lowering, node: Node) -> list[Node]:
    """Mean, difference, squares, their mean, its root by a table, products."""
    build, attributes, config = _Nodes(lowering, node), node.attributes(NormaliseAttributes), lowering.config
    (x,), shape = node.inputs, lowering.graph.shapes[node.inputs[0]]
    form, count = choose_form(lowering, x, attributes.axes), math.prod(shape[axis] for axis in attributes.axes)
    formats, epsilon = lowering.formats, attributes.epsilon
    alone = not form.inside or form.walk.full
    scale, offset = None, _UNKNOWN_OFFSET
    if variances := formats.ranges.get(f"{node.name}/variance"):
        scale = _for_range((variances[0] + epsilon) / _BELOW, (variances[1] + epsilon) * _ABOVE, config)
        offset = max(map(abs, formats.ranges[f"{node.name}/mean"])) / math.sqrt(variances[0] + epsilon)
    variance_range = lowering.done.variance_range
    if variance_range is VarianceRange.ANY and form.inside and form.lanes:
        variance_range = VarianceRange.TWO_LOOKUPS
    wanted = scale is None and variance_range is not VarianceRange.ANY
    if wanted and (expected := assumed_variances(node, variance_range, formats, config)):
        scale = _for_up_to(expected[1], 1 if variance_range is VarianceRange.ONE_LOOKUP else 2)
    if attributes.centred:
        step = (offset + 3) * 2.0 ** (1.5 - config.act_mant)  # of the block with the largest numbers
        x = _centred(build, x, step / math.sqrt(12 * count) > _MEAN_ERROR, alone)
    else:
        x = build.times("elements", x, 1.0, alone=alone)
    if scale is None:
        x, factor = build.largest_is_one(x, math.sqrt(epsilon))
        small = build.add("Mul", "epsilon", build.times("small", factor, epsilon), factor)
        mean = build.add("ReduceMean", "variance", build.add("Mul", "square", x, x), **build.axes)
        root, back = build.root(build.add("Add", "shifted", mean, small), 2, 0), 0
    else:
        square = build.add("Mul", "square", build.times("scaled", x, 2.0**-scale.shift), x)
        mean = build.add("ReduceMean", "variance", square, **build.axes)
        shifted = build.add("Add", "shifted", mean, constant=np.asarray(epsilon * 2.0**-scale.shift))
        root, back = build.root(shifted, scale.lookups, scale.first), scale.shift
    gain = attributes.scale * 2.0 ** (-back / 2)
    if (gain == 1).all():
        return build.ending("Mul", x, root)
    return build.ending("Mul", build.add("Mul", "normalised", x, root), constant=gain)
