"""Operations of an integer graph, made of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.exact.arrays import Array, WindowPlaces
from concord.derive.exact.fixed_point import FIXED_POINT_RULES
from concord.derive.exact.npu_codes import NPU_RULES
from concord.derive.exact.parts import LoweringParts
from concord.derive.exact.requantise import codes_of_sums
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.operations import (
    CodeAverage,
    CodeConstant,
    CodeFloats,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodePairTable,
    CodeSoftmax,
    CodeSum,
    CodeTable,
    IntegerProduct,
    first_is_single,
    powers_of_softmax,
)
from concord.integer.shapes import fixed_sizes, shapes_behind
from concord.integer.softmaxes import NumberSoftmax
from concord.integer.sum_orders import SUM_ORDERS
from concord.integer.weighted_sums import CodeMatMul, IntegerConvolution, IntegerMatMul
from concord.integer.wide import (
    CodesOfNumbers,
    NumbersOfCodes,
    TabledNumbers,
    WideDifference,
    WideProduct,
    WideSum,
    numbers_of,
)


def shapes_of(graph: IntegerGraph) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of codes with one sample.

    Raises
    ------
    ValueError
        If a size of an input is open.
    """
    return shapes_behind(graph, {tensor: (1, *fixed_sizes(graph, name)) for name, tensor in graph.inputs.items()})


