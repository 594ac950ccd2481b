"""Lanes of a class that are needed: for its readers, and for the exponents of its blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.build import LaneTensor
from concord.derive.classes import Class, Grouping, elements_of
from concord.derive.flow import Flow, SourceKind
from concord.derive.lanes import LIVE, LaneFacts, equal_columns
from concord.utils.arrays import Ids

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Lines:
    """Elements of a class that are in the model.

    Parameters
    ----------
    lanes : Ids
        Lanes of the vectors of a position, counted through its rows.
    columns : Ids
        Elements ``cols * N`` of a tap that a product reads, or ``taps * N`` that a maximum of all elements reads.
    converted : bool
        Whether the conversion is needed.
    """

    lanes: Ids
    columns: Ids
    converted: bool

    @property
    def used(self) -> bool:
        """True if the class has any lanes in the model."""
        return bool(len(self.lanes))

    def tensor(self, value: ir.Value, count: int) -> LaneTensor:
        """A value of the class, whose positions have ``count`` lanes in the machine."""
        place = np.full(count, -1)
        place[self.lanes] = np.arange(len(self.lanes))
        return LaneTensor(value, place, len(self.lanes))


def live(flow: Flow, grouping: Grouping, needed: Ids) -> dict[Class, Lines]:
    """Lines of all classes.

    Parameters
    ----------
    needed : Ids
        Elements that are outputs.
    """
    return _Liveness(flow, grouping, needed).go()


class _Liveness:
    """Marks elements, the last class first."""

    def __init__(self, flow: Flow, grouping: Grouping, needed: Ids):
        self.grouping, self.native = grouping, flow.config.native
        self.marked = np.zeros(flow.elements.size, dtype=np.bool_)
        self._mark(needed)

    def go(self) -> dict[Class, Lines]:
        lines: dict[Class, Lines] = {}
        for group in reversed(self.grouping.groups):
            while True:
                before = self.marked.sum()
                for chain_class in reversed(group.classes):
                    lines[chain_class] = self._visit(chain_class)
                if not group.recurrent or self.marked.sum() == before:
                    break
        return lines

    def _mark(self, eids: Ids) -> None:
        self.marked[eids[eids >= 0]] = True

    def _lanes(self, vectors: list[Ids | None]) -> Mask:
        """Mask ``[rows * N]`` of the lanes that are needed, of any member at any position."""
        marks = self.marked.reshape(-1, self.native)
        marked = [marks[v].any(axis=0).reshape(-1) for v in vectors if v is not None]
        return np.asarray(np.any(marked, axis=0))

    def _visit(self, chain_class: Class) -> Lines:
        lanes = np.zeros(len(chain_class.wide.first), dtype=np.bool_)
        if chain_class.representative.computes:
            lanes |= self._lanes([member.wide for member in chain_class.members]) & _kept(chain_class.wide)
        converted = False
        if chain_class.narrow is not None:
            own = self._lanes([member.narrow for member in chain_class.members])
            converted = bool(own.any())
            rows = own.reshape(-1, self.native).any(axis=1).repeat(self.native)
            lanes |= _kept(chain_class.narrow) & (own | (rows & (chain_class.wide.known == LIVE)))
        lanes |= self._gaps(lanes)
        there = np.flatnonzero(lanes)
        columns = np.zeros(0, np.int64)
        if len(there):
            columns = self._sources(chain_class, there)
        return Lines(there, columns, converted)

    def _gaps(self, lanes: Mask) -> Mask:
        """Lanes in front of needed ones of the same vector."""
        rows = lanes.reshape(-1, self.native)
        return np.asarray(np.logical_or.accumulate(rows[:, ::-1], axis=1)[:, ::-1].reshape(-1))

    def _sources(self, chain_class: Class, lanes: Ids) -> Ids:
        """Mark what is read for some lanes; the columns of a product."""
        rows, lane = np.divmod(lanes, self.native)
        source, *operands = chain_class.operands()
        matrix = operands.pop() if chain_class.representative.matrix is not None else None
        for operand in operands:
            for vectors in operand:
                self._mark(elements_of(vectors, self.grouping.elements)[:, rows, lane])
        eids = [elements_of(vectors, self.grouping.elements, chain_class.outside) for vectors in source]
        if chain_class.representative.kind is SourceKind.DENSE:
            return self._columns(chain_class, lanes, eids, matrix)
        if chain_class.representative.kind is SourceKind.REDUCE:
            together = np.concatenate(eids)[:, np.unique(rows)]
            together = together.reshape(-1, together.shape[2] * together.shape[3])
            self._mark(together)
            return np.flatnonzero(~repeated(together))
        for some in eids:
            self._mark(some[:, rows, :, lane])
        return np.zeros(0, np.int64)

    def _columns(self, chain_class: Class, lanes: Ids, eids: list[Ids], matrix: list[Ids] | None) -> Ids:
        """Columns of the taps of a dense product that have a weight, or are something of their own."""
        kh, kw, cols = chain_class.representative.taps
        weight = chain_class.representative.weight
        if matrix is not None:
            vectors = np.concatenate([elements_of(some, self.grouping.elements) for some in matrix])
            written = vectors.reshape(len(vectors), -1, kh * kw, cols * self.native)[:, lanes]
            used = (written != -1).any(axis=(0, 1, 2))
        else:
            assert weight is not None
            used = weight.reshape(-1, kh * kw, cols * self.native)[lanes].any(axis=(0, 1))
        together = np.concatenate(eids)[:, 0].reshape(-1, cols * self.native)
        zeros = (together == -1).all(axis=0)
        used = ~zeros & (used | ~repeated(together))
        used[0] |= not used.any()
        self._mark(together[:, used])
        if matrix is not None:
            self._mark(written[..., used])
        return np.flatnonzero(used)


def repeated(columns: Ids) -> Mask:
    """Mask of the columns that are equal to an earlier one."""
    return np.asarray(equal_columns(columns) != np.arange(columns.shape[1]))


def _kept(lanes: LaneFacts) -> Mask:
    """Lanes that are something of their own."""
    return np.asarray((lanes.first == np.arange(len(lanes.first))) & (lanes.known == LIVE))
