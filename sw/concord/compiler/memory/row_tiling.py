"""Row tiling: the first layers of a network, tile by tile, for feature maps that do not fit in memory as a whole.

A run then has a phase per row tile. In every phase the host writes the next rows of the input, and every layer computes
the rows for which it has all that its window covers. Tensors between these layers lie in buffers: first the rows that
windows of the next tile still need, then the new rows. At the end of a phase the rows that are still needed move to the
front, so that the next tile finds everything at the same addresses.

With the last rows of the input every layer has all that it needs, and the later a layer, the more rows it computes at
once. Where buffers have no room for these, the tiling is *even*: no layer computes more rows in a tile than before, and
tiles without new rows of the input follow in the last phase.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from concord.compiler.ir.layers import AnyLayer, Layer, Reduction
from concord.compiler.ir.layout import Storage, Walk
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.copies import Copy
from concord.compiler.memory.plan import Plan, make_plan, share
from concord.graph.passes.dtypes import Types
from concord.spec.config import NpuConfig
from concord.spec.isa import VECTOR_UNIT, Mem

#: Cycles that a chain waits for the one before, roughly; decides between plans only.
_WAIT = 48


@dataclass(frozen=True)
class TileRows:
    """Rows of a tensor in one row tile: from ``start`` on they are in the buffer, from ``new`` on they are new."""

    start: int
    new: int
    stop: int


@dataclass(frozen=True)
class TiledLayers:
    """Layers that are computed in row tiles together.

    Parameters
    ----------
    first, layers : int
        The first of them, and how many they are.
    rows : int
        Rows of the source per row tile.
    source : Storage
        What the first of them reads: an input, or a tensor that layers before have left in the external memory.
    others : tuple of Storage
        Further tensors in the external memory that they read.
    sliding : tuple of Storage
        Tensors that only these layers read.
    whole : tuple of Storage
        Tensors that later layers or the host read: all of their rows are kept, or leave for the external memory.
    tiles : tuple of dict
        By row tile: rows of every one of these tensors.
    leaves : bool
        Whether rows of ``whole`` are copied to the external memory.

    Members
    -------
    phases : int
        Row tiles with new rows of the source; others follow in the last phase.
    """

    first: int
    layers: int
    rows: int
    source: Storage
    others: tuple[Storage, ...]
    sliding: tuple[Storage, ...]
    whole: tuple[Storage, ...]
    tiles: tuple[dict[Storage, TileRows], ...]
    leaves: bool = False

    @property
    def stop(self) -> int:
        """Number of the layer after the last one."""
        return self.first + self.layers

    @property
    def brought(self) -> bool:
        """True if rows of the sources are copied from the external memory."""
        return self.first > 0

    @property
    def sources(self) -> tuple[Storage, ...]:
        """Tensors that the layers read and do not compute."""
        return self.source, *self.others

    @property
    def leaving(self) -> tuple[Storage, ...]:
        """Tensors that are copied to the external memory."""
        return self.whole if self.leaves else ()

    @cached_property
    def phases(self) -> int:
        return sum(tile[self.source].stop > tile[self.source].new for tile in self.tiles)

    @property
    def text(self) -> str:
        """Tiles and rows in words."""
        rows = "a row" if self.rows == 1 else f"{self.rows} rows"
        more = f", and {len(self.tiles) - self.phases} without" if len(self.tiles) > self.phases else ""
        return f"{self.phases} row tiles of {rows} of the {'tensor before' if self.brought else 'input'}{more}"

    def size(self, storage: Storage) -> int:
        """Rows of a buffer."""
        return max(tile[storage].stop - tile[storage].start for tile in self.tiles)

    @cached_property
    def kept(self) -> dict[Storage, int]:
        """Rows at the front of every buffer that stay from a row tile to the next."""
        tiling = self.tiles[1:]
        return {
            storage: max((tile[storage].new - tile[storage].start for tile in tiling), default=0)
            for storage in self.sliding
        }

    def moved(self, storage: Storage, tile: int) -> tuple[int, int]:
        """Rows that move to the front at the end of a row tile: the first, and how many."""
        if tile + 1 == len(self.tiles) or storage not in self.sliding:
            return 0, 0
        before, after = self.tiles[tile][storage], self.tiles[tile + 1][storage]
        return (after.start, before.stop - after.start) if after.start > before.start else (0, 0)

    def apply(self, plan: Plan) -> None:
        """Shrink tensors of a plan to buffers."""
        last = self.stop - 1
        layers = {index: plan.layer(index) for index in range(self.first, self.stop)}
        for index, layer in layers.items():
            for copy in plan.copies_of(layer.target) if layer.target.root in self.leaving else ():
                copy.first_use = copy.last_use = index
        for storage in () if self.leaves else self.whole:
            for copy in plan.copies_of(storage):
                copy.first_use = self.first if self.brought else -1
        buffers = [copy for storage in (*self.sliding, *self.leaving) for copy in plan.copies_of(storage)]
        if self.brought:
            read = dict(self.read(plan))
            plan.brought[self.first] = {(s, mem): Copy(s, mem, self.first, until) for (s, mem), until in read.items()}
            buffers += plan.brought[self.first].values()
        else:
            buffers += plan.copies_of(self.source)
        if not self.brought and any(self._reads_source_later(layer) for layer in layers.values()):
            for copy in plan.copies_of(self.source):
                copy.last_use = max(copy.last_use, last)
        for copy in buffers:
            copy.size = self.size(copy.storage) * row_vectors(copy.storage)
            copy.kept = self.kept.get(copy.storage, 0) * row_vectors(copy.storage)
            copy.kept_while = (self.first if self.brought else -1), last
        one_step = [layer for layer in layers.values() if layer.second is not None]  # from row to row of both
        roots = {walk.storage.root for layer in one_step for walk in (layer.source, layer.second) if walk is not None}
        for copy in (*buffers, *(copy for storage in roots for copy in plan.copies_of(storage))):
            copy.forwards |= copy.storage in roots

    def read(self, plan: Plan) -> Iterator[tuple[tuple[Storage, Mem], int]]:
        """Sources and the memories in which layers read them, each with the number of the layer."""
        for index in range(self.first, self.stop):
            for storage, mem in plan.reads(index):
                if storage.root in self.sources:
                    yield (storage.root, mem), index

    def _reads_source_later(self, layer: Layer) -> bool:
        """True if a layer reads the source in tiles without new rows of it: it stays while others are computed."""
        rows = (tile[layer.target.root] for tile in self.tiles[self.phases :])
        return self.source in _reads(layer) and any(row.stop > row.new for row in rows)

    def cost(self, plan: Plan, config: NpuConfig) -> int:
        """Cycles that row tiles take more than the network without them, roughly."""
        copies = {storage: len(plan.copies_of(storage)) for storage in self.sliding}
        moves = [
            copies[storage] * self.moved(storage, tile)[1] * row_vectors(storage)
            for tile in range(len(self.tiles))
            for storage in self.sliding
        ]
        chains = sum(map(bool, moves)) + self.layers * len(self.tiles)
        return sum(moves) * config.beats + chains * _WAIT


@dataclass(frozen=True)
class RowTiling:
    """Row tiles in which the first layers are computed: one group of them after the other.

    Parameters
    ----------
    groups : tuple of TiledLayers
        Each reads what those before it have left in the external memory.
    """

    groups: tuple[TiledLayers, ...]

    @property
    def layers(self) -> int:
        """Number of layers in row tiles."""
        return self.groups[-1].stop

    @property
    def text(self) -> str:
        """The tiling in words."""
        layers = "layer" if self.layers == 1 else f"{self.layers} layers"
        if len(self.groups) == 1:
            return f"first {layers} in {self.groups[0].text}"
        groups = "; ".join(f"{group.layers} in {group.text}" for group in self.groups)
        return f"first {layers} in groups, with the tensors between them in the external memory: {groups}"

    def apply(self, plan: Plan) -> None:
        """Shrink tensors of a plan to buffers."""
        for group in self.groups:
            group.apply(plan)
        plan.unshared = self.layers
        plan.repeats = tuple(len(group.tiles) for group in self.groups for _ in range(group.layers))


def planned(lowered: Lowered, types: Types, tiling: RowTiling) -> Plan:
    """The plan of a network with row tiles applied to it, results in the place of operands where that is possible."""
    plan = make_plan(lowered, types)
    tiling.apply(plan)
    share(plan)
    return plan


def row_vectors(storage: Storage) -> int:
    """Native vectors of a row of positions."""
    return storage.width * storage.tiles


def units_of_row(storage: Storage, mem: Mem, config: NpuConfig) -> int:
    """Units of ``v_copy`` that a row of positions takes in the external memory, with the words of a vector memory."""
    return -(-row_vectors(storage) * config.vector_columns(mem) // VECTOR_UNIT)


@dataclass(frozen=True)
class LayerSpan:
    """Layers that can be computed in row tiles together.

    Parameters
    ----------
    first : int
        Number of the first of them.
    layers : tuple of Layer
        These layers.
    source : Storage
        The tensor that the first of them reads: an input, or for later layers one that was computed before.
    others : tuple of Storage
        Further tensors that were computed before and that they read.
    whole : tuple of Storage
        What later layers or the host read of their results.
    passing : bool
        Whether later layers or the host read what was computed before.
    """

    first: int
    layers: tuple[Layer, ...]
    source: Storage
    others: tuple[Storage, ...]
    whole: tuple[Storage, ...]
    passing: bool

    def schedule(self, rows: int, even: bool = False) -> TiledLayers:
        """Row tiles of ``rows`` rows of the source, even ones if that is asked for."""
        if not even:
            return self._schedule(rows, [layer.out[0] for layer in self.layers])
        plain = self.schedule(rows)
        steps = [
            max(
                (
                    layer.computed(t.stop) - layer.computed(t.new)
                    for t in (tile[layer.target.root] for tile in plain.tiles[:-1])
                ),
                default=layer.out[0],
            )
            for layer in self.layers
        ]
        return self._schedule(rows, [max(1, step) for step in steps])

    def _schedule(self, rows: int, most: Sequence[int]) -> TiledLayers:
        """Row tiles in which each layer computes so many rows at the most."""
        tensors = (self.source, *(layer.target.root for layer in self.layers))
        there = dict.fromkeys(tensors, 0) | {storage: storage.height for storage in self.others}
        brought = dict.fromkeys(self.others, 0)
        starts, tiles, computed = there | brought, list[dict[Storage, TileRows]](), [0] * len(self.layers)
        while there[self.source] < self.source.height or any(
            count < layer.out[0] for layer, count in zip(self.layers, computed, strict=True)
        ):
            new, before = dict(there), list(computed)
            there[self.source] = min(self.source.height, there[self.source] + rows)
            for k, layer in enumerate(self.layers):
                computed[k] = min(_computed(layer, there), computed[k] + most[k])
                there[layer.target.root] = layer.written(computed[k])
            tile = {storage: TileRows(starts[storage], new[storage], there[storage]) for storage in tensors}
            for storage in self.others:
                now = [
                    (layer, stop)
                    for layer, start, stop in zip(self.layers, before, computed, strict=True)
                    if stop > start and storage in _reads(layer)
                ]
                stop = max((_least_rows(layer, stop, storage, there) for layer, stop in now), default=brought[storage])
                brought[storage] = stop
                tile[storage] = TileRows(min(starts[storage], stop) if now else stop, stop, stop)
            tiles.append(tile)
            starts = dict(there)
            for layer, row in zip(self.layers, computed, strict=True):
                for storage, first in _needed_next(layer, row):
                    starts[storage] = min(starts[storage], first)
        sliding = tuple(layer.target.root for layer in self.layers if layer.target.root not in self.whole)
        layers = self.first, len(self.layers)
        return TiledLayers(*layers, rows, self.source, self.others, sliding, self.whole, tuple(tiles))


def layer_spans(lowered: Lowered, first: int = 0) -> Iterator[LayerSpan]:
    """Layers from the one with a number on that can be computed in row tiles, few before many."""
    outputs = {s.root for name in lowered.graph.outputs for s in lowered.storages.of(lowered.views[name])}
    inputs = {storage for storage, _ in lowered.inputs.values()}
    earlier = {layer.target.root for layer in lowered.layers[:first]}
    layers, read = list[Layer](), set[Storage]()
    later = [outputs]  # what the layers from the last one back read, and outputs
    for layer in reversed(lowered.layers[first + 1 :]):
        later.append(later[-1] | _roots(layer))
    for layer in lowered.layers[first:]:
        if not isinstance(layer, Layer) or _obstacle(layer):
            return
        layers.append(layer)
        read |= _reads(layer)
        needed = later.pop()
        whole = tuple(layer.target.root for layer in layers if layer.target.root in needed)
        sources = [storage for storage in _in_order(layers) if storage in earlier | inputs]
        if first:
            possible = sources[:1] == [layers[0].source.storage.root] and inputs.isdisjoint(sources)
        else:
            possible = len(sources) == 1 and sources[0] not in needed
        if possible and read.isdisjoint(whole):
            passing = not earlier.isdisjoint(needed)
            yield LayerSpan(first, tuple(layers), sources[0], tuple(sources[1:]), whole, passing)


def _in_order(layers: Iterable[Layer]) -> list[Storage]:
    """Tensors that layers read, in the order in which they do."""
    return list(dict.fromkeys(storage.root for layer in layers for storage, _, _ in layer.reads))


def _least_rows(layer: Layer, computed: int, storage: Storage, there: dict[Storage, int]) -> int:
    """Rows of a storage that are needed for so many rows of a layer."""
    return bisect_left(range(storage.height), computed, key=lambda rows: _computed(layer, there | {storage: rows}))


def _reads(layer: Layer) -> set[Storage]:
    return {storage.root for storage, _, _ in layer.reads}


def obstacle(lowered: Lowered) -> str:
    """Reason for which no first layers at all can be computed in row tiles."""
    if not lowered.layers:
        return "outputs are inputs as they are, and there is no layer"
    first = lowered.layers[0]
    if isinstance(first, Layer) and first.source.storage.height == 1:
        return f"layer '{first.name}' reads a tensor of a single row"
    if reason := _obstacle(first):
        return f"layer '{first.name}' {reason}"
    return "the first layers must read one input, which no later layer reads"


def _obstacle(layer: AnyLayer) -> str | None:
    """Reason for which rows of a layer do not follow from rows of its source, both in whole storages of their own."""
    if not isinstance(layer, Layer):
        return "is recurrent"
    walks, storage = [layer.source, *([layer.second] if layer.second else [])], layer.source.storage
    if not all(map(_has_rows, walks)) or (layer.target.parent is not None and layer.border is None):
        return "reads or computes a part of another tensor"
    if layer.rows is not None:
        return "is a product of two tensors"
    if layer.reduction is Reduction.LANES or not all(map(_whole_rows, walks)):
        return "does not read whole rows"
    if layer.target.height != layer.out[0] or (layer.reduction is Reduction.NONE and layer.out[0] != storage.height):
        return "does not compute whole rows"
    for operand, read in layer.operands:
        aligned = operand.outer == row_vectors(read) and operand.start < row_vectors(read)
        if read.parent is not None or read.height != layer.out[0] or not aligned:
            return f"has an operand {operand.tensor} of other rows"
    return None


def _has_rows(walk: Walk) -> bool:
    """True if every row of a storage is one of its root, or a part of it."""
    storage, root = walk.storage, walk.storage.root
    if storage.parent is None:
        return True
    place = storage.offset % row_vectors(root) + row_vectors(storage)
    strides = storage.row_stride, storage.stride
    return storage.parent is root and strides == (row_vectors(root), storage.tiles) and place <= row_vectors(root)


def _whole_rows(walk: Walk) -> bool:
    row = row_vectors(walk.storage)
    return walk.row_stride == row and walk.start < row and walk.height == walk.storage.height


def _roots(layer: AnyLayer) -> set[Storage]:
    """Storages with addresses of their own that a layer reads."""
    if isinstance(layer, Layer):
        return _reads(layer)
    return {layer.source.storage.root, *(walk.storage.root for walk in layer.initial.values())}


def _computed(layer: Layer, there: dict[Storage, int]) -> int:
    """Rows of a layer for which everything is there."""
    source, window = layer.source.storage, layer.window
    rows = _complete(source, there)
    if layer.second is not None:
        rows = min(rows, _complete(layer.second.storage, there))
    elif layer.reduction is not Reduction.NONE:
        extent = (window.kernel[0] - 1) * window.dilation[0] - window.begin[0]
        rows = max(0, (rows - 1 - extent) // window.stride[0] + 1) if rows < source.height else layer.out[0]
    return min([rows, layer.out[0], *(there[storage] for _, storage in layer.operands)])


def _complete(storage: Storage, there: dict[Storage, int]) -> int:
    """Rows of a storage that are there with those of its root."""
    return min(max(0, there[storage.root] - storage.rows_above), storage.height)


def _needed_next(layer: Layer, row: int) -> Iterator[tuple[Storage, int]]:
    """First rows of tensors that a layer reads to compute its own from ``row`` on."""
    if row == layer.out[0]:
        return
    windowed, source = layer.reduction is not Reduction.NONE, layer.source.storage
    first = max(0, row * layer.window.stride[0] - layer.window.begin[0]) if windowed else row
    yield source.root, source.rows_above + first
    if layer.second is not None:
        yield layer.second.storage.root, layer.second.storage.rows_above + row
    yield from ((storage, row) for _, storage in layer.operands)