class ArrayLowering(LoweringParts):
    """Writes operations of a graph."""

    def write(self, operation: IntegerOperation, codes: list[Array]) -> Array:
        """The codes of an operation.

        Raises
        ------
        ValueError
            For an operation that arrays do not have.
        """
        rule = RULES.get(type(operation))
        if rule is None:
            kind = type(operation).__name__
            raise ValueError(f"{operation.name} must be an operation that is written on arrays, not a {kind}")
        return rule(self, operation, codes)

    @staticmethod
    def has(operation: IntegerOperation) -> bool:
        """True if arrays have the operation."""
        return type(operation) in RULES

    def _integer_mat_mul(self, operation: IntegerMatMul, codes: list[Array]) -> Array:
        return self.codes(operation, self.rows(operation, codes[0]), (-1,))

    def _integer_convolution(self, operation: IntegerConvolution, codes: list[Array]) -> Array:
        rank = operation.weight.ndim
        made = self.codes(operation, self.windows(operation, codes[0]), (-1, *[1] * (rank - 2)))
        return self.channels_last(made, rank, operation.last)

    def _code_mat_mul(self, operation: CodeMatMul, codes: list[Array]) -> Array:
        shapes = [self.shapes[name] for name in operation.inputs]
        alone = all(len(shape) > 2 and shape[0] == 1 for shape in shapes) and len(shapes[0]) == len(shapes[1])
        if self.writer.any_samples and not alone:
            raise ValueError(f"{operation.name} must multiply matrices of every sample by itself, not {shapes}")
        a, b = (self.offset(part, zero) for part, zero in zip(codes, operation.zeros, strict=True))
        return self.codes(operation, self.writer.product_of_two(a, b, operation.largest))

    def _plus_zero(self, numbers: Array, zero_point: int) -> Array:
        """Numbers plus the zero point, which is a step of its own and is rounded."""
        return self.writer.add(numbers, self.writer.numbers(zero_point, "zero")) if zero_point else numbers

    def _code_maximum(self, operation: CodeMaximum, codes: list[Array]) -> Array:
        rank = len(operation.kernel) + 2
        made = self.writer.window_maxima(
            self.channels_first(codes[0], rank, operation.last), WindowPlaces.of(operation)
        )
        return self.within(operation, self.channels_last(made, rank, operation.last))

    def _mean(self, operation: CodeMean, codes: list[Array]) -> Array:
        shape = self.shapes[operation.inputs[0]]
        if operation.order:
            rows = self.writer.reshape(self.offset(codes[0], operation.zero_point), (shape[1], prod(shape[2:])))
            return self._mean_of_rows(operation, rows, (shape[1], prod(shape[2:])), np.asarray(prod(shape[2:])), 0)
        sums = self.writer.total(self.offset(codes[0], operation.zero_point), range(2, len(shape)))
        bound = prod(shape[2:]) * self.reach(operation.inputs[0], operation.zero_point)
        return codes_of_sums(self.writer, sums, operation.requantisation(prod(shape[2:])), bound)

    def _code_average(self, operation: CodeAverage, codes: list[Array]) -> Array:
        shape = self.shapes[operation.inputs[0]]
        if operation.is_mean(shape):
            return self._mean(operation, codes)
        writer = self.writer
        windows = writer.windows(self.offset(codes[0], operation.zero_point), WindowPlaces.of(operation), shape[2:])
        rows = prod(self.shapes[operation.output][1:]), prod(operation.kernel)
        counts = np.broadcast_to(operation.counts(shape), (1, *self.shapes[operation.output][1:]))
        return self._mean_of_rows(operation, windows, rows, counts, operation.in_front)

    def _mean_of_rows(
        self, operation: CodeMean, offsets: Array, rows: tuple[int, int], counts: Integers, in_front: int
    ) -> Array:
        """Codes of means in binary32, of integers of so many rows with so many elements each."""
        writer = self.writer
        numbers = writer.multiply(writer.to_numbers(offsets), writer.numbers(operation.scale, "scale"))
        order = SUM_ORDERS[operation.order or "one by one"](rows[1])
        total = writer.reshape(writer.summed(numbers, rows, order), self.shapes[operation.output][1:])
        steps = writer.divide(total, writer.numbers(counts, "count"))
        steps = writer.divide(steps, writer.numbers(operation.target_scale, "target_scale"))
        rest = operation.target_zero_point - in_front
        return writer.to_codes(self._plus_zero(steps, in_front), rest, operation.low, operation.high)

    def _code_softmax(self, operation: CodeSoftmax, codes: list[Array]) -> Array:
        writer, (rows, size) = self.writer, self._softmax_rows(operation, codes[0])
        powers = _within_binary32(powers_of_softmax(operation.scale, size), operation.steps)
        own = writer.look_up(powers, rows, 1 - len(powers), "powers")
        scaled = writer.multiply(own, writer.numbers(operation.steps, "steps"))
        return self._softmax_codes(operation, writer.divide(scaled, writer.added_up(own)))

    def _number_softmax(self, operation: NumberSoftmax, codes: list[Array]) -> Array:
        writer, (rows, _) = self.writer, self._softmax_rows(operation, codes[0])
        own = writer.look_up(operation.powers, rows, 1 - operation.count, "powers")
        shares = writer.divide(own, writer.added_up(own))
        return self._softmax_codes(operation, writer.divide(shares, writer.numbers(operation.step, "step")))

    def _softmax_rows(self, operation: CodeSoftmax | NumberSoftmax, codes: Array) -> tuple[Array, int]:
        """Codes less the greatest one of each row, in the last axis, and the length of a row."""
        writer, shape = self.writer, self.shapes[operation.inputs[0]]
        axis = operation.axis % len(shape)
        if operation.flattened:
            rows, size = writer.reshape(codes, (*shape[1:axis], prod(shape[axis:]))), prod(shape[axis:])
        else:
            order = [*(k for k in range(len(shape)) if k != axis), axis]
            rows, size = self.transposed(codes, order), shape[axis]
        return writer.subtract(rows, writer.greatest(rows)), size

    def _softmax_codes(self, operation: CodeSoftmax | NumberSoftmax, steps: Array) -> Array:
        """Codes of rows, in the shape of the result."""
        made = self.writer.to_codes(steps, operation.zero_point, operation.low, operation.high)
        shape = self.shapes[operation.inputs[0]]
        if operation.flattened:
            return self.writer.reshape(made, shape[1:])
        axis = operation.axis % len(shape)
        order = [*(k for k in range(len(shape)) if k != axis), axis]
        return self.transposed(made, [order.index(k) for k in range(len(shape))])

    def _product(self, operation: IntegerProduct, codes: list[Array]) -> Array:
        a, b = (self.offset(part, zero) for part, zero in zip(codes, operation.zeros, strict=True))
        bound = prod(self.reach(name, zero) for name, zero in zip(operation.inputs, operation.zeros, strict=True))
        return codes_of_sums(self.writer, self.writer.multiply(a, b), operation.requantisation, bound)

    def _code_sum(self, operation: CodeSum, codes: list[Array]) -> Array:
        shapes = [self.shapes[name] for name in operation.inputs]
        several = [
            (2, *shape[1:]) if self._has_samples(name) else shape
            for name, shape in zip(operation.inputs, shapes, strict=True)
        ]
        swapped, swapped_for_one = first_is_single(*several), first_is_single(*shapes)
        made = self._sum(operation, codes, swapped)
        if swapped == swapped_for_one:
            return made
        return self.writer.for_one_sample(self._sum(operation, codes, swapped_for_one), made)

    def _has_samples(self, tensor: str) -> bool:
        """True if a tensor is another one for every sample."""
        makers = {operation.output: operation for operation in self.graph.operations}
        return not isinstance(makers.get(tensor), CodeConstant)

    def _sum(self, operation: CodeSum, codes: list[Array], swapped: bool) -> Array:
        """``fma(a, ratio_a, fma(b, ratio_b, offset))`` on a common grid, where products and sums are exact integers."""
        writer, grid = self.writer, operation.on_grid(swapped)
        operands = [self.offset(part, -shift) for part, shift in zip(codes, operation.shifts, strict=False)]
        a, b = reversed(operands) if swapped else operands
        if grid is None:
            ratios = operation.ratios[::-1] if swapped else operation.ratios
            steps = writer.fused_sum((a, b), ratios, operation.offset(swapped), operation.name)
            return writer.to_codes(steps, -operation.shifts[2], operation.low, operation.high)
        inner = writer.add(writer.multiply(b, writer.integers(grid.b, "ratio")), writer.integers(grid.c, "offset"))
        rounded = writer.to_integers(writer.to_numbers(inner))
        outer = writer.add(writer.multiply(a, writer.integers(grid.a, "ratio")), rounded)
        unit = writer.numbers(grid.unit, "unit")
        steps = writer.multiply(writer.to_numbers(outer), unit)
        return writer.to_codes(steps, -operation.shifts[2], operation.low, operation.high)

    def _code_floats(self, operation: CodeFloats, codes: list[Array]) -> Array:
        writer = self.writer
        a, b = (
            writer.multiply(writer.to_numbers(self.offset(part, zero)), writer.numbers(scale, "scale"))
            for part, zero, scale in zip(codes, operation.zeros, operation.scales, strict=True)
        )
        match operation.operator:
            case "Mul":
                result = writer.multiply(a, b)
            case "Add":
                result = writer.add(a, b)
            case _:
                result = writer.subtract(a, b)
        steps = writer.divide(result, writer.numbers(operation.step, "step"))
        return writer.to_codes(steps, operation.zero_point, operation.low, operation.high)

    def _numbers_of_codes(self, operation: NumbersOfCodes, codes: list[Array]) -> Array:
        numbers = self.writer.to_numbers(self.offset(codes[0], operation.zero_point))
        return self.writer.finite(self.writer.multiply(numbers, self.writer.numbers(operation.scale, "scale")))

    def _tabled_numbers(self, operation: TabledNumbers, codes: list[Array]) -> Array:
        return self.writer.look_up(operation.numbers, codes[0], operation.least, "numbers")

    def _codes_of_numbers(self, operation: CodesOfNumbers, codes: list[Array]) -> Array:
        steps = self.writer.divide(codes[0], self.writer.numbers(operation.step, "step"))
        return self.writer.to_codes(steps, operation.zero_point, operation.low, operation.high)

    def _wide_sum(self, operation: WideSum, codes: list[Array]) -> Array:
        return self.writer.finite(self.writer.add(*codes))

    def _wide_difference(self, operation: WideDifference, codes: list[Array]) -> Array:
        return self.writer.finite(self.writer.subtract(*codes))

    def _wide_product(self, operation: WideProduct, codes: list[Array]) -> Array:
        return self.writer.finite(self.writer.multiply(*codes))

    def _code_constant(self, operation: CodeConstant, codes: list[Array]) -> Array:
        if self.graph.is_wide(operation.output):
            return self.writer.numbers(np.atleast_1d(numbers_of(operation.value)), "numbers")
        return self.writer.integers(np.atleast_1d(operation.value), "codes")

    def _code_table(self, operation: CodeTable, codes: list[Array]) -> Array:
        return self.writer.look_up(operation.table.entries, codes[0], operation.table.source.low, "table")

    def _code_pair_table(self, operation: CodePairTable, codes: list[Array]) -> Array:
        writer = self.writer
        a, b = (self.offset(part, low) for part, low in zip(codes, operation.lows, strict=True))
        index = writer.add(writer.multiply(a, writer.integers(operation.count, "count")), b)
        return writer.look_up(operation.table.entries, index, 0, "table")

    def _code_movement(self, operation: CodeMovement, codes: list[Array]) -> Array:
        return self.within(operation, self.writer.moved(operation, codes, self.shapes))


