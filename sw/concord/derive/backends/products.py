"""Exact sums of products in backends: in float32, in float64, or in several float64 sums rounded together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.derive import ir
from concord.derive.evaluate import least
from concord.spec.formats import BINARY16_FRAC, BINARY16_MAX
from concord.sums.exact import DOUBLE_BITS, SINGLE_BITS

#: Sums that are rounded together, an offset among them.
MOST_SUMS = 3


@dataclass(frozen=True)
class ProductPlan:
    """Arithmetic of a product.

    Parameters
    ----------
    single, several : bool
        True if float32 sums are exact; True if not even one float64 sum is.
    limits : pair of float or None
        Limits of sums, if they may reach them.
    register : float or None
        Magnitude at which sums end as they are added up; they are float64 numbers until then.
    """

    single: bool
    several: bool
    limits: tuple[float, float] | None
    register: float | None = None


def plan(node: ir.ExactSums) -> ProductPlan:
    """The plan of a product; ``ValueError`` if its register has too many bits."""
    top = 2.0 ** (node.width - 1 - node.frac)
    limits = None if node.bound < top else (-top, top - 2.0**-node.frac)
    if isinstance(node, ir.Products) and node.register:
        if node.register > DOUBLE_BITS:
            raise ValueError(
                f"accumulator of {node.layer or node.output.name} must have at most {DOUBLE_BITS} bits, or as many as "
                f"no sum exceeds, not {node.register}"
            )
        return ProductPlan(False, False, limits, 2.0 ** (node.register - 1 - node.frac))
    single = node.bound < 2.0 ** (SINGLE_BITS + node.unit) and limits is None
    return ProductPlan(single, node.bound >= 2.0 ** (DOUBLE_BITS + node.unit), limits)


def norm(node: ir.MatMul | ir.Depthwise) -> float:
    """Greatest sum of magnitudes of the weights of a result: no sum is greater than this times the greatest source."""
    return float(np.abs(node.weight).sum(axis=_axis(node)).max(initial=0.0))


def _axis(node: ir.MatMul | ir.Depthwise) -> int:
    return 0 if isinstance(node, ir.Depthwise) else -1


def steps(node: ir.MatMul | ir.Depthwise) -> tuple[float, ...]:
    """Powers of two that divide any binary16 number into parts whose sums float64 has exactly.

    Parts are multiples of the first, then of the second and so on; the last is what remains. ``ValueError`` if weights
    span too many bits.
    """
    axis = _axis(node)
    sizes = np.abs(node.weight).sum(axis=axis)
    units = np.array([least(row) for row in np.moveaxis(node.weight, axis, -1).reshape(-1, node.weight.shape[axis])])
    bits = int(np.ceil(np.log2(np.maximum(sizes.reshape(-1), 2.0**-1000)) - units).max()) + 1
    room = DOUBLE_BITS - 1 - bits
    whole = int(np.frexp(float(BINARY16_MAX))[1])
    exponents = tuple(range(whole - room, -BINARY16_FRAC, -room)) if room > 0 else ()
    sums = 1 + len(exponents) + (node.offset is not None)
    if room <= 0 or sums > MOST_SUMS:
        raise ValueError(
            f"weights of {node.layer or node.output.name} must span fewer bits than {bits}, with their sum: "
            f"more than {MOST_SUMS} sums would have to be rounded together"
        )
    return tuple(2.0**exponent for exponent in exponents)


def steps_of(node: ir.ProductOf) -> tuple[bool, tuple[float, ...]]:
    """True if the matrix of a product of two values is divided, and the powers of two that divide it or the vectors.

    ``ValueError`` if the values span too many bits.
    """
    ways = []
    for divided in (False, True):
        (most, fine), (other, other_fine) = reversed(node.limits) if divided else node.limits
        size = min(other, float(BINARY16_MAX)) * node.matrix.shape[-1]
        room = DOUBLE_BITS - 2 - int(np.frexp(size)[1]) + other_fine
        if room > 0:
            whole = int(np.frexp(min(most, float(BINARY16_MAX)))[1])
            ways.append((divided, tuple(2.0**exponent for exponent in range(whole - room, fine, -room))))
    divided, divisors = min(ways, key=lambda way: len(way[1]), default=(False, (1.0,) * MOST_SUMS))
    if len(divisors) >= MOST_SUMS:
        raise ValueError(
            f"products of {node.layer or node.output.name} with rows of m_wr must span fewer bits: more than "
            f"{MOST_SUMS} sums would have to be rounded together"
        )
    return divided, divisors
