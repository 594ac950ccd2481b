"""Groups of layers in row tiles, with the tensors between them in the external memory.

A network whose maps do not fit is cut where one tensor alone leads on. The layers between two cuts are computed in row
tiles together: rows of the tensor before them are copied from the external memory, and rows of their result to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from concord.compiler.ir.layers import AnyLayer, Layer, Reduction
from concord.compiler.ir.layout import Storage
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.copies import peak
from concord.compiler.memory.plan import Plan, make_plan
from concord.compiler.memory.row_tiling import LayerSpan, RowTiling, TiledLayers, layer_spans, row_vectors
from concord.graph.passes.dtypes import Types
from concord.image.packing import matrix_words
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem

#: Shares of the memories that groups may take: what is planned for all of it may find no place.
_SHARES = (1.0, 0.9, 0.8, 0.7, 0.5)
#: Tensors that lead from a group to later ones, and that a group reads, at the most.
_TENSORS = 2
#: Cycles of a copy beside those of its columns, roughly.
_COPY = 48


def groupings(lowered: Lowered, types: Types, config: NpuConfig, room: Mapping[Mem, int]) -> Iterator[RowTiling]:
    """Row tiles in groups, the ones with the least cost for one share of the memories after the other."""
    known = list[RowTiling]()
    for share in _SHARES:
        best = _Search(lowered, types, config, {mem: int(share * words) for mem, words in room.items()}).best()
        if best is not None and best not in known:
            known.append(best)
            yield best


@dataclass(frozen=True)
class _Way:
    """Groups up to a cut, and their cost."""

    cost: int
    groups: tuple[TiledLayers, ...] = ()


class _Search:
    """Looks for the groups with the least cost."""

    def __init__(self, lowered: Lowered, types: Types, config: NpuConfig, room: Mapping[Mem, int]):
        self.lowered, self.types, self.config, self.room = lowered, types, config, room
        self._outputs = {s.root for name in lowered.graph.outputs for s in lowered.storages.of(lowered.views[name])}

    def best(self) -> RowTiling | None:
        """The groups; ``None`` if there are none that have room."""
        ways, ends = {0: _Way(0)}, list[_Way]()
        while ways:
            first = min(ways)
            way = ways.pop(first)
            for span in layer_spans(self.lowered, first):
                leaving = self._cheapest(span, leaves=True) if self._may_leave(span) else None
                final = self._cheapest(span, leaves=False) if first and not span.passing else None
                if final is not None:
                    ends.append(_Way(way.cost + self._cost(final), (*way.groups, final)))
                if leaving is not None:
                    longer = _Way(way.cost + self._cost(leaving), (*way.groups, leaving))
                    if leaving.stop not in ways or longer.cost < ways[leaving.stop].cost:
                        ways[leaving.stop] = longer
                elif self._may_leave(span):
                    break
        return RowTiling(min(ends, key=lambda way: way.cost).groups) if ends else None

    def _may_leave(self, span: LayerSpan) -> bool:
        """True if one tensor alone leads on, and it is no output."""
        return len(span.whole) <= _TENSORS and len(span.others) < _TENSORS and self._outputs.isdisjoint(span.whole)

    def _cheapest(self, span: LayerSpan, leaves: bool) -> TiledLayers | None:
        """The row tiles of a span with the least cost of those that have room."""
        best, least = None, 0
        for even in (False, True):
            rows = 1
            while rows < max(2, span.source.height):
                tiled = replace(span.schedule(rows, even), leaves=leaves)
                if not self._has_room(tiled):
                    break
                if best is None or self._cost(tiled) < least:
                    best, least = tiled, self._cost(tiled)
                rows += 1
        return best

    def _has_room(self, tiled: TiledLayers) -> bool:
        """True if its tensors, and if it is the last group those of all later layers, need no more than there is."""
        plan = make_plan(self.lowered, self.types)
        tiled.apply(plan)
        last = tiled.stop - 1 if tiled.leaves else len(self.lowered.layers)
        left = {layer.target.root for layer in self.lowered.layers[: tiled.first]}  # in the external memory
        away = {id(copy) for copy in plan.copies.values() if copy.storage in left}
        copies = [[c for c in plan.within(mem) if c.first_use <= last and id(c) not in away] for mem in Mem]
        return all(peak(some, tiled.first) <= self.room[mem] for mem, some in zip(Mem, copies, strict=True))

    def _cost(self, tiled: TiledLayers) -> int:
        """Cycles beside those of products, roughly: of copies and moves, and for weights that no product covers."""
        layers = self.lowered.layers
        own, rest = layers[tiled.first : tiled.stop], () if tiled.leaves else layers[tiled.stop :]
        waits = self._uncovered(own, len(tiled.tiles)) + self._uncovered(rest, 1)
        copied = sum(self._copied(s, c.mem, s.height) for s in tiled.leaving for c in self._plan.copies_of(s))
        for storage, mem in dict(tiled.read(self._plan)) if tiled.brought else ():
            rows = sum(tile[storage].stop - tile[storage].start for tile in tiled.tiles)
            copied += self._copied(storage, mem, rows)
        return copied + waits + tiled.cost(self._plan, self.config)

    def _copied(self, storage: Storage, mem: Mem, rows: int) -> int:
        """Cycles of copies of rows."""
        return rows * (row_vectors(storage) * self.config.vector_columns(mem) + _COPY)

    def _uncovered(self, layers: Sequence[AnyLayer], times: int) -> int:
        """Cycles of copies of weights, each so many times, that products of the layers do not cover."""
        if self._stay:
            return 0
        config, chains = self.config, [layer for layer in layers if isinstance(layer, Layer)]
        columns = sum(_words(layer, config) // config.steps * config.rows * config.row_columns for layer in chains)
        return max(0, columns * times - sum(layer.macs for layer in chains) // (config.rows * config.lanes))

    @cached_property
    def _plan(self) -> Plan:
        """The plan without row tiles, for the copies of tensors that there are."""
        return make_plan(self.lowered, self.types)

    @cached_property
    def _stay(self) -> bool:
        """True if all weights fit the matrix memory."""
        layers = [layer for layer in self.lowered.layers if isinstance(layer, Layer)]
        return sum(_words(layer, self.config) for layer in layers) <= self.config.matrix_depth


def _words(layer: Layer, config: NpuConfig) -> int:
    """Words of the matrix memory that the dense weights of a layer take."""
    if layer.weight is None or layer.reduction is not Reduction.DENSE:
        return 0
    shape = layer.weight.shape
    return matrix_words(config, shape[0], shape[-1], prod(shape[1:-1]))
