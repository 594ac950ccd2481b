"""Unit that collects results for the host."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.feeder import FEED_LAYOUTS, SCRIPT_WORD, FeedOp
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.isa import VECTOR_ADDR_BITS
from concord_rtl.arith.block_float import activations
from concord_rtl.host.bus import word_bits
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import shape_of, stream_of


def read_layout() -> data.StructLayout:
    """A vector that is read from narrow or wide memory."""
    return data.StructLayout({"narrow": 1, "addr": VECTOR_ADDR_BITS})


class ResultSender(NpuUnit):
    """Executes ``SEND``: elements of vectors to the outbox, byte by byte.

    An element takes a cycle for each of its bytes and one more. The vector maker takes vectors apart.

    Parameters
    ----------
    config : NpuConfig
    """

    word = Input(shape_of(SCRIPT_WORD), "Word of a script.")
    decode = Input(1, "Strobe: ``word`` is a new one.")
    reads = Output(stream_of(read_layout()), "Vectors to be read.")
    vector = Input(lambda self: stream_of(word_bits(self.config)), "What was read, one vector at a time.")
    load = Output(1, "The vector maker takes ``vector``.")
    shift = Output(1, "The vector maker passes to its next element.")
    narrow = Output(1, "The vector is one of narrow memory.")
    element = Input(BINARY16_WIDTH, "The element that the vector maker is at.")
    results = Output(stream_of(8), "Bytes for the outbox.")
    done = Output(1, "Strobe: the last byte is in the outbox.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        send = data.View(shape_of(FEED_LAYOUTS[FeedOp.SEND]), self.word.as_value())
        vectors, lanes = Signal(send.vectors.shape()), Signal(send.lanes.shape())
        source = Signal(VECTOR_ADDR_BITS)
        exponent = Signal(self.config.act_exp_width)
        high, asked = Signal(), Signal()
        double = Signal()  # elements have two bytes
        field = activations(self.config).word["exp"]
        m.d.comb += [
            self.narrow.eq(send.narrow),
            double.eq(~send.narrow | (self.config.mantissa_bytes > 1)),
            self.reads.p.narrow.eq(send.narrow),
            self.reads.p.addr.eq(source),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.decode & (self.word.op == FeedOp.SEND)):
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += [source.eq(send.source), vectors.eq(send.vectors), asked.eq(0)]
                m.next = "ASK"
            with m.State("ASK"):
                # ``load`` is a register, because what it moves is wide and its memories are far away
                m.d.comb += [self.reads.valid.eq(~asked), self.vector.ready.eq(self.load)]
                m.d.sync += [lanes.eq(send.lanes), high.eq(0), self.load.eq(self.vector.valid & ~self.load)]
                with m.If(self.reads.valid & self.reads.ready):
                    m.d.sync += asked.eq(1)
                with m.If(self.load):
                    m.d.sync += [asked.eq(0), source.eq(source + 1), vectors.eq(vectors - 1)]
                    m.d.sync += exponent.eq(self.vector.p[field.offset : field.offset + field.width])
                    m.next = "EMIT"
                    with m.If(send.narrow):
                        m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [self.results.valid.eq(1), self.results.p.eq(exponent.as_signed())]
                with m.If(self.results.ready):
                    m.next = "EMIT"
            with m.State("EMIT"):
                m.d.comb += [self.results.valid.eq(1), self.results.p.eq(self.element.word_select(high, 8))]
                with m.If(self.results.ready):
                    m.d.sync += high.eq(double & ~high)
                    with m.If(high | ~double):
                        m.d.sync += [lanes.eq(lanes - 1), self.shift.eq(1)]
                        m.next = "PASS"
            with m.State("PASS"):
                m.d.sync += self.shift.eq(0)
                m.next = "EMIT"
                with m.If(lanes == 0):
                    m.next = "ASK"
                    with m.If(vectors == 0):
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
        return m
