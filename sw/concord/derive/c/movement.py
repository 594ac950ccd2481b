"""Data movement as statements of C: rows in order, and copies of views. It knows nothing of arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from concord.derive.c.copies import copy_loops
from concord.derive.c.places import ElementPlaces
from concord.derive.c.plan import MatrixCopy, ReadValue
from concord.derive.c.products import BlockView, block_view
from concord.derive.c.storage import CArray, NumberForm, View
from concord.derive.c.texts import sum_text
from concord.derive.c.views import Access, Affine, RowAccess, WindowAccess, affine, reach
from concord.utils.arrays import Ids


@dataclass(frozen=True, eq=False)
class ViewPart:
    """A view of arrays of one kind: of halves, of mantissas or of exponents.

    Parameters
    ----------
    view : View
    form : NumberForm
        Form of its sources.
    number : int
        Which of the arrays of a source in that form it reads.
    kind : str
        Type of the elements without ``_t``.
    sources : sequence of CArray
        Values that the arrays belong to.
    fill : int or None
        What all constants are; ``None`` if they are those of the view.
    """

    view: View
    form: NumberForm
    number: int
    kind: str
    sources: Sequence[CArray]
    fill: int | None


def half_part(view: View) -> ViewPart:
    """The halves of a view."""
    return ViewPart(view, NumberForm.HALF, 0, "uint16", view.sources, None)


def block_parts(blocks: BlockView) -> list[ViewPart]:
    """The mantissas of a view, and its exponents."""
    layout, sources = blocks.layout, blocks.codes.sources
    return [
        ViewPart(blocks.codes, NumberForm.CODES, 0, layout.kind, sources, 0),
        ViewPart(blocks.exponents, NumberForm.CODES, 1, "int8", sources, layout.least),
    ]


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

    def _array(self, part: ViewPart, source: CArray) -> str:
        """The array of a source that a part reads."""
        own = next(value for value in part.sources if value.name == source.name)
        return self.places.arrays(own, part.form)[part.number]

    # Rows at a position ----------------------------------------------------------------------------------

    def at_column(self, operand: ReadValue, width: int) -> str:
        """The half of an operand at the column ``c``."""
        places = self.places
        if operand.own is not None:
            first, row = self._first_row(operand.view), operand.own.size // places.position.count
            pattern = affine(first)
            name = places.half(operand.own)
            if pattern is None:
                start = places.row(operand.own, name, row)
                return f"{self._moved_row(start, first, 'uint16', operand.own.name)}[c]"
            return places.element(operand.own, name, row, pattern.text(("c",)))
        access = self._reach(operand.view)
        assert isinstance(access, RowAccess) and access.step is not None
        column = Affine(0, (access.step,)).text(("c",)) if width > 1 else "0"
        return f"{places.half(access.storage)}[{sum_text((places.position.base(access.base), column))}]"

    def half_row(self, operand: ReadValue) -> str:
        """A pointer to the halves of a row, in order."""
        return self._row(operand, half_part(operand.view))

    def code_rows(self, operand: ReadValue, blocks: BlockView, wide: bool) -> tuple[str, str]:
        """Pointers to the mantissas and to the exponents of a row, in order; ``wide`` mantissas are ``int16_t``."""
        codes, exponents = block_parts(blocks)
        return self._row(operand, codes, "int16" if wide else ""), self._row(operand, exponents)

    def _row(self, operand: ReadValue, part: ViewPart, into: str = "") -> str:
        """A pointer to a row of a part, in order, with elements of the type ``into`` if that is another one."""
        into = into or part.kind
        if operand.own is not None:
            return self._own_row(part, operand.own, into)
        key = (id(part.view), into)
        if key not in self._rows:
            self._rows[key] = self._placed_row(part, into)
        return self._rows[key]

    def _first_row(self, view: View) -> Ids:
        return np.asarray(view.index.reshape(self.places.position.count, -1)[0])

    def _own_row(self, part: ViewPart, own: CArray, into: str) -> str:
        """A row of what the group computes itself."""
        first, elements = self._first_row(part.view), own.parts(part.form)[part.number].elements
        name = self.places.arrays(own, part.form)[part.number]
        start, pattern = self.places.row(own, name, elements // self.places.position.count), affine(first)
        if into == part.kind and pattern is not None and (pattern.strides[0] == 1 or len(first) == 1):
            return sum_text((start, str(pattern.offset)))
        return self._moved_row(start, first, part.kind, own.name, into)

    def _reach(self, view: View) -> Access:
        access = reach(view, self.places.position.dims)
        assert access is not None
        return access

    def _placed_row(self, part: ViewPart, into: str) -> str:
        access = self._reach(part.view)
        if isinstance(access, WindowAccess):
            return self._window(access, part, into)
        start = sum_text((self._array(part, access.storage), self.places.position.base(access.base)))
        if into == part.kind and (access.step == 1 or len(access.relative) == 1):
            return start
        return self._moved_row(start, access.relative, part.kind, access.storage.name, into)

    def _moved_row(self, start: str, relative: Ids, kind: str, word: str, into: str = "") -> str:
        """A copy of elements of a row, in order."""
        row, lines = self.places.scratch(into or kind, len(relative), word, "row"), self.places.lines
        with lines.block(""):
            lines.add(f"const {kind}_t *const from = {start};")
            for to, origin, step, count in _stretches(relative):
                with lines.loop("k", count):
                    lines.add(f"{row}[{sum_text(('k', str(to)))}] = from[{Affine(origin, (step,)).text(('k',))}];")
        return row

    def _window(self, access: WindowAccess, part: ViewPart, into: str) -> str:
        view, inner = access.view, access.map
        assert view.window is not None and view.inner is not None
        height, width, *rest = view.inner.index.shape
        position = self.places.position
        row = self.places.scratch(into, view.index.size // position.count, inner.storage.name, "window")
        start = sum_text((self._array(part, inner.storage), str(inner.base.offset)))
        at = [
            Affine(origin, (stride,)).text((variable,))
            for origin, stride, variable in zip(view.window.origin, view.window.stride, position.variables, strict=True)
        ]
        sizes = [height, width, prod(rest), *view.window.kernel, *view.window.dilation]
        filled = view.window.fill if part.fill is None else part.fill
        arguments = [row, start, *at, *sizes, *inner.base.strides, inner.step, filled]
        self.places.lines.add(f"window_{into}_{part.kind}({', '.join(map(str, arguments))});")
        return row

    # Copies ----------------------------------------------------------------------------------------------

    def parts(self, view: View, form: NumberForm) -> list[ViewPart]:
        """The parts of a view, one for each array of a value in a form."""
        if form is NumberForm.HALF:
            return [half_part(view)]
        blocks = block_view(view)
        assert blocks is not None
        return block_parts(blocks)

    def copy(self, target: CArray, view: View, form: NumberForm, entry: str = "") -> None:
        """Copy a view into the arrays of a storage in a form, or into the entry of that number."""
        for part, array in zip(self.parts(view, form), self.places.arrays(target, form), strict=True):
            self._copied(part, sum_text((array, f"{entry} * {part.view.index.size}")) if entry else array)

    def copy_matrix(self, copy: MatrixCopy) -> None:
        """Copy a view into the mantissas and exponents of the matrix of a product."""
        places, target = self.places, copy.target
        arrays = places.arrays(target, NumberForm.CODES)
        if copy.blocks is not None:
            for part, array in zip(block_parts(copy.blocks), arrays, strict=True):
                self._copied(part, array)
            return
        halves = places.scratch("uint16", target.size, target.name, "halves")
        self._copied(half_part(copy.view), halves)
        codes, exponents = arrays
        with places.lines.loop("k", target.size):
            places.lines.add(f"{codes}[k] = half_code({halves}[k]);", f"{exponents}[k] = half_exponent({halves}[k]);")

    def copy_slice(self, target: CArray, view: View, form: NumberForm, count: int) -> None:
        """Copy entry ``t`` of a view with ``count`` entries into the arrays of a storage in a form."""
        lines = self.places.lines
        for part, array in zip(self.parts(view, form), self.places.arrays(target, form), strict=True):
            access = reach(part.view, (count,))
            assert isinstance(access, RowAccess)
            name, base = self._array(part, access.storage), access.base.text(("t",))
            for to, origin, step, size in _stretches(access.relative):
                with lines.loop("k", size):
                    element = sum_text((base, Affine(origin, (step,)).text(("k",))))
                    lines.add(f"{array}[{sum_text(('k', str(to)))}] = {name}[{element}];")

    def _copied(self, part: ViewPart, target: str) -> None:
        lines, view = self.places.lines, part.view
        array = f"({target})" if "+" in target else target
        fill = view.fill if part.fill is None else np.full(len(view.fill), part.fill)
        for loops in copy_loops(view, fill, part.kind, self.places.unit):
            value = loops.origin
            if loops.source is not None:
                value = f"{self._array(part, view.sources[loops.source])}[{value}]"
            with lines.loops(loops.variables, loops.sizes):
                lines.add(f"{array}[{loops.to}] = {value};")


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
