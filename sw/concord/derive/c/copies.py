"""Copies of views as loops: pieces with a pattern, or tables of places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.derive.c.storage import View
from concord.derive.c.unit import TABLES, Unit
from concord.derive.c.views import runs
from concord.utils.arrays import Ids


@dataclass(frozen=True)
class CopyLoops:
    """Loops that copy a piece of a view.

    Parameters
    ----------
    sizes : tuple of int
        Iterations of the loops over ``k0``, ``k1`` and so on.
    to : str
        Number of the element that is written.
    origin : str
        Number of the element of a source that is read, or a constant.
    source : int or None
        Number of the source; ``None`` for a constant.
    """

    sizes: tuple[int, ...]
    to: str
    origin: str
    source: int | None

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the loops."""
        return tuple(f"k{number}" for number in range(len(self.sizes)))


def copy_loops(view: View, fill: npt.NDArray[np.integer], kind: str, unit: Unit) -> Iterator[CopyLoops]:
    """All loops that copy a view; constants are ``fill``, of the type ``kind`` without ``_t``."""
    parts = runs(view)
    if parts is None:
        yield from _by_tables(view, fill, kind, unit)
        return
    for part in parts:
        variables = [f"k{number}" for number in range(len(part.shape))]
        origin = part.origin.text(variables) if part.fill is None else str(int(fill[part.fill]))
        yield CopyLoops(part.shape, part.to.text(variables), origin, part.source if part.fill is None else None)


def _by_tables(view: View, fill: npt.NDArray[np.integer], kind: str, unit: Unit) -> Iterator[CopyLoops]:
    """Loops over tables of places, source by source."""

    def table(index: Ids) -> str:
        size = "uint16" if index.max(initial=0) < 1 << 16 else "int32"
        return f"{unit.constant(index, size, TABLES, 'places')}[k0]"

    flat = view.index.reshape(-1)
    ends = np.cumsum([source.size for source in view.sources])
    which = np.where(flat < 0, -1, np.searchsorted(ends, np.maximum(flat, 0), side="right"))
    for number in np.unique(which).tolist():
        to = np.flatnonzero(which == number)
        if number < 0:
            own = fill[-1 - flat[to]]
            alike = (own == own[0]).all()
            constants = str(int(own[0])) if alike else f"{unit.constant(own, kind, TABLES, 'fill')}[k0]"
            yield CopyLoops(to.shape, table(to), constants, None)
        else:
            origin = table(flat[to] - int(ends[number]) + view.sources[number].size)
            yield CopyLoops(to.shape, table(to), origin, number)
