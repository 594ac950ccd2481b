"""The core's side of the host bus: accesses to memories and registers."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId, regions

from .bus import ADDR_BITS, HostBus, word_bits


class HostPort(wiring.Component):
    """Turns bus requests into strobes and waits until the memory's port is free.

    One access at a time; a write takes two cycles. Regions are numbered by ``RegionId``.

    Parameters
    ----------
    config : NpuConfig
    latency : int
        Cycles from ``read`` to the word of a vector memory, which is there only then.
    settle : int
        Cycles from ``read`` to the word, at the most, in the regions that keep it until the access is over.

    Members
    -------
    bus : In(HostBus)
        From the message processor.
    region : Out
        Region of the access that is going on.
    active : Out(1)
        There is one.
    addr, data : Out
        Its address and, for a write, its word; stable until the access is over.
    write : Out
        One bit per region: the write takes place in this cycle.
    read : Out
        One bit per region: the address is presented in this cycle.
    write_free, read_free : In
        One bit per region: the access may take place in this cycle.
    answer : In
        The word, as chosen by ``region``.
    """

    def __init__(self, config: NpuConfig, *, latency: int, settle: int):
        if settle < latency:
            raise ValueError(f"settle must be at least latency={latency}, not {settle!r}")
        self.config = config
        self.latency = latency
        self.settle = settle
        count, bits = len(RegionId), word_bits(config)
        super().__init__(
            {
                "bus": In(HostBus(config)),
                "region": Out(range(count)),
                "active": Out(1),
                "addr": Out(ADDR_BITS),
                "data": Out(bits),
                "write": Out(count),
                "read": Out(count),
                "write_free": In(count),
                "read_free": In(count),
                "answer": In(bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, reply = self.bus.req, self.bus.rsp
        count = Signal(range(self.settle + 1))
        exact = sum(1 << region.id for region in regions(self.config).values() if region.id in VECTOR_REGIONS)
        m.d.comb += [
            self.region.eq(request.p.region),
            self.addr.eq(request.p.addr),
            self.data.eq(request.p.data),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.active.eq(fsm.ongoing("ACCESS") | fsm.ongoing("WAIT"))
            with m.State("IDLE"):
                with m.If(request.valid):
                    m.next = "ACCESS"
            with m.State("ACCESS"):
                with m.If(request.p.write):
                    with m.If(self.write_free.bit_select(request.p.region, 1)):
                        m.d.comb += [request.ready.eq(1), self.write.eq(1 << request.p.region)]
                        m.next = "IDLE"
                with m.Elif(self.read_free.bit_select(request.p.region, 1)):
                    m.d.comb += self.read.eq(1 << request.p.region)
                    vector = Const(exact, len(RegionId)).bit_select(request.p.region, 1)
                    m.d.sync += count.eq(Mux(vector, self.latency, self.settle))
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += count.eq(count - 1)
                with m.If(count == 1):
                    m.d.comb += request.ready.eq(1)
                    m.d.sync += reply.p.eq(self.answer)
                    m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += reply.valid.eq(1)
                with m.If(reply.ready):
                    m.next = "IDLE"
        return m


#: Regions whose read port is shared with the chain pipe.
VECTOR_REGIONS = (RegionId.NARROW, RegionId.WIDE)
