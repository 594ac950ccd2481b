"""Registers on the way of requests from message processor to core."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord_rtl.host.bus import HostBus
from concord_rtl.parts.component import Input, NpuUnit, Output


class BusRegister(NpuUnit):
    """Keeps a request while the core carries it out: neither request nor ``ready`` passes without a register.

    The memories that a request goes to are all over the device. A request arrives ``LATENCY`` cycles later and is
    released ``LATENCY`` cycles after it has been taken; one at a time. Answers pass at once.

    Parameters
    ----------
    config : NpuConfig
        Gives the widths.
    """

    i = Input(lambda self: HostBus(self.config), "From the message processor.")
    o = Output(lambda self: HostBus(self.config), "To the core.")

    LATENCY = 1

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        request, kept = self.i.req, self.o.req
        m.d.sync += request.ready.eq(kept.valid & kept.ready)
        with m.If(~kept.valid):
            m.d.sync += [kept.p.eq(request.p), kept.valid.eq(request.valid & ~request.ready)]
        with m.Elif(kept.ready):
            m.d.sync += kept.valid.eq(0)
        wiring.connect(m, wiring.flipped(self.o.rsp), wiring.flipped(self.i.rsp))
        return m
