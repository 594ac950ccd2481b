"""Counters of updates for the host."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.integers import UPDATE_COUNTERS
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.stages import register


class UpdateCounters(NpuUnit):
    """Counts refused and vanished updates of elements, and parameters that have grown, until the host sets them.

    A word of the host is there a cycle after its address.

    Parameters
    ----------
    config : NpuConfig
    """

    refused = Input(lambda self: range(self.config.mfu_lanes + 1), "Further ones.")
    vanished = Input(lambda self: range(self.config.mfu_lanes + 1), "Likewise.")
    grown = Input(1, "Likewise.")
    addr = Input(range(len(UPDATE_COUNTERS)), "Counter that the host reads or writes.")
    data = Output(32, "Its value.")
    w_en = Input(1, "Set it.")
    w_data = Input(32, "The value that it gets.")

    HOST_LATENCY = 1

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        counts = []
        for k, name in enumerate(UPDATE_COUNTERS):
            count = Signal(32, name=name)
            with m.If(self.w_en & (self.addr == k)):
                m.d.sync += count.eq(self.w_data)
            with m.Else():
                m.d.sync += count.eq(count + getattr(self, name))
            counts.append(count)
        m.d.comb += self.data.eq(register(m, Array(counts)[self.addr], "answer"))
        return m
