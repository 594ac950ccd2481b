"""The feeder between message processor and core."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory

from concord.spec.config import NpuConfig
from concord.spec.feeder import SCRIPT_DEPTH, SCRIPT_WORD
from concord.spec.memmap import RegionId
from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.feeder.code_book import CodeBook
from concord_rtl.feeder.engine import FeedEngine
from concord_rtl.feeder.pointers import pointer_bits, result_bits
from concord_rtl.host.bus import HostBus
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class Feeder(Component):
    """Holds inbox, outbox, code book and script, and shares the bus of the core between host and engine.

    Does not check what the host asks for: the message processor has. The host goes first, an access at a time.

    Parameters
    ----------
    config : NpuConfig
        With an inbox.
    """

    bus = Input(lambda self: HostBus(self.config), "Accesses of the host, to all regions but the inbox.")
    raw = Input(stream_of(8), "Bytes for the inbox, of which there must be ``room``; one per cycle.")
    room = Output(lambda self: self.bits, "Bytes that the inbox can take.")
    produced = Output(lambda self: self.out_bits, "Address in the outbox behind the last byte.")
    acknowledge = Input(1, "Strobe: bytes of the outbox in front of ``acknowledged`` are not needed any more.")
    acknowledged = Input(lambda self: self.out_bits, "Address in the outbox.")
    core = Output(lambda self: HostBus(self.config), "To the core.")
    core_busy = Input(1, "A program runs.")
    core_trapped = Input(1, "The last run ended with a trap.")
    busy = Output(1, "Something goes on that needs nothing from the host.")

    def __init__(self, config: NpuConfig):
        if not config.inbox:
            raise ValueError(f"config must have an inbox, not one of {config.inbox} bytes")
        self.config = config
        self.bits = pointer_bits(config)
        self.out_bits = result_bits(config)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        restart = Signal()  # the script is written
        held = Signal(init=1)  # until the first byte comes
        m.submodules.engine = engine = ResetInserter(held)(FeedEngine(self.config))
        tail = Signal(self.bits)
        m.submodules.inbox = inbox = BlockRam(8, self.config.inbox)
        m.d.comb += [
            self.raw.ready.eq(1),
            inbox.w_en.eq(self.raw.valid),
            inbox.w_addr.eq(tail),
            inbox.w_data.eq(self.raw.payload),
            inbox.addr.eq(engine.inbox_addr),
            engine.inbox_data.eq(inbox.data),
            engine.tail.eq(tail),
            engine.core_busy.eq(self.core_busy),
            engine.core_trapped.eq(self.core_trapped),
        ]
        m.d.sync += self.room.eq(self.config.inbox - 1 - (tail - engine.released)[: self.bits])
        m.d.sync += self.busy.eq(engine.busy & ~held)
        with m.If(self.raw.valid):
            m.d.sync += [tail.eq(tail + 1), held.eq(0)]
        with m.If(restart):
            m.d.sync += [tail.eq(0), held.eq(1)]
        outbox = self._outbox(m, engine.results, restart)
        self._share(m, engine, held, restart, outbox, *self._tables(m, engine))
        return m

    def _outbox(self, m, results, restart):
        """The ring of results; returns its block RAM."""
        head, written = Signal(self.out_bits), Signal()
        level = (self.produced - head)[: self.out_bits]
        m.d.comb += [results.ready.eq(~level[-1]), written.eq(results.valid & results.ready)]
        m.submodules.outbox = ram = BlockRam(8, self.config.outbox_depth)
        m.d.comb += [ram.w_addr.eq(self.produced), ram.w_data.eq(results.payload), ram.w_en.eq(written)]
        with m.If(written):
            m.d.sync += self.produced.eq(self.produced + 1)
        with m.If(self.acknowledge):
            m.d.sync += head.eq(self.acknowledged)
        with m.If(restart):
            m.d.sync += [head.eq(0), self.produced.eq(0)]
        return ram

    def _tables(self, m, engine):
        """Code book and script; returns the code book and the write port of the script."""
        m.submodules.codes = codes = CodeBook(self.config)
        m.submodules.script = script = memory.Memory(shape=SCRIPT_WORD.width, depth=SCRIPT_DEPTH, init=[])
        word = script.read_port(domain="comb")
        m.d.comb += [codes.addr.eq(engine.code_addr), engine.code.eq(codes.data)]
        m.d.comb += [word.addr.eq(engine.script_addr), engine.script_word.eq(word.data)]
        return codes, script.write_port()

    def _share(self, m, engine, held, restart, outbox, codes, script):
        """One access at a time, of the host or of the engine."""
        host, core = self.bus, self.core
        region = host.req.p.region
        result = Signal(8)
        m.d.sync += result.eq(outbox.data)
        looks = BlockRam.LATENCY + 1  # cycles until ``result`` has the byte
        left = Signal(range(looks + 1))
        asking = Signal()  # the core has not taken the request
        granted = Signal.like(core.req.p)  # the memories of the core are all over the device
        m.d.comb += [core.req.p.eq(granted), core.req.valid.eq(asking), outbox.addr.eq(granted.addr)]
        m.d.comb += [host.rsp.p.eq(core.rsp.p), engine.bus.rsp.p.eq(core.rsp.p)]
        m.d.comb += [codes.w_addr.eq(granted.addr), codes.w_data.eq(granted.data)]
        m.d.comb += [script.addr.eq(granted.addr), script.data.eq(granted.data)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [granted.eq(Mux(host.req.valid, host.req.p, engine.bus.req.p)), left.eq(looks)]
                with m.If(host.req.valid):
                    with m.If(region == RegionId.OUTBOX):
                        m.next = "LOOK"
                    with m.Elif(region == RegionId.CODES):
                        m.next = "CODES"
                    with m.Elif(region == RegionId.SCRIPT):
                        m.next = "SCRIPT"
                    with m.Else():
                        m.d.sync += asking.eq(1)
                        m.next = "HOST"
                with m.Elif(engine.bus.req.valid & ~held):
                    m.d.sync += asking.eq(1)
                    m.next = "ENGINE"
            with m.State("LOOK"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 1):
                    m.d.comb += host.req.ready.eq(1)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [host.rsp.valid.eq(1), host.rsp.p.eq(result)]
                with m.If(host.rsp.ready):
                    m.next = "IDLE"
            with m.State("CODES"):
                m.d.comb += [host.req.ready.eq(1), codes.w_en.eq(1)]
                m.next = "IDLE"
            with m.State("SCRIPT"):
                m.d.comb += [host.req.ready.eq(1), script.en.eq(1), restart.eq(1)]
                m.next = "IDLE"
            with m.State("HOST"):
                self._pass_on(m, host, asking)
            with m.State("ENGINE"):
                self._pass_on(m, engine.bus, asking)

    def _pass_on(self, m, side, asking):
        """An access of one side, up to its end; its request is kept up until it is taken."""
        core = self.core
        m.d.comb += [
            side.req.ready.eq(asking & core.req.ready),
            side.rsp.valid.eq(core.rsp.valid),
            core.rsp.ready.eq(side.rsp.ready),
        ]
        with m.If(asking & core.req.ready):
            m.d.sync += asking.eq(0)
            with m.If(core.req.p.write):
                m.next = "IDLE"
        with m.If(core.rsp.valid & core.rsp.ready):
            m.next = "IDLE"
