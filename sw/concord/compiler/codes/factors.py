"""Requantisation of accumulators by 16-bit factors, as ``vv_scale`` and a table after it compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from concord.golden.scale import scaled
from concord.integer.float32 import Integers
from concord.integer.requantise import Requantiser
from concord.spec.formats import SCALE_FACTOR_BITS, SCALE_FRACTION_BITS, SCALE_SHIFT_BITS, SCALED_MAX
from concord.spec.limits import SCALED_BITS_MAX
from concord.spec.widths import limits

#: One unit of a code in fractions.
_ONE = 1 << SCALE_FRACTION_BITS
_MOST_FACTOR, _MOST_SHIFT = (1 << SCALE_FACTOR_BITS) - 1, (1 << SCALE_SHIFT_BITS) - 1


class ScaleError(ValueError):
    """Scales that have no factors, with the reason."""


@dataclass(frozen=True, eq=False)
class FactorRequantisation(Requantiser):
    """``code = clamp(scaled(accumulator, factor, fraction, shift) + whole + zero_point)``.

    ``scaled`` is :func:`concord.golden.scale.scaled`. Arrays are broadcast with the accumulators of a sample. An
    accumulator with too many bits is an ``OverflowError``: the NPU limits it, and raises ``ACC_OVERFLOW``.

    Parameters
    ----------
    factor, fraction, whole : array of int64
        16 bits; 16 bits with a sign, in units of ``2**-16``; whole codes that are added.
    shift : int
        Bits by which products are moved down.
    zero_point, low, high : int
        The code of 0; least and greatest code of the result.
    bits : int
        Bits of an accumulator that the NPU holds, sign included: ``scaled_bits`` of its configuration.
    """

    factor: Integers
    fraction: Integers
    whole: Integers
    shift: int
    zero_point: int
    low: int
    high: int
    bits: int = SCALED_BITS_MAX

    @classmethod
    def of(
        cls,
        scales: Sequence[Fraction],
        terms: Sequence[Fraction],
        shape: tuple[int, ...],
        codes: tuple[int, int, int],
        *,
        up: bool = False,
        bits: int = SCALED_BITS_MAX,
    ) -> FactorRequantisation:
        """Requantisation with the nearest factors.

        Parameters
        ----------
        scales, terms : sequences of Fraction
            By channel: what accumulators are multiplied by, and what is added to that; in codes.
        shape : tuple of int
            That of the arrays.
        codes : tuple of int
            Zero point, least and greatest code.
        up : bool
            Halves are rounded up: what a table of fractions cannot tell from a half is one.
        bits : int
            Bits of an accumulator, sign included.

        Raises
        ------
        ScaleError
            If a scale is not in [0, 1), or results beyond 2047 are not beyond all codes.
        """
        if not all(0 <= scale < 1 for scale in scales):
            worst = max(scales, key=lambda scale: abs(scale - Fraction(1, 2)))
            raise ScaleError(f"scales of accumulators must be below 1, not {float(worst):g}")
        largest = max(scales)
        shift = max(k for k in range(_MOST_SHIFT + 1) if k == 0 or largest * (_ONE << k) <= _MOST_FACTOR)
        factor = np.array([min(round(scale * (_ONE << shift)), _MOST_FACTOR) for scale in scales], dtype=np.int64)
        rounded = np.array([round(term * _ONE) for term in terms], dtype=np.int64) + up
        whole = rounded + _ONE // 2 >> SCALE_FRACTION_BITS
        factor, fraction, whole = (array.reshape(shape) for array in (factor, rounded - whole * _ONE, whole))
        made = cls(factor, fraction, whole, shift, *codes, bits)
        reach = SCALED_MAX - int(np.abs(whole).max())
        if reach < max(abs(end - made.zero_point) for end in (made.low, made.high)):
            raise ScaleError(f"terms must leave codes below {SCALED_MAX}, not be {int(np.abs(whole).max())} codes")
        return made

    @cached_property
    def ends(self) -> tuple[int, int]:
        """Least and greatest code less the zero point."""
        return self.low - self.zero_point, self.high - self.zero_point

    def largest_error(self, reach: Integers | None = None) -> float:
        """Number of codes by which a result may differ from that of the exact scales, halves apart.

        ``reach`` are the largest magnitudes of accumulators, by factor; without it, any code may be the result.
        """
        factor, term = self.factor.ravel(), (self.whole + self.fraction / _ONE).ravel()
        products = np.max([abs(end - term) for end in self.ends], axis=0)  # of results that are codes
        errors = products / (2 * np.maximum(factor, 1))
        if reach is not None:
            errors = np.minimum(errors, reach / 2.0 ** (SCALE_FRACTION_BITS + self.shift + 1))
        return float(errors[factor > 0].max(initial=0.0))

    @property
    def limits(self) -> tuple[int, int]:
        return limits(self.bits)

    def _codes(self, sums: Integers, axis: int) -> Integers:
        numbers = scaled(sums, self.factor, self.fraction, self.shift) + self.whole
        return np.asarray(np.clip(numbers, *self.ends)) + self.zero_point
