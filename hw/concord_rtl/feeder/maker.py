"""Elements to native vectors."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.isa import VECTOR_ADDR_BITS
from concord_rtl.host.bus import word_bits
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.vector.quantizer import Quantizer


def store_layout(config: NpuConfig) -> data.StructLayout:
    """A native vector on its way to a vector memory."""
    return data.StructLayout({"wide": 1, "addr": VECTOR_ADDR_BITS, "data": word_bits(config)})


class VectorMaker(NpuUnit):
    """Collects the elements of a vector, element 0 first, and makes a word of them; takes vectors apart as well.

    One element per cycle. A vector that is converted plays N cycles, in which no element may come, and is on ``o`` some
    cycles after them; the next one can be collected meanwhile.

    Parameters
    ----------
    config : NpuConfig
    """

    push = Input(1, "Take ``element``.")
    element = Input(BINARY16_WIDTH, "A binary16 number, or a mantissa.")
    finish = Input(
        1,
        "N elements were pushed: make a word, as ``wide``, ``blocks`` and ``exp`` say; only if ``ready``.",
    )
    wide = Input(1, "The word is of wide memory.")
    blocks = Input(1, "The word of narrow memory is made of mantissas, with the exponent ``exp``; else of numbers.")
    exp = Input(lambda self: self.config.act_exp_width, "Exponent of a word that is made of mantissas.")
    addr = Input(VECTOR_ADDR_BITS, "Where the word goes.")
    ready = Output(1, "A vector can be finished.")
    playing = Output(1, "No element may be pushed.")
    idle = Output(1, "Nothing is left to do.")
    load = Input(1, "Take the vector ``whole``.")
    narrow = Input(1, "``whole`` is of narrow memory: its mantissas are taken.")
    whole = Input(lambda self: self.config.wide_word.width, "A vector to take apart.")
    shift = Input(1, "Pass to its next element.")
    first = Output(BINARY16_WIDTH, "The element.")
    latest = Output(BINARY16_WIDTH, "The element that was pushed last.")
    o = Output(lambda self: stream_of(store_layout(self.config)), "Words.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        one_lane = config.replace(mfu_lanes=1, stochastic=False)
        m.submodules.quantizer = quantizer = Quantizer(one_lane)
        vector: Any = Signal(data.ArrayLayout(BINARY16_WIDTH, config.native))
        converting = Signal()
        left = Signal(range(config.native + 1))
        begun = Signal()
        taken = Signal()  # ``latest`` is not in the vector yet
        m.d.sync += taken.eq(self.push)
        with m.If(self.push):
            m.d.sync += self.latest.eq(self.element)
        m.d.comb += [
            self.first.eq(vector[0]),
            self.ready.eq(~self.playing & ~converting & ~self.o.valid & ~taken),
            self.idle.eq(self.ready),
            quantizer.i[0].eq(vector[0]),
            quantizer.valid.eq(self.playing),
            quantizer.first.eq(self.playing & ~begun),
        ]
        with m.If(taken | self.shift | self.playing):
            m.d.sync += vector.eq(Cat(vector.as_value()[BINARY16_WIDTH:], Mux(taken, self.latest, 0)))
        with m.If(self.load):
            size = config.act_mant
            parts = [self.whole[n * size : (n + 1) * size] for n in range(config.native)]
            mantissas = Cat(Cat(part, part[-1].replicate(BINARY16_WIDTH - size)) for part in parts)
            m.d.sync += vector.eq(Mux(self.narrow, mantissas, self.whole))

        blocks = Cat(Cat(element[: config.act_mant] for element in vector), self.exp)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.finish):
            m.d.sync += [self.o.p.wide.eq(self.wide), self.o.p.addr.eq(self.addr)]
            m.d.sync += [self.o.p.data.eq(Mux(self.wide, vector.as_value(), blocks)), begun.eq(0)]
            with m.If(self.wide | self.blocks):
                m.d.sync += self.o.valid.eq(1)
            with m.Else():
                m.d.sync += [self.playing.eq(1), converting.eq(1), left.eq(config.native)]
        with m.If(self.playing):
            m.d.sync += [left.eq(left - 1), self.playing.eq(left != 1), begun.eq(1)]
        with m.If(quantizer.done):
            m.d.sync += [self.o.p.data.eq(quantizer.word), self.o.valid.eq(1), converting.eq(0)]
        return m
