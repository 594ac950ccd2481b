"""Data movement as statements of C: rows in order, and copies of views. It knows nothing of arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from concord.derive.c.places import ElementPlaces
from concord.derive.c.plan import MatrixCopy, ReadValue
from concord.derive.c.products import BlockView, block_view
from concord.derive.c.storage import CArray, View
from concord.derive.c.unit import TABLES
from concord.derive.c.views import Access, Affine, RowAccess, WindowAccess, affine, reach, runs
from concord.utils.arrays import Ids

#: The name of the array of a storage.
NameOf = Callable[[CArray], str]


class Movement:
    """Writes how values are reached.

    Parameters
    ----------
    places : ElementPlaces
    """

    def __init__(self, places: ElementPlaces):
        self.places = places
        self._rows: dict[tuple[int, str], str] = {}

    def forget(self) -> None:
        """Rows so far are those of another group."""
        self._rows = {}

    # Rows at a position ----------------------------------------------------------------------------------

    def at_column(self, operand: ReadValue, width: int) -> str:
        """The half of an operand at the column ``c``."""
        places = self.places
        if operand.own is not None:
            first, row = self._own(operand.view, operand.own)
            pattern = affine(first)
            name = places.half(operand.own)
            if pattern is None:
                start = places.row(operand.own, name, row)
                return f"{self._moved_row(start, first, 'uint16', operand.own.name)}[c]"
            return places.element(operand.own, name, row, pattern.text(("c",)))
        access = self._reach(operand.view)
        assert isinstance(access, RowAccess) and access.step is not None
        column = Affine(0, (access.step,)).text(("c",)) if width > 1 else "0"
        return f"{places.half(access.storage)}[{_plus(places.position.base(access.base), column)}]"

    def half_row(self, operand: ReadValue) -> str:
        """A pointer to the halves of a row, in order."""
        places = self.places
        if operand.own is not None:
            return self._own_row(operand.view, operand.own, places.half(operand.own), "uint16")
        return self._placed_row(operand.view, "uint16", places.half, None)

    def code_rows(self, operand: ReadValue, blocks: BlockView, wide: bool) -> tuple[str, str]:
        """Pointers to the mantissas and to the exponents of a row, in order; ``wide`` mantissas are ``int16_t``."""
        places, kind = self.places, blocks.layout.kind
        into = "int16" if wide else kind
        if operand.own is not None:
            codes, exponents = places.codes(operand.own)
            assert operand.own.block is not None
            count = operand.own.size // operand.own.shape[-1] * len(operand.own.block.sizes)
            return (
                self._own_row(blocks.codes, operand.own, codes, kind, into=into),
                self._own_row(blocks.exponents, operand.own, exponents, "int8", count),
            )
        return (
            self._placed_row(blocks.codes, kind, lambda storage: places.codes(storage)[0], 0, into),
            self._placed_row(blocks.exponents, "int8", self._exponents_of(blocks.codes), blocks.layout.least),
        )

    def _exponents_of(self, codes: View) -> NameOf:
        """Names of the arrays of exponents: those of the storages that a view is of."""
        named = {source.name: source for source in codes.sources}
        return lambda storage: self.places.codes(named[storage.name])[1]

    def _own(self, view: View, own: CArray) -> tuple[Ids, int]:
        """Elements of the first row, and elements of a row of the storage."""
        count = self.places.position.count
        return view.index.reshape(count, -1)[0], own.size // count

    def _own_row(
        self, view: View, own: CArray, name: str, kind: str, elements: int | None = None, into: str | None = None
    ) -> str:
        """A row of what the group computes itself."""
        first, row = self._own(view, own)
        row = row if elements is None else elements // self.places.position.count
        start, pattern = self.places.row(own, name, row), affine(first)
        if into in (None, kind) and pattern is not None and (pattern.strides[0] == 1 or len(first) == 1):
            return _plus(start, str(pattern.offset))
        return self._moved_row(start, first, kind, own.name, into)

    def _reach(self, view: View) -> Access:
        access = reach(view, self.places.position.dims)
        assert access is not None
        return access

    def _placed_row(self, view: View, kind: str, name_of: NameOf, fill: int | None, into: str | None = None) -> str:
        key = (id(view), into or kind)
        if key not in self._rows:
            self._rows[key] = self._new_row(view, kind, name_of, fill, into or kind)
        return self._rows[key]

    def _new_row(self, view: View, kind: str, name_of: NameOf, fill: int | None, into: str) -> str:
        access = self._reach(view)
        if isinstance(access, WindowAccess):
            return self._window(access, kind, name_of, fill, into)
        start = _plus(name_of(access.storage), self.places.position.base(access.base))
        if into == kind and (access.step == 1 or len(access.relative) == 1):
            return start
        return self._moved_row(start, access.relative, kind, access.storage.name, into)

    def _moved_row(self, start: str, relative: Ids, kind: str, word: str, into: str | None = None) -> str:
        """A copy of elements of a row, in order."""
        row, lines = self.places.scratch(into or kind, len(relative), word, "row"), self.places.lines
        with lines.block(""):
            lines.add(f"const {kind}_t *const from = {start};")
            for to, origin, step, count in _stretches(relative):
                with lines.loop("k", count):
                    lines.add(f"{row}[{_plus('k', str(to))}] = from[{Affine(origin, (step,)).text(('k',))}];")
        return row

    def _window(self, access: WindowAccess, kind: str, name_of: NameOf, fill: int | None, into: str) -> str:
        view, inner = access.view, access.map
        assert view.window is not None and view.inner is not None
        height, width, *rest = view.inner.index.shape
        position = self.places.position
        row = self.places.scratch(into, view.index.size // position.count, inner.storage.name, "window")
        start = _plus(name_of(inner.storage), str(inner.base.offset))
        at = [
            Affine(origin, (stride,)).text((variable,))
            for origin, stride, variable in zip(view.window.origin, view.window.stride, position.variables, strict=True)
        ]
        sizes = [height, width, prod(rest), *view.window.kernel, *view.window.dilation]
        filled = view.window.fill if fill is None else fill
        arguments = [row, start, *at, *sizes, *inner.base.strides, inner.step, filled]
        self.places.lines.add(f"window_{into}_{kind}({', '.join(map(str, arguments))});")
        return row

    # Copies ----------------------------------------------------------------------------------------------

    def copy_halves(self, target: CArray, view: View, at: str = "") -> None:
        """Copy a view into the halves of a storage, from an element on."""
        self._copied(view, _plus(self.places.half(target), at), "uint16", self.places.half, None)

    def copy_codes(self, target: CArray, view: View, at: str = "", exponents_at: str = "") -> None:
        """Copy a view of blocks into the mantissas and exponents of a storage."""
        blocks = block_view(view)
        assert blocks is not None
        codes, exponents = self.places.codes(target)
        kind, least = blocks.layout.kind, blocks.layout.least
        self._copied(blocks.codes, _plus(codes, at), kind, lambda storage: self.places.codes(storage)[0], 0)
        self._copied(blocks.exponents, _plus(exponents, exponents_at), "int8", self._exponents_of(view), least)

    def copy_matrix(self, copy: MatrixCopy) -> None:
        """Copy a view into the mantissas and exponents of the matrix of a product."""
        places, target = self.places, copy.target
        codes, exponents = places.codes(target)
        if copy.blocks is not None:
            kind, least = copy.blocks.layout.kind, copy.blocks.layout.least
            self._copied(copy.view, codes, kind, lambda storage: places.codes(storage)[0], 0)
            self._copied(copy.blocks.exponents, exponents, "int8", self._exponents_of(copy.view), least)
            return
        halves = places.scratch("uint16", target.size, target.name, "halves")
        self._copied(copy.view, halves, "uint16", places.half, None)
        with places.lines.loop("k", target.size):
            places.lines.add(f"{codes}[k] = half_code({halves}[k]);", f"{exponents}[k] = half_exponent({halves}[k]);")

    def copy_slice(self, target: CArray, view: View, count: int) -> None:
        """Copy halves of entry ``t`` of a view with ``count`` entries."""
        self._sliced(view, self.places.half(target), self.places.half, count)

    def copy_code_slice(self, target: CArray, view: View, count: int) -> None:
        """Copies mantissas and exponents of entry ``t`` of a view with ``count`` entries."""
        blocks = block_view(view)
        assert blocks is not None
        codes, exponents = self.places.codes(target)
        self._sliced(blocks.codes, codes, lambda storage: self.places.codes(storage)[0], count)
        self._sliced(blocks.exponents, exponents, self._exponents_of(view), count)

    def _sliced(self, view: View, target: str, name_of: NameOf, count: int) -> None:
        access = reach(view, (count,))
        assert isinstance(access, RowAccess)
        name, base, lines = name_of(access.storage), access.base.text(("t",)), self.places.lines
        for to, origin, step, size in _stretches(access.relative):
            with lines.loop("k", size):
                element = _plus(base, Affine(origin, (step,)).text(("k",)))
                lines.add(f"{target}[{_plus('k', str(to))}] = {name}[{element}];")

    def _copied(self, view: View, target: str, kind: str, name_of: NameOf, fill: int | None) -> None:
        lines, parts = self.places.lines, runs(view)
        array = f"({target})" if "+" in target else target
        if parts is None:
            self._scattered(view, array, kind, name_of, fill)
            return
        for part in parts:
            variables = [f"k{number}" for number in range(len(part.shape))]
            if part.fill is None:
                value = f"{name_of(view.sources[part.source])}[{part.origin.text(variables)}]"
            else:
                value = str(part.fill if fill is None else fill)
            with lines.loops(variables, part.shape):
                lines.add(f"{array}[{part.to.text(variables)}] = {value};")

    def _scattered(self, view: View, array: str, kind: str, name_of: NameOf, fill: int | None) -> None:
        """Copy by tables of places, source by source."""
        lines, flat = self.places.lines, view.index.reshape(-1)
        ends = np.cumsum([source.size for source in view.sources])
        which = np.where(flat < 0, -1, np.searchsorted(ends, np.maximum(flat, 0), side="right"))
        for number in np.unique(which).tolist():
            to = np.flatnonzero(which == number)
            if number < 0:
                patterns = view.fill[-1 - flat[to]] if fill is None else np.full(len(to), fill)
                value = f"{self.places.unit.constant(patterns, kind, TABLES, 'fill')}[k]"
            else:
                source = view.sources[number]
                origin = self._table(flat[to] - int(ends[number]) + source.size)
                value = f"{name_of(source)}[{origin}[k]]"
            with lines.loop("k", len(to)):
                lines.add(f"{array}[{self._table(to)}[k]] = {value};")

    def _table(self, index: Ids) -> str:
        kind = "uint16" if index.max(initial=0) < 1 << 16 else "int32"
        return self.places.unit.constant(index, kind, TABLES, "places")


def _plus(a: str, b: str) -> str:
    """The sum of two expressions of which the first is no sum of products alone."""
    terms = [text for text in (a, b) if text not in ("", "0")]
    return " + ".join(terms) or "0"


def _stretches(relative: Ids) -> list[tuple[int, int, int, int]]:
    """Elements in runs with equal steps: place and element of the first, step, and how many."""
    parts, start, size = [], 0, len(relative)
    while start < size:
        step = int(relative[start + 1] - relative[start]) if start + 1 < size else 1
        stop = start + 1
        while stop < size and relative[stop] - relative[stop - 1] == step:
            stop += 1
        if stop - start == 2 and step != 1:
            stop, step = start + 1, 1
        parts.append((start, int(relative[start]), step, stop - start))
        start = stop
    return parts
