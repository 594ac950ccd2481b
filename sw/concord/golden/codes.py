"""Codes: integers that stand for equidistant numbers, the format of everything that is not block floating point.

A code stands for ``(code - zero) * scale``, exactly; scales are fractions. Back, ``code = clamp(round(number / scale) +
zero, low, high)``, as ONNX's QuantizeLinear does: the zero point is added after rounding. Infinities give the end they
are near; NaN is refused.

A number by itself is rounded once (:meth:`Codes.quantize`). Arrays of floats are divided in their own type, binary32 or
binary64, as the kernels of quantised models do it, and the quotient is rounded (:meth:`Codes.codes_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.golden.rounding import round_floats, round_number
from concord.spec.formats import Rounding
from concord.spec.widths import largest
from concord.utils.arrays import FloatArray, Ints

#: Most bits of codes.
MAX_CODE_BITS = 64
#: Roundings of codes.
CODE_ROUNDINGS = (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY, Rounding.FLOOR)
#: Exponents of binary64: no power of two beyond them is of use as a scale.
_EXPONENTS = (-1022, 1022)
#: Types of codes in an array, little endian.
_TYPES = tuple(np.dtype(name) for name in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"))
#: Codes of more bits are not all exact in binary64.
_EXACT_BITS = 53


class CodeRange(Enum):
    """Codes of ``bits`` bits that are used."""

    UNSIGNED = "unsigned"  #: ``0 .. 2**bits - 1``
    SIGNED = "signed"  #: ``-2**(bits-1) .. 2**(bits-1) - 1``
    SYMMETRIC = "symmetric"  #: ``-(2**(bits-1) - 1) .. 2**(bits-1) - 1``; with one bit only 0

    @classmethod
    def of(cls, signed: bool) -> CodeRange:
        """The range of a type of integers."""
        return cls.SIGNED if signed else cls.UNSIGNED

    def ends(self, bits: int) -> tuple[int, int]:
        """Least and greatest code."""
        if self is CodeRange.UNSIGNED:
            return 0, (1 << bits) - 1
        top = largest(bits)
        return (-top if self is CodeRange.SYMMETRIC else -top - 1), top


def require_integer(name: str, value: object, low: int, high: int) -> None:
    """``ValueError`` unless the value is an integer of the range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in {low}..{high}, not {value!r}")


