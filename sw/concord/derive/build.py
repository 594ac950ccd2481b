"""Nodes in order, and where the elements of a flow are among their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.evaluate import least
from concord.derive.flags import Limit, raisable
from concord.derive.flow import Flow, pattern
from concord.derive.names import Names
from concord.derive.views import simplified
from concord.golden import binary16
from concord.spec.formats import BINARY16_FRAC, BINARY16_MAX
from concord.utils.arrays import Ids


@dataclass(frozen=True)
class LaneTensor:
    """A value whose elements are lanes of vectors.

    Parameters
    ----------
    value : Value
    place : Ids ``[rows * N]``
        Index of a lane among those that are there, -1 for others.
    lanes : int
        Number of lanes that are there; they follow each other at every position.
    """

    value: ir.Value
    place: Ids
    lanes: int

    def index(self, position: Ids, lane: Ids) -> Ids:
        """Elements of a sample, by position and lane."""
        return np.asarray(position * self.lanes + self.place[lane])


class Builder:
    """Appends nodes, and finds elements again.

    Members
    -------
    nodes : list of Node
    limits : dict
        Of every value.
    known : list of pairs
        Tensors, and the vectors ``[positions, rows]`` that are parts of them.
    """

    def __init__(self, flow: Flow, elements: Ids):
        self.flow, self.elements, self.native = flow, elements, flow.config.native
        self.nodes: list[ir.ModelNode] = []
        self.names = Names()
        self.limits: dict[ir.Value, Limit] = {}
        self.known: list[tuple[LaneTensor, Ids]] = []
        self._tensor = np.full(len(elements), -1, dtype=np.int64)
        self._position = np.zeros(len(elements), dtype=np.int64)
        self._row = np.zeros(len(elements), dtype=np.int64)
        self._cache: dict[tuple[Any, ...], ir.Value] = {}

    def add(self, node: ir.ModelNode, limit: Limit) -> ir.Value:
        """Append a node with one output; if its flags belong somewhere, with those that it may raise."""
        if node.where:
            node = replace(node, may=raisable(node, [self.limits[x] for x in node.inputs], limit))
        self.nodes.append(node)
        self.limits[node.output] = limit
        return node.output

    def know(self, tensor: LaneTensor, vectors: Ids) -> None:
        """Say that vectors ``[positions, rows]`` are parts of a tensor."""
        positions, rows = np.indices(vectors.shape)
        self._tensor[vectors] = len(self.known)
        self._position[vectors], self._row[vectors] = positions, rows
        self.known.append((tensor, vectors))

    def know_input(self, value: ir.Value, eids: Ids) -> None:
        """Say that the elements of a value are these; they follow each other from the start of a vector on."""
        vectors = np.unique(eids // self.native)
        self.know(LaneTensor(value, np.arange(self.native), self.native), vectors[:, None])

    def constant(self, bits: npt.NDArray[np.uint16], layer: str) -> ir.Value:
        """A constant, stored once in a layer."""
        key = ("constant", layer, bits.shape, bits.tobytes())
        if key not in self._cache:
            output = ir.Value(self.names.new(layer, "constant"), bits.shape, batched=False)
            self._cache[key] = self.add(ir.Constant(output=output, layer=layer, data=bits), _constants(bits))
        return self._cache[key]

    def read(self, eids: Ids, layer: str, name: str = "source") -> ir.Value:
        """A value with these elements."""
        if (eids < 0).all():
            return self.constant(pattern(eids), layer)
        vector, lane = np.divmod(np.maximum(eids, 0), self.native)
        which = np.where(eids < 0, -1, self._tensor[vector])
        if (which[eids >= 0] < 0).any():
            raise ValueError(f"elements that {layer!r} reads must be computed before")
        sources: list[ir.Value] = []
        index, start = np.zeros(eids.shape, np.int64), 0
        for number in np.unique(which[which >= 0]):
            here, tensor = which == number, self.known[number][0]
            at = tensor.index(self._position[vector[here]], self._row[vector[here]] * self.native + lane[here])
            index[here] = start + at
            sources.append(tensor.value)
            start += tensor.value.size
        return self.gather(sources, index, eids, layer, name)

    def gather(self, sources: Sequence[ir.Value], index: Ids, eids: Ids, layer: str, name: str) -> ir.Value:
        """Elements of values; where ``eids`` are negative they are constants."""
        fill, where = np.unique(eids[eids < 0], return_inverse=True)
        index = index.copy()
        index[eids < 0] = -1 - where
        key = ("gather", layer, tuple(sources), index.shape, index.tobytes(), fill.tobytes())
        if key not in self._cache:
            limits = [self.limits[source] for source in sources] + ([_constants(pattern(fill))] if len(fill) else [])
            limit = max(limit[0] for limit in limits), min(limit[1] for limit in limits)
            nodes = simplified(list(sources), index, pattern(fill), layer, lambda: self.names.new(layer, name))
            for node in nodes:
                self.add(node, limit)
            self._cache[key] = nodes[-1].output if nodes else sources[0]
        return self._cache[key]

    def forget(self) -> None:
        """Values so far are no longer there for later nodes: they were those of the body of a loop."""
        self._cache = {}


def _constants(bits: npt.NDArray[np.uint16]) -> Limit:
    values = binary16.decode(bits)
    if not np.isfinite(values).all():
        return np.inf, -BINARY16_FRAC
    return float(np.abs(values).max(initial=0.0)), least(values) if values.any() else BINARY16_FRAC


def input_limit() -> Limit:
    """Limit of numbers that the host gives: it refuses others."""
    return float(BINARY16_MAX), -BINARY16_FRAC


def narrowed(eids: Ids, start: int = 0) -> Ids:
    """Axes from ``start`` on along which nothing changes have size one; in front of all others they are left out."""
    for axis in range(start, eids.ndim):
        first = np.take(eids, [0], axis=axis)
        if eids.shape[axis] > 1 and (eids == first).all():
            eids = first
    while eids.ndim > start + 1 and eids.shape[start] == 1:
        eids = np.take(eids, 0, axis=start)
    return eids
