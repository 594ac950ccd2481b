"""Elements of a row that sliding depthwise products use again."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord_rtl.arith.block_float import activations


class WindowRegisters(wiring.Component):
    """The last elements of one channel, and a copy of them that stays while others come in.

    Latency 1 from ``copy`` to ``o``.

    Parameters
    ----------
    config : NpuConfig
        Configuration with ``window_taps``.

    Members
    -------
    i : In(signed(act_mant))
        Element.
    push : In(1)
        ``i`` goes into place 0, all others move on.
    copy : In(1)
        The places, as they are before this cycle, are copied.
    o : Out(ArrayLayout(signed(act_mant), window_taps))
        The copy.
    """

    i: Signal
    push: Signal
    copy: Signal
    o: data.View

    def __init__(self, config: NpuConfig):
        self.config = config
        code = activations(config).code
        super().__init__(
            {"i": In(code), "push": In(1), "copy": In(1), "o": Out(data.ArrayLayout(code, config.window_taps))}
        )

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
