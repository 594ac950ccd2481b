"""Operations element by element in C: tables, sums, products, and what only moves codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import numpy as np
from numpy.typing import NDArray

from concord.derive.c.storage import CArray, View
from concord.derive.c.views import runs
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import CommonLoops, minus
from concord.derive.c_exact.requantise import FixedPointFactor, channel_codes
from concord.derive.c_exact.rounding import binary32_literal
from concord.derive.c_exact.tensors import kind_of, limits_codes, move_places
from concord.integer.exact_sums import reach_of
from concord.integer.float32 import Binary32
from concord.integer.npu.operations import WeightedPair
from concord.integer.operations import (
    CodeFloats,
    CodeMovement,
    CodePairTable,
    CodeProduct,
    CodeSum,
    CodeTable,
    first_is_single,
)
from concord.integer.tflite.operations import FixedPointProduct, FixedPointSum
from concord.integer.wide import (
    CodesOfNumbers,
    NumbersOfCodes,
    TabledNumbers,
    WideDifference,
    WidePair,
    WideProduct,
    integers_of,
)


def write_table(function: ExactFunction, operation: CodeTable) -> None:
    """A look-up."""
    (source,), result = function.sources, function.result
    table, low = operation.table, operation.table.source.low
    name = function.table(table.entries, kind_of(result.scheme), "table")
    loops = CommonLoops.through([source], result)
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(f"{loops.element(1, 'y')} = {name}[{minus(loops.element(0, 'x0'), low)}];")


def write_pair_table(function: ExactFunction, operation: CodePairTable) -> None:
    """A look-up with two indices."""
    name = function.table(operation.table.entries, kind_of(function.result.scheme), "table")
    loops = CommonLoops.through(function.sources, function.result)
    a, b = loops.offsets(operation.lows)
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(f"{loops.element(2, 'y')} = {name}[{a} * {operation.count} + {b}];")


def write_sum(function: ExactFunction, operation: CodeSum) -> None:
    """Add: in words of 64 bits where all terms have a place in them."""
    sources = function.sources
    swapped = first_is_single(sources[0].shape, sources[1].shape)
    order = (1, 0) if swapped else (0, 1)
    loops = CommonLoops.through(sources, function.result)
    shifted = loops.offsets([-shift for shift in operation.shifts[:2]])
    codes = [shifted[k] if operation.shifts[k] else loops.element(k, f"x{k}") for k in order]
    rounding = function.rounding(-operation.shifts[2], operation.low, operation.high)  # the offset has the zero point
    grid = operation.on_grid(swapped)
    with function.lines.loops(loops.variables, loops.sizes):
        if grid is None:
            ratios = [binary32_literal(Binary32.of(operation.ratios[k])) for k in order]
            offset = binary32_literal(operation.offset(swapped))
            function.lines.add(
                f"const binary32 inner = binary32_sum(binary32_times({ratios[1]}, {codes[1]}), {offset});",
                f"const binary32 total = binary32_sum(binary32_times({ratios[0]}, {codes[0]}), inner);",
                f"{loops.element(2, 'y')} = {rounding.of_binary32('total')};",
            )
        else:
            function.lines.add(
                f"const int64_t inner = with_24_bits({codes[1]} * INT64_C({grid.b}) + INT64_C({grid.c}));",
                f"const int64_t total = {codes[0]} * INT64_C({grid.a}) + inner;",
                f"{loops.element(2, 'y')} = {rounding.of_product('total', str(grid.shift))};",
            )


def write_floats(function: ExactFunction, operation: CodeFloats) -> None:
    """Sub, Add or Mul in binary32."""
    loops = CommonLoops.through(function.sources, function.result)
    rounding = function.rounding(operation.zero_point, operation.low, operation.high)
    with function.lines.loops(loops.variables, loops.sizes):
        signs = (1, -1 if operation.operator == "Sub" else 1)
        for name, sign, code, scale in zip("ab", signs, loops.offsets(operation.zeros), operation.scales, strict=True):
            number = Binary32.of(scale)
            product = f"INT64_C({sign * int(number.mantissa)}) * {code}"
            function.lines.add(f"const binary32 {name} = binary32_rounded({product}, {int(number.exponent)});")
        step = binary32_literal(Binary32.of(operation.step))
        result = "binary32_product(a, b)" if operation.operator == "Mul" else "binary32_sum(a, b)"
        function.lines.add(
            f"const binary32 steps = binary32_quotient({result}, {step});",
            f"{loops.element(2, 'y')} = {rounding.of_binary32('steps')};",
        )


def write_product(function: ExactFunction, operation: CodeProduct) -> None:
    """Mul."""
    loops = CommonLoops.through(function.sources, function.result)
    factors = loops.offsets(operation.zeros)
    rounding = function.rounding(-operation.shift, operation.low, operation.high)  # the number has the zero point
    ratio = Binary32.of(operation.ratio)
    zero = Binary32.of_integers(np.asarray(operation.zero_point + operation.shift))
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(
            f"const binary32 product = binary32_rounded((int64_t){factors[0]} * {factors[1]}, 0);",
            f"const binary32 scaled = binary32_product(product, {binary32_literal(ratio)});",
            f"const binary32 number = binary32_sum(scaled, {binary32_literal(zero)});",
            f"{loops.element(2, 'y')} = {rounding.of_binary32('number')};",
        )


def write_fixed_point_sum(function: ExactFunction, operation: FixedPointSum) -> None:
    """ADD and SUB of TensorFlow Lite."""
    loops = CommonLoops.through(function.sources, function.result)
    lines, bound = function.lines, 0
    parts = []
    operands = zip(
        "ab", loops.offsets(operation.zeros), function.sources, operation.zeros, operation.scales, strict=True
    )
    for name, code, source, zero, scale in operands:
        factor = FixedPointFactor(function, scale, reach_of(source.scheme, zero), operation.up)
        parts.append(f"const int32_t {name} = {factor.times(code)};")
        bound += factor.bound
    codes = channel_codes(function, operation.requantisation, bound)
    total = f"a {'-' if operation.difference else '+'} b"
    before, code = codes.of_sum(total if codes.range.fits else f"(int64_t){total}")
    with lines.loops(loops.variables, loops.sizes):
        lines.add(*parts, *before, f"{loops.element(2, 'y')} = {code};")


def write_fixed_point_product(function: ExactFunction, operation: FixedPointProduct) -> None:
    """MUL of TensorFlow Lite."""
    loops = CommonLoops.through(function.sources, function.result)
    bound = prod(reach_of(source.scheme, zero) for source, zero in zip(function.sources, operation.zeros, strict=True))
    codes = channel_codes(function, operation.requantisation, bound)
    product = " * ".join(loops.offsets(operation.zeros))
    before, code = codes.of_sum(product if codes.range.fits else f"(int64_t){product}")
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(*before, f"{loops.element(2, 'y')} = {code};")


def write_weighted_pair(function: ExactFunction, operation: WeightedPair) -> None:
    """The sum of two tensors times whole numbers, with a factor of an NPU."""
    loops = CommonLoops.through(function.sources, function.result)
    codes = channel_codes(function, operation.requantisation, operation.largest_sum)
    kind = "(int64_t)" if codes.range.kind == "int64" else ""
    operands = zip(loops.offsets(operation.zeros), operation.weights, strict=True)
    parts = [f"{kind}({code}) * {weight}" for code, weight in operands]
    before, code = codes.of_sum(" + ".join(parts))
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(*before, f"{loops.element(2, 'y')} = {code};")


def write_numbers(function: ExactFunction, operation: NumbersOfCodes) -> None:
    """Codes to wide numbers."""
    loops, scale = CommonLoops.through(function.sources, function.result), Binary32.of(operation.scale)
    function.overflows = True
    with function.lines.loops(loops.variables, loops.sizes):
        code = minus(loops.element(0, "x0"), operation.zero_point)
        product = f"(int64_t)({code}) * {int(scale.mantissa)}"
        function.lines.add(f"{loops.element(1, 'y')} = wide_rounded({product}, {int(scale.exponent)}, &raised);")


def write_tabled_numbers(function: ExactFunction, operation: TabledNumbers) -> None:
    """A look-up of wide numbers."""
    name = function.table(integers_of(operation.numbers), "int32", "numbers")
    loops = CommonLoops.through(function.sources, function.result)
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(f"{loops.element(1, 'y')} = {name}[{minus(loops.element(0, 'x0'), operation.least)}];")


def write_codes(function: ExactFunction, operation: CodesOfNumbers) -> None:
    """Wide numbers to codes."""
    loops, step = CommonLoops.through(function.sources, function.result), binary32_literal(Binary32.of(operation.step))
    rounding = function.rounding(operation.zero_point, operation.low, operation.high)
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(
            f"const binary32 steps = binary32_quotient(wide_number({loops.element(0, 'x0')}), {step});",
            f"{loops.element(1, 'y')} = {rounding.of_binary32('steps')};",
        )


def write_wide_pair(function: ExactFunction, operation: WidePair) -> None:
    """Add, Sub and Mul of wide numbers."""
    loops = CommonLoops.through(function.sources, function.result)
    function.overflows = True
    name = "wide_numbers_product" if isinstance(operation, WideProduct) else "wide_numbers_sum"
    sign = "-" if isinstance(operation, WideDifference) else ""
    with function.lines.loops(loops.variables, loops.sizes):
        a, b, y = (loops.element(k, place) for k, place in enumerate(("x0", "x1", "y")))
        function.lines.add(f"{y} = {name}({a}, {sign}{b}, &raised);")


def write_movement(function: ExactFunction, operation: CodeMovement) -> None:
    """Copies of pieces, or a table of places."""
    tensors = dict(zip(operation.inputs, function.sources, strict=True)) | {operation.output: function.result}
    places, constants = move_places(operation, tensors)
    kind, limits = function.result.array.kind, limits_codes(operation, tensors)
    sources = tuple(CArray(f"x{k}", source.stored) for k, source in enumerate(function.sources))
    pieces = runs(View(sources, places, np.arange(len(constants), dtype=np.uint16)))
    lines = function.lines

    def moved(code: str) -> str:
        return f"({kind}_t){f'limited({code}, {operation.low}, {operation.high})' if limits else code}"

    for piece in pieces or ():
        variables = tuple(f"i{k}" for k in range(len(piece.shape)))
        with lines.loops(variables, piece.shape):
            code = (
                moved(f"x{piece.source}[{piece.origin.text(variables)}]")
                if piece.fill is None
                else str(constants[piece.fill])
            )
            lines.add(f"y[{piece.to.text(variables)}] = {code};")
    if pieces is not None:
        return
    flat, first = places.reshape(-1), 0
    for k, constant in enumerate(constants.tolist()):
        with _targets(function, flat == -1 - k) as element:
            lines.add(f"{element} = {constant};")
    for k, source in enumerate(function.sources):
        own = (flat >= first) & (flat < first + source.size)
        origin = function.table(flat[own] - first, "int32", "places")
        with _targets(function, own) as element:
            lines.add(f"{element} = {moved(f'x{k}[{origin}[k]]')};")
        first += source.size


@contextmanager
def _targets(function: ExactFunction, chosen: NDArray[np.bool_]) -> Iterator[str]:
    """A loop over some elements of the result."""
    elements = np.flatnonzero(chosen)
    table = function.table(elements, "int32", "targets")
    with function.lines.loop("k", len(elements)):
        yield f"y[{table}[k]]"
