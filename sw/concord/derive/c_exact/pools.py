"""Pools and softmax in C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod

import numpy as np

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import CommonLoops, minus, sum_text, times
from concord.derive.c_exact.rounding import CodeRounding, SumRange, binary32_literal
from concord.derive.c_exact.statements import Statements
from concord.derive.c_exact.values import Value, element_of
from concord.derive.c_exact.windows import check_windows, open_taps, open_windows, window_axes
from concord.derive.c_exact.writer import CWriter
from concord.derive.exact.arrays import WindowPlaces
from concord.derive.exact.fixed_point import times_multiplier
from concord.integer.float32 import Binary32, Integers
from concord.integer.operations import CodeAverage, CodeMean, CodeSoftmax, powers_of_softmax
from concord.integer.softmaxes import NumberSoftmax
from concord.integer.sum_orders import SUM_ORDERS
from concord.integer.tflite.operations import (
    LEAST_16,
    MOST_16,
    POWERS_16,
    RECIPROCALS_16,
    SUM_BITS,
    FixedPointSoftmax,
    InterpolatedSoftmax,
)


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
    window = WindowPlaces(operation.kernel, operation.strides, operation.dilations, operation.pads)
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


@contextmanager
def _softmax_rows(function: ExactFunction, tensors: list[Integers]) -> Iterator[tuple[int, str, str]]:
    """A loop over rows, of which ``tensors`` are the places ``[..., elements]``: their greatest codes.

    Yields how many elements there are, and those of the source and of the result in a loop over ``k``.
    """
    (source,), result, lines = function.sources, function.result, function.lines
    count = tensors[0].shape[-1]
    outer = CommonLoops.of([places[..., 0] for places in tensors])
    first = (0,) * (tensors[0].ndim - 1)
    loops = CommonLoops.of([places[first] - places[first].flat[0] for places in tensors])
    with lines.loops(outer.variables, outer.sizes):
        lines.add(
            f"const {source.array.kind}_t *const from = x0 + {outer.places[0].text(outer.variables)};",
            f"{result.array.kind}_t *const to = y + {outer.places[1].text(outer.variables)};",
            f"int32_t greatest = {source.scheme.low};",
        )
        code, made = (places.text(("k",) if loops.sizes else ()) for places in loops.places)
        with lines.loop("k", count):
            lines.add(f"greatest = from[{code}] > greatest ? from[{code}] : greatest;")
        yield count, f"from[{code}]", f"to[{made}]"


def write_softmax(function: ExactFunction, operation: CodeSoftmax | NumberSoftmax) -> None:
    """Softmax: powers from a table, over their sum."""
    (source,), result, lines = function.sources, function.result, function.lines
    axis = operation.axis % len(source.shape)
    tensors = [source.places, result.places]
    if operation.flattened:
        tensors = [places.reshape(*source.shape[:axis], -1) for places in tensors]
    else:
        tensors = [np.moveaxis(places, axis, -1) for places in tensors]
    if isinstance(operation, NumberSoftmax):
        numbers, factor = operation.powers, binary32_literal(Binary32.of(operation.step))
        steps = f"binary32_quotient(binary32_quotient({{power}}, sum), {factor})"
    else:
        numbers = powers_of_softmax(operation.scale, tensors[0].shape[-1])
        factor = binary32_literal(Binary32.of(operation.steps))
        steps = f"binary32_quotient(binary32_product({{power}}, {factor}), sum)"
    powers = function.table(numbers.view(np.uint32), "uint32", "powers")
    rounding = function.rounding(operation.zero_point, operation.low, operation.high)
    with _softmax_rows(function, tensors) as (count, code, made):
        power = f"binary32_of_bits({powers}[{code} - greatest + {len(numbers) - 1}])"
        lines.add("binary32 sum = {0, 0};")
        with lines.loop("k", count):
            lines.add(f"sum = binary32_sum(sum, {power});")
        with lines.loop("k", count):
            lines.add(
                f"const binary32 share = {steps.replace('{power}', power)};",
                f"{made} = {rounding.of_binary32('share')};",
            )


def write_fixed_point_softmax(function: ExactFunction, operation: FixedPointSoftmax) -> None:
    """Softmax: powers from a table, and a reciprocal of their sum."""
    (source,), result, lines = function.sources, function.result, function.lines
    powers = function.table(operation.powers, "int32", "powers")
    rounding = CodeRounding(operation.low, operation.low, operation.high, result.array.kind)
    known = SumRange(source.shape[-1] << 31 - SUM_BITS)
    function.overflows |= not known.fits
    with _softmax_rows(function, [source.places, result.places]) as (count, code, made):
        power = f"{powers}[{code} - greatest + {len(operation.powers) - 1}]"
        lines.add(f"{known.kind}_t sum = 0;")
        with lines.loop("k", count):
            lines.add(f"sum += divided({power}, {SUM_BITS});")
        lines.add(
            f"const int32_t total = {known.fitted('sum')}, bits = length_of(total);",
            "const int32_t share = reciprocal(total, bits);",
        )
        with lines.loop("k", count):
            steps = f"divided(high_product(share, {power}), bits + {SUM_BITS - 1 - operation.bits})"
            lines.add(f"{made} = {rounding.of_number(steps)};")


def write_interpolated_softmax(function: ExactFunction, operation: InterpolatedSoftmax) -> None:
    """Softmax of codes of 16 bits: powers, which the result has first, and the reciprocal of their sum, from tables."""
    (source,), result, lines = function.sources, function.result, function.lines
    powers, reciprocals = (
        function.table(values, "int16", word)
        for values, word in ((POWERS_16, "powers"), (RECIPROCALS_16, "reciprocals"))
    )
    rounding = CodeRounding(0, 0, MOST_16, result.array.kind)
    most = source.scheme.high - source.scheme.low
    difference = element_of("", (), np.zeros((), np.int64), -most, 0)
    product = times_multiplier(CWriter(function), difference, operation.scale, most)
    assert isinstance(product, Value)
    scaled = Statements(function, {difference: "difference"}).integer(product)
    known = SumRange(source.shape[-1] << 15)
    function.overflows |= not known.fits
    with _softmax_rows(function, [source.places, result.places]) as (count, code, made):
        lines.add(f"{known.kind}_t sum = 0;")
        with lines.loop("k", count):
            lines.add(
                f"const int32_t difference = {code} - greatest;",
                f"const int32_t place = limited({scaled} + {MOST_16}, {LEAST_16}, {MOST_16});",
                f"{made} = ({result.array.kind}_t)interpolated({powers}, place);",
                f"sum += {made};",
            )
        lines.add(
            f"const int32_t total = {known.fitted('sum')}, down = length_of(total) - 1;",
            "const int64_t mantissa = shifted_down(((int64_t)total << (30 - down)) + (1 << 13), 14) - (3 << 15);",
            f"const int32_t share = interpolated({reciprocals}, limited(mantissa, {LEAST_16}, {MOST_16}));",
        )
        with lines.loop("k", count):
            steps = f"rounded_product({made}, share, down)"
            lines.add(f"{made} = {rounding.of_number(steps)};")
