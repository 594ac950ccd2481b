"""The quantisation schemes of [transfer-lut], and the index of the NPU's tables as one more."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from ..spec.formats import Rounding
from ..tables import SCALES
from .scheme import MAX_BITS, CodeRange, Scheme, require_finite, require_integer

#: Exponents of float64: no Qm.n beyond them is of use.
_FRACTIONS = (-1022, 1022)
_INDEX = (-(1 << MAX_BITS - 1), (1 << MAX_BITS - 1) - 1)


def _require_choice(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, not {value!r}")


def _require_rounding(value: object) -> None:
    if value not in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY):
        raise ValueError(f"rounding must be NEAREST_EVEN or NEAREST_AWAY, as a table is fixed, not {value!r}")


def _require_positive(name: str, value: float | Fraction) -> None:
    require_finite(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be positive, not {value!r}")


@dataclass(frozen=True)
class UniformAffine(Scheme):
    """``number = scale * (code - zero_point)``.

    Parameters
    ----------
    bits : int
        1 to 16.
    scale : float or Fraction
        Step, positive; a float counts exactly.
    zero_point : int
        The code of 0, one of the codes.
    codes : CodeRange
        Which codes are used.
    rounding : Rounding
        ``NEAREST_EVEN`` or ``NEAREST_AWAY``.
    """

    bits: int
    scale: float | Fraction
    zero_point: int = 0
    codes: CodeRange = CodeRange.SIGNED
    rounding: Rounding = Rounding.NEAREST_EVEN

    def __post_init__(self) -> None:
        require_integer("bits", self.bits, 1, MAX_BITS)
        _require_choice("codes", self.codes, CodeRange)
        _require_positive("scale", self.scale)
        require_integer("zero_point", self.zero_point, self.low, self.high)
        _require_rounding(self.rounding)

    @property
    def low(self) -> int:
        return self.codes.ends(self.bits)[0]

    @property
    def high(self) -> int:
        return self.codes.ends(self.bits)[1]

    @property
    def step(self) -> Fraction:
        return Fraction(self.scale)

    @property
    def zero(self) -> int:
        return self.zero_point


@dataclass(frozen=True)
class MinMax(Scheme):
    """Asymmetric quantisation of the range of a tensor.

    The range is first made to contain 0. Then, as in ONNX's DynamicQuantizeLinear but in exact arithmetic, ``step =
    (maximum - minimum) / (high - low)`` and ``zero = clamp(rne(low - minimum / step), low, high)``.

    Parameters
    ----------
    bits : int
        1 to 16; with a symmetric range 2 to 16, as one code has no step.
    minimum, maximum : float or Fraction
        The range, which must not be 0 alone.
    codes, rounding
        As of :class:`UniformAffine`.
    """

    bits: int
    minimum: float | Fraction
    maximum: float | Fraction
    codes: CodeRange = CodeRange.UNSIGNED
    rounding: Rounding = Rounding.NEAREST_EVEN

    def __post_init__(self) -> None:
        _require_choice("codes", self.codes, CodeRange)
        require_integer("bits", self.bits, 2 if self.codes is CodeRange.SYMMETRIC else 1, MAX_BITS)
        require_finite("minimum", self.minimum)
        require_finite("maximum", self.maximum)
        if self.minimum > self.maximum:
            raise ValueError(f"minimum must be at most maximum={self.maximum!r}, not {self.minimum!r}")
        if self.minimum == self.maximum == 0:
            raise ValueError("the range from minimum to maximum must not be 0 alone")
        _require_rounding(self.rounding)

    @property
    def low(self) -> int:
        return self.codes.ends(self.bits)[0]

    @property
    def high(self) -> int:
        return self.codes.ends(self.bits)[1]

    @cached_property
    def step(self) -> Fraction:
        return (max(Fraction(self.maximum), Fraction(0)) - self._bottom) / (self.high - self.low)

    @cached_property
    def zero(self) -> int:
        return min(max(round(self.low - self._bottom / self.step), self.low), self.high)

    @property
    def _bottom(self) -> Fraction:
        return min(Fraction(self.minimum), Fraction(0))


@dataclass(frozen=True)
class Symmetric(Scheme):
    """``number = scale * code`` with the codes ``-(2**(bits-1) - 1) .. 2**(bits-1) - 1``.

    Parameters
    ----------
    bits, scale, rounding
        As of :class:`UniformAffine`; with one bit, 0 is the only code.
    """

    bits: int
    scale: float | Fraction
    rounding: Rounding = Rounding.NEAREST_EVEN

    def __post_init__(self) -> None:
        require_integer("bits", self.bits, 1, MAX_BITS)
        _require_positive("scale", self.scale)
        _require_rounding(self.rounding)

    @property
    def low(self) -> int:
        return CodeRange.SYMMETRIC.ends(self.bits)[0]

    @property
    def high(self) -> int:
        return CodeRange.SYMMETRIC.ends(self.bits)[1]

    @property
    def step(self) -> Fraction:
        return Fraction(self.scale)


@dataclass(frozen=True)
class FixedPoint(Scheme):
    """Qm.n: ``number = code * 2**-fraction``.

    ``integer`` does not count the sign: a signed Qm.n has 1 + m + n bits (Q0.7 are 8), an unsigned one m + n. One
    of the two may be negative: Q-2.9 are 8 bits for numbers below 1/4.

    Parameters
    ----------
    integer, fraction : int
        m and n.
    codes, rounding
        As of :class:`UniformAffine`.
    """

    integer: int
    fraction: int
    codes: CodeRange = CodeRange.SIGNED
    rounding: Rounding = Rounding.NEAREST_EVEN

    def __post_init__(self) -> None:
        _require_choice("codes", self.codes, CodeRange)
        require_integer("fraction", self.fraction, *_FRACTIONS)
        least = 1 if self.codes is CodeRange.UNSIGNED else 0
        require_integer("integer", self.integer, least - self.fraction, MAX_BITS - 1 + least - self.fraction)
        _require_rounding(self.rounding)

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.integer + self.fraction + (self.codes is not CodeRange.UNSIGNED)

    @property
    def low(self) -> int:
        return self.codes.ends(self.bits)[0]

    @property
    def high(self) -> int:
        return self.codes.ends(self.bits)[1]

    @property
    def step(self) -> Fraction:
        return Fraction(2) ** -self.fraction


@dataclass(frozen=True)
class TableIndex(Scheme):
    """The index of the NPU's tables: ``clamp(rne(x * 2**scale), first, last)``, see :class:`concord.tables.Table`.

    Parameters
    ----------
    first, last : int
        Least and greatest code, any range of 16-bit two's complement.
    scale : int
        log2 of codes per unit of the input.
    """

    first: int
    last: int
    scale: int
    rounding: Rounding = field(default=Rounding.NEAREST_EVEN, init=False, repr=False)

    def __post_init__(self) -> None:
        require_integer("first", self.first, *_INDEX)
        require_integer("last", self.last, self.first, _INDEX[1])
        require_integer("scale", self.scale, SCALES[0], SCALES[-1])

    @property
    def low(self) -> int:
        return self.first

    @property
    def high(self) -> int:
        return self.last

    @property
    def step(self) -> Fraction:
        return Fraction(2) ** -self.scale
