"""Operations on arrays as nodes of ONNX: integers are INT64, numbers FLOAT.

ONNX Runtime's optimiser may move factors into weights where a product of floats is multiplied, which would change bits:
sums go through INT64 before anything is done with them, and no optimiser looks through that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from concord.derive.backends.onnx_writer import Writer
from concord.derive.exact.arrays import Array, WindowPlaces
from concord.derive.exact.library import LibraryWriter
from concord.integer.float32 import MANTISSA_BITS, Integers
from concord.integer.requantise import ACCUMULATOR_BITS
from concord.sums.exact import EXACT_UP_TO
from concord.sums.reach import sum_bound

#: Bits of a code of 16 bits less its zero point.
_MOST_BITS = 17


class OnnxWriter(LibraryWriter):
    """Adds nodes to a :class:`~concord.derive.backends.onnx_writer.Writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def _node(self, op: str, *inputs: str, real: bool = False, **attributes: Any) -> Array:
        return Array(self.writer.node(op, inputs, **attributes), real)

    def _cast(self, a: str, real: bool) -> Array:
        return self._node("Cast", a, real=real, to=TensorProto.FLOAT if real else TensorProto.INT64)

    def integers(self, values: Any, hint: str) -> Array:
        return Array(self.writer.constant(values, np.int64, hint))

    def numbers(self, values: Any, hint: str) -> Array:
        return Array(self.writer.constant(values, np.float32, hint), real=True)

    def add(self, a: Array, b: Array) -> Array:
        return self._node("Add", a.text, b.text, real=a.real)

    def subtract(self, a: Array, b: Array) -> Array:
        return self._node("Sub", a.text, b.text, real=a.real)

    def multiply(self, a: Array, b: Array) -> Array:
        return self._node("Mul", a.text, b.text, real=a.real)

    def divide(self, a: Array, b: Array) -> Array:
        return self._node("Div", a.text, b.text, real=True)

    def to_numbers(self, a: Array) -> Array:
        return self._cast(a.text, real=True)

    def to_integers(self, a: Array) -> Array:
        return self._cast(a.text, real=False)

    def to_codes(self, a: Array, zero_point: int, low: int, high: int) -> Array:
        ends = [self.writer.constant(end - zero_point, np.float32, "end") for end in (low, high)]
        steps = self._node("Clip", self._node("Round", a.text).text, *ends, real=True)
        codes = self.to_integers(steps)
        return self.add(codes, self.integers(zero_point, "zero")) if zero_point else codes

    def to_codes_by_binary64(self, a: Array, scale: NDArray[np.float64], zero_point: int, low: int, high: int) -> Array:
        doubles = self._node("Cast", a.text, to=TensorProto.DOUBLE)
        product = self._node("Mul", doubles.text, self.writer.constant(scale, np.float64, "scale"))
        return self.codes_of_doubles(product, zero_point, low, high)

    def codes_of_doubles(self, a: Array, zero_point: int, low: int, high: int) -> Array:
        """The nearest integers to DOUBLE numbers, halves away from zero, plus the zero point, limited."""
        size = self._node("Abs", a.text)
        whole = self._node("Floor", size.text)
        rest = self._node("Sub", size.text, whole.text)
        half = self._node("GreaterOrEqual", rest.text, self.writer.constant(0.5, np.float64, "half"))
        nearest = self._node("Add", whole.text, self._node("Cast", half.text, to=TensorProto.DOUBLE).text)
        steps = self._node("Mul", nearest.text, self._node("Sign", a.text).text)
        ends = [self.writer.constant(end - zero_point, np.float64, "end") for end in (low, high)]
        codes = self.to_integers(self._node("Clip", steps.text, *ends))
        return self.add(codes, self.integers(zero_point, "zero")) if zero_point else codes

    def shifted_right(self, a: Array, bits: int | Integers) -> Array:
        unit = self.integers(np.int64(1) << np.asarray(bits, dtype=np.int64), "unit")
        low = self._node("Mod", a.text, unit.text)
        return self.quotient(self.subtract(a, low), unit)

    def quotient(self, a: Array, b: Array) -> Array:
        return self._node("Div", a.text, b.text)

    def limited(self, a: Array, low: int, high: int) -> Array:
        return self._node("Clip", a.text, *(self.writer.constant(end, np.int64, "end") for end in (low, high)))

    def limited_numbers(self, a: Array, low: float, high: float) -> Array:
        ends = (self.writer.constant(end, np.float32, "end") for end in (low, high))
        return self._node("Clip", a.text, *ends, real=True)

    def finite(self, a: Array) -> Array:
        return a

    def in_bits(self, a: Array, bits: int = ACCUMULATOR_BITS) -> Array:
        raise ValueError(
            f"accumulators must fit {bits} bits whatever the codes are: an ONNX graph cannot say so as it runs"
        )

    def matrix_product(self, a: Array, weight: Integers, reach: int) -> Array:
        def part(x: str, digits: Integers) -> str:
            return self.writer.node("MatMul", [x, self.writer.constant(digits, np.float32, "weight")])

        return self._sums(a, weight, reach, 0, part)

    def product_of_two(self, a: Array, b: Array, bound: int) -> Array:
        if bound > EXACT_UP_TO[np.float32]:
            return self._node("MatMul", a.text, b.text)
        left, right = self.to_numbers(a), self.to_numbers(b)
        return self.to_integers(self._node("MatMul", left.text, right.text))

    def convolution(self, a: Array, weight: Integers, window: WindowPlaces, groups: int, reach: int) -> Array:
        steps: dict[str, Any] = {"strides": window.strides, "dilations": window.dilations, "pads": window.pads}

        def part(x: str, digits: Integers) -> str:
            inputs = [x, self.writer.constant(digits, np.float32, "weight")]
            return self.writer.node("Conv", inputs, group=groups, kernel_shape=weight.shape[2:], **steps)

        return self._sums(a, weight, reach, tuple(range(1, weight.ndim)), part)

    def _sums(
        self, a: Array, weight: Integers, reach: int, axes: int | tuple[int, ...], part: Callable[[str, Integers], str]
    ) -> Array:
        """Sums of products in FLOAT, each of digits of so few bits that it is exact, added up in INT64."""
        bits = next(bits for bits in _bits_of_digits() if _fits(weight, axes, reach, bits))
        total: Array | None = None
        rows = list(self._digits(a, reach, bits[0]))
        for (x, x_shift), (digits, shift) in product(rows, _digits(weight, bits[1])):
            sums = self._cast(part(x, digits), real=False)
            if x_shift + shift:
                sums = self.multiply(sums, self.integers(1 << x_shift + shift, "unit"))
            total = sums if total is None else self.add(total, sums)
        assert total is not None
        return total

    def _digits(self, a: Array, reach: int, bits: int) -> list[tuple[str, int]]:
        """Digits in FLOAT of integers up to ``reach`` in magnitude, and how far each is moved up; one is signed."""
        made, shift = [], 0
        while reach >> shift >= 1 << bits:
            unit = self.integers(1 << bits, "unit")
            low = self._node("Mod", a.text, unit.text)
            a = self.quotient(self.subtract(a, low), unit)
            made.append((self._cast(low.text, real=True).text, shift))
            shift += bits
        return [*made, (self._cast(a.text, real=True).text, shift)]

    def window_maxima(self, a: Array, window: WindowPlaces) -> Array:
        steps: dict[str, Any] = {"strides": window.strides, "dilations": window.dilations, "pads": window.pads}
        numbers = a if a.real else self.to_numbers(a)
        pooled = self._node("MaxPool", numbers.text, kernel_shape=window.kernel, **steps, real=True)
        return pooled if a.real else self.to_integers(pooled)

    def windows(self, a: Array, window: WindowPlaces, sizes: Sequence[int]) -> Array:
        rank = len(window.kernel)
        around = [0, 0, *window.pads[:rank], 0, 0, *window.pads[rank:]]
        padded = self._node("Pad", a.text, self.writer.ints(around), self.writer.constant(0, np.int64, "zero"))
        reached = [
            size + window.pads[k] + window.pads[k + rank] - window.dilations[k] * (window.kernel[k] - 1)
            for k, size in enumerate(sizes)
        ]
        elements = []
        for place in np.ndindex(*window.kernel):
            begin = [step * k for step, k in zip(window.dilations, place, strict=True)]
            end = [first + size for first, size in zip(begin, reached, strict=True)]
            bounds = [self.writer.ints(ints) for ints in (begin, end, range(2, 2 + rank), window.strides)]
            element = self._node("Slice", padded.text, *bounds)
            elements.append(self._node("Unsqueeze", element.text, self.writer.ints([2 + rank])).text)
        return self._node("Concat", *elements, axis=2 + rank)

    def total(self, a: Array, axes: Sequence[int]) -> Array:
        return self._node("ReduceSum", a.text, self.writer.ints(list(axes)), keepdims=1)

    def added_up(self, a: Array) -> Array:
        sums = self._node("CumSum", a.text, self.writer.constant(-1, np.int64, "axis"), real=True)
        bounds = [self.writer.ints([end]) for end in (-1, np.iinfo(np.int64).max, -1)]
        return self._node("Slice", sums.text, *bounds, real=True)

    def greatest(self, a: Array) -> Array:
        return self._node("ReduceMax", a.text, self.writer.ints([-1]), keepdims=1)

    def look_up(self, table: NDArray[Any], index: Array, low: int, hint: str) -> Array:
        real = table.dtype == np.float32
        entries = self.numbers(table, hint) if real else self.integers(table, hint)
        place = self.subtract(index, self.integers(low, "low")) if low else index
        return self._node("Gather", entries.text, place.text, axis=0, real=real)

    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        return self._node("Reshape", a.text, self.writer.ints([0, *shape]), real=a.real)

    def regroup(self, a: Array, shape: Sequence[int]) -> Array:
        return self._node("Reshape", a.text, self.writer.ints([-1, *shape]), real=a.real)

    def transpose(self, a: Array, axes: Sequence[int]) -> Array:
        return self._node("Transpose", a.text, perm=list(axes), real=a.real)

    def concatenate(self, parts: Sequence[Array], axis: int) -> Array:
        return self._node("Concat", *(part.text for part in parts), axis=axis, real=parts[0].real)

    def take(self, a: Array, index: Integers, hint: str) -> Array:
        return self._node("Gather", a.text, self.writer.ints(index), axis=1, real=a.real)

    def for_one_sample(self, single: Array, several: Array) -> Array:
        samples = self._node(
            "Gather", self._node("Shape", single.text).text, self.writer.constant(0, np.int64, "first"), axis=0
        )
        alone = self._node("Equal", samples.text, self.writer.constant(1, np.int64, "single"))
        return self._node("Where", alone.text, single.text, several.text)


def _bits_of_digits() -> list[tuple[int, int]]:
    """Bits of digits of what is read and of the weights, those with the fewest products first."""
    choices = product(range(1, MANTISSA_BITS), range(1, MANTISSA_BITS))
    return sorted(choices, key=lambda bits: (-(-_MOST_BITS // bits[0]) * -(-_MOST_BITS // bits[1]), bits))


def _digits(weight: Integers, bits: int) -> list[tuple[Integers, int]]:
    """Digits of weights, and how far each is moved up; the last one is signed."""
    made, shift = [], 0
    while np.abs(weight).max(initial=0) >= 1 << bits:
        low = weight & (1 << bits) - 1
        made.append((low, shift))
        weight, shift = weight - low >> bits, shift + bits
    return [*made, (weight, shift)]


def _fits(weight: Integers, axes: int | tuple[int, ...], reach: int, bits: tuple[int, int]) -> bool:
    """True if FLOAT holds every sum of digits of ``bits[0]`` and ``bits[1]`` bits exactly."""
    largest = min(reach, 1 << bits[0])
    return all(sum_bound(digits, axes, largest) <= EXACT_UP_TO[np.float32] for digits, _ in _digits(weight, bits[1]))
