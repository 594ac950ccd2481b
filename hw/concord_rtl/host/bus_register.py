"""Registers on the way of requests from message processor to core."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord_rtl.host.bus import HostBus


class BusRegister(wiring.Component):
    """Keeps a request while the core carries it out: neither request nor ``ready`` passes without a register.

    The memories that a request goes to are all over the device. A request arrives ``LATENCY`` cycles later and is
    released ``LATENCY`` cycles after it has been taken; one at a time. Answers pass at once.

    Parameters
    ----------
    config : NpuConfig
        Gives the widths.

    Members
    -------
    i : In(HostBus)
        From the message processor.
    o : Out(HostBus)
        To the core.
    """

    i: Any
    o: Any

    LATENCY = 1

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({"i": In(HostBus(config)), "o": Out(HostBus(config))})

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
