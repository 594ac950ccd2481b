"""Programs whose first layers are computed in row tiles: the same instructions for all tiles that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from concord.compiler.emission.data_section import DataSection
from concord.compiler.emission.emit import Emitter, all_tensors
from concord.compiler.ir.layers import Layer
from concord.compiler.ir.layout import Storage
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.copies import peak, place_within
from concord.compiler.memory.plan import Plan, make_plan, share
from concord.compiler.memory.row_tiling import Prefix, RowTiling, obstacle, prefixes, row_vectors
from concord.graph.passes.dtypes import Types
from concord.image import Phase, PortRange
from concord.image.phases import full_ranges
from concord.program.access import REGIONS
from concord.program.allocator import CapacityError
from concord.program.builder import ProgramBuilder
from concord.spec.config import NpuConfig
from concord.spec.isa import ADDR_REGS, Mem, Op
from concord.spec.memmap import RegionId

#: Address registers but the one that is always zero; a tensor that is written tile by tile takes a register.
_REGISTERS = ADDR_REGS - 1
#: Kinds of row tiles that a row tile is compared with, the latest ones, where programs are too long otherwise.
KINDS = 4
#: Orders of tensors that are tried for one choice of row tiles, and for all of them.
ORDERS, _ALL_ORDERS = 400, 8000


@dataclass
class _TileProgram:
    """Instructions for row tiles, each ``increments`` vectors after the one before."""

    words: list[int]
    starts: tuple[int, ...]
    tiles: list[int]
    increments: tuple[int, ...] = ()


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
        self.chains, self.allocator, self.starts = self.emitter.chains, self.emitter.allocator, self.emitter.starts

    def fits(self, room: Mapping[Mem, int], tries: int = ORDERS) -> tuple[bool, int]:
        """Write the program if tensors find a place in ``room`` words of the memories.

        Returns
        -------
        tuple of bool and int
            Whether everything fits, the program too; orders of tensors that were tried.
        """
        count = 0
        for mem in Mem:
            tried = place_within(self.plan.within(mem), room[mem], tries)
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

    def _program(self) -> None:
        tiling, last = self.tiling, self.tiling.phases - 1
        starts = {tile: pc for program in self._tile_programs(last) for tile, pc in self._emit(program)}
        entries = [*(starts[tile] for tile in range(last)), len(self.chains.builder)]
        self._enter(last, last)
        self._tile(last)
        for tile in range(last + 1, len(tiling.tiles)):
            self.emitter.tile_starts.append(tuple(self.starts))
            self.starts.clear()
            self._find_rows(tile, tile)
            self._tile(tile)
        self.chains.dropped_rows, self.chains.registers = {}, {}
        self.emitter.layers(tiling.layers)
        self._phases(entries)

    def _phases(self, entries: list[int]) -> None:
        """Notes the ranges that the host writes and reads, and the entry of every row tile."""
        source = self.tiling.source
        (name,) = (name for name, (storage, _) in self.plan.lowered.inputs.items() if storage is source)
        size = row_vectors(source)
        allocator = self.allocator
        for tile, pc in enumerate(entries):
            rows = self.tiling.tiles[tile][source]
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
        """Vectors that one row tile writes further on than another, by register."""
        tiles = self.tiling.tiles
        return tuple((tiles[tile][s].new - tiles[before][s].new) * row_vectors(s) for s in self.tiling.whole)

    def _emit(self, program: _TileProgram) -> list[tuple[int, int]]:
        """Append the instructions of row tiles; returns these, each with the address at which it begins."""
        increments = {reg: increment for reg, increment in enumerate(program.increments, 1) if increment}
        first = len(self.chains.builder)
        count = len(program.tiles)
        for _ in range(count - 1):
            for reg, increment in increments.items():
                self.chains.builder.inc_addr(reg, increment)
        self.emitter.tile_starts.append(tuple(len(self.chains.builder) + start for start in program.starts))
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
        words, starts = chains.builder.words(), tuple(self.starts)
        chains.builder = program
        self.starts.clear()
        return words, starts

    def _enter(self, tile: int, first: int) -> None:
        """Begin with the state at the start of a run."""
        self.chains.builder.restart()
        self.chains.begin_copies()
        self._find_rows(tile, first)

    def _find_rows(self, tile: int, first: int) -> None:
        """Let chains find the rows of a row tile, with the addresses of tile ``first`` where registers count.

        Rows of the input stay where the host has written them.
        """
        tiles, tiling, chains = self.tiling.tiles, self.tiling, self.chains
        chains.dropped_rows = {storage: tiles[tile][storage].start for storage in tiling.sliding}
        chains.dropped_rows[tiling.source] = tiles[min(tile, tiling.phases - 1)][tiling.source].start
        chains.dropped_rows |= {
            storage: tiles[tile][storage].new - tiles[first][storage].new for storage in tiling.whole
        }
        chains.registers = {} if tile >= tiling.phases - 1 else {s: reg for reg, s in enumerate(tiling.whole, 1)}

    # Tiles -------------------------------------------------------------------------------------

    def _tile(self, tile: int) -> None:
        """The new rows of every layer; what the next row tile needs moves to the front after its last reader."""
        for index in range(self.tiling.layers):
            self.starts.append(len(self.chains.builder))
            if index == 0 and tile < self.tiling.phases:
                self.chains.narrow_inputs(self._input_heights(tile))
            first, count = self._rows(index, tile)
            if count:
                later = ((k, self._rows(k, tile)[1]) for k in range(index, self.tiling.layers))
                self.chains.between([(k, rows) for k, rows in later if rows])
                self.chains.layer(index, first, count)
            for maker in (self.plan.layer(k) for k in range(index)):
                for copy in self.plan.copies_of(maker.target):
                    if copy.last_use == index:
                        self._move(maker, copy.mem, tile)

    def _rows(self, index: int, tile: int) -> tuple[int, int]:
        """The first row that a layer computes in a row tile, and how many it computes."""
        layer = self.plan.layer(index)
        rows = self.tiling.tiles[tile][layer.target.root]
        first = layer.computed(rows.new)
        return first, layer.computed(rows.stop) - first

    def _input_heights(self, tile: int) -> dict[Storage, int]:
        """Rows of the inputs that the host writes before a row tile."""
        rows = self.tiling.tiles[tile][self.tiling.source]
        inputs = [] if tile else [storage for storage, _ in self.plan.lowered.inputs.values()]
        return {storage: storage.height for storage in inputs} | {self.tiling.source: rows.stop - rows.start}

    def _move(self, maker: Layer, mem: Mem, tile: int) -> None:
        """Rows of a buffer to its front: a narrow vector that is converted again is the same."""
        storage = maker.target.root
        first, rows = self.tiling.moved(storage, tile)
        if not rows:
            return
        size = row_vectors(storage)
        below, stride = self.chains.oriented(storage, mem, size)
        addr = self.plan.addr(storage, mem, 0) + below
        self.chains.builder.set(Op.SET_SHAPE, rows=1, cols=1)
        self.chains.builder.set(Op.SET_ITERS, inner=size, outer=rows)
        if mem is Mem.NARROW:
            self.chains.quant(maker)
        source = addr + (first - self.tiling.tiles[tile][storage].start) * stride
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
    possible = [prefix for prefix in prefixes(lowered) if prefix.source.height > 1]
    choices = list[RowTiling]()
    for even in (False, True):
        left = _ALL_ORDERS
        choices = [tiling for prefix in possible for tiling in _within(prefix, even, lowered, types, room)]
        for tiling in sorted(choices, key=lambda tiling: (tiling.cost(probe.plan, config), tiling.layers, tiling.rows)):
            for kinds in (1, KINDS):
                tiled = RowTiled(planned(lowered, types, tiling), config, formats, tiling, kinds)
                fits, tried = tiled.fits(room, max(1, min(ORDERS, left)))
                if fits:
                    return tiled.emitter
                left -= tried
                if not tiled.chains.builder:  # tensors have found no place
                    break
    if choices:
        raise CapacityError("no row tiles were found whose tensors and program fit")
    if not possible:
        raise CapacityError(f"row tiling is not possible: {obstacle(lowered)}")
    raise _too_large(possible, lowered, types, room)


def _too_large(possible: list[Prefix], lowered: Lowered, types: Types, room: Mapping[Mem, int]) -> CapacityError:
    """Error with the memory that row tiles of a single row need, for the first layers for which that is least."""
    errors = []
    for prefix in possible:
        plan = planned(lowered, types, prefix.schedule(1, even=True))
        need = {mem: peak(plan.within(mem)) for mem in Mem}
        texts = [f"{need[mem]} vectors of {mem.name.lower()} memory, which has {room[mem]} left" for mem in Mem]
        short = {REGIONS[mem]: (max(1, room[mem]), need[mem]) for mem in Mem if need[mem] > room[mem]}
        errors.append(CapacityError(f"row tiles need {' and '.join(texts)}, or more", short))
    return min(errors, key=lambda error: error.excess)


def planned(lowered: Lowered, types: Types, tiling: RowTiling) -> Plan:
    """The plan of a network with row tiles applied to it, results in the place of operands where that is possible."""
    plan = make_plan(lowered, types)
    tiling.apply(plan)
    share(plan)
    return plan


def _within(prefix: Prefix, even: bool, lowered: Lowered, types: Types, room: Mapping[Mem, int]) -> Iterator[RowTiling]:
    """Row tiles of more and more rows, as long as the tensors of a time do not need more than there is."""
    for rows in range(1, prefix.source.height):
        tiling = prefix.schedule(rows, even)
        plan = planned(lowered, types, tiling)
        if len(tiling.whole) > _REGISTERS or any(peak(plan.within(mem)) > room[mem] for mem in Mem):
            return
        yield tiling
