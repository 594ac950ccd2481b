"""What carries out a script."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE, CODE_PAGE_BITS, FEED_LAYOUTS, SCRIPT_DEPTH, SCRIPT_WORD, FeedOp
from concord.spec.isa import VECTOR_ADDR_BITS
from concord.spec.memmap import REGISTERS, Reg, RegionId
from concord_rtl.arith.block_float import activations
from concord_rtl.feeder.maker import VectorMaker
from concord_rtl.feeder.walker import FeedWalker, pointer_bits
from concord_rtl.host.bus import HostBus
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of, stream_of

#: Cycles from the write that starts a run until the core is surely busy.
SETTLE = 8


class _Parts:
    """Units and registers of an engine, made in ``m``.

    Attributes
    ----------
    walker : FeedWalker
        Places of elements.
    maker : VectorMaker
        Vectors of elements.
    word : Signal
        The word of the script that is carried out.
    target : Signal
        The last word that said where vectors go.
    base : Signal
        First byte of the input in the inbox.
    lane : Signal
        The element goes there.
    exponent : Signal
        Exponent of the vector.
    starving, off, stopped : Signal
        Bytes are awaited; there is no script; a program has trapped.
    """

    def __init__(self, m: Module, config: NpuConfig):
        m.submodules.walker = self.walker = FeedWalker(config)
        m.submodules.maker = self.maker = VectorMaker(config)
        self.word: Any = Signal(shape_of(SCRIPT_WORD))
        self.target: Any = Signal(shape_of(FEED_LAYOUTS[FeedOp.TARGET]))
        self.base = Signal(pointer_bits(config))
        self.lane = Signal(range(config.native))
        self.exponent = Signal(config.act_exp_width)
        self.starving, self.off, self.stopped = Signal(), Signal(), Signal()

    def view(self, op):
        """The word as that of an operation."""
        return data.View(shape_of(FEED_LAYOUTS[op]), self.word.as_value())


class FeedEngine(NpuUnit):
    """Executes the words of a script, one after the other, again and again.

    Takes three cycles for an element that comes from the inbox, four if it has two bytes and five if it is looked up in
    the code book, two for one outside of the image and one for padding; a vector costs three cycles more, and another N
    if it is converted. An element of a result takes a cycle for each of its bytes and one more.

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
    code = Input(16, "Its number, two cycles later.")
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
        parts = _Parts(m, self.config)
        walker, maker = parts.walker, parts.maker
        blocked = Signal()
        page = Signal(CODE_PAGE_BITS)  # of the element, long before its byte
        m.d.sync += page.eq(parts.target.page + Mux(parts.target.paged, walker.channel, 0))
        m.d.comb += [
            walker.word.eq(parts.word),
            walker.base.eq(parts.base),
            walker.double.eq(parts.target.double),
            maker.wide.eq(parts.target.wide),
            maker.blocks.eq(parts.target.blocks),
            maker.addr.eq(parts.target.target),
            maker.exp.eq(parts.exponent),
            self.code_addr.eq(Cat(self.inbox_data, page)),
            blocked.eq(self.results.valid & ~self.results.ready),
        ]
        m.d.sync += self.busy.eq(~(parts.off | parts.starving | parts.stopped | blocked))
        with m.FSM():
            self._decode(m, parts)
            self._fill(m, parts)
            self._elements(m, parts)
            self._run(m, parts)
            self._send(m, parts)
        self._store(m, parts)
        return m

    def _decode(self, m, parts):
        with m.State("FETCH"):
            m.d.sync += [parts.word.eq(self.script_word), self.script_addr.eq(self.script_addr + 1)]
            m.next = "DECODE"
        with m.State("DECODE"):
            m.d.comb += parts.walker.set.eq(1)
            m.next = "FETCH"
            with m.Switch(parts.word.op):
                with m.Case(FeedOp.END):
                    m.d.sync += [self.script_addr.eq(0), parts.off.eq(self.script_addr == 1)]
                    m.next = "REST"
                with m.Case(FeedOp.TARGET):
                    m.d.sync += parts.target.eq(parts.word.as_value())
                with m.Case(FeedOp.FILL):
                    m.d.comb += parts.walker.load.eq(1)
                    m.next = "BEGIN"
                with m.Case(FeedOp.RUN):
                    m.next = "START"
                with m.Case(FeedOp.SEND):
                    m.next = "LOAD"
        with m.State("REST"):
            m.d.sync += parts.starving.eq(1)
            with m.If(self.tail != parts.base):
                m.d.sync += parts.starving.eq(0)
                m.next = "FETCH"

    def _fill(self, m, parts):
        """Windows, and the end of the input."""
        walker, maker = parts.walker, parts.maker
        behind = Signal(signed(pointer_bits(self.config)))  # bytes that came behind the input
        with m.State("BEGIN"):
            m.d.comb += walker.begin.eq(1)
            m.d.sync += parts.lane.eq(0)
            self._next_element(m, parts)
        with m.State("VECTOR"):
            with m.If(maker.ready):
                m.d.comb += maker.finish.eq(1)
                m.d.sync += parts.target.target.eq(parts.target.target + 1)
                m.next = "PLAY"
        with m.State("PLAY"):
            with m.If(~maker.playing):
                self._next_element(m, parts)
                with m.If(walker.ended):
                    m.d.comb += walker.proceed.eq(1)
                    m.next = "BEGIN"
                    with m.If(walker.last):
                        m.d.sync += parts.base.eq(parts.base + parts.view(FeedOp.FILL).advance)
                        m.next = "DROP"
        with m.State("DROP"):
            m.d.sync += behind.eq(self.tail - parts.base)
            m.next = "DROPPED"
        with m.State("DROPPED"):
            m.next = "DROP"
            m.d.sync += parts.starving.eq(behind < 0)
            with m.If((behind >= 0) & maker.idle):
                m.d.sync += self.released.eq(parts.base)
                m.next = "FETCH"

    def _next_element(self, m, parts):
        m.next = "LANE"
        with m.If(parts.target.blocks):
            m.next = "EXPONENT"

    def _elements(self, m, parts):
        """One element: of the inbox, or outside the image, or padding."""
        walker, maker = parts.walker, parts.maker
        there = Signal(signed(pointer_bits(self.config)))  # bytes of the inbox from the element on
        missing = Signal()
        low = Signal(8)
        single = Signal()  # a byte is read
        m.d.comb += single.eq(~parts.target.double)
        for name in ("LANE", "EXPONENT"):
            with m.State(name):
                m.d.comb += self.inbox_addr.eq(walker.at)
                m.d.sync += there.eq(self.tail - walker.at)
                m.next = "WAIT" if name == "EXPONENT" else "READ"
                if name == "LANE":
                    m.d.sync += self.released.eq(walker.needed)
                    with m.If(walker.ended):
                        self._push(m, parts, maker.latest)
        with m.State("WAIT"):
            m.d.sync += missing.eq(there < 1)
            m.next = "COMMON"
        with m.State("COMMON"):
            m.next = "EXPONENT"
            m.d.sync += parts.starving.eq(missing)
            with m.If(~missing):
                m.d.sync += parts.exponent.eq(self.inbox_data)
                m.d.comb += walker.skip.eq(1)
                m.next = "LANE"
        with m.State("READ"):
            m.d.comb += self.inbox_addr.eq(walker.at + 1)
            m.d.sync += missing.eq(there < Mux(single, 1, 2))
            m.next = "TAKE"
            with m.If(~walker.inside):
                self._push(m, parts, walker.border)
                m.d.comb += walker.step.eq(1)
        with m.State("TAKE"):
            m.next = "LANE"
            m.d.sync += [parts.starving.eq(missing), low.eq(self.inbox_data)]
            with m.If(~missing & single & parts.target.coded):
                m.next = "LOOK"
            with m.Elif(~missing & single):
                self._push(m, parts, self.inbox_data)
                m.d.comb += walker.step.eq(1)
            with m.Elif(~missing):
                m.next = "HIGH"
        with m.State("LOOK"):
            m.next = "CODE"
        with m.State("CODE"):
            self._push(m, parts, self.code)
            m.d.comb += walker.step.eq(1)
        with m.State("HIGH"):
            self._push(m, parts, Cat(low, self.inbox_data))
            m.d.comb += walker.step.eq(1)

    def _push(self, m, parts, element):
        """Take an element; the vector may be complete then."""
        m.d.comb += [parts.maker.push.eq(1), parts.maker.element.eq(element)]
        m.d.sync += parts.lane.eq(parts.lane + 1)
        m.next = "LANE"
        with m.If(parts.lane == self.config.native - 1):
            m.d.sync += parts.lane.eq(0)
            m.next = "VECTOR"

    def _store(self, m, parts):
        """Vectors to their memories, while nothing else needs the bus."""
        word, request = parts.maker.o, self.bus.req
        with m.If(word.valid):
            m.d.comb += [
                request.valid.eq(1),
                request.p.write.eq(1),
                request.p.region.eq(Mux(word.p.wide, RegionId.WIDE, RegionId.NARROW)),
                request.p.addr.eq(word.p.addr),
                request.p.data.eq(word.p.data),
                word.ready.eq(request.ready),
            ]

    def _run(self, m, parts):
        control = shape_of(REGISTERS[Reg.CONTROL].layout)
        count = Signal(range(SETTLE))
        request = self.bus.req
        with m.State("START"):
            value = data.View(control, request.p.data[: control.size])
            m.d.comb += [
                request.valid.eq(1),
                request.p.write.eq(1),
                request.p.region.eq(RegionId.REGS),
                request.p.addr.eq(Reg.CONTROL),
                value.start.eq(1),
                value.pc.eq(parts.view(FeedOp.RUN).pc),
            ]
            m.d.sync += count.eq(SETTLE - 1)
            with m.If(request.ready):
                m.next = "RUNNING"
        with m.State("RUNNING"):
            with m.If(count != 0):
                m.d.sync += count.eq(count - 1)
            with m.Elif(~self.core_busy):
                m.next = "FETCH"
                with m.If(self.core_trapped):
                    m.d.sync += parts.stopped.eq(1)
                    m.next = "STOPPED"
        with m.State("STOPPED"):
            pass

    def _send(self, m, parts):
        maker, request = parts.maker, self.bus.req
        view = parts.view(FeedOp.SEND)
        vectors, lanes = Signal(view.vectors.shape()), Signal(view.lanes.shape())
        source = Signal(VECTOR_ADDR_BITS)
        high, asked = Signal(), Signal()
        load, shift = Signal(), Signal()  # registers, because what they move is wide and its memories are far away
        double = Signal()  # elements have two bytes
        m.d.comb += [maker.narrow.eq(view.narrow), double.eq(~view.narrow | (self.config.mantissa_bytes > 1))]
        m.d.comb += [maker.whole.eq(self.bus.rsp.p), maker.load.eq(load), maker.shift.eq(shift)]
        exponent = activations(self.config).word["exp"]
        word_exponent = self.bus.rsp.p[exponent.offset : exponent.offset + exponent.width]
        with m.State("LOAD"):
            m.d.sync += [source.eq(view.source), vectors.eq(view.vectors), asked.eq(0)]
            m.next = "ASK"
        with m.State("ASK"):
            m.d.comb += [
                request.valid.eq(~asked),
                request.p.region.eq(Mux(view.narrow, RegionId.NARROW, RegionId.WIDE)),
                request.p.addr.eq(source),
                self.bus.rsp.ready.eq(load),
            ]
            m.d.sync += [lanes.eq(view.lanes), high.eq(0), load.eq(self.bus.rsp.valid & ~load)]
            with m.If(request.valid & request.ready):
                m.d.sync += asked.eq(1)
            with m.If(load):
                m.d.sync += [asked.eq(0), source.eq(source + 1), vectors.eq(vectors - 1)]
                m.d.sync += parts.exponent.eq(word_exponent)
                m.next = "EMIT"
                with m.If(view.narrow):
                    m.next = "HEAD"
        with m.State("HEAD"):
            m.d.comb += [self.results.valid.eq(1), self.results.payload.eq(parts.exponent.as_signed())]
            with m.If(self.results.ready):
                m.next = "EMIT"
        with m.State("EMIT"):
            m.d.comb += [
                self.results.valid.eq(1),
                self.results.payload.eq(maker.first.word_select(high, 8)),
            ]
            with m.If(self.results.ready):
                m.d.sync += high.eq(double & ~high)
                with m.If(high | ~double):
                    m.d.sync += [lanes.eq(lanes - 1), shift.eq(1)]
                    m.next = "PASS"
        with m.State("PASS"):
            m.d.sync += shift.eq(0)
            m.next = "EMIT"
            with m.If(lanes == 0):
                m.next = "ASK"
                with m.If(vectors == 0):
                    m.next = "FETCH"
