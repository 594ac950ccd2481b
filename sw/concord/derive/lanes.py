"""Lanes of a vector that are elements of their own, and lanes that are copies of others or constants.

Native vectors are longer than what a network has, so lanes are left over. Firmware fills them with copies of other
lanes, with the same weights and constants, or with zeros; both count for the exponent of a block, and neither is part
of the network. Two lanes of an instance are the same if, at every position, they are made in the same way from elements
that are the same. A lane is a constant if it is made of constants alone, whatever the inputs are.

What is found holds for the numbers themselves, so that elements may be replaced by those they equal, one after the
other, in the order of execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from concord.derive.flow import OUTSIDE, Flow, Instance, InstanceOp, SourceKind, constant, pattern
from concord.golden import table
from concord.operations import OPERATIONS
from concord.spec.formats import Rounding
from concord.utils.arrays import Ids

#: Lanes that are no constant; constants are kept as eids, which are negative.
LIVE = 0


@dataclass(frozen=True)
class LaneFacts:
    """Equal lanes and constants among the lanes ``[rows * N]`` of a value, at all positions.

    Parameters
    ----------
    first : Ids
        The first lane that is equal.
    known : Ids
        The eid of the constant that a lane is, or ``LIVE``.
    """

    first: Ids
    known: Ids

    def eids(self, vectors: Ids, native: int) -> Ids:
        """The elements of vectors ``[positions, rows]`` in terms of these lanes, ``[positions * rows, N]``."""
        row, lane = np.divmod(self.first, native)
        own = vectors[:, row] * native + lane
        return np.asarray(np.where(self.known < 0, self.known, own).reshape(-1, native))


def common(lanes: Sequence[LaneFacts]) -> LaneFacts:
    """Facts that hold for all of several instances."""
    if len(lanes) == 1:
        return lanes[0]
    known = np.stack([part.known for part in lanes])
    constants = np.where((known == known[:1]).all(axis=0), known[0], LIVE)
    return LaneFacts(_firsts([part.first for part in lanes]), constants)


def regular(lanes: LaneFacts, native: int, constants: bool) -> LaneFacts:
    """Lanes that are all distinct, but for those at the end of a vector that repeat the one before.

    A channel that is equal to another one, for its weights are, stays in its place.

    Parameters
    ----------
    constants : bool
        Whether lanes at the end that are constants are spare, too. A compiler fills lanes with copies only, and a
        channel that is a constant is one of the network.
    """
    own, fixed = np.arange(len(lanes.first)), lanes.known < 0
    repeated = np.concatenate([[False], (lanes.first[1:] == lanes.first[:-1]) & ~fixed[1:]])
    spare = (repeated | fixed | (lanes.first != own) if constants else repeated).reshape(-1, native)
    last = np.logical_and.accumulate(spare[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    if constants:
        return LaneFacts(np.where(last, lanes.first, own), np.where(last, lanes.known, LIVE))
    firsts = np.maximum.accumulate(np.where(last, 0, own))
    return LaneFacts(firsts, np.full_like(own, LIVE))


def _firsts(columns: Sequence[Ids]) -> Ids:
    """For every entry the first one that is the same in all columns."""
    stacked = np.stack(columns, axis=1)
    _, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], dtype=np.int64)


@cache
def _factors(count: int) -> Ids:
    """Factors of a hash, odd ones."""
    return np.random.default_rng(count).integers(1, 1 << 62, count, dtype=np.int64) | 1


def equal_columns(columns: Ids, *keys: Ids) -> Ids:
    """For every column the first one that is equal, and has the same keys."""
    with np.errstate(over="ignore"):
        hashed = (columns * _factors(len(columns))[:, None]).sum(axis=0)
    first = _firsts([*keys, hashed])
    two_of_one_hash = (columns != columns[:, first]).any()
    return np.arange(columns.shape[1]) if two_of_one_hash else first


class LaneAnalysis:
    """Lanes of the instances of a flow, each alone.

    Members
    -------
    wide, narrow : list of LaneFacts or None
        By instance: its value, and its conversion.
    """

    def __init__(self, flow: Flow):
        self.flow, self.native = flow, flow.config.native
        self.elements = flow.elements.copy()
        self.wide: list[LaneFacts] = []
        self.narrow: list[LaneFacts | None] = []
        self._rows: dict[tuple[object, ...], Ids] = {}
        for instance in flow.instances:
            self._instance(instance)

    def _instance(self, instance: Instance) -> None:
        lanes = self._start(instance)
        for mfu_op in instance.mfu_ops:
            lanes = self._mfu_op(instance, mfu_op, lanes)
        self.wide.append(lanes)
        if instance.computes:
            self.elements[instance.wide.ravel()] = lanes.eids(instance.wide, self.native)
        if instance.narrow is None:
            self.narrow.append(None)
            return
        narrow = converted(instance, lanes, self.native)
        self.narrow.append(narrow)
        self.elements[instance.narrow.ravel()] = narrow.eids(instance.narrow, self.native)

    # How values begin --------------------------------------------------------------------------

    def _start(self, instance: Instance) -> LaneFacts:
        rows = instance.shape[2]
        if instance.kind is SourceKind.DENSE:
            return self._dense(instance)
        if instance.kind is SourceKind.REDUCE:
            first = np.repeat(np.arange(rows) * self.native, self.native)
            return LaneFacts(first, np.full(rows * self.native, LIVE))
        source = np.where(
            (instance.source == OUTSIDE)[..., None], constant(np.zeros(1, np.uint16)), self.elements[instance.source]
        )
        columns = source.transpose(0, 2, 1, 3).reshape(-1, rows * self.native)
        if instance.kind is SourceKind.DEPTHWISE:
            assert instance.weight is not None
            weights = instance.weight.reshape(rows * self.native, -1)
            zero = ~weights.any(axis=1)
            first = equal_columns(columns, self._weight_rows(instance))
            return LaneFacts(first, np.where(zero, -1, LIVE))
        first = equal_columns(columns)
        same = (columns == columns[:1]).all(axis=0) & (columns[0] < 0) & (instance.kind is SourceKind.COPY)
        return LaneFacts(first, np.where(same, columns[0], LIVE))

    def _dense(self, instance: Instance) -> LaneFacts:
        if instance.matrix is not None:
            weights = self.elements[instance.matrix[0]].reshape(instance.shape[2] * self.native, -1)
            return LaneFacts(equal_columns(weights.T), np.where((weights == -1).all(axis=1), -1, LIVE))
        assert instance.weight is not None
        zero = ~instance.weight.reshape(instance.shape[2] * self.native, -1).any(axis=1)
        return LaneFacts(self._weight_rows(instance), np.where(zero, -1, LIVE))  # a sum of nothing is the pattern 0

    def _weight_rows(self, instance: Instance) -> Ids:
        if instance.weight_key not in self._rows:
            assert instance.weight is not None
            rows = np.ascontiguousarray(instance.weight.reshape(instance.shape[2] * self.native, -1) + 0.0)
            seen: dict[bytes, int] = {}
            self._rows[instance.weight_key] = np.array(
                [seen.setdefault(row.tobytes(), k) for k, row in enumerate(rows)]
            )
        return self._rows[instance.weight_key]

    # Operations --------------------------------------------------------------------------------

    def _mfu_op(self, instance: Instance, mfu_op: InstanceOp, lanes: LaneFacts) -> LaneFacts:
        if mfu_op.operand is None:
            return LaneFacts(lanes.first, self._known_unary(mfu_op, lanes.known))
        columns = self.elements[mfu_op.operand].reshape(instance.positions, -1)
        first = equal_columns(columns, lanes.first)
        both = (lanes.known < 0) & (columns[0] < 0) & (columns == columns[:1]).all(axis=0)
        known = np.full_like(lanes.known, LIVE)
        if both.any():
            with np.errstate(all="ignore"):
                known[both] = constant(
                    OPERATIONS[mfu_op.op].golden(pattern(lanes.known[both]), pattern(columns[0, both]))
                )
        return LaneFacts(first, known)

    def _known_unary(self, mfu_op: InstanceOp, known: Ids) -> Ids:
        there = known < 0
        if not there.any():
            return known
        bits, result = pattern(known[there]), known.copy()
        if mfu_op.table is None:
            result[there] = constant(OPERATIONS[mfu_op.op].golden(bits))
        else:
            memories = self.flow.memories
            result[there] = constant(table.lookup(bits, memories.table, memories.slot(mfu_op.table)).entries)
        return result


def converted(instance: Instance, lanes: LaneFacts, native: int) -> LaneFacts:
    """Lanes of a conversion from those of the value: of one block, and the same; zeros stay zeros."""
    count = len(lanes.first)
    rows = np.arange(count) // native
    known = np.where(np.isin(lanes.known, (-1, -1 - 0x8000)), -1, LIVE)
    if instance.quant.rounding is Rounding.STOCHASTIC:
        return LaneFacts(np.arange(count), known)
    return LaneFacts(_firsts([rows, lanes.first]), known)
