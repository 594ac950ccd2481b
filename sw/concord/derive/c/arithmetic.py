"""Nodes of a group as statements of C: the arithmetic of block floating point."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from concord.derive import ir
from concord.derive.c.movement import Movement
from concord.derive.c.places import ElementPlaces
from concord.derive.c.plan import FusedNodes, GroupNode
from concord.derive.c.products import constant_codes, sum_plan
from concord.derive.c.storage import CArray, NumberForm
from concord.derive.c.sums import (
    ProductCode,
    SourceRow,
    channel_sums,
    flag_conditions,
    product_of,
    run_loops,
    sum_function,
)
from concord.derive.c.unit import TABLES
from concord.derive.c.views import Affine
from concord.golden import binary16
from concord.spec.formats import FLAG_BITS, ExponentMode, Flag, Rounding

_ROUNDING = {Rounding.NEAREST_EVEN: "even", Rounding.NEAREST_AWAY: "away", Rounding.STOCHASTIC: "noise"}
#: Sums from which on it pays to widen the mantissas that they read.
_WIDENED = 4
#: Nodes that are computed element by element, several in one loop.
_COLUMN = (ir.Elementwise, ir.TableLookup, ir.ToReal, ir.MatMul, ir.ProductOf)


class _BlockArrays(NamedTuple):
    """Arrays of a conversion: of mantissas, of halves and of noise, if there are any."""

    codes: str | None
    half: str | None
    noise: str | None


class Arithmetic:
    """Writes nodes.

    Parameters
    ----------
    places : ElementPlaces
    movement : Movement
    flag_places : sequence of str
        Those of the model.
    """

    def __init__(self, places: ElementPlaces, movement: Movement, flag_places: Sequence[str]):
        self.places, self.movement = places, movement
        self.flag_places = list(flag_places)

    def nodes(self, group: FusedNodes) -> None:
        """The statements for a position."""
        self.movement.forget()
        runs: list[list[GroupNode]] = []
        for some in group.nodes:
            if runs and _joins(some, runs[-1]):
                runs[-1].append(some)
            else:
                runs.append([some])
        for number, run in enumerate(runs):
            later = {operand.own for others in runs[number + 1 :] for some in others for operand in some.operands}
            first = run[0]
            match first.node:
                case ir.Quantise():
                    self._quantise(first, first.node)
                case ir.Depthwise():
                    self._depthwise(first, first.node)
                case ir.Maximum():
                    self._maximum(first, first.node)
                case _:
                    self._columns(run, {own for own in later if own is not None})

    def initial_codes(self, target: CArray, constant: CArray) -> None:
        """Set a storage of blocks to constants."""
        assert target.block is not None and constant.data is not None
        made = constant_codes(constant.data, target.block)
        assert made is not None
        for values, kind, name in zip(
            made, (target.block.kind, "int8"), self.places.arrays(target, NumberForm.CODES), strict=True
        ):
            stored = self.places.unit.constant(values, kind, TABLES, target.name, "initial")
            with self.places.lines.loop("k", values.size):
                self.places.lines.add(f"{name}[k] = {stored}[k];")

    def _row(self, target: CArray) -> int:
        """Elements of a row."""
        return target.size // self.places.position.count

    # Flags -----------------------------------------------------------------------------------------------

    def _raise(self, node: ir.ModelNode, conditions: Mapping[Flag, str]) -> None:
        for flag in node.may:
            variable = f"raised_{self.flag_places.index(node.where)}"
            self.places.scope.places[node.where] = variable
            self.places.lines.add(f"{variable} |= {conditions[flag]} ? {FLAG_BITS[flag.name]}u : 0u;")

    # Elements --------------------------------------------------------------------------------------------

    def _columns(self, nodes: list[GroupNode], later: set[CArray]) -> None:
        """Nodes that are computed element by element; some values are read afterwards."""
        places, lines, width = self.places, self.places.lines, self._row(nodes[0].target)
        scalars: dict[CArray, str] = {}
        products = {some: self._sum_call(some, some.node) for some in nodes if isinstance(some.node, ir.MatMul)}
        products |= {some: self._sum_of(some, some.node) for some in nodes if isinstance(some.node, ir.ProductOf)}
        texts = {some: self._operand_texts(some, width) for some in nodes if some not in products}
        with lines.loop("c", width):
            mark = len(lines.lines)
            for some in nodes:
                name = some.target.name
                operands = [
                    scalars.get(operand.own, text) if operand.own is not None else text
                    for operand, text in zip(some.operands, texts.get(some, ()), strict=some in texts)
                ]
                match some.node:
                    case ir.ToReal():
                        output = places.element(some.target, places.half(some.target), width, "c")
                        lines.add(f"{output} = {operands[0]};")
                        continue
                    case ir.MatMul() | ir.ProductOf():
                        self._sum(some.node, name, *products[some])
                    case ir.Elementwise():
                        lines.add(f"const uint16_t {name} = {some.node.operation.primitive}({', '.join(operands)});")
                        self._raise(some.node, {Flag.HALF_OVERFLOW: f"overflowed({', '.join([name, *operands])})"})
                    case ir.TableLookup():
                        self._table(some.node, operands[0], name)
                scalars[some.target] = name
                if NumberForm.HALF in some.target.forms and (some.target not in places.local or some.target in later):
                    lines.add(f"{places.element(some.target, places.half(some.target), width, 'c')} = {name};")
            for name in scalars.values():  # those that are there for their flags
                if sum(mentions(line, name) for line in lines.lines[mark:]) == 1:
                    lines.add(f"(void){name};")

    def _operand_texts(self, some: GroupNode, width: int) -> list[str]:
        return [self.movement.at_column(operand, width) for operand in some.operands]

    def _table(self, node: ir.TableLookup, x: str, name: str) -> None:
        entries = self.places.patterns(node.entries, node.name)
        self.places.lines.add(
            f"const uint16_t {name} = half_table({x}, {entries}, {node.scale}, {node.low}, {node.high});"
        )
        ends = [] if node.constant_ends[0] else [f"table_under({x}, {node.scale}, {node.low})"]
        ends += [] if node.constant_ends[1] else [f"table_over({x}, {node.scale}, {node.high})"]
        clamped = f"({' || '.join(ends)})" if ends else "false"
        self._raise(node, {Flag.NONFINITE: f"!is_finite({x})", Flag.TABLE_CLAMPED: clamped})

    # Rows ------------------------------------------------------------------------------------------------

    def _maximum(self, some: GroupNode, node: ir.Maximum) -> None:
        """The source has the axis last, or in front of the last one."""
        x, width = self.movement.half_row(some.operands[0]), self._row(some.target)
        axis = node.axis % len(node.x.shape)
        count, lines = node.x.shape[axis], self.places.lines
        start, step = ("c", width) if axis == len(node.x.shape) - 2 else (f"c * {count}", 1)
        target = self.places.half(some.target)
        with lines.loop("c", width):
            element = self.places.element(some.target, target, width, "c")
            lines.add(f"{element} = half_reduce_max({x} + {start}, {count}, {step});")

    def _quantise(self, some: GroupNode, node: ir.Quantise) -> None:
        places, lines, target = self.places, self.places.lines, some.target
        size, row = node.output.shape[-1], self._row(target)
        times = row // size
        codes, exponents = places.arrays(target, NumberForm.CODES) if NumberForm.CODES in target.forms else (None, None)
        half = places.half(target) if NumberForm.HALF in target.forms else None
        saturates = Flag.SATURATED in node.may
        rounded = codes is not None or half is not None or (saturates and node.mode is ExponentMode.STATIC)
        noise = None
        if node.noise is not None and rounded:
            noise = places.unit.constant(node.noise, "uint16", TABLES, target.name, "noise")
        block = start = 0
        with lines.block(""):
            lines.add(f"const uint16_t *const x = {self.movement.half_row(some.operands[0])};")
            if Flag.NONFINITE in node.may:
                self._raise(_only(node, Flag.NONFINITE), {Flag.NONFINITE: f"any_not_finite(x, {row})"})
            if not rounded and not saturates:
                return
            for (count, peak), same in groupby(zip(node.blocks, node.peaks, strict=True)):
                number = len(list(same))
                loops = [("r", times, size, len(node.blocks)), ("b", number, count, 1)]
                loops = [some_loop for some_loop in loops if some_loop[1] > 1]
                variables = [variable for variable, *_ in loops]
                first = Affine(start, tuple(step for _, _, step, _ in loops)).text(variables)
                which = Affine(block, tuple(step for _, _, _, step in loops)).text(variables)
                with lines.loops(variables, [number for _, number, _, _ in loops]):
                    self._exponent(node, target, count, peak, first, rounded)
                    if rounded and exponents is not None:
                        stored = places.element(target, exponents, times * len(node.blocks), which)
                        lines.add(f"{stored} = (int8_t)e;")
                    if rounded:
                        with lines.loop("k", count):
                            self._code(node, target, first, row, _BlockArrays(codes, half, noise))
                block, start = block + number, start + count * number

    def _exponent(self, node: ir.Quantise, target: CArray, count: int, peak: float, first: str, rounded: bool) -> None:
        """Declare the exponent of a block, unless it is there for its flag alone."""
        assert target.block is not None
        text = str(node.exp)
        if node.mode is not ExponentMode.STATIC:
            start = "x" if first == "0" else f"x + {first}"
            greatest = f"block_peak({start}, {count}, {int(binary16.encode(abs(peak)))})"
            if Flag.SATURATED in node.may:
                self.places.lines.add(f"const uint16_t peak = {greatest};")
                greatest = "peak"
                beyond = f"peak >= {int(binary16.encode(node.form.limit))}"
                self._raise(_only(node, Flag.SATURATED), {Flag.SATURATED: beyond})
            if not rounded:
                return
            text = f"block_exponent({greatest}, {node.form.headroom}, {target.block.least}, {target.block.greatest})"
        self.places.lines.add(f"const int32_t e = {text};")

    def _code(self, node: ir.Quantise, target: CArray, first: str, row: int, names: _BlockArrays) -> None:
        """The number ``k`` of a block."""
        codes, half, noise = names
        places, lines, word = self.places, self.places.lines, _ROUNDING[node.rounding]
        at = "k" if first == "0" else f"{first} + k"
        arguments = [f"x[{at}]", "e", str(node.form.q_max)]
        if noise is not None:
            arguments.append(f"{noise}[{at}]" if places.position.count == 1 else f"{noise}[p * {row} + {at}]")
        if codes is not None or half is not None:
            lines.add(f"const int32_t code = code_{word}({', '.join(arguments)});")
        if codes is not None:
            assert target.block is not None
            lines.add(f"{places.element(target, codes, row, at)} = ({target.block.kind}_t)code;")
        if half is not None:
            lines.add(f"{places.element(target, half, row, at)} = half_of_code(code, e);")
        if Flag.SATURATED in node.may and node.mode is ExponentMode.STATIC:
            condition = f"saturated_{word}({', '.join(arguments)})"
            self._raise(_only(node, Flag.SATURATED), {Flag.SATURATED: condition})

    # Products --------------------------------------------------------------------------------------------

    def _source_row(self, some: GroupNode, sums: int) -> SourceRow:
        """The row that a number of sums read: mantissas are widened once for all of them."""
        operand, places = some.operands[0], self.places
        if operand.blocks is not None:
            wide = sums >= _WIDENED and operand.blocks.layout.kind == "int8"
            return SourceRow(
                operand.blocks.layout.kind,
                *self.movement.code_rows(operand, operand.blocks, wide),
                operand.blocks,
                wide,
            )
        row, count = self.movement.half_row(operand), operand.view.index.size // places.position.count
        codes = places.scratch("int16", count, some.target.name, "codes")
        exponents = places.scratch("int8", count, some.target.name, "exponents")
        with places.lines.block(""):
            places.lines.add(f"const uint16_t *const x = {row};")
            with places.lines.loop("k", count):
                places.lines.add(f"{codes}[k] = half_code(x[k]);", f"{exponents}[k] = half_exponent(x[k]);")
        return SourceRow("int16", codes, exponents, None, False)

    def _sum_call(self, some: GroupNode, node: ir.MatMul) -> tuple[ProductCode, str]:
        """Product, and the call that adds up the sum ``c``."""
        source, unit, word = self._source_row(some, node.weight.shape[-2]), self.places.unit, some.target.name
        product = product_of(node, source, unit, word)
        name = sum_function(node, product, source, unit, word)
        codes, exponents, inputs = source.codes, source.exponents, node.weight.shape[-1]
        if node.weight.ndim == 3:
            outputs = node.weight.shape[1]
            codes = f"{codes} + c / {outputs} * {inputs}"
            exponents = f"{exponents} + c / {outputs} * {product.blocks}"
        weights = [f"{product.codes} + c * {inputs}", f"{product.exponents} + c * {len(product.weights.sizes)}"]
        arguments = [codes, exponents, *weights]
        arguments += [] if product.offset is None else [f"{product.offset}[c]"]
        arguments += [] if product.how.register is None else [f"&{word}_end"]
        return product, f"{name}({', '.join(arguments)})"

    def _sum_of(self, some: GroupNode, node: ir.ProductOf) -> tuple[ProductCode, str]:
        """Product of two values, and the call that adds up the sum ``c``."""
        assert some.matrix is not None and some.runs is not None
        outputs, inputs = node.matrix.shape
        source = self._source_row(some, outputs)
        codes, exponents = self.places.arrays(some.matrix, NumberForm.CODES)
        runs = some.runs
        how = sum_plan(node, runs, source.layout)
        blocks = inputs if source.blocks is None else len(source.blocks.sizes)
        product = ProductCode(how, runs, blocks, codes, exponents, None)
        name = sum_function(node, product, source, self.places.unit, some.target.name)
        weights = [f"{codes} + c * {inputs}", f"{exponents} + c * {len(runs.sizes)}"]
        return product, f"{name}({', '.join([source.codes, source.exponents, *weights])})"

    def _sum(self, node: ir.MatMul | ir.ProductOf, name: str, product: ProductCode, call: str) -> None:
        lines = self.places.lines
        if product.how.register is not None:
            lines.add(f"int32_t {name}_end = 0;")
        lines.add(f"const {product.sum_type} {name}_total = {call};")
        text, over = product.rounded(f"{name}_total", f"{name}_end")
        lines.add(f"const uint16_t {name} = {text};")
        self._raise(node, flag_conditions(name, over))

    def _depthwise(self, some: GroupNode, node: ir.Depthwise) -> None:
        source, places, lines = self._source_row(some, 1), self.places, self.places.lines
        taps, channels = node.weight.shape
        product = product_of(node, source, places.unit, some.target.name)
        target = places.half(some.target)
        with lines.block(""):
            lines.add(
                f"const {source.kind}_t *const x = {source.codes};", f"const int8_t *const e = {source.exponents};"
            )
            for runs in run_loops(product.weights):
                variables = ["s"] * len(runs.counts)
                with lines.loops(variables, runs.counts):
                    channel_sums(taps, channels, product, source, runs, lines)
                    with lines.loop("c", runs.size):
                        place = f"{runs.product.text(variables)} + c"
                        element = places.element(some.target, target, channels, place)
                        text, over = product.rounded("total[c]", "end[c]")
                        lines.add(f"const uint16_t y = {text};", f"{element} = y;")
                        self._raise(node, flag_conditions("y", over))


def _joins(some: GroupNode, others: list[GroupNode]) -> bool:
    """True if a node can be computed in the same loop over elements as others."""
    if some.target.size != others[0].target.size:
        return False
    if not isinstance(some.node, _COLUMN) or not isinstance(others[0].node, _COLUMN):
        return False
    made = {other.target for other in others}
    return all(
        operand.own not in made or (operand.view.identity and not isinstance(some.node, ir.ExactSums))
        for operand in some.operands
    )


def _only(node: ir.Quantise, flag: Flag) -> ir.Quantise:
    """A node with one of its flags."""
    return replace(node, may=(flag,))


def mentions(line: str, variable: str) -> bool:
    """True if a line has a variable."""
    return re.search(rf"\b{variable}\b", line) is not None
