"""Engine that carries out a script."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring

from concord.spec.feeder import CODE_PAGE, SCRIPT_DEPTH, SCRIPT_WORD
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.memmap import REGISTERS, Reg, RegionId
from concord_rtl.feeder.filler import Filler
from concord_rtl.feeder.maker import VectorMaker
from concord_rtl.feeder.pointers import pointer_bits
from concord_rtl.feeder.program_runner import ProgramRunner
from concord_rtl.feeder.result_sender import ResultSender
from concord_rtl.feeder.script_reader import ScriptReader
from concord_rtl.host.bus import HostBus
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of, stream_of


class FeedEngine(NpuUnit):
    """Executes the words of a script, one after the other, again and again.

    Each operation has a unit of its own; the vector maker works for two of them. Takes a cycle for an element, two if
    it comes from the inbox and has two bytes, one more for each vector and each window, and three for an exponent;
    some eight to twelve for a vector of few elements (:mod:`concord.host.feeder_clock`). An element of a result takes a
    cycle for each of its bytes and one more.

    Parameters
    ----------
    config : NpuConfig
    """

    script_addr = Output(range(SCRIPT_DEPTH), "Address in the script.")
    script_word = Input(shape_of(SCRIPT_WORD), "Its word, at once.")
    tail = Input(lambda self: pointer_bits(self.config), "Behind the last byte of the inbox.")
    released = Output(lambda self: pointer_bits(self.config), "First byte that is still needed.")
    inbox_addr = Output(lambda self: pointer_bits(self.config) - 1, "Address in the inbox.")
    inbox_data = Input(8, "Its byte, two cycles later.")
    code_addr = Output(lambda self: range(self.config.code_pages * CODE_PAGE), "Address in the code book.")
    code = Input(BINARY16_WIDTH, "Its number, two cycles later.")
    results = Output(stream_of(8), "Bytes for the outbox.")
    bus = Output(
        lambda self: HostBus(self.config),
        "Accesses to vector memories and to the register that starts a run.",
    )
    core_busy = Input(1, "A program runs.")
    core_trapped = Input(1, "The last run ended with a trap.")
    busy = Output(1, "Something goes on that needs nothing from the host.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.reader = reader = ScriptReader()
        m.submodules.filler = filler = Filler(self.config)
        m.submodules.runner = runner = ProgramRunner()
        m.submodules.sender = sender = ResultSender(self.config)
        m.submodules.maker = maker = VectorMaker(self.config)
        m.d.comb += [
            self.script_addr.eq(reader.script_addr),
            reader.script_word.eq(self.script_word),
            reader.pending.eq(self.tail != filler.base),
            reader.done.eq(filler.done | runner.done | sender.done),
            runner.core_busy.eq(self.core_busy),
            runner.core_trapped.eq(self.core_trapped),
        ]
        for unit in (filler, runner, sender):
            m.d.comb += [unit.word.eq(reader.word), unit.decode.eq(reader.decode)]
        blocked = Signal()
        m.d.comb += blocked.eq(self.results.valid & ~self.results.ready)
        m.d.sync += self.busy.eq(~(reader.off | reader.resting | filler.starving | runner.stopped | blocked))
        self._fill(m, filler, maker)
        self._send(m, sender, maker)
        self._share(m, maker.o, runner.start, sender.reads)
        return m

    def _fill(self, m, filler, maker):
        """Bytes of the inbox to vectors."""
        m.d.comb += [
            filler.tail.eq(self.tail),
            self.released.eq(filler.released),
            self.inbox_addr.eq(filler.inbox_addr),
            filler.inbox_data.eq(self.inbox_data),
            self.code_addr.eq(filler.code_addr),
            filler.code.eq(self.code),
            maker.push.eq(filler.push),
            maker.lane.eq(filler.lane),
            maker.element.eq(filler.element),
            maker.finish.eq(filler.finish),
            maker.wide.eq(filler.wide),
            maker.blocks.eq(filler.blocks),
            maker.exp.eq(filler.exp),
            maker.addr.eq(filler.addr),
            filler.ready.eq(maker.ready),
            filler.made.eq(maker.made),
            filler.idle.eq(maker.idle),
        ]

    def _send(self, m, sender, maker):
        """Vectors to bytes of the outbox."""
        wiring.connect(m, wiring.flipped(self.results), sender.results)
        wiring.connect(m, wiring.flipped(self.bus.rsp), sender.vector)
        m.d.comb += [
            maker.whole.eq(self.bus.rsp.p),
            maker.load.eq(sender.load),
            maker.shift.eq(sender.shift),
            maker.narrow.eq(sender.narrow),
            sender.element.eq(maker.first),
        ]

    def _share(self, m, vectors, start, reads):
        """One request at a time: a vector to its memory, the start of a run, or a vector to be read."""
        request = self.bus.req
        control = shape_of(REGISTERS[Reg.CONTROL].layout)
        with m.If(vectors.valid):
            m.d.comb += [
                request.valid.eq(1),
                request.p.write.eq(1),
                request.p.region.eq(Mux(vectors.p.wide, RegionId.WIDE, RegionId.NARROW)),
                request.p.addr.eq(vectors.p.addr),
                request.p.data.eq(vectors.p.data),
                vectors.ready.eq(request.ready),
            ]
        with m.Elif(start.valid):
            value = data.View(control, request.p.data[: control.size])
            m.d.comb += [
                request.valid.eq(1),
                request.p.write.eq(1),
                request.p.region.eq(RegionId.REGS),
                request.p.addr.eq(Reg.CONTROL),
                value.start.eq(1),
                value.pc.eq(start.p.pc),
                value.adds.eq(start.p.adds),
                start.ready.eq(request.ready),
            ]
        with m.Else():
            m.d.comb += [
                request.valid.eq(reads.valid),
                request.p.region.eq(Mux(reads.p.narrow, RegionId.NARROW, RegionId.WIDE)),
                request.p.addr.eq(reads.p.addr),
                reads.ready.eq(request.ready),
            ]
