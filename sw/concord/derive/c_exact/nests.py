"""Loops that write values to arrays: element by element, or with sums that are added up first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from concord.derive.c.views import affine
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.places import CommonLoops, sum_text, times
from concord.derive.c_exact.products import ProductShape, ProductWriter
from concord.derive.c_exact.statements import Statements, kind_of
from concord.derive.c_exact.values import Source, Value
from concord.derive.c_exact.windows import WindowAxis, check_windows, open_taps, open_windows, window_axes
from concord.derive.exact.arrays import WindowPlaces
from concord.integer.float32 import Integers


@dataclass(frozen=True, eq=False, kw_only=True)
class SumSource(Source):
    """Sums, in the order of ``shape``.

    Parameters
    ----------
    shape : tuple of int
    rows : Value
        What is added up: ``[sums, *elements]``, or codes ``[samples, channels, *sizes]`` of windows, or factors.
    window : WindowPlaces or None
    greatest : bool
        Whether they are no sums, but the greatest elements of windows.
    """

    shape: tuple[int, ...]
    rows: Value
    window: WindowPlaces | None = None
    greatest: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductSource(SumSource):
    """Sums of products, of rows with ``weight[inputs, channels]``, or of windows with ``[channels, inputs, *kernel]``.

    Parameters
    ----------
    weight : array of int64
    groups : int
    """

    weight: Integers = field(repr=False)
    groups: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowSource(Source):
    """Elements of windows of a value, in the last axis, to be added up."""

    rows: Value
    window: WindowPlaces


def store(function: ExactFunction, value: Value) -> None:
    """Write the loops that compute a value as the result of a function."""
    sums = next((leaf for leaf in value.leaves() if isinstance(leaf.source, SumSource)), None)
    if sums is None:
        _store_elements(function, value)
    elif isinstance(sums.source, ProductSource):
        _store_products(function, value, sums, sums.source)
    elif isinstance(sums.source, SumSource) and sums.source.window is not None:
        _store_windows(function, value, sums, sums.source, sums.source.window)
    elif isinstance(sums.source, SumSource):
        _store_sums(function, value, sums, sums.source)


def _varied(value: Value) -> list[Value]:
    """Elements of arrays and of constants that are no literals."""
    return [leaf for leaf in value.leaves() if leaf.literal is None and not isinstance(leaf.source, SumSource)]


def _numbered(value: Value, shape: tuple[int, ...]) -> Integers:
    assert value.places is not None
    return np.broadcast_to(value.places, shape)


def _element(leaf: Value, place: str) -> str:
    """The element of an array, or the number of one of a constant."""
    assert leaf.source is not None
    return place if leaf.source.constant is not None else f"{leaf.source.name}[{place}]"


def _add(function: ExactFunction, target: str, value: Value, elements: Mapping[Value, str]) -> None:
    """Write a value to an element of the result."""
    statements = Statements(function, elements)
    code = statements.code(value, function.result.array.kind)
    function.lines.add(*statements.lines, f"{target} = {code};")


def _add_to_sum(function: ExactFunction, value: Value, elements: Mapping[Value, str]) -> None:
    statements = Statements(function, elements)
    code = statements.integer(value)
    function.lines.add(*statements.lines, f"sum += {code};")


def _store_elements(function: ExactFunction, value: Value) -> None:
    result, leaves = function.result, _varied(value)
    arrays = [*(_numbered(leaf, result.shape) for leaf in leaves), result.places]
    loops = CommonLoops.of([array.transpose(result.order) for array in arrays])
    texts = [place.text(loops.variables) for place in loops.places]
    elements = {leaf: _element(leaf, text) for leaf, text in zip(leaves, texts, strict=False)}
    with function.lines.loops(loops.variables, loops.sizes):
        _add(function, f"y[{texts[-1]}]", value, elements)


def _kind(sums: Value) -> str:
    return "int64" if sums.wide else "int32"


def _store_sums(function: ExactFunction, value: Value, sums: Value, source: SumSource) -> None:
    """Sums of elements at places with a pattern."""
    result, lines, rows = function.result, function.lines, source.rows
    inner, leaves = _varied(rows), _varied(value)
    places = [_numbered(leaf, rows.shape)[_numbered(sums, result.shape)] for leaf in inner]
    rank = len(result.shape)
    first = [array.reshape(*result.shape, -1)[..., 0] for array in places]
    arrays = [*first, *(_numbered(leaf, result.shape) for leaf in leaves), result.places]
    outer = CommonLoops.of([array.transpose(result.order) for array in arrays])
    taps = CommonLoops.of([array[(0,) * rank] - array.flat[0] for array in places])
    variables = [f"k{k}" for k in range(len(taps.sizes))]
    texts = [place.text(outer.variables) for place in outer.places]
    with lines.loops(outer.variables, outer.sizes):
        lines.add(f"{_kind(sums)}_t sum = 0;")
        with lines.loops(variables, taps.sizes):
            each = [sum_text([text, tap.text(variables)]) for text, tap in zip(texts, taps.places, strict=False)]
            _add_to_sum(function, rows, {leaf: _element(leaf, text) for leaf, text in zip(inner, each, strict=True)})
        elements = {leaf: _element(leaf, text) for leaf, text in zip(leaves, texts[len(inner) :], strict=False)}
        _add(function, f"y[{texts[-1]}]", value, {sums: "sum", **elements})


def _in_order(sums: Value, source: SumSource, places: Integers) -> Integers:
    """Places by the elements of a result, as places by the sums that they are computed of."""
    assert sums.places is not None
    return np.asarray(places).reshape(-1)[np.argsort(sums.places, axis=None)].reshape(source.shape)


def _strides(places: Integers) -> tuple[int, ...]:
    pattern = affine(places)
    assert pattern is not None and pattern.offset == 0
    return pattern.strides


def _array(value: Value) -> Value:
    """The elements of the one array that a value is computed of."""
    (leaf,) = _varied(value)
    return leaf


def _store_windows(function: ExactFunction, value: Value, sums: Value, source: SumSource, window: WindowPlaces) -> None:
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
        if source.greatest:
            lines.add(f"{function.result.array.kind}_t *const to = y + {place};")
            made = f"to[{channel or '0'}]"
            with lines.loop("c", channels):
                lines.add(f"{made} = {int(np.min(sums.low))};")
            with ExitStack() as inner:
                open_taps(lines, inner, axes, array.array.kind, steps[0])
                with lines.loop("c", channels):
                    lines.add(f"{made} = {origin} > {made} ? {origin} : {made};")
            if value.source is None:
                with lines.loop("c", channels):
                    _add(function, made, value, {sums: made, **elements})
            return
        with lines.loop("c", channels):
            lines.add(f"{_kind(sums)}_t sum = 0;")
            with ExitStack() as inner:
                open_taps(lines, inner, axes, array.array.kind, steps[0])
                _add_to_sum(function, rows, {_array(rows): origin})
            _add(function, f"y[{sum_text([place, channel])}]", value, {sums: "sum", **elements})


def _of(leaf: Value) -> Integers:
    assert leaf.places is not None
    return leaf.places


def _store_products(function: ExactFunction, value: Value, sums: Value, source: ProductSource) -> None:
    """Sums of products with constant weights, by the kernels that there are."""
    rows, weight, window = source.rows, source.weight, source.window
    leaf, steps = _array(rows), _strides(_of(_array(rows)))
    to = _strides(_in_order(sums, source, function.result.places))
    if window is None:
        axes = [
            WindowAxis(size, size, 1, 1, 1, 0, *both)
            for size, *both in zip(rows.shape[:-1], steps[:-1], to[:-1], strict=True)
        ]
        shape, weights, channel = ProductShape(tuple(axes), rows.shape[-1], steps[-1], to[-1]), weight.T, -1
    else:
        axes = [WindowAxis(rows.shape[0], rows.shape[0], 1, 1, 1, 0, steps[0], to[0])]
        axes += window_axes(rows.shape, source.shape, window, steps, to)
        shape, channel = ProductShape(tuple(axes), weight.shape[1], steps[1], to[1]), 1
        weights = np.moveaxis(weight, 1, -1).reshape(len(weight), -1)
    of_channels = dict.fromkeys(_varied(value), "c")
    for constant in of_channels:
        own = np.moveaxis(_in_order(sums, source, _numbered(constant, function.result.shape)), channel, -1)
        assert (own == own[(0,) * (own.ndim - 1)]).all()
        assert np.array_equal(own[(0,) * (own.ndim - 1)], np.arange(own.shape[-1]))

    def of_element(element: str) -> str:
        return Statements(function, {leaf: element}).integer(rows)

    def of_sum(total: str) -> tuple[list[str], str]:
        statements = Statements(function, {sums: total, **of_channels})
        code = statements.code(value, function.result.array.kind)
        return statements.lines, code

    kinds = _kind(sums), kind_of(np.array([np.min(rows.low), np.max(rows.high)]), ("int16", "int32"))
    ProductWriter(function, shape.simplified(), source.groups, weights, kinds, of_element, of_sum).write()
