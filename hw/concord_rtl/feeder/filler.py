"""Unit that lays out an input."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.feeder import CODE_PAGE, CODE_PAGE_BITS, FEED_LAYOUTS, SCRIPT_WORD, FeedOp
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.isa import VECTOR_ADDR_BITS
from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.feeder.element_reader import ElementReader
from concord_rtl.feeder.pointers import pointer_bits
from concord_rtl.feeder.walker import FeedWalker
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import delay


class Filler(NpuUnit):
    """Executes ``FILL``: has the vectors of an input made, and lets the input go.

    Knows of the inbox how far it is filled. The element reader collects the elements of a vector, the vector maker
    makes a word of them.

    Parameters
    ----------
    config : NpuConfig
    """

    word = Input(shape_of(SCRIPT_WORD), "Word of a script.")
    decode = Input(1, "Strobe: ``word`` is a new one.")
    tail = Input(lambda self: pointer_bits(self.config), "Behind the last byte of the inbox.")
    base = Output(lambda self: pointer_bits(self.config), "First byte of the input.")
    released = Output(lambda self: pointer_bits(self.config), "First byte that is still needed.")
    inbox_addr = Output(lambda self: pointer_bits(self.config) - 1, "Address in the inbox.")
    inbox_data = Input(8, "Its byte, two cycles later.")
    code_addr = Output(lambda self: range(self.config.code_pages * CODE_PAGE), "Address in the code book.")
    code = Input(BINARY16_WIDTH, "Its number, two cycles later.")
    push = Output(1, "Strobe: the vector maker takes ``element`` for ``lane``, and for those behind it.")
    lane = Output(lambda self: range(self.config.native), "Number of the element in its vector.")
    element = Output(BINARY16_WIDTH, "A binary16 number, or a mantissa.")
    finish = Output(1, "Strobe: it makes a word of the vector.")
    wide = Output(1, "The word is one of wide memory.")
    blocks = Output(1, "Elements are mantissas.")
    exp = Output(lambda self: self.config.act_exp_width, "Their exponent.")
    addr = Output(VECTOR_ADDR_BITS, "Where the next word goes that is made.")
    ready = Input(1, "The vector maker can finish a vector, ``ElementReader.CLOSING`` cycles from now.")
    made = Input(1, "Strobe: the word at ``addr`` was made.")
    idle = Input(1, "The vector maker has nothing left to do.")
    starving = Output(1, "Nothing can be done until more bytes come.")
    done = Output(1, "Strobe: all vectors are in their memory, and all bytes of the input have come.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.walker = walker = FeedWalker(self.config)
        m.submodules.reader = reader = ElementReader(self.config)
        target: Any = Signal(shape_of(FEED_LAYOUTS[FeedOp.TARGET]))
        page = Signal(CODE_PAGE_BITS)  # of the element whose byte is asked for
        with m.If(reader.step):
            m.d.sync += page.eq(target.page + Mux(target.paged, walker.channel, 0))
        m.d.comb += [
            walker.word.eq(self.word),
            walker.set.eq(self.decode),
            walker.base.eq(self.base),
            walker.double.eq(target.double),
            self.wide.eq(target.wide),
            self.blocks.eq(target.blocks),
            self.addr.eq(target.target),
            self.code_addr.eq(Cat(self.inbox_data, delay(m, page, BlockRam.LATENCY, "page"))),
        ]
        with m.If(self.decode & (self.word.op == FeedOp.TARGET)):
            m.d.sync += target.eq(self.word.as_value())
        with m.If(self.made):
            m.d.sync += target.target.eq(target.target + 1)
        self._read(m, walker, reader, target)
        self._vectors(m, walker, reader)
        return m

    def _read(self, m, walker, reader, target):
        """Connects the element reader."""
        m.d.comb += [
            reader.blocks.eq(target.blocks),
            reader.double.eq(target.double),
            reader.coded.eq(target.coded),
            reader.at.eq(walker.at),
            reader.inside.eq(walker.inside),
            reader.final.eq(walker.final),
            reader.border.eq(walker.border),
            walker.step.eq(reader.step),
            walker.skip.eq(reader.skip),
            reader.tail.eq(self.tail),
            self.inbox_addr.eq(reader.inbox_addr),
            reader.inbox_data.eq(self.inbox_data),
            reader.code.eq(self.code),
            self.push.eq(reader.push),
            self.lane.eq(reader.lane),
            self.element.eq(reader.element),
            self.exp.eq(reader.exponent),
            self.finish.eq(reader.closed),
        ]

    def _vectors(self, m, walker, reader):
        """Vector after vector, window after window, and the end of the input."""
        fill = data.View(shape_of(FEED_LAYOUTS[FeedOp.FILL]), self.word.as_value())
        beyond = Signal(signed(len(self.tail)))  # bytes that came after the input
        short = Signal()  # bytes of the input are missing
        holds, held = Signal(), Signal()  # the next input begins with what the next window, and this one, reads
        m.d.sync += holds.eq(walker.lines <= fill.held)
        with m.If(walker.begin):
            m.d.sync += held.eq(holds)
        settled = Signal()  # all vectors that are complete are in their memory
        m.d.comb += settled.eq(self.idle & ~reader.closing)
        m.d.comb += self.starving.eq((reader.starving | short) & settled)
        with m.If(reader.step & ~held):
            m.d.sync += self.released.eq(walker.needed)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.decode & (self.word.op == FeedOp.FILL)):
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += walker.load.eq(1)
                m.next = "LOADED"
            with m.State("LOADED"):  # the lines that are left are compared
                m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += [walker.begin.eq(1), reader.start.eq(1)]
                m.next = "COLLECT"
            with m.State("COLLECT"):
                with m.If(reader.full & ~reader.closing & self.ready):
                    m.d.comb += reader.close.eq(1)
                    with m.If(~walker.ended):
                        m.d.comb += reader.start.eq(1)
                    with m.Else():
                        m.next = "BEGIN"
                        with m.If(walker.last):
                            m.d.sync += self.base.eq(self.base + fill.advance)
                            m.next = "DROP"
            with m.State("DROP"):
                m.d.sync += beyond.eq(self.tail - self.base)
                m.next = "DROPPED"
            with m.State("DROPPED"):
                m.next = "DROP"
                m.d.sync += short.eq(beyond < 0)
                with m.If((beyond >= 0) & settled):
                    m.d.comb += self.done.eq(1)
                    m.d.sync += self.released.eq(self.base)
                    m.next = "IDLE"
