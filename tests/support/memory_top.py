"""A message processor with plain memories behind its bus: the smallest design that a host can talk to."""

from amaranth import Cat, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import SPEC_VERSION
from concord.spec.memmap import MAGIC, Reg, RegionId, regions
from concord_rtl.link.message_processor import MessageProcessor


class MemoryTop(wiring.Component):
    """Regions are memories; REGS holds the constants; starting a "run" makes it busy for ``pc`` cycles."""

    def __init__(self, config):
        self.config = config
        super().__init__({"rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.messages = messages = MessageProcessor(self.config)
        wiring.connect(m, wiring.flipped(self.rx), messages.rx)
        wiring.connect(m, messages.tx, wiring.flipped(self.tx))
        req, rsp = messages.bus.req, messages.bus.rsp
        waiting, answer = Signal(2), Signal.like(rsp.payload)
        remaining, done = Signal(16), Signal()
        m.d.comb += [messages.busy.eq(remaining != 0), messages.status.eq(Cat(messages.busy, done))]
        with m.If(remaining != 0):
            m.d.sync += [remaining.eq(remaining - 1), done.eq(remaining == 1)]
        m.d.comb += [req.ready.eq(waiting == 0), rsp.payload.eq(answer)]

        for region in regions(self.config).values():
            if region.id == RegionId.REGS:
                continue
            mem = m.submodules[region.id.name] = memory.Memory(shape=region.word.width, depth=region.depth, init=[])
            write, read = mem.write_port(), mem.read_port()
            chosen = req.p.region == region.id
            m.d.comb += [write.addr.eq(req.p.addr), write.data.eq(req.p.data), read.addr.eq(req.p.addr)]
            m.d.comb += write.en.eq(req.valid & req.ready & req.p.write & chosen)
            with m.If((waiting == 1) & chosen):
                m.d.sync += answer.eq(read.data)

        with m.If(req.valid & req.ready):
            m.d.sync += waiting.eq(~req.p.write)
            with m.If(req.p.write & (req.p.region == RegionId.REGS) & req.p.data[0]):
                m.d.sync += [remaining.eq(req.p.data[16:]), done.eq(0)]
        # The message processor keeps region and address until the answer was taken.
        fingerprint = self.config.fingerprint
        constants = {
            Reg.MAGIC: MAGIC,
            Reg.VERSION: SPEC_VERSION,
            Reg.FINGERPRINT: fingerprint & 0xFFFF_FFFF,
            Reg.FINGERPRINT_HIGH: fingerprint >> 32,
            Reg.STATUS: messages.status,
            Reg.LINK_ERRORS: messages.errors,
        }
        address, is_register = Signal.like(req.p.addr), Signal()
        with m.If(req.valid & req.ready):
            m.d.sync += [address.eq(req.p.addr), is_register.eq(req.p.region == RegionId.REGS)]
        with m.If(waiting == 1):
            m.d.sync += waiting.eq(2)
            with m.If(is_register):
                m.d.sync += answer.eq(0)
                with m.Switch(address):
                    for reg, value in constants.items():
                        with m.Case(reg):
                            m.d.sync += answer.eq(value)
        m.d.comb += rsp.valid.eq(waiting == 2)
        with m.If(rsp.valid & rsp.ready):
            m.d.sync += waiting.eq(0)
        return m
