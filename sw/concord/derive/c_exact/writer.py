"""Operations on arrays in C: values that loops compute as they write a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.nests import ProductSumSource, SumSource, WindowSource
from concord.derive.c_exact.rounding import CodeRounding, binary32_literal
from concord.derive.c_exact.statements import NUMBER, SCALED, kind_of, power_of_two
from concord.derive.c_exact.values import Expression, constant_of
from concord.derive.exact.arrays import ArrayWriter, WindowPlaces
from concord.integer.float32 import Binary32, Integers
from concord.integer.requantise import ACCUMULATOR, ACCUMULATOR_BITS
from concord.integer.tflite.fixed_point import LEAST, MOST
from concord.integer.tflite.operations import LEAST_16, MOST_16, POWERS_16, RECIPROCALS_16, InterpolatedSoftmax
from concord.integer.wide import integers_of
from concord.spec.widths import limits
from concord.sums.exact import EXACT_UP_TO


def _bounds(*ends: Any) -> tuple[Any, Any]:
    """The least and the greatest of bounds, element by element."""
    arrays = np.broadcast_arrays(*(np.asarray(end, dtype=object) for end in ends))
    stacked = np.stack(arrays)
    return stacked.min(axis=0), stacked.max(axis=0)


class CWriter(ArrayWriter):
    """Makes values of C.

    Parameters
    ----------
    function : ExactFunction
        What has the tables.
    """

    any_samples = False

    def __init__(self, function: ExactFunction) -> None:
        self._function = function

    def integers(self, values: Any, hint: str) -> Expression:
        return constant_of(np.asarray(values, dtype=np.int64), hint)

    def numbers(self, values: Any, hint: str) -> Expression:
        return constant_of(np.asarray(values, dtype=np.float32), hint, real=True)

    # ---- Arithmetic.

    def _infix(self, head: str, a: Any, b: Any) -> Expression:
        ends = [np.asarray(end, dtype=object) for end in (a.low, a.high, b.low, b.high)]
        match head:
            case "+":
                low, high = ends[0] + ends[2], ends[1] + ends[3]
            case "-":
                low, high = ends[0] - ends[3], ends[1] - ends[2]
            case _:
                low, high = _bounds(*(x * y for x in ends[:2] for y in ends[2:]))
        made = Expression("", False, np.broadcast_shapes(a.shape, b.shape), low, high, head, (a, b))
        return replace(made, wide=a.wide or b.wide or not made.fits)

    def _call(
        self, head: str, parts: Sequence[Expression], ends: tuple[Any, Any], *extra: str, wide: bool = False
    ) -> Expression:
        shape = np.broadcast_shapes(*(part.shape for part in parts))
        return Expression("", False, shape, *ends, head, tuple(parts), extra, wide)

    def _real(self, head: str, *parts: Expression) -> Expression:
        return Expression("", True, np.broadcast_shapes(*(part.shape for part in parts)), head=head, parts=parts)

    def add(self, a: Any, b: Any) -> Expression:
        return self._real("binary32_sum", a, b) if a.real else self._infix("+", a, b)

    def subtract(self, a: Any, b: Any) -> Expression:
        return self._real("binary32_sum", a, self._negated(b)) if a.real else self._infix("-", a, b)

    def _negated(self, a: Expression) -> Expression:
        """A number with the other sign."""
        if a.head != SCALED:
            return self._real("-", a)
        number, scale = a.parts
        assert scale.source is not None and scale.source.constant is not None
        source = replace(scale.source, constant=-scale.source.constant)
        return replace(a, parts=(number, replace(scale, source=source)))

    def multiply(self, a: Any, b: Any) -> Expression:
        if not a.real:
            return self._infix("*", a, b)
        if a.head == SCALED and len(a.parts) == 1 and b.source is not None and b.source.constant is not None:
            number = a.parts[0] if power_of_two(b) is not None else self._in_24_bits(a.parts[0])
            return self._real(SCALED, number, b)
        return self._real("binary32_product", a, b)

    def divide(self, a: Any, b: Any) -> Expression:
        return self._real("binary32_quotient", a, b)

    def to_numbers(self, a: Any) -> Expression:
        return self._real(SCALED, a)

    def to_integers(self, a: Any) -> Expression:
        assert isinstance(a, Expression) and a.head == SCALED and len(a.parts) == 1
        return self._in_24_bits(a.parts[0])

    def _in_24_bits(self, a: Expression) -> Expression:
        """Integers as binary32 has them."""
        if a.magnitude <= EXACT_UP_TO[np.float32]:
            return a
        return self._call("with_24_bits", [a], (2 * np.min(a.low), 2 * np.max(a.high)), wide=True)

    def fused_sum(
        self, parts: tuple[Any, Any], ratios: tuple[np.float32, np.float32], offset: Binary32, name: str
    ) -> Expression:
        made = Expression("", True, extra=(binary32_literal(offset),))
        for part, ratio in zip(parts[::-1], ratios[::-1], strict=True):
            made = self._real("binary32_sum", self._real("binary32_times", self.numbers(ratio, "ratio"), part), made)
        return made

    def to_codes(self, a: Any, zero_point: int, low: int, high: int) -> Expression:
        if a.head == SCALED and len(a.parts) == 2:
            rounding = CodeRounding(zero_point, low, high, "")
            ends = low - zero_point, high - zero_point
            made = self._call("requantised", [a], ends, rounding.near, rounding.ends)
        else:
            made = self._limited(
                self._call("binary32_integer", [a], (0, 0), wide=True), low - zero_point, high - zero_point
            )
        return self._infix("+", made, self.integers(zero_point, "zero")) if zero_point else made

    def to_codes_by_binary64(
        self, a: Any, scale: NDArray[np.float64], zero_point: int, low: int, high: int
    ) -> Expression:
        fraction, exponent = np.frexp(scale)
        parts = (self.integers(np.ldexp(fraction, 53), "scales"), self.integers(exponent - 53, "exponents"))
        made = self._limited(
            self._call("binary64_product", [a, *parts], (0, 0), wide=True), low - zero_point, high - zero_point
        )
        return self._infix("+", made, self.integers(zero_point, "zero")) if zero_point else made

    def shifted_right(self, a: Any, bits: int | Integers) -> Expression:
        return self._shifted("shifted_down", a, bits)

    def shifted_to_even(self, a: Any, bits: int) -> Expression:
        return self._shifted("shifted_to_even", a, bits)

    def _shifted(self, name: str, a: Expression, bits: int | Integers) -> Expression:
        shift, least = self.integers(bits, "shifts"), int(np.min(bits))
        ends = (int(np.min(a.low)) >> least, (int(np.max(a.high)) >> least) + 1)
        return self._call(name, [a, shift], ends, wide=True)

    def fixed_point_product(self, a: Any, multiplier: Integers, down: Integers) -> Expression:
        most = (a.magnitude * int(np.max(multiplier)) >> 31 + int(np.min(down))) + 1
        parts = (self.integers(multiplier, "multipliers"), self.integers(down, "shifts"))
        return self._call("fixed_point_product", [a, *parts], (-most, most))

    def rounded_product(self, a: Any, factor: Integers, down: Integers) -> Expression:
        most = (a.magnitude * int(np.max(factor)) >> int(np.min(down))) + 1
        parts = (self.integers(factor, "multipliers"), self.integers(down, "shifts"))
        return self._call("rounded_product", [a, *parts], (-most, most), wide=True)

    def quotient(self, a: Any, b: Any) -> Expression:
        raise NotImplementedError

    def nearest_quotient(self, a: Any, count: Integers) -> Expression:
        divisor = self.integers(count, "counts")
        most = a.magnitude // max(1, int(np.min(count))) + 1
        return self._call("nearest_quotient", [a, divisor], (-most, most), wide=a.wide)

    def limited(self, a: Any, low: int, high: int) -> Expression:
        match a:
            case Expression(head="+", parts=(part, zero)) if zero.literal is not None:
                made = self._limited(part, low - int(zero.literal), high - int(zero.literal))
                return self._infix("+", made, zero)
        return self._limited(a, low, high)

    def _limited(self, a: Expression, low: int, high: int) -> Expression:
        return self._call("limited", [a], (low, high), str(low), str(high))

    def limited_numbers(self, a: Any, low: float, high: float) -> Expression:
        raise NotImplementedError

    def finite(self, a: Any) -> Expression:
        return self._real("finite", a)

    def in_bits(self, a: Any, bits: int = ACCUMULATOR_BITS) -> Expression:
        return self.within(a, limits(bits), 0)

    def within(self, a: Any, ends: tuple[int, int], bound: int) -> Expression:
        if ends == ACCUMULATOR:
            return self._call("fitted", [a], ends, "&raised")
        texts = (f"INT64_C({end})" for end in ends)
        return self._call("fitted_between", [a], ends, *texts, "&raised", wide=True)

    def look_up(self, table: NDArray[Any], index: Any, low: int, hint: str) -> Expression:
        real = table.dtype == np.float32
        entries = integers_of(table) if real else np.asarray(table)
        name = self._function.table(entries, "int32" if real else kind_of(entries), hint)
        place = self._infix("-", index, self.integers(low, "low")) if low else index
        return Expression("", real, place.shape, int(entries.min()), int(entries.max()), "[]", (place,), (name,))

    # ---- Sums.

    def _sums(self, source: SumSource, bound: Any) -> Expression:
        """Sums up to a bound in magnitude."""
        places = np.arange(prod(source.shape)).reshape(source.shape)
        made = Expression("", False, source.shape, -bound, bound, places=places)
        return replace(made, wide=not made.fits, source=replace(source, wide=not made.fits))

    def matrix_product(self, a: Any, weight: Integers, reach: int) -> Expression:
        bound = np.abs(weight).sum(axis=0).astype(object) * reach
        return self._sums(ProductSumSource(shape=(*a.shape[:-1], weight.shape[1]), rows=a, weight=weight), bound)

    def convolution(self, a: Any, weight: Integers, window: WindowPlaces, groups: int, reach: int) -> Expression:
        bound = np.abs(weight).reshape(len(weight), -1).sum(axis=1).astype(object) * reach
        shape = (a.shape[0], len(weight), *_places(a.shape[2:], window))
        source = ProductSumSource(shape=shape, rows=a, weight=weight, window=window, groups=groups)
        return self._sums(source, bound.reshape(-1, *[1] * len(window.kernel)))

    def product_of_two(self, a: Any, b: Any, bound: int) -> Expression:
        left = a.moved(_numbers(a.shape)[..., None, :])
        right = b.moved(_numbers(b.shape).swapaxes(-1, -2)[..., None, :, :])
        product = self._infix("*", left, right)
        rows = product.moved(_numbers(product.shape).reshape(-1, product.shape[-1]))
        return self._sums(SumSource(shape=product.shape[:-1], rows=rows), bound)

    def total(self, a: Any, axes: Sequence[int]) -> Expression:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(a.shape))
        bound = a.magnitude * prod(a.shape[axis] for axis in axes)
        if isinstance(a.source, WindowSource):
            source = SumSource(shape=shape[:-1], rows=a.source.rows, window=a.source.window)
            return self._sums(source, bound).moved(_numbers(shape))
        kept = [axis for axis in range(len(a.shape)) if axis not in axes]
        order = _numbers(a.shape).transpose(*kept, *axes).reshape(-1, *(a.shape[axis] for axis in axes))
        return self._sums(SumSource(shape=shape, rows=a.moved(order)), bound)

    def windows(self, a: Any, window: WindowPlaces, sizes: Sequence[int]) -> Expression:
        shape = (*a.shape[:2], *_places(tuple(sizes), window), prod(window.kernel))
        low, high = min(int(np.min(a.low)), 0), max(int(np.max(a.high)), 0)
        return Expression(
            "", False, shape, low, high, source=WindowSource(rows=a, window=window), places=_numbers(shape)
        )

    def window_maxima(self, a: Any, window: WindowPlaces) -> Expression:
        shape = (*a.shape[:2], *_places(a.shape[2:], window))
        source = SumSource(shape=shape, rows=a, window=window, kind="greatest")
        return Expression("", a.real, shape, a.low, a.high, source=source, places=_numbers(shape))

    def added_up(self, a: Any) -> Expression:
        return replace(self._of_rows(a, "added up"), head=NUMBER)

    def greatest(self, a: Any) -> Expression:
        return self._of_rows(a, "greatest")

    def _of_rows(self, a: Expression, kind: str) -> Expression:
        """The greatest element or the sum along the last axis, which stays with size 1."""
        shape, rows = (*a.shape[:-1], 1), a.moved(_numbers(a.shape).reshape(-1, a.shape[-1]))
        source = SumSource(shape=shape, rows=rows, kind=kind)
        return Expression("", a.real, shape, a.low, a.high, source=source, places=_numbers(shape))

    # ---- Parts of softmax.

    def high_product(self, a: Any, b: Any) -> Expression:
        most = (a.magnitude * b.magnitude >> 31) + 1
        return self._call("high_product", [a, b], (-most, most))

    def divided(self, a: Any, bits: Integers | int) -> Expression:
        most = (a.magnitude >> int(np.min(bits))) + 1
        return self._call("divided", [a, self.integers(bits, "shifts")], (-most, most))

    def length_of(self, a: Any, axis: int) -> Expression:
        return self._call("length_of", [a], (0, 31))

    def reciprocal(self, a: Any, bits: Any) -> Expression:
        return self._call("reciprocal", [a, bits], (LEAST, MOST))

    def interpolated_powers(self, a: Any, operation: InterpolatedSoftmax) -> Expression:
        steps = self.add(self.times(a, operation.scale, a.magnitude), self.integers(MOST_16, "most"))
        table = self._function.table(POWERS_16, "int16", "powers")
        return self._call("interpolated", [self._limited(steps, LEAST_16, MOST_16)], (0, MOST_16), table)

    def interpolated_reciprocal(self, a: Any, bits: Any) -> Expression:
        table = self._function.table(RECIPROCALS_16, "int16", "reciprocals")
        return self._call("interpolated_reciprocal", [a, bits], (0, MOST_16), table)

    def divided_by_power(self, a: Any, bits: Any, more: int) -> Expression:
        return self._call("divided", [a, self._infix("+", bits, self.integers(more, "more"))], (0, a.magnitude))

    # ---- Movement.

    def reshape(self, a: Any, shape: Sequence[int]) -> Expression:
        return _moved(a, _numbers(a.shape).reshape(-1, *shape))

    def regroup(self, a: Any, shape: Sequence[int]) -> Expression:
        return self.reshape(a, shape)

    def transpose(self, a: Any, axes: Sequence[int]) -> Expression:
        return _moved(a, _numbers(a.shape).transpose(*axes))

    def concatenate(self, parts: Sequence[Any], axis: int) -> Expression:
        raise NotImplementedError

    def take(self, a: Any, index: Integers, hint: str) -> Expression:
        raise NotImplementedError

    def for_one_sample(self, single: Any, several: Any) -> Any:
        return single


def _moved(a: Expression, places: Integers) -> Expression:
    return a.moved(places)


def _numbers(shape: tuple[int, ...]) -> Integers:
    """The numbers of elements, in a shape."""
    return np.arange(prod(shape)).reshape(shape)


def _places(sizes: tuple[int, ...], window: WindowPlaces) -> tuple[int, ...]:
    """Number of windows along each axis."""
    rank = len(window.kernel)
    return tuple(
        (size + window.pads[k] + window.pads[k + rank] - (window.kernel[k] - 1) * window.dilations[k] - 1)
        // window.strides[k] + 1
        for k, size in enumerate(sizes)
    )  # fmt: skip
