"""Sums of products in C: windows are written out as rows, four at a time, which each row of weights is read for.

Rows have codes less their zero point, so padding is 0. Depthwise convolutions add up all channels of a place at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from concord.derive.c.texts import sum_text
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import times
from concord.derive.c_exact.statements import kind_of
from concord.derive.c_exact.windows import WindowAxis, open_taps
from concord.integer.float32 import Integers

#: Rows that are multiplied at once: of windows, or of weights if there is one window.
ROWS = 4
#: Products that vector instructions take at once; longer rows are multiples of it.
_LANES = 8
_OfSum = Callable[[str], tuple[list[str], str]]
_WEIGHT_KINDS = ("int8", "int16", "int32", "int64")
#: Four sums: of rows ``a`` to ``d``, which follow each other, each with the row ``x``.
_SUMS = """/* Sums of products of four rows, each with the same other one. */
static inline void {name}(
    {total}_t *restrict sums, const {rows}_t *restrict rows, const {single}_t *restrict single, int32_t length)
{{
    const {rows}_t *const second = rows + length, *const third = second + length, *const last = third + length;
    {total}_t a = 0, b = 0, c = 0, d = 0;
    int32_t k;
    CONCORD_ROLLED
    for (k = 0; k < length; ++k) {{
        const {total}_t x = {single_factor}single[k];
        a += {rows_factor}rows[k] * x;
        b += {rows_factor}second[k] * x;
        c += {rows_factor}third[k] * x;
        d += {rows_factor}last[k] * x;
    }}
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}}"""


@dataclass(frozen=True)
class ProductShape:
    """Factors of a product: for every window, the elements of some channels.

    Parameters
    ----------
    axes : tuple of WindowAxis
        From the outermost to the innermost one.
    inner : int
        Number of channels of a group.
    inner_step : int
        Elements of memory between channels of the source.
    channel_step : int
        Elements of memory between channels of the result.
    """

    axes: tuple[WindowAxis, ...]
    inner: int
    inner_step: int
    channel_step: int

    @property
    def windows(self) -> int:
        """Number of windows."""
        return prod(axis.count for axis in self.axes)

    @property
    def length(self) -> int:
        """Products of a sum."""
        return self.inner * prod(axis.kernel for axis in self.axes)

    @property
    def row(self) -> int:
        """Elements of a row in memory."""
        return self.length if self.length <= _LANES else -(-self.length // _LANES) * _LANES

    def simplified(self) -> ProductShape:
        """The product without axes of one element, and with axes as one that go on from each other."""
        axes: list[WindowAxis] = []
        for axis in self.axes:
            if axis.plain and axis.count == 1:
                continue
            if axes and axes[-1].plain and axis.plain and axis.count == axis.size and _goes_on(axes[-1], axis):
                count = axes[-1].count * axis.count
                axes[-1] = replace(axis, count=count, size=count)
            else:
                axes.append(axis)
        return replace(self, axes=tuple(axes))


def _goes_on(outer: WindowAxis, axis: WindowAxis) -> bool:
    return outer.source_step == axis.count * axis.source_step and outer.result_step == axis.count * axis.result_step


class ProductWriter:
    """Writes the statements of one product.

    Parameters
    ----------
    function : ExactFunction
    shape : ProductShape
    groups : int
    weights : array of int64
        ``[channels, elements of a row]``.
    kinds : tuple of str
        Types of the sums and of the elements of rows, without ``_t``.
    of_element : callable
        The text of an element of a row, by that of the element of the source.
    of_sum : callable
        Statements in front, and the text of the code of a sum of the channel ``c``.
    """

    def __init__(
        self,
        function: ExactFunction,
        shape: ProductShape,
        groups: int,
        weights: Integers,
        kinds: tuple[str, str],
        of_element: Callable[[str], str],
        of_sum: _OfSum,
    ):
        self.function, self.shape, self.groups = function, shape, groups
        self.lines, self.channels = function.lines, len(weights)
        self.sum_kind, self.row_kind = kinds
        self._weights, self._weight_kind = weights, kind_of(weights, _WEIGHT_KINDS)
        self._of_element, self._code = of_element, of_sum

    def write(self, start: str, of_begun: _OfSum) -> None:
        """Write them; where sums may begin with ``start`` of the channel ``c``, ``of_begun`` is ``of_sum`` of these."""
        shape = self.shape
        depthwise = self.groups > 1 and shape.inner == 1 and self.channels == self.groups
        if depthwise and self.sum_kind == "int32" and shape.inner_step == shape.channel_step == 1:
            self._depthwise(start, of_begun)
        else:
            self._rows()

    # ---- Rows of windows.

    def _rows(self) -> None:
        shape, lines, function = self.shape, self.lines, self.function
        several = shape.windows > 1
        rows = np.zeros((self.channels, shape.row), np.int64)
        rows[:, : shape.length] = self._weights
        weights = function.weights(rows, self._weight_kind, "weights")
        function.buffer(self.row_kind, shape.row * (ROWS if several else 1), "rows")
        kinds = (self.row_kind, self._weight_kind) if several else (self._weight_kind, self.row_kind)
        sums = self._sum_function(*kinds)
        per_group = self.channels // self.groups
        lines.add(f"{self.sum_kind}_t sums[{ROWS}];")
        with ExitStack() as stack:
            if self.groups > 1:
                stack.enter_context(lines.loop("g", self.groups))
            first, last = ("0", str(per_group)) if self.groups == 1 else (f"g * {per_group}", f"(g + 1) * {per_group}")
            if several:
                self._many(first, last, sums, weights)
            else:
                self._single(first, last, sums, weights)

    def _many(self, first: str, last: str, sums: str, weights: str) -> None:
        """Four windows at a time."""
        shape, lines = self.shape, self.lines
        variables = [f"i{k}" for k in range(len(shape.axes))]
        step = _common_step(shape.axes)
        lines.add("int32_t p;")
        lines.add(*(f"int32_t {name} = 0;" for name in variables))
        if step is None:
            lines.add(f"int32_t to[{ROWS}];")
        with lines.block(f"for (p = 0; p < {shape.windows}; p += {ROWS})"):
            lines.add(f"const int32_t n = {shape.windows} - p < {ROWS} ? {shape.windows} - p : {ROWS};")
            with lines.block("for (int32_t q = 0; q < n; ++q)"):
                self._row(variables, f"rows + q * {shape.row}")
                if step is None:
                    terms = [times(name, axis.result_step) for name, axis in zip(variables, shape.axes, strict=True)]
                    lines.add(f"to[q] = {sum_text(terms)};")
                self._next(variables)
            with lines.block(f"for (int32_t c = {first}; c < {last}; ++c)"):
                lines.add(f"{sums}(sums, rows, {weights} + c * {shape.row}, {shape.row});")
                with lines.block("for (int32_t q = 0; q < n; ++q)"):
                    before, code = self._code("sums[q]")
                    place = "to[q]" if step is None else times("(p + q)", step)
                    lines.add(*before, f"y[{sum_text([place, times('c', shape.channel_step)])}] = {code};")

    def _next(self, variables: Sequence[str]) -> None:
        """Go on to the next window."""
        axes, lines = self.shape.axes, self.lines
        with ExitStack() as stack:
            for k in reversed(range(len(axes))):
                if k == 0:
                    lines.add(f"++{variables[k]};")
                else:
                    stack.enter_context(lines.block(f"if (++{variables[k]} == {axes[k].count})"))
                    lines.add(f"{variables[k]} = 0;")

    def _single(self, first: str, last: str, sums: str, weights: str) -> None:
        """One window, and four channels at a time."""
        shape, lines = self.shape, self.lines
        self._row(["0"] * len(shape.axes), "rows")
        with lines.block(f"for (int32_t m = {first}; m < {last}; m += {ROWS})"):
            lines.add(f"const int32_t n = {last} - m < {ROWS} ? {last} - m : {ROWS};")
            with lines.block(f"if (n == {ROWS})"):
                lines.add(f"{sums}(sums, {weights} + m * {shape.row}, rows, {shape.row});")
            with lines.block("else"), lines.block("for (int32_t q = 0; q < n; ++q)"):
                lines.add("sums[q] = 0;")
                with lines.loop("k", shape.row):
                    factor = f"({self.sum_kind}_t)rows[k]"
                    lines.add(f"sums[q] += {factor} * {weights}[(m + q) * {shape.row} + k];")
            with lines.block("for (int32_t q = 0; q < n; ++q)"):
                lines.add("const int32_t c = m + q;")
                before, code = self._code("sums[q]")
                lines.add(*before, f"y[{times('c', shape.channel_step)}] = {code};")

    def _sum_function(self, rows: str, single: str) -> str:
        """The name of the function that adds up four sums; it is written if it is not there yet."""
        total = self.sum_kind
        name = f"four_sums_{rows}_{single}_{total}"

        def factor(kind: str) -> str:
            return "(int16_t)" if kind == "int8" and total == "int32" else ""

        text = _SUMS.format(
            name=name, rows=rows, single=single, total=total, rows_factor=factor(rows), single_factor=factor(single)
        )
        if text not in self.function.unit.functions:
            self.function.unit.functions.append(text)
        return name

    def _row(self, variables: Sequence[str], place: str) -> None:
        """Write the window at some variables out as a row."""
        with self.lines.block(""):
            self.lines.add(f"{self.row_kind}_t *row = {place};")
            group = [times("g", self.shape.inner * self.shape.inner_step)] if self.groups > 1 else []
            self._taps(0, variables, group)

    def _taps(self, k: int, variables: Sequence[str], terms: list[str]) -> None:
        """Elements of a window from axis ``k`` on, at the place that the terms say."""
        shape, lines = self.shape, self.lines
        if k == len(shape.axes):
            self._elements(shape.inner, shape.inner_step, terms)
            return
        axis = shape.axes[k]
        if k + 1 == len(shape.axes) and self._beside_each_other(axis):
            begin = axis.at(variables[k])
            if axis.inside:
                self._elements(axis.kernel * shape.inner, 1, [*terms, times(f"({begin})", axis.source_step)])
                return
            lines.add(f"const int32_t j{k} = {begin};")
            with lines.block(f"if (j{k} >= 0 && j{k} <= {axis.size - axis.kernel})"):
                self._elements(axis.kernel * shape.inner, 1, [*terms, times(f"j{k}", axis.source_step)])
            with lines.block("else"), lines.loop(f"k{k}", axis.kernel):
                self._checked(k, f"j{k} + k{k}", variables, terms)
            return
        with ExitStack() as stack:
            if axis.kernel > 1:
                stack.enter_context(lines.loop(f"k{k}", axis.kernel))
            place = axis.at(variables[k], f"k{k}")
            if axis.inside:
                self._taps(k + 1, variables, [*terms, times(f"({place})", axis.source_step)])
            else:
                self._checked(k, place, variables, terms)

    def _checked(self, k: int, place: str, variables: Sequence[str], terms: list[str]) -> None:
        """An element along axis ``k``, which may be in the padding."""
        shape, lines = self.shape, self.lines
        rest = shape.inner * prod(axis.kernel for axis in shape.axes[k + 1 :])
        at = f"at{k}"
        lines.add(f"const int32_t {at} = {place};")
        with lines.block(f"if ({at} >= 0 && {at} < {shape.axes[k].size})"):
            self._taps(k + 1, variables, [*terms, times(at, shape.axes[k].source_step)])
        with lines.block("else"):
            with lines.loop("e", rest):
                lines.add("row[e] = 0;")
            lines.add(f"row += {rest};")

    def _beside_each_other(self, axis: WindowAxis) -> bool:
        """True if the taps of an axis follow each other in memory."""
        shape = self.shape
        taps = axis.dilation == 1 and 1 < axis.kernel <= axis.size
        return taps and axis.source_step == shape.inner and 1 in (shape.inner_step, shape.inner)

    def _elements(self, count: int, step: int, terms: Sequence[str]) -> None:
        lines = self.lines
        with lines.loop("e", count):
            code = f"x0[{sum_text([*terms, times('e', step)])}]"
            lines.add(f"row[e] = ({self.row_kind}_t)({self._of_element(code)});")
        lines.add(f"row += {count};")

    # ---- Depthwise.

    def _depthwise(self, start: str, of_begun: _OfSum) -> None:
        """All channels of a place at once."""
        shape, lines, function = self.shape, self.lines, self.function
        weights = function.weights(self._weights.T, self._weight_kind, "weights")
        function.buffer("int32", self.channels, "sums")
        variables = [f"i{k}" for k in range(len(shape.axes))]
        with lines.loops(variables, [axis.count for axis in shape.axes]):
            with lines.loop("c", self.channels):
                lines.add(f"sums[c] = {start};")
            with ExitStack() as stack:
                tap = open_taps(lines, stack, shape.axes, function.sources[0].array.kind)
                lines.add(
                    f"const {self._weight_kind}_t *const weight = {weights} + {times(f'({tap})', self.channels)};"
                )
                with lines.loop("c", self.channels):
                    code = f"({self.row_kind}_t)({self._of_element('from[c]')})"
                    narrow = "(int16_t)" if self._weight_kind == "int8" else ""
                    lines.add(f"sums[c] += {code} * {narrow}weight[c];")
            steps = [times(name, axis.result_step) for name, axis in zip(variables, shape.axes, strict=True)]
            with lines.loop("c", self.channels):
                before, code = of_begun("sums[c]")
                lines.add(*before, f"y[{sum_text([*steps, 'c'])}] = {code};")


def _common_step(axes: Sequence[WindowAxis]) -> int | None:
    """The step between windows in the result, if it is the same between all of them."""
    step = next(axis.result_step for axis in reversed(axes) if axis.count > 1)
    for k, axis in enumerate(axes):
        if axis.count > 1 and axis.result_step != step * prod(inner.count for inner in axes[k + 1 :]):
            return None
    return step
