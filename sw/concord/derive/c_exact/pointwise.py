"""Operations element by element in C: tables, sums, products, and what only moves codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from concord.derive.c.storage import CArray, View
from concord.derive.c.views import runs
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import CommonLoops, minus
from concord.derive.c_exact.rounding import binary32_literal
from concord.derive.c_exact.tensors import CodeTensor, kind_of, limits_codes, move_places
from concord.integer.float32 import Binary32
from concord.integer.operations import (
    CodeDifference,
    CodeMovement,
    CodePairTable,
    CodeProduct,
    CodeSum,
    CodeTable,
    first_is_single,
)


def _loops(tensors: Sequence[CodeTensor], result: CodeTensor) -> CommonLoops:
    """Through the result in the order of memory, and through what is broadcast to it."""
    arrays = [np.broadcast_to(tensor.places, result.shape) for tensor in (*tensors, result)]
    return CommonLoops.of([array.transpose(result.order) for array in arrays])


def write_table(function: ExactFunction, operation: CodeTable) -> None:
    """A look-up."""
    (source,), result = function.sources, function.result
    table, low = operation.table, operation.table.source.low
    name = function.table(table.entries, kind_of(result.scheme), "table")
    loops = _loops([source], result)
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(f"{loops.element(1, 'y')} = {name}[{minus(loops.element(0, 'x0'), low)}];")


def write_pair_table(function: ExactFunction, operation: CodePairTable) -> None:
    """A look-up with two indices."""
    name = function.table(operation.table.entries, kind_of(function.result.scheme), "table")
    loops = _loops(function.sources, function.result)
    a, b = _offsets(loops, operation.lows)
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(f"{loops.element(2, 'y')} = {name}[{a} * {operation.count} + {b}];")


def write_sum(function: ExactFunction, operation: CodeSum) -> None:
    """Add: in words of 64 bits where all terms have a place in them."""
    sources = function.sources
    swapped = first_is_single(sources[0].shape, sources[1].shape)
    order = (1, 0) if swapped else (0, 1)
    loops = _loops(sources, function.result)
    codes = [loops.element(k, f"x{k}") for k in order]
    rounding = function.rounding(0, operation.low, operation.high)  # the offset has the zero point
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


def _offsets(loops: CommonLoops, zeros: Sequence[int]) -> list[str]:
    """Codes less their zero points, as factors."""
    return [f"({minus(loops.element(k, f'x{k}'), zero)})" for k, zero in enumerate(zeros)]


def write_difference(function: ExactFunction, operation: CodeDifference) -> None:
    """Sub."""
    loops = _loops(function.sources, function.result)
    rounding = function.rounding(operation.zero_point, operation.low, operation.high)
    with function.lines.loops(loops.variables, loops.sizes):
        for name, sign, code, scale in zip(
            "ab", (1, -1), _offsets(loops, operation.zeros), operation.scales, strict=True
        ):
            number = Binary32.of(scale)
            product = f"INT64_C({sign * int(number.mantissa)}) * {code}"
            function.lines.add(f"const binary32 {name} = binary32_rounded({product}, {int(number.exponent)});")
        step = binary32_literal(Binary32.of(operation.step))
        function.lines.add(
            f"const binary32 steps = binary32_quotient(binary32_sum(a, b), {step});",
            f"{loops.element(2, 'y')} = {rounding.of_binary32('steps')};",
        )


def write_product(function: ExactFunction, operation: CodeProduct) -> None:
    """Mul."""
    loops = _loops(function.sources, function.result)
    factors = _offsets(loops, operation.zeros)
    rounding = function.rounding(0, operation.low, operation.high)  # the number has the zero point
    ratio, zero = Binary32.of(operation.ratio), Binary32.of_integers(np.asarray(operation.zero_point))
    with function.lines.loops(loops.variables, loops.sizes):
        function.lines.add(
            f"const binary32 product = binary32_rounded((int64_t){factors[0]} * {factors[1]}, 0);",
            f"const binary32 scaled = binary32_product(product, {binary32_literal(ratio)});",
            f"const binary32 number = binary32_sum(scaled, {binary32_literal(zero)});",
            f"{loops.element(2, 'y')} = {rounding.of_binary32('number')};",
        )


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
