"""Means in C whose numbers are added up in binary32."""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

import numpy as np

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import CommonLoops, minus, sum_text, times
from concord.derive.c_exact.rounding import binary32_literal
from concord.derive.c_exact.windows import check_windows, open_taps, open_windows, window_axes
from concord.derive.exact.arrays import WindowPlaces
from concord.integer.float32 import Binary32
from concord.integer.operations import CodeAverage, CodeMean
from concord.integer.sum_orders import SUM_ORDERS


def write_ordered_mean(function: ExactFunction, operation: CodeMean) -> None:
    """The mean of all elements of a channel, whose numbers are added up in binary32."""
    (source,), result, lines = function.sources, function.result, function.lines
    count = prod(source.shape[2:])
    loops = CommonLoops.of([source.places[:1, :1].reshape(source.shape[2:])])
    sums = _OrderedSum(function, operation, count)
    with lines.loop("s", source.shape[0]), lines.loop("c", source.shape[1]):
        lines.add(*sums.begin())
        with lines.loops(loops.variables, loops.sizes):
            steps = [
                times("s", source.strides[0]),
                times("c", source.strides[1]),
                loops.places[0].text(loops.variables),
            ]
            lines.add(*sums.take(f"x0[{sum_text(steps)}]"))
        lines.add(*sums.end(sum_text([times("s", result.strides[0]), times("c", result.strides[1])]), 0))


class _OrderedSum:
    """A sum of the numbers of codes in binary32, each step rounded, and the code of their mean.

    All numbers are multiples of the last bit of their scale, so they are integers with one exponent.

    Parameters
    ----------
    count : int
        Most elements of a mean.
    """

    def __init__(self, function: ExactFunction, operation: CodeMean, count: int):
        self._function, self._operation, self._count = function, operation, count
        steps = SUM_ORDERS[operation.order or "one by one"](count)
        self._one_by_one = len(steps) == 1
        #: Groups of the steps, each its size and then its places, and how many there are.
        self._steps = [] if self._one_by_one else [
            (function.table([n for group in step for n in (len(group), *group)], "int32", "order"), len(step))
            for step in steps
        ]  # fmt: skip

    def begin(self) -> list[str]:
        """Lines in front of the elements."""
        return ["int64_t sum = 0;" if self._one_by_one else f"int64_t sums[{self._count}];", "int32_t count = 0;"]

    def take(self, code: str) -> list[str]:
        """Lines that take an element."""
        step = int(Binary32.of(self._operation.scale).mantissa)
        number = f"with_24_bits(INT64_C({step}) * ({minus(code, self._operation.zero_point)}))"
        if self._one_by_one:
            return [f"sum = with_24_bits(sum + {number});", "++count;"]
        return [f"sums[count++] = {number};"]

    def end(self, place: str, in_front: int) -> list[str]:
        """Lines that write the code, with an integer that is added in front of the last rounding."""
        operation, lines = self._operation, []
        for table, size in self._steps:  # no group reads what one in front has written
            lines += [
                f"for (int32_t g = 0, at = 0; g < {size}; ++g) {{",
                f"    int32_t left = {table}[at++];",
                f"    int64_t sum = sums[{table}[at++]];",
                "    while (--left > 0) {",
                f"        sum = with_24_bits(sum + sums[{table}[at++]]);",
                "    }",
                "    sums[g] = sum;",
                "}",
            ]
        rounding = self._function.rounding(operation.target_zero_point - in_front, operation.low, operation.high)
        zero, target = Binary32.of_integers(np.asarray(in_front)), Binary32.of(operation.target_scale)
        exponent = int(Binary32.of(operation.scale).exponent)
        return [
            *lines,
            f"const binary32 numbers = binary32_rounded({'sum' if self._one_by_one else 'sums[0]'}, {exponent});",
            "const binary32 mean = binary32_quotient(numbers, (binary32){count, 0});",
            f"const binary32 steps = binary32_quotient(mean, {binary32_literal(target)});",
            f"const binary32 number = binary32_sum(steps, {binary32_literal(zero)});",
            f"y[{place}] = {rounding.of_binary32('number')};",
        ]


def write_average(function: ExactFunction, operation: CodeAverage) -> None:
    """Writes an AveragePool: numbers of codes are added up with roundings."""
    (source,), result, lines = function.sources, function.result, function.lines
    sums = _OrderedSum(function, operation, prod(operation.kernel))
    window = WindowPlaces.of(operation)
    axes = window_axes(source.shape, result.shape, window, source.strides, result.strides)
    check_windows(axes, operation.name)
    with ExitStack() as stack:
        place = open_windows(lines, stack, axes, source.shape[0], result.strides[0])
        with lines.loop("c", source.shape[1]):
            lines.add(*sums.begin())
            with ExitStack() as inner:
                open_taps(lines, inner, axes, source.array.kind, source.strides[0])
                lines.add(*sums.take(f"from[{times('c', source.strides[1]) or '0'}]"))
            if operation.padding_counts:
                lines.add(f"count = {prod(operation.kernel)};")
            lines.add(*sums.end(sum_text([place, times("c", result.strides[1])]), operation.in_front))
