"""The quantisation schemes of [transfer-lut], and the index of the NPU's tables as one more."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from concord.functions.tables import SCALES
from concord.spec.formats import Rounding
from concord.spec.widths import limits
from concord.transfer.scheme import MAX_BITS, CodeRange, Scheme, require_finite, require_integer

#: Exponents of float64: no Qm.n beyond them is of use.
_FRACTIONS = (-1022, 1022)
_INDEX = limits(MAX_BITS)


class _Ranged(Scheme):
    """Codes are those of ``bits`` bits in the range ``codes``."""

    bits: int
    codes: CodeRange

    def __post_init__(self) -> None:
        if not isinstance(self.codes, CodeRange):
            raise ValueError(f"codes must be a CodeRange, not {self.codes!r}")
        if self.rounding not in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY):
            raise ValueError(
                f"rounding must be NEAREST_EVEN or NEAREST_AWAY, as a table is fixed, not {self.rounding!r}"
            )

    @property
    def low(self) -> int:
        return self.codes.ends(self.bits)[0]

    @property
    def high(self) -> int:
        return self.codes.ends(self.bits)[1]


class _Scaled(_Ranged):
    """The step is given, as ``scale``."""

    scale: float | Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("bits", self.bits, 1, MAX_BITS)
        require_finite("scale", self.scale)
        if self.scale <= 0:
            raise ValueError(f"scale must be positive, not {self.scale!r}")

    @property
    def step(self) -> Fraction:
        return Fraction(self.scale)


@dataclass(frozen=True)
class UniformAffine(_Scaled):
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
        super().__post_init__()
        require_integer("zero_point", self.zero_point, self.low, self.high)

    @property
    def zero(self) -> int:
        return self.zero_point


@dataclass(frozen=True)
class MinMax(_Ranged):
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
        super().__post_init__()
        require_integer("bits", self.bits, 2 if self.codes is CodeRange.SYMMETRIC else 1, MAX_BITS)
        require_finite("minimum", self.minimum)
        require_finite("maximum", self.maximum)
        if self.minimum > self.maximum:
            raise ValueError(f"minimum must be at most maximum={self.maximum!r}, not {self.minimum!r}")
        if self.minimum == self.maximum == 0:
            raise ValueError("the range from minimum to maximum must not be 0 alone")

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
class Symmetric(_Scaled):
    """``number = scale * code`` with the codes ``-(2**(bits-1) - 1) .. 2**(bits-1) - 1``.

    Parameters
    ----------
    bits, scale, rounding
        As of :class:`UniformAffine`; with one bit, 0 is the only code.
    """

    bits: int
    scale: float | Fraction
    codes: CodeRange = field(default=CodeRange.SYMMETRIC, init=False, repr=False)
    rounding: Rounding = Rounding.NEAREST_EVEN


@dataclass(frozen=True)
class FixedPoint(_Ranged):
    """Qm.n: ``number = code * 2**-fraction``.

    ``integer`` does not count the sign: a signed Qm.n has 1 + m + n bits (Q0.7 are 8), an unsigned one m + n. One
    of the two may be negative: Q-2.9 are 8 bits for numbers below 1/4.

    Parameters
    ----------
    integer, fraction : int
        m and n.
    bits : int
        Bits of a code; follows from the others.
    codes, rounding
        As of :class:`UniformAffine`.
    """

    integer: int
    fraction: int
    bits: int = field(init=False, repr=False, compare=False)
    codes: CodeRange = CodeRange.SIGNED
    rounding: Rounding = Rounding.NEAREST_EVEN

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("fraction", self.fraction, *_FRACTIONS)
        sign = self.codes is not CodeRange.UNSIGNED
        require_integer("integer", self.integer, 1 - sign - self.fraction, MAX_BITS - sign - self.fraction)
        object.__setattr__(self, "bits", self.integer + self.fraction + sign)

    @property
    def step(self) -> Fraction:
        return Fraction(2) ** -self.fraction


@dataclass(frozen=True)
class TableIndex(Scheme):
    """The index of the NPU's tables: ``clamp(rne(x * 2**scale), first, last)``, see :class:`concord.functions.Table`.

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
