"""Programs whose first layers are computed in row tiles: the same instructions for all tiles that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product, repeat
from typing import NamedTuple

from concord.compiler.emission.data_section import DataSection
from concord.compiler.emission.emit import Emitter, TileStarts, all_tensors
from concord.compiler.ir.layers import Layer
from concord.compiler.ir.layout import Storage
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.copies import Copy, at_a_time, peak, place_within
from concord.compiler.memory.dataflow import tensors
from concord.compiler.memory.plan import Plan, make_plan
from concord.compiler.memory.row_tiling import (
    LayerSpan,
    RowTiling,
    TiledLayers,
    layer_spans,
    obstacle,
    planned,
    row_vectors,
    units_of_row,
)
from concord.compiler.memory.tile_groups import groupings
from concord.graph.passes.dtypes import Types
from concord.image import Phase, PortRange
from concord.image.phases import full_ranges
from concord.program.access import REGIONS
from concord.program.allocator import CapacityError
from concord.program.builder import ProgramBuilder
from concord.spec.config import NpuConfig
from concord.spec.isa import ADDR_REGS, COPY_UNIT, VECTOR_UNIT, Mem, Op
from concord.spec.memmap import RegionId

#: Address registers but the one that is always zero; a tensor that is written tile by tile takes a register.
_REGISTERS = ADDR_REGS - 1
#: Kinds of row tiles that a row tile is compared with, the latest ones, where programs are too long otherwise.
KINDS = 4
#: Room for blocks of weights that is tried: what blocks of row tiles take is known when they are written.
_PROGRAM_SHARES = (8, 4, 2, 1)
#: Orders of tensors that are tried for one choice of row tiles, and for all of them.
ORDERS, _ALL_ORDERS = 400, 8000


@dataclass
class _TileProgram:
    """Instructions for row tiles, each ``increments`` vectors after the one before."""

    words: list[int]
    starts: tuple[int, ...]
    tiles: list[int]
    increments: tuple[int, ...] = ()


class _Body(NamedTuple):
    """Instructions of row tiles that follow each other, where in them the layers of each begin, and their program."""

    words: list[int]
    starts: list[tuple[int, ...]]
    program: ProgramBuilder


class RowTiled:
    """Writes the program of a plan to which ``tiling`` has been applied.

    Row tiles that are alike share their instructions: those that follow each other, and with more than one of ``kinds``
    also those between which others are, as with strides some layers compute rows in every second tile. The address
    register of a tensor that they write row after row tells them apart. A run begins with all registers at zero, so a
    sequence of ``inc_addr`` stands before the instructions, and later row tiles enter it further up.
    """

    def __init__(self, plan: Plan, config: NpuConfig, formats: Formats, tiling: RowTiling, kinds: int = 1):
        self.plan, self.config, self.tiling, self._kinds = plan, config, tiling, kinds
        self.emitter = Emitter(plan, config, formats, tiling)
        self.chains, self.allocator = self.emitter.chains, self.emitter.allocator

    def fits(self, room: Mapping[Mem, int], tries: int = ORDERS) -> tuple[bool, int]:
        """Write the program if tensors find a place in ``room`` words of the memories.

        Returns
        -------
        tuple of bool and int
            Whether everything fits, the program too; orders of tensors that were tried.
        """
        count = 0
        for mem in Mem:
            for copies in at_a_time(self.plan.within(mem)):
                tried = place_within(copies, room[mem], tries)
                count += min(tried, tries)
                if tried > tries:
                    return False, count
        self.emitter.write(self._allocate, self._program)
        return len(self.chains.builder) <= self.config.program_depth, count

    def _allocate(self) -> None:
        """Put what has been placed behind the constants."""
        for mem in Mem:
            copies = self.plan.within(mem)
            size = max((copy.addr + copy.vectors for copy in copies), default=0)
            first = self.allocator.allocate(all_tensors(mem), REGIONS[mem], size, "tensors")
            for copy in copies:
                copy.addr += first
        for storage in (storage for group in self.tiling.groups for storage in group.leaving):
            for copy in self.plan.copies_of(storage):
                columns = storage.height * self._pitch(storage, copy.mem) * VECTOR_UNIT
                name = self._external_name(storage, copy.mem)
                self.allocator.allocate(name, RegionId.DRAM, -(-columns // COPY_UNIT), "rows of a tensor")

    def _external_name(self, storage: Storage, mem: Mem) -> str:
        """Name of the allocation of a tensor in the external memory."""
        return f"{tensors(self.plan.lowered)[storage]}, {mem.name.lower()}"

    def _program(self) -> None:
        first, *others = self.tiling.groups
        entries = self._from_host(first)
        for group in others:
            self._in_loops(group)
        self.emitter.layers(self.tiling.layers)
        self._phases(first, entries)

    def _select(self, group: TiledLayers) -> None:
        """Let a group be the one whose instructions are written."""
        self._group, self._starts = group, list[int]()
        self.plan.bring(group.first)

    def _from_host(self, group: TiledLayers) -> list[int]:
        """Layers that read an input; returns where each phase begins. The last one is open."""
        self._select(group)
        last = group.phases - 1
        starts = {tile: pc for program in self._tile_programs(last) for tile, pc in self._emit(program)}
        entries = [*(starts[tile] for tile in range(last)), len(self.chains.builder)]
        self._enter(last, last)
        self._tile(last)
        for tile in range(last + 1, len(group.tiles)):
            self.emitter.tile_starts.append(TileStarts(group.first, tuple(self._starts)))
            self._starts.clear()
            self._find_rows(tile)
            self._tile(tile)
        self._ends(self._starts)
        return entries

    def _in_loops(self, group: TiledLayers) -> None:
        """Layers that read what others have left in the external memory: row tiles that are alike are a loop."""
        self._select(group)
        builder, tile, starts = self.chains.builder, 0, tuple[int, ...]()
        while tile < len(group.tiles):
            period, times = self._repeated(tile)
            increments = self._increments(tile, tile + period) if times > 1 else ()
            body = self._body(tile, period, tile, None if times > 1 else builder)
            for reg in (reg for reg, increment in enumerate(increments, 1) if increment):
                builder.set_addr(reg, 0)
            if times > 1:
                builder.loop(times)
            for each in body.starts:
                starts = tuple(len(builder) + start for start in each)
                self.emitter.tile_starts.append(TileStarts(group.first, starts))
            for word in body.words:
                builder.raw(word)
            builder.follow(body.program)
            for reg, increment in enumerate(increments, 1):
                if increment:
                    builder.inc_addr(reg, increment)
            if times > 1:
                builder.end_loop()
            tile += period * times
        self.emitter.tile_starts.pop()
        self._ends(starts)
        self.plan.bring(group.first)  # as it was before

    def _ends(self, starts: Iterable[int]) -> None:
        """All row tiles of a group are written, the last of them with these beginnings of layers."""
        self.emitter.starts.extend(starts)
        self.chains.dropped_rows, self.chains.registers, self.chains.taken = {}, {}, 0

    def _repeated(self, tile: int) -> tuple[int, int]:
        """Row tiles from one on that are repeated, and how often: those with which a loop covers most."""
        best, count = (1, 1), len(self._group.tiles)
        if len(self._offsets(0)) >= ADDR_REGS:
            return best
        for period in range(1, KINDS + 1):
            times = 1
            if tile + 2 * period > count:
                break
            words, increments = self._body(tile, period, tile).words, self._increments(tile, tile + period)
            while tile + (times + 1) * period <= count:
                base = tile + times * period
                alike = self._increments(base - period, base) == increments
                if not alike or self._body(base, period, tile).words != words:
                    break
                times += 1
            if times > 1 and times * period > best[0] * best[1]:
                best = period, times
        return best

    def _body(self, base: int, count: int, first: int, before: ProgramBuilder | None = None) -> _Body:
        """Instructions of row tiles from ``base`` on.

        In a loop they have the addresses of those from ``first`` on; others follow what is ``before``.
        """
        chains, starts, counted = self.chains, list[tuple[int, ...]](), before is None
        program, chains.builder = chains.builder, ProgramBuilder()
        if before is None:
            chains.builder.forget_all()
        else:
            chains.builder.follow(before)
        chains.begin_copies()
        for tile in range(base, base + count):
            self._find_rows(tile, (base, first) if counted else None)
            self._tile(tile)
            starts.append(tuple(self._starts))
            self._starts.clear()
        chains.end_copies()
        body, chains.builder = _Body(chains.builder.words(), starts, chains.builder), program
        return body

    def _phases(self, group: TiledLayers, entries: list[int]) -> None:
        """Notes the ranges that the host writes and reads, and the entry of every row tile."""
        source, allocator = group.source, self.allocator
        (name,) = (name for name, (storage, _) in self.plan.lowered.inputs.items() if storage is source)
        size = row_vectors(source)
        for tile, pc in enumerate(entries):
            rows = group.tiles[tile][source]
            (port,) = (port for port in allocator.inputs if port.name == name)
            own = PortRange(name, rows.start * size, (rows.stop - rows.start) * size, port.address)
            others = [] if tile else [port for port in allocator.inputs if port.name != name]
            outputs = allocator.outputs if tile + 1 == len(entries) else []
            allocator.phases.append(
                Phase(pc, (own, *full_ranges(others, self.config)), full_ranges(outputs, self.config))
            )

    # Instructions ----------------------------------------------------------------------------------

    def _tile_programs(self, count: int) -> list[_TileProgram]:
        """Instructions of the first ``count`` row tiles."""
        programs: list[_TileProgram] = []
        for tile in range(count):
            if not any(self._joins(program, tile) for program in reversed(programs[-self._kinds :])):
                programs.append(_TileProgram(*self._words(tile, tile), [tile]))
        return programs

    def _joins(self, program: _TileProgram, tile: int) -> bool:
        """True if a row tile has the same instructions; then it is one of theirs."""
        increments = self._increments(program.tiles[-1], tile)
        if len(program.tiles) > 1 and program.increments != increments:
            return False
        if self._words(tile, program.tiles[0])[0] != program.words:
            return False
        program.tiles.append(tile)
        program.increments = increments
        return True

    def _increments(self, before: int, tile: int) -> tuple[int, ...]:
        """Differences between what the registers add in two row tiles."""
        pairs = zip(self._offsets(before), self._offsets(tile), strict=True)
        return tuple(after - before for before, after in pairs)

    def _offsets(self, tile: int) -> tuple[int, ...]:
        """Offsets of a row tile, by register: vectors of tensors, or units of the external memory."""
        group, tiles = self._group, self._group.tiles[tile]
        whole = () if group.leaves else tuple(tiles[storage].new * row_vectors(storage) for storage in group.whole)
        external = (
            (tiles[storage].start if storage in group.sources else tiles[storage].new) * pitch
            for storage, pitch in self._pitches
        )
        return (*whole, *external)

    @property
    def _pitches(self) -> list[tuple[Storage, int]]:
        """Tensors of a group that are copied from or to the external memory, with each of their pitches."""
        group = self._group
        leaving = ((storage, copy.mem) for storage in group.leaving for copy in self.plan.copies_of(storage))
        copied = (*self.plan.brought.get(group.first, ()), *leaving)
        return list(dict.fromkeys((storage, self._pitch(storage, mem)) for storage, mem in copied))

    def _pitch(self, storage: Storage, mem: Mem) -> int:
        """Units of the external memory from row to row.

        What the first group leaves has the same pitch in all forms: one register counts its rows, where phases of the
        host begin at instructions that count.
        """
        if storage in self.tiling.groups[0].leaving:
            return max(units_of_row(storage, copy.mem, self.config) for copy in self.plan.copies_of(storage))
        return units_of_row(storage, mem, self.config)

    def _emit(self, program: _TileProgram) -> list[tuple[int, int]]:
        """Append the instructions of row tiles; returns these, each with the address at which it begins."""
        increments = {reg: increment for reg, increment in enumerate(program.increments, 1) if increment}
        first = len(self.chains.builder)
        count = len(program.tiles)
        for _ in range(count - 1):
            for reg, increment in increments.items():
                self.chains.builder.inc_addr(reg, increment)
        starts = tuple(len(self.chains.builder) + start for start in program.starts)
        self.emitter.tile_starts.append(TileStarts(self._group.first, starts))
        for word in program.words:
            self.chains.builder.raw(word)
        return [(tile, first + (count - 1 - k) * len(increments)) for k, tile in enumerate(program.tiles)]

    def _words(self, tile: int, first: int) -> tuple[list[int], tuple[int, ...]]:
        """Instructions of a row tile, with the addresses of tile ``first`` where registers count; starts of layers."""
        chains = self.chains
        program, chains.builder = chains.builder, ProgramBuilder()
        self._enter(tile, first)
        self._tile(tile)
        chains.builder.halt()
        words, starts = chains.builder.words(), tuple(self._starts)
        chains.builder = program
        self._starts.clear()
        return words, starts

    def _enter(self, tile: int, first: int) -> None:
        """Begin with the state at the start of a run."""
        self.chains.builder.restart()
        self.chains.begin_copies()
        self._find_rows(tile, (tile, first) if tile < self._group.phases - 1 else None)

    def _find_rows(self, tile: int, counted: tuple[int, int] | None = None) -> None:
        """Let chains find the rows of a row tile.

        If registers count, they have what the first one of two row tiles adds more than the second. Rows of the source
        stay where the host or a copy has written them.
        """
        group, chains, tiles = self._group, self.chains, self._group.tiles
        base, first = counted or (tile, tile)
        chains.dropped_rows = {storage: tiles[tile][storage].start for storage in (*group.sliding, *group.leaving)}
        source = tile if group.brought else min(tile, group.phases - 1)
        chains.dropped_rows |= {storage: tiles[source][storage].start for storage in group.sources}
        whole = () if group.leaves else group.whole
        chains.dropped_rows |= {storage: tiles[base][storage].new - tiles[first][storage].new for storage in whole}
        chains.registers = {s: reg for reg, s in enumerate(whole, 1)} if counted else {}
        chains.taken = len(whole) + len(self._pitches) if counted else 0
        self._registers = {key: reg for reg, key in enumerate(self._pitches, len(whole) + 1)} if counted else {}
        self._counted = dict(zip(self._pitches, self._increments(first, base)[len(whole) :], strict=True))

    # Tiles -------------------------------------------------------------------------------------

    def _tile(self, tile: int) -> None:
        """The new rows of every layer; what the next row tile needs moves to the front after its last reader."""
        group, chains = self._group, self.chains
        for index in range(group.first, group.stop):
            self._starts.append(len(chains.builder))
            if index == group.first and (group.brought or tile < group.phases):
                self._bring(tile)
            first, count = self._rows(index, tile)
            if count:
                later = ((k, self._rows(k, tile)[1]) for k in range(index, group.stop))
                chains.between([(k, rows) for k, rows in later if rows])
                chains.layer(index, first, count)
            if (target := self.plan.layer(index).target.root) in group.leaving:
                rows = group.tiles[tile][target]
                for copy in self.plan.copies_of(target):
                    self._copy_rows(copy, rows.new, rows.stop, out=True)
            for maker in (self.plan.layer(k) for k in range(group.first, index)):
                for copy in self.plan.copies_of(maker.target):
                    if copy.last_use == index:
                        self._move(maker, copy.mem, tile)

    def _bring(self, tile: int) -> None:
        """Rows of the sources: they are copied, or converted where the host has written them."""
        if self._group.brought:
            for key in self.plan.brought[self._group.first]:
                rows = self._group.tiles[tile][key[0]]
                self._copy_rows(self.plan.copies[key], rows.start, rows.stop, out=False)
        else:
            self.chains.narrow_inputs(self._input_heights(tile))

    def _copy_rows(self, copy: Copy, start: int, stop: int, out: bool) -> None:
        """Copies rows of a tensor, the first ones of its buffer, to the external memory or from there."""
        storage, mem = copy.storage, int(copy.mem)
        size, pitch = row_vectors(storage), self._pitch(storage, copy.mem)
        begin = self.allocator[self._external_name(storage, copy.mem)] * COPY_UNIT // VECTOR_UNIT
        first = begin + start * pitch - self._counted[storage, pitch]
        follow = pitch * VECTOR_UNIT == size * self.config.vector_columns(copy.mem)
        for row, count in [(0, stop - start)] * (stop > start) if follow else zip(range(stop - start), repeat(1)):
            place, reg = copy.addr + row * size, self._registers.get((storage, pitch), 0)
            self.chains.builder.v_copy(reg, first + row * pitch, place, count * size, mem=mem, out=int(out))

    def _rows(self, index: int, tile: int) -> tuple[int, int]:
        """The first row that a layer computes in a row tile, and how many it computes."""
        layer = self.plan.layer(index)
        rows = self._group.tiles[tile][layer.target.root]
        first = layer.computed(rows.new)
        return first, layer.computed(rows.stop) - first

    def _input_heights(self, tile: int) -> dict[Storage, int]:
        """Rows of the inputs that the host writes before a row tile."""
        source = self._group.source
        rows = self._group.tiles[tile][source]
        inputs = [] if tile else [storage for storage, _ in self.plan.lowered.inputs.values()]
        return {storage: storage.height for storage in inputs} | {source: rows.stop - rows.start}

    def _move(self, maker: Layer, mem: Mem, tile: int) -> None:
        """Rows of a buffer to its front: a narrow vector that is converted again is the same."""
        storage = maker.target.root
        first, rows = self._group.moved(storage, tile)
        if not rows:
            return
        size = row_vectors(storage)
        below, stride = self.chains.oriented(storage, mem, size)
        addr = self.plan.addr(storage, mem, 0) + below
        self.chains.builder.set(Op.SET_SHAPE, rows=1, cols=1)
        self.chains.builder.set(Op.SET_ITERS, inner=size, outer=rows)
        if mem is Mem.NARROW:
            self.chains.quant(maker)
        source = addr + (first - self._group.tiles[tile][storage].start) * stride
        self.chains.builder.v_rd(int(mem), source, inner=1, outer=stride)
        self.chains.builder.v_wr(int(mem), addr, inner=1, outer=stride)


def row_tiled(lowered: Lowered, types: Types, config: NpuConfig, formats: Formats) -> Emitter:
    """The program with the row tiles that cost least of those that fit.

    Raises
    ------
    CapacityError
        If none do.
    """
    if lowered.states:
        raise CapacityError("row tiling does not help, as states are needed as a whole")
    if (count := len(lowered.layers)) > config.program_depth:
        short = {RegionId.PROGRAM: (config.program_depth, count)}
        raise CapacityError(f"row tiling does not help, as each of {count} layers has an instruction or more", short)
    probe = DataSection(make_plan(lowered, types), config, formats)
    probe.fill()
    try:
        probe.allocator.check()
    except CapacityError as error:
        raise CapacityError("row tiling does not help, as constants alone do not fit", error.short) from error
    depths = {Mem.NARROW: config.narrow_depth, Mem.WIDE: config.wide_depth}
    room = {mem: depth - probe.allocator.used(REGIONS[mem]) for mem, depth in depths.items()}
    possible = [span for span in layer_spans(lowered) if span.source.height > 1]
    choices = list[TiledLayers]()
    for even in (False, True):
        left = _ALL_ORDERS
        choices = [tiled for span in possible for tiled in _within(span, even, lowered, types, room)]
        for layers in sorted(choices, key=lambda tiled: (tiled.cost(probe.plan, config), tiled.layers, tiled.rows)):
            for kinds in (1, KINDS):
                tiling = RowTiling((layers,))
                tiled = RowTiled(planned(lowered, types, tiling), config, formats, tiling, kinds)
                fits, tried = tiled.fits(room, max(1, min(ORDERS, left)))
                if fits:
                    return tiled.emitter
                left -= tried
                if not tiled.chains.builder:  # tensors have found no place
                    break
    lengths = list[int]()  # of programs whose tensors have found a place
    if config.has(Op.V_COPY):
        for tiling in groupings(lowered, types, config, room):
            for share, kinds in product(_PROGRAM_SHARES, (1, KINDS)):
                plan = planned(lowered, types, tiling)
                plan.program_share = share
                tiled = RowTiled(plan, config, formats, tiling, kinds)
                if tiled.fits(room)[0]:
                    return tiled.emitter
                if tiled.chains.builder:
                    lengths.append(len(tiled.chains.builder))
    if lengths:
        short = {RegionId.PROGRAM: (config.program_depth, min(lengths))}
        raise CapacityError(f"row tiles in groups need {min(lengths):,} instructions, or more", short)
    if choices:
        raise CapacityError("no row tiles were found whose tensors and program fit")
    if not possible:
        raise CapacityError(f"row tiling is not possible: {obstacle(lowered)}")
    raise _too_large(possible, lowered, types, room)


def _too_large(possible: list[LayerSpan], lowered: Lowered, types: Types, room: Mapping[Mem, int]) -> CapacityError:
    """Error with the memory that row tiles of a single row need, for the first layers for which that is least."""
    errors = []
    for span in possible:
        plan = planned(lowered, types, RowTiling((span.schedule(1, even=True),)))
        need = {mem: peak(plan.within(mem)) for mem in Mem}
        texts = [f"{need[mem]} vectors of {mem.name.lower()} memory, which has {room[mem]} left" for mem in Mem]
        short = {REGIONS[mem]: (max(1, room[mem]), need[mem]) for mem in Mem if need[mem] > room[mem]}
        errors.append(CapacityError(f"row tiles need {' and '.join(texts)}, or more", short))
    return min(errors, key=lambda error: error.excess)


def _within(
    span: LayerSpan, even: bool, lowered: Lowered, types: Types, room: Mapping[Mem, int]
) -> Iterator[TiledLayers]:
    """Row tiles of more and more rows, as long as the tensors of a time do not need more than there is."""
    for rows in range(1, span.source.height):
        tiled = span.schedule(rows, even)
        plan = planned(lowered, types, RowTiling((tiled,)))
        if len(tiled.whole) > _REGISTERS or any(peak(plan.within(mem)) > room[mem] for mem in Mem):
            return
        yield tiled
