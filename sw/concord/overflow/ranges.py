"""Ranges of floats divided into the integers of a width [overflow].

A range [low, high] is divided into ``2**bits`` equal steps, one per integer; the least number has the least integer,
the greatest the greatest. A factor enlarges the range that is mapped: steps grow and the integers of the range shrink.
[-1, 1] at 8 bits has the step 1/128 and the integers -128..127; with the factor 4 it has the step 1/32 and -32..31.
"""

from __future__ import annotations

import math

from concord.golden.codes import Codes
from concord.spec.formats import Rounding


def codes_of_range(
    low: float, high: float, bits: int, factor: float = 1.0, rounding: Rounding = Rounding.FLOOR
) -> Codes:
    """Codes of a range of numbers, with 0 as the code of 0.

    So padding is exact, and products of codes stand for products of numbers. A range that is not as large on both sides
    of zero has other codes than two's complement of the width, but as many of them: a storage adds a constant to them
    (a zero point).

    Parameters
    ----------
    low, high : float
        Range of the values; zero is taken into it.
    bits : int
        Width of the codes, 1 to 64.
    factor : float
        How many times the range is mapped. Below 1, what is beyond the mapped range has the code of its end.
    rounding : Rounding
        ``FLOOR``: a step has the code of its lower end; ``NEAREST_EVEN``: a number has that of the nearest multiple.

    Raises
    ------
    ValueError
        If a parameter is not possible.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"range must be two finite numbers low <= high, not {low!r}, {high!r}")
    if not factor > 0:
        raise ValueError(f"factor must be a number above 0, not {factor!r}")
    bottom, top = min(float(low), 0.0), max(float(high), 0.0)
    step = factor * (top - bottom) / 2**bits or 1.0
    if bottom == top:
        return Codes(bits, step, 0, (0, 0), rounding)
    first = max(math.ceil(bottom / (top - bottom) * 2**bits), 1 - 2**bits)
    least, greatest = math.floor(bottom / step), math.ceil(top / step) - 1
    ends = max(first, least), max(0, min(first + 2**bits - 1, greatest))
    return Codes(bits, step, 0, ends, rounding)
