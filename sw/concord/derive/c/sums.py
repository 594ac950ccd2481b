"""Sums of products of blocks in C: functions that add them up, and statements that round them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from concord.derive import ir
from concord.derive.c.products import HALF_LAYOUT, BlockView, ProductRuns, SumPlan, sum_plan, weights_of
from concord.derive.c.storage import StoredBlocks
from concord.derive.c.unit import WEIGHTS, CodeLines, Unit
from concord.derive.c.views import Affine
from concord.spec.formats import Flag

#: Bits of a product of two mantissas of 8 bits, with its sign.
_PRODUCT_BITS = 15


@dataclass(frozen=True)
class SourceRow:
    """A row of mantissas with exponents.

    Parameters
    ----------
    kind : str
        Type of a mantissa.
    codes, exponents : str
        Pointers.
    blocks : BlockView or None
        Where they are from; ``None`` for halves, each of which has an exponent of its own.
    wide : bool
        Whether mantissas of 8 bits are in ``int16_t``.
    """

    kind: str
    codes: str
    exponents: str
    blocks: BlockView | None
    wide: bool

    @property
    def layout(self) -> StoredBlocks:
        """Blocks of the source, with the range of exponents."""
        return HALF_LAYOUT if self.blocks is None else self.blocks.layout

    def dot(self, weights: ProductRuns) -> str:
        """The function that adds up products of mantissas."""
        return "dot_narrow" if self.wide and weights.kind == "int8" else f"dot_{self.stored[3:]}_{weights.kind[3:]}"

    @property
    def stored(self) -> str:
        """Type of the elements of the row."""
        return "int16" if self.wide else self.kind


@dataclass(frozen=True)
class RunLoops:
    """Runs of products as a loop, or as one run.

    Parameters
    ----------
    counts : tuple of int
        Iterations of the loops; empty for one run.
    size : int
        Products of a run.
    product, run, block : Affine
        The first product, the number of the run, and the block of the source.
    """

    counts: tuple[int, ...]
    size: int
    product: Affine
    run: Affine
    block: Affine


def run_loops(weights: ProductRuns) -> Iterable[RunLoops]:
    """All runs, those that go on by equal steps together."""
    sizes = list(zip(weights.sizes, weights.block, strict=True))
    product = run = 0
    while run < len(sizes):
        size, block = sizes[run]
        step = sizes[run + 1][1] - block if run + 1 < len(sizes) else 0
        stop = run + 1
        while stop < len(sizes) and sizes[stop][0] == size and sizes[stop][1] - sizes[stop - 1][1] == step:
            stop += 1
        count = stop - run
        steps = [(size,), (1,), (step,)] if count > 1 else [()] * 3
        starts = [Affine(start, tuple(by)) for start, by in zip((product, run, block), steps, strict=True)]
        yield RunLoops((count,) * (count > 1), size, *starts)
        product, run = product + size * count, stop


@dataclass(frozen=True)
class ProductCode:
    """A product as C has it.

    Parameters
    ----------
    how : SumPlan
    weights : ProductRuns
    blocks : int
        Exponents of a row of the source.
    codes, exponents, offset : str
        Names of the constants, or of the arrays of a matrix.
    """

    how: SumPlan
    weights: ProductRuns
    blocks: int
    codes: str
    exponents: str
    offset: str | None

    @property
    def prefix(self) -> str:
        """Prefix of the names of functions of sums."""
        return "wide_" if self.how.wide else ""

    @property
    def sum_type(self) -> str:
        """Type of a sum."""
        return "wide_sum" if self.how.wide else "uint64_t"

    @property
    def zero(self) -> str:
        """An empty sum."""
        return "{0, 0}" if self.how.wide else "0"

    def sum_of_offset(self, text: str) -> str:
        """An element of the offset as a sum."""
        return self.scaled(text, str(self.how.offset_shift))

    def sign(self, total: str) -> str:
        """Condition that a sum is negative."""
        return f"{total}.high >> 63" if self.how.wide else f"{total} >> 63"

    def plus(self, a: str, b: str) -> str:
        """The sum of two."""
        return f"wide_add({a}, {b})" if self.how.wide else f"{a} + {b}"

    def scaled(self, term: str, shift: str) -> str:
        """A term times a power of two."""
        return f"{self.prefix}scaled({term}, {shift})"

    def shift(self, source: str, weight: str) -> str:
        """The shift of a term, from the exponents of source and weights."""
        unit = self.how.unit
        return f"{source} + {weight}" + (f" + {-unit}" if unit < 0 else f" - {unit}" if unit else "")

    def leaves(self, *sums: str) -> str:
        """Condition that one of some sums does not fit the register."""
        return " || ".join(f"{self.prefix}beyond({text}, {self.how.register})" for text in sums)

    def rounded(self, total: str, end: str) -> tuple[str, str]:
        """A sum as a half, and the condition that it was cut off."""
        how = self.how
        text, over = f"half_of_{self.prefix}sum({total}, {how.unit})", "false"
        if how.limit is not None:
            over = f"{self.prefix}beyond({total}, {how.limit})"
            text = f"{over} ? (uint16_t)({self.sign(total)} ? {how.ends[1]} : {how.ends[0]}) : {text}"
        if how.register is not None:
            (above, cut_above), (below, cut_below) = how.register_ends
            text = f"{end} ? (uint16_t)({end} < 0 ? {below} : {above}) : {text}"
            cut = f"({end} < 0 ? {str(cut_below).lower()} : {str(cut_above).lower()})"
            over = f"({end} ? {cut} : {over})"
        return text, over


def product_of(node: ir.MatMul | ir.Depthwise, source: SourceRow, unit: Unit, word: str) -> ProductCode:
    """The product of a node, with its constants in a unit."""
    inputs = node.weight.shape[-1]
    sizes = (1,) * inputs if source.blocks is None else source.blocks.sizes
    cuts: Sequence[int] = node.starts if node.register and isinstance(node, ir.MatMul) else ()
    weights = weights_of(node.weight.reshape(-1, inputs), sizes, cuts)
    how = sum_plan(node, weights.runs, source.layout)
    return ProductCode(
        how,
        weights.runs,
        len(sizes),
        unit.constant(weights.codes, weights.runs.kind, WEIGHTS, word, "weights"),
        unit.constant(weights.exponents, "int8", WEIGHTS, word, "weight", "exponents"),
        None if how.offset is None else unit.constant(how.offset, "int64", WEIGHTS, word, "offset"),
    )


def sum_function(node: ir.MatMul | ir.ProductOf, product: ProductCode, source: SourceRow, unit: Unit, word: str) -> str:
    """The name of a function that adds up the products of a sum."""
    name, lines, weights, how = unit.names.new(word, "sum"), CodeLines(), product.weights, product.how
    dot = source.dot(weights)
    lines.add(f"{product.sum_type} total = {product.zero if how.offset is None else product.sum_of_offset('offset')};")
    if isinstance(node, ir.MatMul) and how.register is not None:
        _ended(node, product, dot, lines)
    else:
        for runs in run_loops(weights):
            variables = ["s"] * len(runs.counts)
            with lines.loops(variables, runs.counts):
                at, run, block = (some.text(variables) for some in (runs.product, runs.run, runs.block))
                term = product.scaled(
                    f"{dot}(x + {at}, w + {at}, {runs.size})", product.shift(f"e[{block}]", f"f[{run}]")
                )
                lines.add(f"total = {product.plus('total', term)};")
    lines.add("return total;")
    kinds = {"x": source.stored, "e": "int8", "w": weights.kind, "f": "int8"}
    arguments = [f"const {kind}_t *restrict {name}" for name, kind in kinds.items()]
    arguments += ["int64_t offset"] * (how.offset is not None) + ["int32_t *end"] * (how.register is not None)
    head = f"static inline {product.sum_type} {name}(\n    {', '.join(arguments)})\n{{"
    unit.functions.append("\n".join([head, *lines.lines, "}"]))
    return name


def _ended(node: ir.MatMul, product: ProductCode, dot: str, lines: CodeLines) -> None:
    """Add up term by term, until something does not fit the register."""
    starts, terms, at = {*node.starts}, list[list[str]](), 0
    for run, (size, block) in enumerate(zip(product.weights.sizes, product.weights.block, strict=True)):
        if at in starts:
            terms.append([])
        shift = product.shift(f"e[{block}]", f"f[{run}]")
        terms[-1].append(product.scaled(f"{dot}(x + {at}, w + {at}, {size})", shift))
        at += size
    for first, *others in terms:
        with lines.block(""):
            lines.add(f"{product.sum_type} term = {first}, after;")
            lines.add(*(f"term = {product.plus('term', other)};" for other in others))
            lines.add(f"after = {product.plus('total', 'term')};")
            with lines.block(f"if ({product.leaves('term', 'after')})"):
                lines.add(f"*end = {product.sign('term')} ? -1 : 1;", "return total;")
            lines.add("total = after;")


def channel_sums(
    taps: int, channels: int, product: ProductCode, source: SourceRow, runs: RunLoops, lines: CodeLines
) -> None:
    """Declare and add up ``total[c]`` of the channels of a block of ``x`` and ``e``; ``end[c]`` with a register."""
    variables = ["s"] * len(runs.counts)
    at, run, block = (some.text(variables) for some in (runs.product, runs.run, runs.block))
    size, ended = runs.size, product.how.register is not None
    lines.add(f"{product.sum_type} total[{size}] = {{{product.zero}}};")
    if ended:
        lines.add(f"int32_t end[{size}] = {{0}};")
    if product.offset is not None:
        with lines.loop("c", size):
            lines.add(f"total[c] = {product.sum_of_offset(f'{product.offset}[{at} + c]')};")
    spread = 32 - _PRODUCT_BITS - (taps - 1).bit_length()
    if not ended and not product.how.wide and {source.stored, product.weights.kind} == {"int8"} and spread > 0:
        arrays = [f"x + {at}", f"e + {block}", f"{product.codes} + {at}", f"{product.exponents} + {run}"]
        numbers = [size, taps, channels, product.blocks, len(product.weights.sizes), spread, -product.how.unit]
        lines.add(f"uint32_t narrow[{size}];")
        lines.add(f"add_channels({', '.join(['total', 'narrow', *arrays, *map(str, numbers)])});")
        return
    with lines.loop("tap", taps):
        own = product.shift(
            f"e[tap * {product.blocks} + {block}]",
            f"{product.exponents}[tap * {len(product.weights.sizes)} + {run}]",
        )
        lines.add(f"const int32_t shift = {own};")
        with lines.loop("c", size):
            place = f"[tap * {channels} + {at} + c]"
            term = product.scaled(f"(int32_t)x{place} * {product.codes}{place}", "shift")
            if not ended:
                lines.add(f"total[c] = {product.plus('total[c]', term)};")
                return
            lines.add(f"const {product.sum_type} term = {term};")
            lines.add(f"const {product.sum_type} after = {product.plus('total[c]', 'term')};")
            with lines.block(f"if (!end[c] && ({product.leaves('term', 'after')}))"):
                lines.add(f"end[c] = {product.sign('term')} ? -1 : 1;")
            lines.add("total[c] = after;")


def flag_conditions(result: str, over: str) -> dict[Flag, str]:
    """Conditions that raise the flags of a product."""
    return {Flag.ACC_OVERFLOW: over, Flag.HALF_OVERFLOW: f"is_infinite({result})"}
