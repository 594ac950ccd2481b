"""Elements to native vectors."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.isa import VECTOR_ADDR_BITS
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE
from concord_rtl.arith.block_float import BLOCK, FIELD_BITS, finite
from concord_rtl.feeder.element_reader import ElementReader
from concord_rtl.host.bus import word_bits
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.vector.block_converter import BlockConverter


def store_layout(config: NpuConfig) -> data.StructLayout:
    """A native vector on its way to a vector memory."""
    return data.StructLayout({"wide": 1, "addr": VECTOR_ADDR_BITS, "data": word_bits(config)})


class VectorMaker(NpuUnit):
    """Collects the elements of a vector and makes a word of them; takes vectors apart as well.

    An element is put in all lanes from its own on, so that the last one is in those without an element. Elements of the
    next vector may come from the second cycle after ``finish`` on. A vector that is converted is played
    :func:`concord.spec.timing.feeder_beats` cycles, and is on ``o`` some cycles later, the next one being played.

    Parameters
    ----------
    config : NpuConfig
    """

    push = Input(1, "Take ``element``.")
    lane = Input(lambda self: range(self.config.native), "The lane from which on it is.")
    element = Input(BINARY16_WIDTH, "A binary16 number, or a mantissa.")
    finish = Input(
        1,
        "All elements were pushed: make a word, as ``wide``, ``blocks`` and ``exp`` say. It was ``ready`` ``NOTICE``"
        " cycles ago or more, and nothing was finished since.",
    )
    wide = Input(1, "The word is of wide memory, and else of numbers or mantissas; held until ``idle``.")
    blocks = Input(
        1, "The word of narrow memory is made of mantissas, with the exponent ``exp``; else of numbers. Held."
    )
    exp = Input(lambda self: self.config.act_exp_width, "Exponent of a word that is made of mantissas.")
    addr = Input(VECTOR_ADDR_BITS, "Where the next word goes: another address from the cycle behind ``made`` on.")
    made = Output(1, "Strobe: a word has come to ``o``.")
    ready = Output(1, "A vector can be finished ``NOTICE`` cycles later.")
    idle = Output(1, "Nothing is left to do.")
    load = Input(1, "Take the vector ``whole``.")
    narrow = Input(1, "``whole`` is of narrow memory: its mantissas are taken.")
    whole = Input(lambda self: self.config.wide_word.width, "A vector to take apart.")
    shift = Input(1, "Pass to its next element.")
    first = Output(BINARY16_WIDTH, "The element.")
    o = Output(lambda self: stream_of(store_layout(self.config)), "Words.")

    #: Cycles from ``ready`` to ``finish`` at the least.
    NOTICE = ElementReader.CLOSING

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        # What is as wide as a vector has no reset, which would have to reach all of it in a cycle.
        collected: Any = Signal(data.ArrayLayout(BINARY16_WIDTH, config.native), reset_less=True)
        for lane in range(config.native):
            with m.If(self.push & (self.lane <= lane)):
                m.d.sync += collected[lane].eq(self.element)
        mantissas = Cat(Cat(element[: config.act_mant] for element in collected), self.exp)
        converts = Signal()
        m.d.sync += converts.eq(~self.wide & ~self.blocks)
        done, converted, playing = self._convert(m, collected, converts)
        unsent, remain = Signal(range(3)), Signal(range(3))  # vectors that were finished, and whose words have not gone
        gone = Signal()
        m.d.comb += gone.eq(self.o.valid & self.o.ready)
        m.d.comb += [remain.eq(unsent + self.finish - gone), self.idle.eq(unsent == 0)]
        m.d.sync += [unsent.eq(remain), self.ready.eq(Mux(converts, ~playing & (remain != 2), remain == 0))]

        waiting, waits = Signal.like(converted, reset_less=True), Signal()  # a word that finds another one on ``o``
        offered: Any = Signal(store_layout(config), reset_less=True)
        m.d.comb += self.o.p.eq(offered)
        with m.If(done):
            m.d.sync += [waiting.eq(converted), waits.eq(1)]
        with m.If(gone):
            m.d.sync += self.o.valid.eq(0)
        made = Signal()  # not for ``o.ready`` in its cycle, which has come a long way and would go to a whole word
        m.d.comb += made.eq(Mux(converts, (done | waits) & ~self.o.valid, self.finish))
        m.d.sync += self.made.eq(made)
        with m.If(made):
            word = Mux(converts, Mux(waits, waiting, converted), Mux(self.wide, collected.as_value(), mantissas))
            m.d.sync += [self.o.valid.eq(1), waits.eq(0)]
            m.d.sync += [offered.data.eq(word), offered.wide.eq(self.wide), offered.addr.eq(self.addr)]
        return m

    def _convert(self, m, collected, converts):
        """Play the elements of vectors, each lane an equal part of them; returns when a word is there, the word, and
        whether more than ``NOTICE`` + 1 beats are left in the next cycle."""
        config = self.config.replace(mfu_lanes=timing.feeder_lanes(self.config), stochastic=False)
        lanes, beats = config.mfu_lanes, config.beats
        vector: Any = Signal(data.ArrayLayout(BINARY16_WIDTH, config.native), reset_less=True)  # that is taken apart
        left, playing = Signal(range(beats + 1)), Signal()
        moves = Signal()  # elements are left
        m.d.comb += self.first.eq(vector[0])
        with m.If(self.shift | moves):
            m.d.sync += vector.eq(vector.as_value()[BINARY16_WIDTH:])
        with m.If(moves):
            m.d.sync += [left.eq(left - 1), moves.eq(left != 1)]
        m.d.comb += playing.eq(left > self.NOTICE + 2)
        with m.If(self.finish):
            m.d.comb += playing.eq(beats > self.NOTICE + 1)
            m.d.sync += [vector.eq(collected), left.eq(Mux(converts, beats, 0)), moves.eq(converts)]
        with m.If(self.load):
            size = config.act_mant
            parts = [self.whole[n * size : (n + 1) * size] for n in range(config.native)]
            mantissas = Cat(Cat(part, part[-1].replicate(BINARY16_WIDTH - size)) for part in parts)
            m.d.sync += vector.eq(Mux(self.narrow, mantissas, self.whole))

        m.submodules.converter = converter = BlockConverter(config)
        first = delay(m, self.finish & converts, timing.FEEDER_PLAY, "first", reset_less=False)
        m.d.comb += [converter.first.eq(first), converter.block.eq(self._block(m, converter.format, first))]
        m.d.comb += [converter.i[p].eq(register(m, finite(vector[p * beats]), f"lane_{p}")) for p in range(lanes)]
        mant = converter.word.mant
        word = Cat(Cat(mant[k * lanes + p] for p in range(lanes) for k in range(beats)), converter.word.exp)
        return converter.done, word, playing

    def _block(self, m, format, last):
        """The block of the vector that was finished ``FEEDER_PLAY`` cycles before ``last``, for later cycles."""
        field = register(m, finite(self.element)[FRACTION:MAGNITUDE], "field")
        begins = register(m, self.lane == 0, "begins")
        peak = Signal(FIELD_BITS)
        before = Mux(begins, self.config.act_exp_min + format.offset, peak)
        with m.If(delay(m, self.push, 1, "pushed", reset_less=False)):
            m.d.sync += peak.eq(Mux(before < field, field, before))
        block: Any = Signal(BLOCK)  # with a dynamic exponent, rounded to nearest even
        with m.If(last):
            m.d.sync += block.base.eq(peak)
        return block
