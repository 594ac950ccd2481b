"""The core's side of the host bus: accesses to memories and registers."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId, core_span, regions
from concord.spec.operations import Op
from concord_rtl.host.bus import ADDR_BITS, HostBus, word_bits
from concord_rtl.memories.vector_access import VectorAccess
from concord_rtl.parts.component import Component, Input, Output


class HostPort(Component):
    """Turns bus requests into strobes and waits until the memory's port is free.

    One access at a time; a write takes three cycles. Regions are numbered by ``RegionId``. Copies of vectors go before
    the host.

    Parameters
    ----------
    config : NpuConfig
    latency : int
        Cycles from the read to the word of a vector memory, which is there only then.
    settle : int
        Cycles from the read to the word, at the most, in the regions that keep it until the access is over.
    """

    bus = Input(lambda self: HostBus(self.config), "From the message processor.")
    region = Output(lambda self: range(core_span(self.config)), "Region of the access that is going on.")
    chosen = Output(lambda self: core_span(self.config), "The same, one bit per region; none when there is no access.")
    addr = Output(ADDR_BITS, "Address of the access, stable until it is over.")
    data = Output(lambda self: word_bits(self.config), "Word of a write, likewise.")
    write = Output(lambda self: core_span(self.config), "One bit per region: the write takes place in this cycle.")
    write_free = Input(lambda self: core_span(self.config), "One bit per region: a write may take place in this cycle.")
    read_free = Input(lambda self: core_span(self.config), "One bit per region: a read may take place in this cycle.")
    answer = Input(lambda self: word_bits(self.config), "The word, as chosen by ``region``.")
    vectors = Input(
        lambda self: VectorAccess(self.config),
        "Copies of vectors. Only with an external memory.",
        when=lambda self: self.config.has(Op.V_COPY),
    )

    def __init__(self, config: NpuConfig, *, latency: int, settle: int):
        if settle < latency:
            raise ValueError(f"settle must be at least latency={latency}, not {settle!r}")
        self.config = config
        self.latency = latency
        self.settle = settle
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        request, reply = self.bus.req, self.bus.rsp
        count = Signal(range(self.settle + 1))
        strobe = Signal.like(self.chosen)  # like ``chosen``, while a write waits: regions are all over the device
        exact = sum(1 << region.id for region in regions(self.config).values() if region.id in VECTOR_REGIONS)
        m.d.comb += [
            self.region.eq(request.p.region),
            self.addr.eq(request.p.addr),
            self.data.eq(request.p.data),
        ]
        written = strobe & self.write_free
        m.d.comb += self.write.eq(written)
        is_written, is_free = self.write.any(), self.read_free.bit_select(request.p.region, 1)
        if self.config.has(Op.V_COPY):
            held = self._copies(m)
            is_written, is_free = written.any() & ~held, is_free & ~held
        region = 1 << request.p.region
        with m.FSM():
            with m.State("IDLE"):
                with m.If(request.valid):
                    m.d.sync += [self.chosen.eq(region), strobe.eq(Mux(request.p.write, region, 0))]
                    m.next = "WRITE"
                    with m.If(~request.p.write):
                        m.next = "READ"
            with m.State("WRITE"):
                with m.If(is_written):
                    m.d.sync += [self.chosen.eq(0), strobe.eq(0)]
                    m.next = "WRITTEN"
            with m.State("WRITTEN"):
                m.d.comb += request.ready.eq(1)
                m.next = "IDLE"
            with m.State("READ"):
                with m.If(is_free):
                    vector = Const(exact, len(self.chosen)).bit_select(request.p.region, 1)
                    m.d.sync += count.eq(Mux(vector, self.latency, self.settle))
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += count.eq(count - 1)
                with m.If(count == 1):
                    m.d.comb += request.ready.eq(1)
                    m.d.sync += [reply.p.eq(self.answer), self.chosen.eq(0)]
                    m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += reply.valid.eq(1)
                with m.If(reply.ready):
                    m.next = "IDLE"
        return m

    def _copies(self, m: Module) -> Value:
        """Copies of vectors in the place of the host, which waits; returns a bit that is set as long as it does."""
        vectors = self.vectors
        region = Mux(vectors.mem, RegionId.WIDE, RegionId.NARROW)
        with m.If(vectors.busy):
            m.d.comb += self.write.eq(vectors.write << region)
        with m.If(vectors.owns):
            m.d.comb += [self.region.eq(region), self.addr.eq(vectors.addr), self.data.eq(vectors.data)]
        m.d.comb += vectors.word.eq(self.answer)
        return vectors.busy


#: Regions whose read port is shared with the chain pipe.
VECTOR_REGIONS = (RegionId.NARROW, RegionId.WIDE)
