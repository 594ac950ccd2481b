"""The two sides of a transfer table [transfer-lut]: codes, and as entries also binary16 patterns.

Codes have 1 to 16 bits here: a table has an entry per code, so each bit doubles it (128 KiB at 16 bits), and 16 bits
are the widest mantissa and the widest table entry of the hardware.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.functions.intervals import Interval, constant, exact
from concord.functions.tables import SCALES, round_array_to_binary16, round_to_binary16
from concord.golden import binary16
from concord.golden.codes import Codes, checked, number_of, require_integer
from concord.golden.rounding import round_floats
from concord.spec.formats import Rounding
from concord.spec.widths import limits
from concord.utils.arrays import FloatArray, Ints

MAX_BITS = 16
_INDEX = limits(MAX_BITS)
_LIMIT = float(1 << 20)  # beyond all codes and zero points


@dataclass(frozen=True)
class Binary16:
    """Entries of the NPU's tables: finite binary16 patterns, nearest even, limited to +-65504, zero always +0."""

    #: Width of a pattern, the least and the greatest one, and the type of a stored one, little endian.
    bits: ClassVar[int] = MAX_BITS
    low: ClassVar[int] = 0
    high: ClassVar[int] = 0xFFFF
    dtype: ClassVar[np.dtype[np.generic]] = np.dtype("<u2")

    def quantize(self, number: Fraction | Decimal | float) -> int:
        """The pattern of a number, rounded once and limited; ``ValueError`` for NaN."""
        return round_to_binary16(number_of(number))

    def dequantize(self, code: int) -> Fraction:
        """The number of a pattern; ``ValueError`` if it is none of a finite number."""
        require_integer("code", code, self.low, self.high)
        if not binary16.is_finite(code):
            raise ValueError(f"code must be a finite binary16 pattern, not {code:#06x}")
        return Fraction(float(binary16.decode(code)))

    def check(self, codes: ArrayLike) -> NDArray[np.integer[Any]]:
        """Patterns as an array; ``ValueError`` if they are not those of finite numbers."""
        array = checked(codes, self.low, self.high)
        if not np.all(binary16.is_finite(array)):
            raise ValueError("codes must be finite binary16 patterns")
        return array


#: What entries of a table stand for.
TableTarget = Codes | Binary16


def table_index(first: int, last: int, scale: int) -> Codes:
    """The index of the NPU's tables: ``clamp(rne(x * 2**scale), first, last)``, see :class:`concord.functions.Table`.

    Parameters
    ----------
    first, last : int
        Least and greatest code, any range of 16-bit two's complement.
    scale : int
        log2 of codes per unit of the input.
    """
    require_integer("first", first, *_INDEX)
    require_integer("last", last, first, _INDEX[1])
    require_integer("scale", scale, SCALES[0], SCALES[-1])
    return Codes(MAX_BITS, Fraction(2) ** -scale, 0, (first, last))


def scale_of_index(codes: TableTarget) -> int | None:
    """The ``scale`` with which :func:`table_index` makes codes; ``None`` if it makes others."""
    if not isinstance(codes, Codes) or codes.axis is not None or codes.exponents is None:
        return None
    scale = -codes.exponents[0]
    inside = _INDEX[0] <= codes.low and codes.high <= _INDEX[1] and scale in SCALES
    return scale if inside and codes.zero == 0 and codes.rounding is Rounding.NEAREST_EVEN else None


def numbers_of(codes: Codes) -> Interval:
    """Bounds on the numbers of all codes, from the least one on."""
    steps = exact(np.arange(codes.low - codes.zero, codes.high - codes.zero + 1, dtype=np.float64))
    factor = constant(codes.scale)
    if factor.low == factor.high and (codes.scale.numerator.bit_length() + MAX_BITS + 1) <= 53:
        return exact(np.asarray(steps.low * factor.low))  # no product has more than 53 bits
    return steps * factor


def codes_between(target: TableTarget, bounds: Interval) -> tuple[Ints, Ints]:
    """Codes between which those of all numbers in the bounds lie."""
    if isinstance(target, Binary16):
        return round_array_to_binary16(bounds.low), round_array_to_binary16(bounds.high)
    factor = constant(target.scale)
    if factor.low == factor.high and math.frexp(factor.low)[0] == 0.5:
        # A quotient by a power of two is exact, unless it is so small that it rounds to 0 anyway.
        with np.errstate(all="ignore"):
            return _codes(target, bounds.low / factor.low), _codes(target, bounds.high / factor.low)
    scaled = bounds / factor
    return _codes(target, scaled.low), _codes(target, scaled.high)


def _codes(target: Codes, steps: FloatArray) -> Ints:
    rounded = round_floats(np.clip(steps, -_LIMIT, _LIMIT), target.rounding)
    return np.clip(rounded + target.zero, target.low, target.high).astype(np.int64)
