"""Check of requests before they are carried out."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.config import NpuConfig
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.link import COUNT, TARGET, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import Reg, RegionId, regions
from concord_rtl.feeder.pointers import depth_of, pointer_bits, result_bits
from concord_rtl.link.receiver import frame_layout
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import register

#: PING reads this many registers.
PING_WORDS = Reg.FINGERPRINT_HIGH + 1


class RequestChecker(Component):
    """Find the first reason to refuse a request, in the order of the numbers of :class:`concord.spec.link.Status`.

    A read of the outbox has as many words as are there, if those are fewer than it asks for.

    One exception to the order: whether the payload holds whole words, or the reply would be too long, is only known
    (and only reported as ``BAD_LENGTH``) when the region is good.

    Takes 6 cycles, and one for each bit of the size of a word.

    Parameters
    ----------
    config : NpuConfig
        Gives the regions and ``max_payload``.
    """

    start = Input(1, "Check ``frame``, which stays the same until ``done``.")
    frame = Input(lambda self: frame_layout(self.config), "The request.")
    expected = Input(8, "Expected sequence number.")
    busy = Input(1, "Whether a program runs.")
    room = Input(
        lambda self: pointer_bits(self.config),
        "Bytes that the feeder can take, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    produced = Input(
        lambda self: result_bits(self.config),
        "End of the feeder's results, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    done = Output(
        1,
        "High for one cycle; the other outputs are valid then, and all but ``status`` stay until the next ``start``.",
    )
    status = Output(8, "The first octet of the reply after the number, :data:`concord.spec.link.UNSOLICITED` left out.")
    target = Output(shape_of(TARGET), "Region and address to read or write; the first byte of a read of the outbox.")
    kept = Output(
        lambda self: result_bits(self.config),
        "Of a read of the outbox the first byte that must stay, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    words = Output(lambda self: range(self.config.max_payload + 1), "Words to read or write.")
    size = Output(lambda self: range(self.size_max + 1), "Bytes of one word.")
    length = Output(lambda self: range(self.config.max_payload + 1), "Bytes of these words.")

    def __init__(self, config: NpuConfig):
        self.config = config
        self.regions = regions(config)
        self.size_max = max(region.nbytes for region in self.regions.values())
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        access: Any = Signal(data.StructLayout({"known": 1, "denied": 1, "live": 1, "beyond": 1, "excess": 1}))
        limit = Signal.like(self.words)  # words that fit into a reply
        depth = Signal(range(max(depth_of(region, self.config) for region in self.regions.values()) + 1))
        low = self.target.addr[: len(depth)]
        after = Signal(max(len(low), len(self.words)) + 1)  # address after the last word, without the bits in `far`
        far = Signal()
        bits, addend = Signal.like(self.size), Signal.like(self.length)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    self._select(m)
                    m.next = "CLAMP"
            with m.State("CLAMP"):
                self._clamp(m)
                m.next = "LOOK_UP"
            with m.State("LOOK_UP"):
                self._look_up(m, access, depth, limit, bits)
                m.d.sync += [
                    after.eq(low + self.words),
                    far.eq(self.target.addr[len(low) :].any()),
                    addend.eq(self.words),
                    self.length.eq(0),
                ]
                m.next = "MULTIPLY"
            with m.State("MULTIPLY"):  # length = words * size, a bit of size per cycle
                m.d.sync += [access.beyond.eq(far | (after > depth)), access.excess.eq(self._count() > limit)]
                m.d.sync += [addend.eq(addend << 1), bits.eq(bits >> 1)]
                with m.If(bits[0]):
                    m.d.sync += self.length.eq(self.length + addend)
                with m.If(bits == 0):
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"

        m.d.sync += self.status.eq(Status.OK)
        for k, (status, reason) in reversed(list(enumerate(self._reasons(m, access)))):
            with m.If(register(m, reason, f"reason_{k}")):
                m.d.sync += self.status.eq(status)
        return m

    def _count(self):
        """Words to read."""
        return self.frame.args.as_value()[TARGET.width :]

    def _select(self, m):
        """Find out what is to be read or written."""
        args = self.frame.args.as_value()
        m.d.sync += self.target.eq(args)
        m.d.sync += self.words.eq(Mux(self.frame.header.kind == Kind.READ, self._count(), self.frame.words))
        with m.If(self.frame.header.kind == Kind.PING):
            m.d.sync += [self.target.region.eq(RegionId.REGS), self.target.addr.eq(Reg.MAGIC)]
            m.d.sync += self.words.eq(PING_WORDS)

    def _clamp(self, m):
        """Take no more of the outbox than there is: positions are modulo twice its size."""
        if not self.config.inbox:
            return
        bits = result_bits(self.config)
        there = Signal(bits)
        address = data.View(shape_of(OUTBOX_ADDRESS), self.target.addr)
        m.d.comb += there.eq(self.produced - address.first)
        reads = self.frame.header.kind == Kind.READ
        with m.If(reads & (self.target.region == RegionId.OUTBOX)):
            m.d.sync += [self.target.addr.eq(address.first[:bits]), self.kept.eq(address.kept)]
            with m.If(there > 1 << bits - 1):  # the first one is not there yet
                m.d.sync += self.words.eq(0)
            with m.Elif(self.words > there):
                m.d.sync += self.words.eq(there)

    def _look_up(self, m, access, depth, limit, bits):
        """Fetch what is known about the region."""
        write = self.frame.header.kind == Kind.WRITE
        control = (self.target.addr == Reg.CONTROL) & (self.words <= 1)
        m.d.sync += [access.known.eq(0), access.denied.eq(0), access.live.eq(0)]
        m.d.sync += [depth.eq(0), limit.eq(0), self.size.eq(0), bits.eq(0)]  # an unknown region is refused
        with m.Switch(self.target.region):
            for region in self.regions.values():
                with m.Case(region.id):
                    denied = Mux(write, not region.writable, not region.readable)
                    if region.id == RegionId.REGS:
                        denied = denied & ~control
                    m.d.sync += [access.known.eq(1), access.denied.eq(denied), access.live.eq(region.live)]
                    m.d.sync += [
                        depth.eq(depth_of(region, self.config)),
                        limit.eq(self.config.max_payload // region.nbytes),
                    ]
                    m.d.sync += [self.size.eq(region.nbytes), bits.eq(region.nbytes)]

    def _reasons(self, m, access):
        """Pairs of status and condition, the most important first."""
        header = self.frame.header
        ping, read, write, wait = (header.kind == kind for kind in (Kind.PING, Kind.READ, Kind.WRITE, Kind.WAIT))
        targeted = read | write
        misfit = write & (header.length < TARGET.nbytes)
        for kind, length in ((ping, 0), (read, TARGET.nbytes + COUNT.nbytes), (wait, WAIT_CYCLES.nbytes)):
            misfit = misfit | kind & (header.length != length)
        return (
            (Status.BAD_CRC, ~self.frame.good),
            (Status.TOO_LONG, header.length > self.config.max_payload),
            (Status.BAD_SEQ, ~ping & (header.seq != self.expected)),
            (Status.BAD_KIND, header.kind > max(Kind)),
            (Status.BAD_LENGTH, misfit),
            (Status.BAD_REGION, targeted & (~access.known | access.denied)),
            (Status.BAD_LENGTH, write & self.frame.partial | read & access.excess),
            (Status.BAD_ADDR, targeted & access.beyond),
            (Status.BUSY, targeted & (~access.live & self.busy | self._full(m, write))),
        )

    def _full(self, m, write):
        """The inbox has no room for the words."""
        if not self.config.inbox:
            return Const(0)
        full = Signal()
        m.d.sync += full.eq(write & (self.target.region == RegionId.INBOX) & (self.words > self.room))
        return full
