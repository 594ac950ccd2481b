"""Expressions that the units of the lazy update share."""

from amaranth import *

from concord.spec.training import TRAIN_EXP_MAX
from concord_rtl.pipe.integers.lazy.widths import LazyWidths


def split(value, shift):
    """Divide a signed number by ``2**shift``, to the nearest, halves away from zero.

    Returns the quotient rounded down, whether it has to be one more, and the signed rest of the quotient that is
    rounded to the nearest: ``value == (quotient + up << shift) + rest``.
    """
    if not shift:
        return value, Const(0, 1), Const(0, signed(1))
    low = value[:shift]
    up = low[-1] & ~(value[-1] & ~low[:-1].any())  # a half goes up but for negative numbers
    return value[shift:].as_signed(), up, Cat(low, up).as_signed()


def lifted(widths: LazyWidths, value, coarser):
    """An accumulator whose point lies ``coarser`` bits higher, on the lowest point; exact."""
    if not widths.coarser_max:
        return value
    return Array(value << k for k in range(widths.coarser_max + 1))[coarser].as_value().as_signed()


def lowered(widths: LazyWidths, rest, coarser):
    """An accumulator whose point lies ``coarser`` bits higher, of one on the lowest point; exact."""
    if not widths.coarser_max:
        return rest
    return Array(rest >> k for k in range(widths.coarser_max + 1))[coarser]


def outside(value, limit):
    """Bit that is set if a signed number is outside of ``-limit .. limit``."""
    return (value > limit) | (value < -limit)


def raw_places(widths: LazyWidths, exp, change_exp, coarser):
    """Places that an update is to be shifted right, not limited; see :attr:`LazyWidths.places_max`."""
    return exp - change_exp + coarser + (widths.accumulator.bits - widths.shift)


def limited_places(widths: LazyWidths, raw):
    """Places of :func:`raw_places`, limited to ``0 .. places_max``, where they make a difference."""
    return Mux(raw < 0, 0, Mux(raw > widths.places_max, widths.places_max, raw))[: widths.places_max.bit_length()]


def growth_limit(widths: LazyWidths, exp):
    """Places by which a block with this exponent can grow, at most :attr:`LazyWidths.growth_max`."""
    most = widths.growth_max
    return Mux(exp > TRAIN_EXP_MAX - most, (TRAIN_EXP_MAX - exp)[: most.bit_length()], most)


def shifted(value, count, step, groups, keep):
    """Shift ``value`` right by ``step * count`` places, for a count below ``groups``.

    Returns the last ``keep`` bits of the result, whether there are others above, and whether bits below are lost.
    """
    cases = [value[k * step :] for k in range(groups)]
    kept = Array(case[:keep] for case in cases)[count]
    over = Array(case[keep:].any() for case in cases)[count]
    return kept, over, Array(value[: k * step].any() for k in range(groups))[count]
