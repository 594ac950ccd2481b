"""Registers between the two sides of a stream."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class RegisterSlice(Component):
    """Cuts a stream: nothing of one side reaches the other in the same cycle, neither payload nor ``ready``.

    Throughput one transfer per cycle, latency 1. Holds two transfers: the one that was on its way when the receiver
    stopped stays behind.

    Parameters
    ----------
    shape : shape
        Payload.
    """

    i = Input(lambda self: stream_of(self.shape), "Side of the producer.")
    o = Output(lambda self: stream_of(self.shape), "Side of the consumer.")

    LATENCY = timing.REGISTER_SLICE

    def __init__(self, shape):
        self.shape = shape
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        kept, empty = Signal(self.shape, reset_less=True), Signal(init=1)
        free = ~self.o.valid | self.o.ready
        m.d.comb += self.i.ready.eq(empty)
        with m.If(empty):
            m.d.sync += kept.eq(self.i.p)
        with m.If(free):
            m.d.sync += [
                self.o.valid.eq(self.i.valid | ~empty),
                self.o.p.eq(Mux(empty, self.i.p, kept)),
                empty.eq(1),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += empty.eq(0)
        return m
