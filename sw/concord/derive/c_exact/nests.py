"""Loops that write values to arrays: element by element, or with sums that are added up first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from concord.derive.c.copies import copy_loops
from concord.derive.c.storage import View
from concord.derive.c.texts import sum_text
from concord.derive.c.views import affine
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import CommonLoops, times
from concord.derive.c_exact.products import ProductShape, ProductWriter
from concord.derive.c_exact.statements import Statements, kind_of
from concord.derive.c_exact.values import ElementSource, Expression
from concord.derive.c_exact.windows import WindowAxis, check_windows, open_taps, open_windows, window_axes
from concord.derive.exact.arrays import WindowPlaces
from concord.integer.float32 import Binary32, Integers
from concord.integer.sum_orders import Step


@dataclass(frozen=True, eq=False, kw_only=True)
class SumSource(ElementSource):
    """Sums, in the order of ``shape``.

    Parameters
    ----------
    shape : tuple of int
    rows : Expression
        What is added up: ``[sums, *elements]``, or codes ``[samples, channels, *sizes]`` of windows, or factors.
    window : WindowPlaces or None
    kind : str
        ``"sum"``; ``"greatest"`` for the greatest elements, ``"added up"`` for sums of binary32, one by one, and
        ``"in order"`` for sums of integers times a scale in binary32.
    steps : sequence
        Of a sum in order, one of :mod:`concord.integer.sum_orders`.
    wide : bool
        Whether sums of integers have 64 bits.
    """

    shape: tuple[int, ...]
    rows: Expression
    window: WindowPlaces | None = None
    kind: str = "sum"
    steps: Sequence[Step] = ()
    wide: bool = False

    @property
    def one_by_one(self) -> bool:
        """True if elements are added up as they come."""
        return len(self.steps) <= 1


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductSumSource(SumSource):
    """Sums of products, of rows with ``weight[inputs, channels]``, or of windows with ``[channels, inputs, *kernel]``.

    Parameters
    ----------
    weight : array of int64
    groups : int
    """

    weight: Integers = field(repr=False)
    groups: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowSource(ElementSource):
    """Elements of windows of a value, in the last axis, to be added up."""

    rows: Expression
    window: WindowPlaces


@dataclass(frozen=True, eq=False, kw_only=True)
class MovedSource(ElementSource):
    """Elements of several arrays, and constants, as a result has them."""

    view: View


def store(function: ExactFunction, value: Expression) -> None:
    """Write the loops that compute a value as the result of a function."""
    sums = next((leaf for leaf in value.leaves() if isinstance(leaf.source, SumSource | MovedSource)), None)
    match sums:
        case None:
            _store_elements(function, value)
        case Expression(source=MovedSource(view=view)):
            _store_moved(function, value, sums, view)
        case Expression(source=ProductSumSource() as source):
            _store_products(function, value, sums, source)
        case Expression(source=SumSource(window=WindowPlaces() as window) as source):
            _store_windows(function, value, sums, source, window)
        case _:
            _store_sums(function, value, sums)


def _varied(value: Expression) -> list[Expression]:
    """Elements of arrays and of constants that are no literals."""
    return [leaf for leaf in value.leaves() if leaf.literal is None and not isinstance(leaf.source, SumSource)]


def _numbered(value: Expression, shape: tuple[int, ...]) -> Integers:
    assert value.places is not None
    return np.broadcast_to(value.places, shape)


def _element(leaf: Expression, place: str) -> str:
    """The element of an array, or the number of one of a constant."""
    assert leaf.source is not None
    return place if leaf.source.constant is not None else f"{leaf.source.name}[{place}]"


def _add(function: ExactFunction, target: str, value: Expression, elements: Mapping[Expression, str]) -> None:
    """Write a value to an element of the result."""
    statements = Statements(function, elements)
    code = statements.code(value, function.result.array.kind)
    function.lines.add(*statements.lines, f"{target} = {code};")


def _store_elements(function: ExactFunction, value: Expression) -> None:
    result, leaves = function.result, _varied(value)
    arrays = [*(_numbered(leaf, result.shape) for leaf in leaves), result.places]
    loops = CommonLoops.of([array.transpose(result.order) for array in arrays])
    texts = [place.text(loops.variables) for place in loops.places]
    elements = {leaf: _element(leaf, text) for leaf, text in zip(leaves, texts, strict=False)}
    with function.lines.loops(loops.variables, loops.sizes):
        _add(function, f"y[{texts[-1]}]", value, elements)


def _store_moved(function: ExactFunction, value: Expression, moved: Expression, view: View) -> None:
    """Copies of pieces, or by tables of places; constants are codes of the result."""
    for loops in copy_loops(view, view.fill, function.result.array.kind, function.unit):
        target = f"y[{loops.to}]"
        with function.lines.loops(loops.variables, loops.sizes):
            if loops.source is None:
                function.lines.add(f"{target} = {loops.origin};")
            else:
                _add(function, target, value, {moved: f"{view.sources[loops.source].name}[{loops.origin}]"})


def _kind(source: SumSource) -> str:
    return "int64" if source.wide else "int32"


def _store_sums(function: ExactFunction, value: Expression, sums: Expression) -> None:
    """Sums of elements at places with a pattern; loops over the elements of rows that all have the same sums."""
    result, lines = function.result, function.lines
    numbers, order = _numbered(sums, result.shape), result.order
    along = [size > 1 and (numbers == numbers.take([0], axis)).all() for axis, size in enumerate(result.shape)]
    start = tuple(slice(0, 1) if inner else slice(None) for inner in along)
    rows = tuple(slice(None) if inner else slice(0, 1) for inner in along)
    sources, leaves = _sources(value), _varied(value)
    taps = [(leaf, _numbered(leaf, source.rows.shape)) for source in sources for leaf in _varied(source.rows)]
    own = [*(_numbered(leaf, result.shape) for leaf in leaves), result.places]
    heads = [array.reshape(len(array), -1)[:, 0][numbers[start]] for _, array in taps]
    outer = CommonLoops.of([array.transpose(order) for array in (*heads, *(array[start] for array in own))])
    starts = [place.text(outer.variables) for place in outer.places]
    names: dict[SumSource, str] = {}
    with lines.loops(outer.variables, outer.sizes):
        for source in sources:
            name = f"{_NAMES[source.kind]}{len(names) or ''}"
            within = [array[0] - array[0].flat[0] for leaf, array in taps if leaf in _varied(source.rows)]
            inner = CommonLoops.of(within)
            variables = [f"k{k}" for k in range(len(inner.sizes))]
            texts = [text for text, (leaf, _) in zip(starts, taps, strict=False) if leaf in _varied(source.rows)]
            elements = _elements(_varied(source.rows), texts, inner, variables) | _named(source.rows, names)
            own_sum = _Accumulation(function, source, name)
            own_sum.begin()
            with lines.loops(variables, inner.sizes):
                own_sum.take(elements)
            names[source] = own_sum.end()
        places = starts[len(taps) :]
        if not any(along):
            elements = {leaf: _element(leaf, text) for leaf, text in zip(leaves, places, strict=False)}
            _add(function, f"y[{places[-1]}]", value, elements | _named(value, names))
            return
        known = _named(value, names)
        value = _hoisted(function, value, known)
        inner = CommonLoops.of([(array[rows] - array[(0,) * array.ndim]).transpose(order) for array in own])
        variables = [f"k{k}" for k in range(len(inner.sizes))]
        elements = _elements(_varied(value), places, inner, variables)
        with lines.loops(variables, inner.sizes):
            to = sum_text((places[-1], inner.places[-1].text(variables)))
            _add(function, f"y[{to}]", value, elements | known)


#: Names of variables by the kind of sums.
_NAMES = {"sum": "sum", "greatest": "greatest", "added up": "total", "in order": "numbers"}


def _sources(value: Expression) -> list[SumSource]:
    """Sums that a value is computed of, those in front that others need."""
    made: list[SumSource] = []
    for leaf in value.leaves():
        if isinstance(leaf.source, SumSource):
            made += [*_sources(leaf.source.rows), leaf.source]
    return list(dict.fromkeys(made))


def _elements(
    leaves: Sequence[Expression], starts: Sequence[str], loops: CommonLoops, variables: Sequence[str]
) -> dict[Expression, str]:
    """Texts of elements at places in loops that begin at other places."""
    parts = zip(leaves, starts, loops.places, strict=False)
    return {leaf: _element(leaf, sum_text((start, place.text(variables)))) for leaf, start, place in parts}


def _named(value: Expression, names: Mapping[SumSource, str]) -> dict[Expression, str]:
    """Names of the sums that a value is computed of."""
    return {leaf: names[leaf.source] for leaf in value.leaves() if isinstance(leaf.source, SumSource)}


def _hoisted(function: ExactFunction, value: Expression, known: dict[Expression, str]) -> Expression:
    """A value with variables for the functions of sums alone, which are written in front of a loop."""
    made: dict[Expression, Expression] = {}

    def change(part: Expression) -> Expression:
        if part in made or part.source is not None:
            return made.get(part, part)
        fixed = not part.real and all(leaf in known or leaf.literal is not None for leaf in part.leaves())
        own = replace(part, parts=tuple(change(each) for each in part.parts))
        if fixed and part.head not in ("+", "-", "*"):
            name = f"row{len(known)}"
            statements = Statements(function, known, f"{name}_")
            text = statements.integer(own)
            kind = "int64_t" if own.wide else "int32_t"
            function.lines.add(*statements.lines, f"const {kind} {name} = {text};")
            own = replace(own, head="", parts=(), source=ElementSource(name))
            known[own] = name
        made[part] = own
        return own

    return change(value)


class _Accumulation:
    """The variable that a sum, or the greatest element, is computed in.

    Parameters
    ----------
    function : ExactFunction
    source : SumSource
    name : str
        Name of the variable.
    """

    def __init__(self, function: ExactFunction, source: SumSource, name: str) -> None:
        self.function, self.source, self.name = function, source, name

    def begin(self) -> None:
        """Declares the variable."""
        match self.source.kind:
            case "in order" if not self.source.one_by_one:
                count = sum(map(len, self.source.steps[0]))
                self.function.lines.add(f"int64_t {self.name}[{count}];", "int32_t count = 0;")
                return
            case "in order":
                kind, first = "int64_t", "0"
            case "added up":
                kind, first = "binary32", "{0, 0}"
            case "greatest":
                kind, first = f"{_kind(self.source)}_t", str(int(np.min(self.source.rows.low)))
            case _:
                kind, first = f"{_kind(self.source)}_t", "0"
        self.function.lines.add(f"{kind} {self.name} = {first};")

    def take(self, elements: Mapping[Expression, str]) -> None:
        """Adds an element, computed of elements of arrays."""
        statements, rows, name = Statements(self.function, elements), self.source.rows, self.name
        match self.source.kind:
            case "in order":
                number, scale = rows.parts
                assert scale.literal is not None
                step = int(Binary32.of(np.float32(scale.literal)).mantissa)
                text = f"with_24_bits(INT64_C({step}) * ({statements.integer(number)}))"
                line = (
                    f"{name} = with_24_bits({name} + {text});"
                    if self.source.one_by_one
                    else f"{name}[count++] = {text};"
                )
            case "added up":
                line = f"{name} = binary32_sum({name}, {statements.number(rows)});"
            case "greatest":
                text = statements.integer(rows)
                line = f"{name} = {text} > {name} ? {text} : {name};"
            case _:
                line = f"{name} += {statements.integer(rows)};"
        self.function.lines.add(*statements.lines, line)

    def end(self) -> str:
        """Writes what follows the last element; the text of the result."""
        if self.source.kind != "in order":
            return self.name
        total, lines = self.name, self.function.lines
        for step in () if self.source.one_by_one else self.source.steps:  # no group reads what one before has written
            table = self.function.table([n for group in step for n in (len(group), *group)], "int32", "order")
            with lines.block(f"for (int32_t g = 0, at = 0; g < {len(step)}; ++g)"):
                lines.add(f"int32_t left = {table}[at++];", f"int64_t sum = {self.name}[{table}[at++]];")
                with lines.block("while (--left > 0)"):
                    lines.add(f"sum = with_24_bits(sum + {self.name}[{table}[at++]]);")
                lines.add(f"{self.name}[g] = sum;")
            total = f"{self.name}[0]"
        (_, scale) = self.source.rows.parts
        assert scale.literal is not None
        return f"binary32_rounded({total}, {int(Binary32.of(np.float32(scale.literal)).exponent)})"


def _in_order(sums: Expression, source: SumSource, places: Integers) -> Integers:
    """Places by the elements of a result, as places by the sums that they are computed of."""
    assert sums.places is not None
    return np.asarray(places).reshape(-1)[np.argsort(sums.places, axis=None)].reshape(source.shape)


def _strides(places: Integers) -> tuple[int, ...]:
    pattern = affine(places)
    assert pattern is not None and pattern.offset == 0
    return pattern.strides


def _array(value: Expression) -> Expression:
    """The elements of the one array that a value is computed of."""
    (leaf,) = _varied(value)
    return leaf


def _store_windows(
    function: ExactFunction, value: Expression, sums: Expression, source: SumSource, window: WindowPlaces
) -> None:
    """Sums of windows, or the greatest elements, which stay in the result until all are known; without the padding."""
    lines, rows, (array,) = function.lines, source.rows, function.sources
    steps, to = (_strides(places) for places in (_of(_array(rows)), _in_order(sums, source, function.result.places)))
    axes = window_axes(rows.shape, source.shape, window, steps, to)
    check_windows(axes, function.operation.name)
    elements = {}
    for leaf in _varied(value):
        pattern = affine(_in_order(sums, source, _numbered(leaf, function.result.shape)))
        assert pattern is not None
        elements[leaf] = _element(leaf, pattern.text(("s", "c", *(f"i{k}" for k in range(len(axes))))))
    origin, channel, channels = f"from[{times('c', steps[1]) or '0'}]", times("c", to[1]), source.shape[1]
    with ExitStack() as stack:
        place = open_windows(lines, stack, axes, source.shape[0], to[0])
        if source.kind == "greatest":
            lines.add(f"{function.result.array.kind}_t *const to = y + {place};")
            made = f"to[{channel or '0'}]"
            with lines.loop("c", channels):
                lines.add(f"{made} = {int(np.min(sums.low))};")
            with ExitStack() as inner:
                open_taps(lines, inner, axes, array.array.kind, times("s", steps[0]))
                with lines.loop("c", channels):
                    lines.add(f"{made} = {origin} > {made} ? {origin} : {made};")
            if value.source is None:
                with lines.loop("c", channels):
                    _add(function, made, value, {sums: made, **elements})
            return
        with lines.loop("c", channels):
            own_sum = _Accumulation(function, source, _NAMES[source.kind])
            own_sum.begin()
            with ExitStack() as inner:
                open_taps(lines, inner, axes, array.array.kind, times("s", steps[0]))
                own_sum.take({_array(rows): origin})
            _add(function, f"y[{sum_text([place, channel])}]", value, {sums: own_sum.end(), **elements})


def _of(leaf: Expression) -> Integers:
    assert leaf.places is not None
    return leaf.places


def _store_products(function: ExactFunction, value: Expression, sums: Expression, source: ProductSumSource) -> None:
    """Sums of products with constant weights, by the kernels that there are."""
    rows, weight, window = source.rows, source.weight, source.window
    leaf, steps = _array(rows), _strides(_of(_array(rows)))
    to = _strides(_in_order(sums, source, function.result.places))
    if window is None:
        axes = [
            WindowAxis(size, size, 1, 1, 1, 0, *both)
            for size, *both in zip(rows.shape[:-1], steps[:-1], to[:-1], strict=True)
        ]
        shape, weights, channel = ProductShape(tuple(axes), rows.shape[-1], steps[-1], to[-1] or 1), weight.T, -1
    else:
        axes = [WindowAxis(rows.shape[0], rows.shape[0], 1, 1, 1, 0, steps[0], to[0])]
        axes += window_axes(rows.shape, source.shape, window, steps, to)
        shape, channel = ProductShape(tuple(axes), weight.shape[1], steps[1], to[1] or 1), 1
        weights = np.moveaxis(weight, 1, -1).reshape(len(weight), -1)
    of_channels = dict.fromkeys(_varied(value), "c")
    for constant in of_channels:
        own = np.moveaxis(_in_order(sums, source, _numbered(constant, function.result.shape)), channel, -1)
        assert (own == own[(0,) * (own.ndim - 1)]).all()
        assert np.array_equal(own[(0,) * (own.ndim - 1)], np.arange(own.shape[-1]))

    def of_element(element: str) -> str:
        return Statements(function, {leaf: element}).integer(rows)

    def of_sum(whole: Expression, total: str) -> tuple[list[str], str]:
        statements = Statements(function, {sums: total, **of_channels})
        code = statements.code(whole, function.result.array.kind)
        return statements.lines, code

    def begun(part: Expression) -> Expression | None:
        """Sums that begin with what is added to them."""
        if part.head != "+" or part.parts[0] is not sums or part.wide or part.parts[1].source is None:
            return sums if part is sums else None
        starts.append(Statements(function, of_channels).integer(part.parts[1]))
        return sums

    starts: list[str] = []
    rest = value.mapped(begun)
    kinds = _kind(source), kind_of(np.array([np.min(rows.low), np.max(rows.high)]), ("int16", "int32"))
    writer = ProductWriter(
        function, shape.simplified(), source.groups, weights, kinds, of_element, partial(of_sum, value)
    )
    writer.write(starts[0] if starts else "0", partial(of_sum, rest))
