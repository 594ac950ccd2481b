"""Elements of a row that sliding depthwise products use again."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord_rtl.arith.block_float import activations
from concord_rtl.parts.component import Input, NpuUnit, Output


class WindowRegisters(NpuUnit):
    """The last elements of one channel, and a copy of them that stays while others come in.

    Latency 1 from ``copy`` to ``o``.

    Parameters
    ----------
    config : NpuConfig
        Configuration with ``window_taps``.
    """

    i = Input(lambda self: activations(self.config).code, "Element.")
    push = Input(1, "``i`` goes into place 0, all others move on.")
    copy = Input(1, "The places, as they are before this cycle, are copied.")
    o = Output(lambda self: data.ArrayLayout(activations(self.config).code, self.config.window_taps), "The copy.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        places = Signal.like(self.o.as_value(), name="places", reset_less=True)
        copied = Signal.like(places, name="copied", reset_less=True)
        with m.If(self.push):
            m.d.sync += places.eq(Cat(self.i, places))
        with m.If(self.copy):
            m.d.sync += copied.eq(places)
        m.d.comb += self.o.eq(copied)
        return m