def _within_binary32(powers: NDArray[np.float32], factor: np.float32) -> NDArray[np.float32]:
    """Powers less a power of two, by which no quotient of theirs changes, if products with a factor were infinite."""
    most = float(powers.max()) * float(factor)
    while most > float(np.finfo(np.float32).max):
        powers, most = powers / np.float32(2), most / 2
    return powers


#: Methods and functions that write the operations, by class.
RULES: Mapping[type[IntegerOperation], Callable[[ArrayLowering, Any, list[Array]], Array]] = {
    IntegerMatMul: ArrayLowering._integer_mat_mul,
    IntegerConvolution: ArrayLowering._integer_convolution,
    CodeMatMul: ArrayLowering._code_mat_mul,
    CodeMaximum: ArrayLowering._code_maximum,
    CodeMean: ArrayLowering._mean,
    CodeAverage: ArrayLowering._code_average,
    CodeSoftmax: ArrayLowering._code_softmax,
    NumberSoftmax: ArrayLowering._number_softmax,
    IntegerProduct: ArrayLowering._product,
    CodeSum: ArrayLowering._code_sum,
    CodeFloats: ArrayLowering._code_floats,
    NumbersOfCodes: ArrayLowering._numbers_of_codes,
    TabledNumbers: ArrayLowering._tabled_numbers,
    CodesOfNumbers: ArrayLowering._codes_of_numbers,
    WideSum: ArrayLowering._wide_sum,
    WideDifference: ArrayLowering._wide_difference,
    WideProduct: ArrayLowering._wide_product,
    CodeConstant: ArrayLowering._code_constant,
    CodeTable: ArrayLowering._code_table,
    CodePairTable: ArrayLowering._code_pair_table,
    CodeMovement: ArrayLowering._code_movement,
    **FIXED_POINT_RULES,
    **NPU_RULES,
}
