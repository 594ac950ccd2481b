"""From the sum of a channel to its code: statements for every kind of requantisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.rounding import FixedScale, SumRange, binary32_literal
from concord.integer.float32 import Binary32
from concord.integer.npu.factors import FactorRequantisation
from concord.integer.requantise import ACCUMULATOR, FloatRequantisation, Requantisation, Requantiser
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.wide import Dequantisation, integers_of
from concord.spec.formats import SCALE_FRACTION_BITS


class ChannelCodes(ABC):
    """Writes how the sum of a channel becomes a code.

    Parameters
    ----------
    function : ExactFunction
    how : Requantiser
    bound : int
        Upper bound of the magnitude of sums.
    """

    def __init__(self, function: ExactFunction, how: Any, bound: int) -> None:
        self.function = function
        self.range = SumRange(bound, how.limits)
        self.rounding = function.rounding(how.zero_point, how.low, how.high)

    def of_sum(self, total: str) -> tuple[list[str], str]:
        """Statements in front, and the code of a sum of the channel ``c``."""
        self.function.overflows |= not self.range.fits
        before, code = self._of_total()
        return [f"const {self.range.total_kind}_t total = {self.range.fitted(total)};", *before], code

    @abstractmethod
    def _of_total(self) -> tuple[list[str], str]:
        """Statements in front, and the code of ``total``, which fits."""


class _ProductCodes(ChannelCodes):
    """Codes by a product of binary32."""

    def __init__(self, function: ExactFunction, how: Requantisation, bound: int) -> None:
        super().__init__(function, how, bound)
        scale = FixedScale.of(how.scale)
        self._significand = function.of_channels(scale.significands, "int32", "scales")
        self._shift = function.of_channels(scale.shifts, "uint8", "shifts")

    def _of_total(self) -> tuple[list[str], str]:
        return [], self.rounding.of_product(f"{self.range.in_binary32('total')} * {self._significand}", self._shift)


class _FloatCodes(ChannelCodes):
    """Codes in the steps of binary32 that a model has."""

    def __init__(self, function: ExactFunction, how: FloatRequantisation, bound: int) -> None:
        super().__init__(function, how, bound)
        self._factor, self._term = self._numbers(how.factor, "factors"), self._numbers(how.term, "terms")
        self._step = binary32_literal(Binary32.of(how.step))

    def _numbers(self, values: NDArray[np.float32], word: str) -> str:
        """Numbers of binary32 by channel."""
        numbers = Binary32.of(values.reshape(-1))
        mantissa = self.function.of_channels(numbers.mantissa, "int32", word)
        exponent = self.function.of_channels(numbers.exponent, "int16", f"{word} exponents")
        return f"(binary32){{{mantissa}, {exponent}}}"

    def _of_total(self) -> tuple[list[str], str]:
        before = [
            f"const binary32 scaled = binary32_product(binary32_rounded(total, 0), {self._factor});",
            f"const binary32 steps = binary32_quotient(binary32_sum(scaled, {self._term}), {self._step});",
        ]
        return before, self.rounding.of_binary32("steps")


class FixedPointFactor:
    """Writes products with multipliers in fixed point, rounded twice.

    Parameters
    ----------
    function : ExactFunction
    scale : FixedPointMultiplier
        One, or one for each channel ``c``.
    bound : int
        Upper bound of the magnitude of the multiplicand.
    up : int
        Bits by which the multiplicand is moved up first.

    Members
    -------
    bound : int
        Upper bound of the magnitude of products.
    """

    def __init__(self, function: ExactFunction, scale: FixedPointMultiplier, bound: int, up: int = 0) -> None:
        self.function = function
        ups = np.maximum(scale.shift, 0) + up
        moved = bound << int(ups.max())
        self._fits = moved <= ACCUMULATOR[1]
        self._up = function.of_channels(ups, "uint8", "shifts up") if ups.any() else ""
        self._multiplier = function.of_channels(scale.multiplier, "int32", "multipliers")
        down = np.maximum(-scale.shift, 0)
        self._down = function.of_channels(down, "uint8", "shifts")
        self.bound = (min(moved, ACCUMULATOR[1]) * int(scale.multiplier.max()) >> 31 + int(down.min())) + 1

    def times(self, number: str) -> str:
        """The product of a number of 32 bits; ``raised`` is set if it has more when it is moved up."""
        if not self._fits:
            self.function.overflows = True
            number = f"fitted((int64_t){number} * ((int64_t)1 << {self._up or 0}), &raised)"
        elif self._up:
            number = f"{number} * (1 << {self._up})"
        return f"fixed_point_product({number}, {self._multiplier}, {self._down})"


class _FixedPointCodes(ChannelCodes):
    """Codes by a product in fixed point, rounded twice."""

    def __init__(self, function: ExactFunction, how: FixedPointRequantisation, bound: int) -> None:
        super().__init__(function, how, bound)
        self._factor = FixedPointFactor(function, how.scale, min(bound, ACCUMULATOR[1]))

    def _of_total(self) -> tuple[list[str], str]:
        return [], self.rounding.of_number(self._factor.times("total"))


class _WideCodes(ChannelCodes):
    """Codes by a product in fixed point of a sum of 48 bits, rounded once."""

    def __init__(self, function: ExactFunction, how: FixedPointRequantisation, bound: int) -> None:
        super().__init__(function, how, bound)
        factor, down = how.scale.reduced
        self._factor = function.of_channels(factor, "int16", "multipliers")
        self._down = function.of_channels(down, "uint8", "shifts")

    def _of_total(self) -> tuple[list[str], str]:
        return [], self.rounding.of_number(f"rounded_product(total, {self._factor}, {self._down})")


class _Binary64Codes(ChannelCodes):
    """Codes by a product of binary64."""

    def __init__(self, function: ExactFunction, how: Binary64Requantisation, bound: int) -> None:
        super().__init__(function, how, bound)
        self._significand = function.of_channels(how.significand, "int64", "scales")
        self._exponent = function.of_channels(how.exponent, "int16", "exponents")

    def _of_total(self) -> tuple[list[str], str]:
        return [], self.rounding.of_number(f"binary64_product(total, {self._significand}, {self._exponent})")


class _FactorCodes(ChannelCodes):
    """Codes by factors of 16 bits, as an NPU computes them."""

    def __init__(self, function: ExactFunction, how: FactorRequantisation, bound: int) -> None:
        super().__init__(function, how, bound)
        self._factor, self._fraction, self._whole = (
            function.of_channels(values, kind, word)
            for values, kind, word in (
                (how.factor, "int32", "factors"),
                (how.fraction, "int16", "fractions"),
                (how.whole, "int16", "whole codes"),
            )
        )
        self._shift = how.shift

    def _of_total(self) -> tuple[list[str], str]:
        number = factor_number("total", self._factor, self._fraction, self._shift)
        return [], self.rounding.of_number(number if self._whole == "0" else f"{number} + {self._whole}")


def factor_number(total: str, factor: str, fraction: str, shift: int) -> str:
    """The nearest integer of a sum times a factor plus a fraction; what ``vv_scale`` limits is beyond all codes."""
    moved = f"shifted_down((int64_t){total} * {factor}, {shift})"
    return f"shifted_to_even({moved if fraction == '0' else f'{moved} + {fraction}'}, {SCALE_FRACTION_BITS})"


class _ChannelNumbers(ChannelCodes):
    """Wide numbers, in the steps of binary32."""

    def __init__(self, function: ExactFunction, how: Dequantisation, bound: int) -> None:
        self.function, self.range = function, SumRange(bound, how.limits)
        self._factor = function.of_channels(integers_of(how.factor), "int32", "factors")
        self._term = function.of_channels(integers_of(how.term), "int32", "terms")

    def _of_total(self) -> tuple[list[str], str]:
        self.function.overflows = True
        before = [
            "const int32_t number = wide_rounded(total, 0, &raised);",
            f"const int32_t scaled = wide_numbers_product(number, {self._factor}, &raised);",
        ]
        return before, "scaled" if self._term == "0" else f"wide_numbers_sum(scaled, {self._term}, &raised)"


def channel_codes(function: ExactFunction, how: Requantiser, bound: int) -> ChannelCodes:
    """Writer of a requantisation of sums up to ``bound`` in magnitude."""
    if isinstance(how, FixedPointRequantisation) and how.wide:
        return _WideCodes(function, how, bound)
    return _KINDS[type(how)](function, how, bound)


#: By the class of a requantisation, the narrow one of the two in fixed point.
_KINDS: dict[type[Requantiser], Callable[[ExactFunction, Any, int], ChannelCodes]] = {
    Requantisation: _ProductCodes,
    FloatRequantisation: _FloatCodes,
    FixedPointRequantisation: _FixedPointCodes,
    Binary64Requantisation: _Binary64Codes,
    Dequantisation: _ChannelNumbers,
    FactorRequantisation: _FactorCodes,
}
