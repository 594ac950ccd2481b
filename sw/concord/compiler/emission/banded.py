"""Programs whose first layers are computed in bands: a segment of instructions for all bands that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from concord.compiler.emission.contents import Contents
from concord.compiler.emission.emit import REGIONS, Emitter, all_tensors
from concord.compiler.ir.layers import Layer
from concord.compiler.ir.layout import Storage
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lower import Lowered
from concord.compiler.memory.bands import Bands, Prefix, obstacle, prefixes, row_vectors
from concord.compiler.memory.copies import peak, place_within
from concord.compiler.memory.plan import Plan, make_plan, share
from concord.image import Part, Phase
from concord.image.phases import whole
from concord.program.allocator import CapacityError
from concord.program.builder import ProgramBuilder
from concord.spec.config import NpuConfig
from concord.spec.isa import ADDR_REGS, Mem, Op

#: Address registers but the one that is always zero; a tensor that is written band by band takes one.
_REGISTERS = ADDR_REGS - 1
#: Orders of tensors that are tried for one choice of bands, and for all of them.
ORDERS, _ALL_ORDERS = 400, 8000


@dataclass
class _Segment:
    """Instructions for ``count`` bands from ``first`` on, each writing ``steps`` vectors behind the one before."""

    words: list[int]
    starts: tuple[int, ...]
    first: int
    count: int = 1
    steps: tuple[int, ...] = ()


class Banded:
    """Has the program of a plan written that ``bands`` have been applied to.

    Where bands share instructions, the address register of a tensor that they write row after row tells them apart. A
    run begins with all registers at zero, so a row of ``inc_addr`` stands before the instructions, and later bands
    enter it further up.
    """

    def __init__(self, plan: Plan, config: NpuConfig, formats: Formats, bands: Bands):
        self.plan, self.config, self.bands = plan, config, bands
        self.emitter = Emitter(plan, config, formats, bands)
        self.chains, self.sheet, self.starts = self.emitter.chains, self.emitter.sheet, self.emitter.starts

    def fits(self, room: Mapping[Mem, int], tries: int = ORDERS) -> tuple[bool, int]:
        """Write the program if tensors find a place in ``room`` words of the memories.

        Returns
        -------
        tuple of bool and int
            Whether everything fits, the program too; orders of tensors that were tried.
        """
        count = 0
        for mem in Mem:
            tried = place_within([copy for copy in self.plan.all() if copy.mem is mem], room[mem], tries)
            count += min(tried, tries)
            if tried > tries:
                return False, count
        self.emitter.write(self._allot, self._program)
        return len(self.chains.builder) <= self.config.program_depth, count

    def _allot(self) -> None:
        """Put what has been placed behind the constants."""
        for mem in Mem:
            copies = [copy for copy in self.plan.all() if copy.mem is mem]
            size = max((copy.addr + copy.vectors for copy in copies), default=0)
            first = self.sheet.allot(all_tensors(mem), REGIONS[mem], size, "tensors")
            for copy in copies:
                copy.addr += first

    def _program(self) -> None:
        bands, last = self.bands, len(self.bands.table) - 1
        entries = [pc for segment in list(self._segments(last)) for pc in self._emit(segment)]
        self._enter(last, last)
        entries.append(len(self.chains.builder))
        self._band(last)
        self.chains.gone, self.chains.registers = {}, {}
        self.emitter.layers(bands.layers)
        self._phases(entries)

    def _phases(self, entries: list[int]) -> None:
        """What the host writes and reads, and where every band begins."""
        source = self.bands.source
        (name,) = (name for name, (storage, _) in self.plan.lowered.inputs.items() if storage is source)
        size = row_vectors(source)
        sheet = self.sheet
        for band, pc in enumerate(entries):
            rows = self.bands.table[band][source]
            (port,) = (port for port in sheet.inputs if port.name == name)
            own = Part(name, rows.start * size, (rows.stop - rows.start) * size, port.address)
            others = [] if band else [port for port in sheet.inputs if port.name != name]
            outputs = sheet.outputs if band + 1 == len(entries) else []
            sheet.phases.append(Phase(pc, (own, *whole(others, self.config)), whole(outputs, self.config)))

    # Segments ----------------------------------------------------------------------------------

    def _segments(self, count: int) -> Iterator[_Segment]:
        """Instructions of the first ``count`` bands."""
        segment: _Segment | None = None
        for band in range(count):
            steps = self._steps_between(band - 1, band) if band else ()
            alike = segment is not None and (segment.count == 1 or segment.steps == steps)
            if segment is not None and alike and self._words(band, segment.first)[0] == segment.words:
                segment.count, segment.steps = segment.count + 1, steps
                continue
            if segment is not None:
                yield segment
            segment = _Segment(*self._words(band, band), band)
        if segment is not None:
            yield segment

    def _steps_between(self, before: int, band: int) -> tuple[int, ...]:
        """Vectors that one band writes further on than another, by register."""
        table = self.bands.table
        return tuple((table[band][s].new - table[before][s].new) * row_vectors(s) for s in self.bands.whole)

    def _emit(self, segment: _Segment) -> list[int]:
        """Append a segment; returns where its bands begin."""
        steps = {reg: step for reg, step in enumerate(segment.steps, 1) if step}
        first = len(self.chains.builder)
        for _ in range(segment.count - 1):
            for reg, step in steps.items():
                self.chains.builder.inc_addr(reg, step)
        self.emitter.segments.append(tuple(len(self.chains.builder) + start for start in segment.starts))
        for word in segment.words:
            self.chains.builder.raw(word)
        return [first + (segment.count - 1 - k) * len(steps) for k in range(segment.count)]

    def _words(self, band: int, first: int) -> tuple[list[int], tuple[int, ...]]:
        """Instructions of a band, with the addresses of band ``first`` where registers are added; starts of layers."""
        chains = self.chains
        mine, chains.builder = chains.builder, ProgramBuilder()
        self._enter(band, first)
        self._band(band)
        chains.builder.halt()
        words, starts = chains.builder.words(), tuple(self.starts)
        chains.builder = mine
        self.starts.clear()
        return words, starts

    def _enter(self, band: int, first: int) -> None:
        """Begin with the state at the start of a run."""
        table, bands, chains = self.bands.table, self.bands, self.chains
        chains.restart()
        chains.gone = {storage: table[band][storage].start for storage in (bands.source, *bands.sliding)}
        chains.gone |= {storage: table[band][storage].new - table[first][storage].new for storage in bands.whole}
        chains.registers = {} if band == len(table) - 1 else {s: reg for reg, s in enumerate(bands.whole, 1)}

    # Bands -------------------------------------------------------------------------------------

    def _band(self, band: int) -> None:
        """The new rows of every layer; what the next band needs moves to the front behind its last reader."""
        for index in range(self.bands.layers):
            self.starts.append(len(self.chains.builder))
            if index == 0:
                self.chains.narrow_inputs(self._given(band))
            rows = self.bands.table[band][self.plan.layer(index).target]
            if rows.stop > rows.new:
                self.chains.layer(index, rows.new, rows.stop - rows.new)
            for maker in (self.plan.layer(k) for k in range(index)):
                for mem in Mem:
                    copy = self.plan.copy(maker.target, mem)
                    if copy is not None and copy.dies == index:
                        self._move(maker, mem, band)

    def _given(self, band: int) -> dict[Storage, int]:
        """Rows of the inputs that the host writes before a band."""
        rows = self.bands.table[band][self.bands.source]
        inputs = [] if band else [storage for storage, _ in self.plan.lowered.inputs.values()]
        return {storage: storage.height for storage in inputs} | {self.bands.source: rows.stop - rows.start}

    def _move(self, maker: Layer, mem: Mem, band: int) -> None:
        """Rows of a buffer to its front: a narrow vector that is converted again is the same."""
        storage = maker.target
        first, rows = self.bands.moved(storage, band)
        if not rows:
            return
        size = row_vectors(storage)
        below, step = self.chains.turned(storage, mem, size)
        addr = self.plan.addr(storage, mem, 0) + below
        self.chains.set(Op.SET_SHAPE, rows=1, cols=1)
        self.chains.set(Op.SET_ITERS, inner=size, outer=rows)
        if mem is Mem.NARROW:
            self.chains.quant(maker)
        source = addr + (first - self.bands.table[band][storage].start) * step
        self.chains.builder.v_rd(int(mem), source, inner=1, outer=step)
        self.chains.builder.v_wr(int(mem), addr, inner=1, outer=step)


def in_bands(lowered: Lowered, config: NpuConfig, formats: Formats) -> Emitter:
    """The program with the bands that cost least of those that fit.

    Raises
    ------
    CapacityError
        If none do.
    """
    probe = Contents(make_plan(lowered), config, formats)
    probe.fill()
    try:
        probe.sheet.check()
    except CapacityError as error:
        raise CapacityError("bands of rows do not help, as constants alone do not fit", error.short) from error
    room = {mem: depth - probe.sheet.used(REGIONS[mem]) for mem, depth in _depths(config).items()}
    possible = [prefix for prefix in prefixes(lowered) if prefix.source.height > 1]
    choices = [bands for prefix in possible for bands in _within(prefix, lowered, room)]
    left = _ALL_ORDERS
    for bands in sorted(choices, key=lambda bands: (bands.cost(probe.plan, config), bands.layers, bands.rows)):
        banded = Banded(planned(lowered, bands), config, formats, bands)
        fits, tried = banded.fits(room, max(1, min(ORDERS, left)))
        if fits:
            return banded.emitter
        left -= tried
    if choices:
        raise CapacityError("no bands of rows were found whose tensors and program fit")
    if not possible:
        raise CapacityError(f"bands of rows are not possible: {obstacle(lowered)}")
    raise _too_large(possible, lowered, room)


def _too_large(possible: list[Prefix], lowered: Lowered, room: Mapping[Mem, int]) -> CapacityError:
    """What bands of a single row need, of the first layers for which that is least."""
    errors = []
    for prefix in possible:
        copies = planned(lowered, prefix.schedule(1)).all()
        need = {mem: peak(copy for copy in copies if copy.mem is mem) for mem in Mem}
        texts = [f"{need[mem]} vectors of {mem.name.lower()} memory, which has {room[mem]} left" for mem in Mem]
        short = {REGIONS[mem]: (max(1, room[mem]), need[mem]) for mem in Mem if need[mem] > room[mem]}
        errors.append(CapacityError(f"bands of rows need {' and '.join(texts)}, or more", short))
    return min(errors, key=lambda error: error.excess)


def _depths(config: NpuConfig) -> dict[Mem, int]:
    return {Mem.NARROW: config.narrow_depth, Mem.WIDE: config.wide_depth}


def planned(lowered: Lowered, bands: Bands) -> Plan:
    """The plan of a network with bands applied to it, results in the place of operands where that is possible."""
    plan = make_plan(lowered)
    bands.apply(plan)
    share(plan)
    return plan


def _within(prefix: Prefix, lowered: Lowered, room: Mapping[Mem, int]) -> Iterator[Bands]:
    """Bands of more and more rows, as long as the tensors of a time do not need more than there is."""
    for rows in range(1, prefix.source.height):
        bands = prefix.schedule(rows)
        copies = planned(lowered, bands).all()
        if len(bands.whole) > _REGISTERS or any(peak(c for c in copies if c.mem is mem) > room[mem] for mem in Mem):
            return
        yield bands