def require_finite(name: str, value: object) -> None:
    """``ValueError`` unless the value is a number that is neither infinite nor NaN."""
    exact = isinstance(value, int | Fraction) and not isinstance(value, bool)
    if not exact and not (isinstance(value, float) and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number, not {value!r}")


def number_of(value: Fraction | Decimal | float) -> Fraction | Decimal | float:
    """The number to round: an infinity as a float, all others exactly; ``ValueError`` for NaN."""
    if isinstance(value, float | Decimal) and math.isnan(value):
        raise ValueError("number must not be NaN")
    if isinstance(value, Decimal) and value.is_infinite():
        return float(value)
    return Fraction(value) if isinstance(value, int) else value


def checked(codes: ArrayLike, low: int, high: int) -> NDArray[np.integer[Any]]:
    """Codes as an array; ``ValueError`` if they are not integers in ``low..high``."""
    array = np.asarray(codes)
    if array.dtype.kind not in "iu":
        raise ValueError(f"codes must be integers, not {array.dtype}")
    if array.size and not low <= array.min() <= array.max() <= high:
        raise ValueError(f"codes must be in {low}..{high}, not {array.min()}..{array.max()}")
    return array


@dataclass(frozen=True, init=False)
class Codes:
    """Integers of some bits and the numbers that they stand for: ``(code - zero) * scale``.

    Parameters
    ----------
    bits : int
        Width of a code, 1 to 64.
    scales : number, or one for each index of ``axis``
        Positive; a float counts exactly.
    zeros : int, or one for each index of ``axis``
        The code of 0, one of the codes; if the least and the greatest one are given, any that the width has besides.
    range : CodeRange or pair of int
        Which codes are used: a range of the width, or the least and the greatest one.
    rounding : Rounding
        ``NEAREST_EVEN``, ``NEAREST_AWAY`` or ``FLOOR``, of the quotient of a number and the scale.
    axis : int or None
        Axis of a tensor with a scale and a zero point for each index; ``None``: there is one of both.
    """

    bits: int
    scales: tuple[Fraction, ...]
    zeros: tuple[int, ...]
    range: CodeRange | tuple[int, int]
    rounding: Rounding
    axis: int | None

    def __init__(
        self,
        bits: int,
        scales: Fraction | Iterable[Fraction] | ArrayLike,
        zeros: ArrayLike = 0,
        range: CodeRange | tuple[int, int] = CodeRange.SIGNED,
        rounding: Rounding = Rounding.NEAREST_EVEN,
        axis: int | None = None,
    ):
        require_integer("bits", bits, 1, MAX_CODE_BITS)
        if rounding not in CODE_ROUNDINGS:
            raise ValueError(
                f"rounding must be NEAREST_EVEN, NEAREST_AWAY or FLOOR, as codes are fixed, not {rounding!r}"
            )
        ends = _ends(bits, range)
        for scale in (steps := np.asarray(scales).reshape(-1).tolist()):
            require_finite("scale", scale)
            if scale <= 0:
                raise ValueError(f"scale must be positive, not {scale!r}")
        for zero in (origins := np.asarray(zeros).reshape(-1).tolist()):
            require_integer("zero point", zero, *_origins(bits, range, ends))
        origins = origins * len(steps) if len(origins) == 1 else origins
        if not len(steps) == len(origins) >= 1 or (axis is None and len(steps) > 1):
            raise ValueError(f"scales must be one, or one for each index of an axis, not {len(steps)} for axis {axis}")
        alike = next((known for known in CodeRange if known.ends(bits) == ends), ends)
        values = bits, tuple(map(Fraction, steps)), tuple(origins), alike, rounding, axis
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    @classmethod
    def symmetric(cls, bits: int, scale: float | Fraction, rounding: Rounding = Rounding.NEAREST_EVEN) -> Codes:
        """Codes as many of which are below 0 as above; with one bit, 0 is the only one."""
        return cls(bits, scale, 0, CodeRange.SYMMETRIC, rounding)

    @classmethod
    def of_range(
        cls,
        bits: int,
        minimum: float | Fraction,
        maximum: float | Fraction,
        range: CodeRange = CodeRange.UNSIGNED,
        rounding: Rounding = Rounding.NEAREST_EVEN,
    ) -> Codes:
        """Codes of the range of a tensor.

        The range is first made to contain 0. Then, as in ONNX's DynamicQuantizeLinear but in exact arithmetic, ``scale
        = (maximum - minimum) / (high - low)`` and ``zero = clamp(rne(low - minimum / scale), low, high)``.

        Raises
        ------
        ValueError
            If the range is 0 alone or not finite, or if there is one code, which has no scale.
        """
        require_integer("bits", bits, 2 if range is CodeRange.SYMMETRIC else 1, MAX_CODE_BITS)
        require_finite("minimum", minimum)
        require_finite("maximum", maximum)
        if minimum > maximum:
            raise ValueError(f"minimum must be at most maximum={maximum!r}, not {minimum!r}")
        if minimum == maximum == 0:
            raise ValueError("the range from minimum to maximum must not be 0 alone")
        bottom, top = min(Fraction(minimum), Fraction(0)), max(Fraction(maximum), Fraction(0))
        low, high = range.ends(bits)
        scale = (top - bottom) / (high - low)
        return cls(bits, scale, min(max(round(low - bottom / scale), low), high), range, rounding)

    @classmethod
    def fixed_point(
        cls,
        integer: int,
        fraction: int,
        range: CodeRange = CodeRange.SIGNED,
        rounding: Rounding = Rounding.NEAREST_EVEN,
    ) -> Codes:
        """Qm.n: ``number = code * 2**-fraction``.

        ``integer`` does not count the sign: a signed Qm.n has 1 + m + n bits (Q0.7 are 8), an unsigned one m + n. One
        of the two may be negative: Q-2.9 are 8 bits for numbers below 1/4.
        """
        sign = range is not CodeRange.UNSIGNED
        require_integer("fraction", fraction, *_EXPONENTS)
        require_integer("integer", integer, 1 - sign - fraction, MAX_CODE_BITS - sign - fraction)
        return cls(integer + fraction + sign, Fraction(2) ** -fraction, 0, range, rounding)

    def __str__(self) -> str:
        """Type and meaning of the codes, such as ``uint8, zero point 3, scale 0.125``."""
        zero = f"zero point {_text(self.zeros)}, " if any(self.zeros) else ""
        return f"{self.code_type}, {zero}scale {_text(self.scales)}"

    @property
    def scale(self) -> Fraction:
        """Difference of the numbers of neighbouring codes; ``ValueError`` if there is one for each index of an axis."""
        (scale,) = self.scales
        return scale

    @property
    def zero(self) -> int:
        """The code of 0; ``ValueError`` if there is one for each index of an axis."""
        (zero,) = self.zeros
        return zero

    @cached_property
    def ends(self) -> tuple[int, int]:
        """Least and greatest code."""
        return self.range.ends(self.bits) if isinstance(self.range, CodeRange) else self.range

    @property
    def low(self) -> int:
        """Least code, minR of [transfer-lut]."""
        return self.ends[0]

    @property
    def high(self) -> int:
        """Greatest code."""
        return self.ends[1]

    @property
    def count(self) -> int:
        """Number of codes."""
        return self.high - self.low + 1

    @property
    def signed(self) -> bool:
        """True if there are codes below 0."""
        return self.low < 0

    @property
    def code_type(self) -> str:
        """Type of the codes, such as ``"uint8"``."""
        return f"{'' if self.signed else 'u'}int{self.bits}"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The least type of NumPy that has all codes, little endian."""
        return next(kind for kind in _TYPES if np.iinfo(kind).min <= self.low and self.high <= np.iinfo(kind).max)

    def reach(self, zero: int | None = None) -> int:
        """Largest magnitude of a code less its zero point, or less another integer."""
        origin = self.zero if zero is None else zero
        return max(self.high - origin, origin - self.low)

    @property
    def exponents(self) -> tuple[int, ...] | None:
        """Exponents of the scales as powers of two; ``None`` if one is none."""
        exponents = tuple(s.numerator.bit_length() - s.denominator.bit_length() for s in self.scales)
        powers = (Fraction(2) ** exponent for exponent in exponents)
        return exponents if all(map(Fraction.__eq__, powers, self.scales)) else None

    def quantize(self, number: Fraction | Decimal | float) -> int:
        """The code of a number, rounded once and saturated; ``ValueError`` for NaN."""
        value = number_of(number)
        if isinstance(value, float) and math.isinf(value):
            return self.high if value > 0 else self.low
        return min(max(round_number(Fraction(value) / self.scale, self.rounding) + self.zero, self.low), self.high)

    def dequantize(self, code: int) -> Fraction:
        """The number of a code; ``ValueError`` if there is no such code."""
        require_integer("code", code, self.low, self.high)
        return (code - self.zero) * self.scale

    def check(self, codes: ArrayLike) -> NDArray[np.integer[Any]]:
        """Codes as an array; ``ValueError`` if they are not integers in ``low..high``."""
        return checked(codes, self.low, self.high)

    @cached_property
    def steps(self) -> FloatArray:
        """Scales in binary64: one number, or an array with one for each index of the axis."""
        return self._shaped([float(scale) for scale in self.scales], np.float64)

    @cached_property
    def zero_points(self) -> Ints:
        """Zero points in an array of the shape of ``steps``."""
        return self._shaped(self.zeros, np.int64)

    @cached_property
    def offsets(self) -> tuple[Ints, Ints]:
        """Least and greatest code, less the zero point; of the shape of ``steps``."""
        low, high = ([end - zero for zero in self.zeros] for end in self.ends)
        return self._shaped(low, np.int64), self._shaped(high, np.int64)

    @property
    def span(self) -> tuple[FloatArray, FloatArray]:
        """Least and greatest number of the codes in binary64; of the shape of ``steps``."""
        low, high = self.offsets
        return low * self.steps, high * self.steps

    def _shaped(self, numbers: Sequence[float], kind: type[np.generic]) -> NDArray[Any]:
        return np.array(numbers, dtype=kind).reshape(() if self.axis is None else -1)

    def _broadcast(self, numbers: ArrayLike, rank: int) -> NDArray[Any]:
        sizes = () if self.axis is None else [-1 if axis == self.axis else 1 for axis in np.arange(rank)]
        return np.asarray(numbers).reshape(sizes)

    def along(self, numbers: ArrayLike, rank: int) -> FloatArray:
        """Numbers of the shape of ``steps``, in a shape that is broadcast to a tensor of ``rank`` axes."""
        return self._broadcast(numbers, rank).astype(np.float64)

    def whole_steps(self, values: ArrayLike) -> FloatArray:
        """Codes of floats less their zero points: quotients in the type of the array, rounded and saturated.

        NaN stays NaN. The array is ``[samples, *shape]`` where there is an axis, which is one of the shape.
        """
        array = np.asarray(values)
        scale, low, high = (self.along(numbers, array.ndim - 1) for numbers in (self.steps, *self.offsets))
        with np.errstate(over="ignore"):
            quotients = array / (scale.astype(np.float32) if array.dtype == np.float32 else scale)
        return np.asarray(np.clip(round_floats(quotients, self.rounding), low, high))

    def rounded(self, values: ArrayLike) -> FloatArray:
        """Numbers of the codes of floats, in binary64: QuantizeLinear and DequantizeLinear, as :meth:`whole_steps`."""
        steps = self.whole_steps(values)
        return np.asarray(steps * self.along(self.steps, steps.ndim - 1) + 0.0)  # no negative zero

    def codes_of(self, values: ArrayLike) -> Ints:
        """Codes of floats, as :meth:`whole_steps`; ``ValueError`` for NaN."""
        steps = self.whole_steps(values)
        if np.isnan(steps).any():
            raise ValueError("inputs must be numbers, not NaN")
        zero, low, high = (self._broadcast(each, steps.ndim - 1) for each in (self.zero_points, *self.offsets))
        if self.bits <= _EXACT_BITS:
            return np.asarray(steps.astype(np.int64) + zero)
        inside = np.minimum(steps, np.nextafter(2.0**63, 0)).astype(np.int64)
        return np.asarray(np.where(steps < high, np.where(steps > low, inside, low), high) + zero)


def _ends(bits: int, codes: object) -> tuple[int, int]:
    """Least and greatest code of a range of Codes."""
    if isinstance(codes, CodeRange):
        return codes.ends(bits)
    if not isinstance(codes, tuple) or len(codes) != 2:
        raise ValueError(f"range must be a CodeRange or the least and the greatest code, not {codes!r}")
    low, high = codes
    require_integer("least code", low, 1 - (1 << bits), (1 << bits) - 1)
    require_integer("greatest code", high, low, low + (1 << bits) - 1)
    return low, high


def _origins(bits: int, codes: object, ends: tuple[int, int]) -> tuple[int, int]:
    """Least and greatest zero point: of a CodeRange its codes, else also those that the width has besides."""
    return ends if isinstance(codes, CodeRange) else (ends[1] - (1 << bits) + 1, ends[0] + (1 << bits) - 1)


def _text(numbers: Sequence[float | Fraction]) -> str:
    """The numbers, or the least and the greatest one."""
    least, most = (f"{float(end):g}" for end in (min(numbers), max(numbers)))
    return least if least == most else f"{least} to {most}"
