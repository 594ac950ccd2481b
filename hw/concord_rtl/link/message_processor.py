"""Byte streams to accesses on the host bus."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO

from concord.spec.config import NpuConfig, clog2
from concord.spec.link import ROOM_CYCLES, UNSOLICITED, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import RegionId
from concord_rtl.feeder.pointers import pointer_bits, result_bits
from concord_rtl.host.bus import HostBus
from concord_rtl.link.access import BusAccess
from concord_rtl.link.checker import RequestChecker
from concord_rtl.link.deframer import Deframer
from concord_rtl.link.framer import Framer
from concord_rtl.link.receiver import Receiver
from concord_rtl.link.replier import Replier
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.parts.stages import register

#: Cycles of one check of a write to the inbox, about.
CHECK_CYCLES = 8


class MessageProcessor(Component):
    """The device side of :mod:`concord.spec.link`.

    One request at a time: bytes are not taken from ``rx`` between the end of a request and the end of its reply.
    Nothing reaches ``bus`` before the whole request has been found good. Does not overlap bus requests. A write to the
    inbox waits for room as long as something is going on, for about :data:`concord.spec.link.ROOM_CYCLES` at the most.

    One byte per cycle in and out; a written or read word takes as many cycles as it has bytes, one more, and what the
    bus takes. A request costs about 25 cycles besides.

    Parameters
    ----------
    config : NpuConfig
        Gives the regions and ``max_payload``.
    buffered : bool
        Two bytes of a reply wait in front of ``tx``, where the way back of its handshake ends.
    """

    raw = Output(
        stream_of(8),
        "As ``raw`` of :class:`concord_rtl.feeder.feeder.Feeder`, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    room = Input(
        lambda self: pointer_bits(self.config),
        "As ``room`` of :class:`concord_rtl.feeder.feeder.Feeder`, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    produced = Input(
        lambda self: result_bits(self.config),
        "As ``produced`` of :class:`concord_rtl.feeder.feeder.Feeder`, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    acknowledge = Output(
        1,
        "As ``acknowledge`` of :class:`concord_rtl.feeder.feeder.Feeder`, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    acknowledged = Output(
        lambda self: result_bits(self.config),
        "As ``acknowledged`` of :class:`concord_rtl.feeder.feeder.Feeder`, if the configuration has an inbox.",
        when=lambda self: self.config.inbox,
    )
    rx = Input(stream_of(8), "Bytes from the host.")
    tx = Output(stream_of(8), "Bytes to the host.")
    bus = Output(
        lambda self: HostBus(self.config),
        "Checked accesses. Of the word of a write only the bits of the region's word are meaningful.",
    )
    busy = Input(1, "Whether a program runs: regions that are not live are then refused, and ``WAIT`` waits.")
    status = Input(
        32,
        "The register STATUS, for ``WAIT``; read byte by byte, so only bits of one byte belong together.",
    )
    errors = Output(32, "The register LINK_ERRORS: frames answered with an error since reset.")

    def __init__(self, config: NpuConfig, *, buffered: bool = True):
        self.config = config
        self.buffered = buffered
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.deframer = deframer = Deframer()
        m.submodules.receiver = receiver = Receiver(self.config)
        m.submodules.checker = checker = RequestChecker(self.config)
        m.submodules.access = access = BusAccess(self.config)
        m.submodules.replier = replier = Replier(self.config)
        m.submodules.framer = framer = Framer()
        wiring.connect(m, wiring.flipped(self.rx), deframer.i)
        wiring.connect(m, deframer.o, receiver.i)
        if self.config.inbox:
            feeding, fed = self._feed(m, receiver, checker, access)
        else:
            wiring.connect(m, receiver.body, access.i)
        wiring.connect(m, access.bus, wiring.flipped(self.bus))
        if not self.buffered:
            wiring.connect(m, replier.o, framer.i)
        else:  # between them the way back from whatever carries the bytes ends
            m.submodules.octets = octets = SyncFIFO(width=Shape.cast(replier.o.p.shape()).width, depth=2)
            wiring.connect(m, replier.o, octets.w_stream)
            wiring.connect(m, octets.r_stream, framer.i)
        wiring.connect(m, framer.o, wiring.flipped(self.tx))

        frame = receiver.frame.p
        expected = Signal(8)
        m.d.comb += [checker.frame.eq(frame), checker.expected.eq(expected), checker.busy.eq(self.busy)]
        m.d.comb += [access.target.eq(checker.target), access.words.eq(checker.words), access.size.eq(checker.size)]
        m.d.comb += [replier.header.seq.eq(frame.header.seq), replier.header.kind.eq(Status.OK)]
        reading = Signal()  # the payload of the reply comes from the bus
        waited = Signal()  # the payload of the reply is STATUS
        cycles = Signal(WAIT_CYCLES.width)  # of waiting for the program
        elapsed = register(m, cycles == frame.args.as_value()[: WAIT_CYCLES.width], "elapsed")
        checks = Signal(clog2(ROOM_CYCLES // CHECK_CYCLES) + 1)  # of a write to the inbox, while there is no room
        idle = Signal(3)  # checks in a row at which nothing was going on: between two samples that is so for a moment
        self._choose(m, replier, access, reading, waited, expected)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [reading.eq(0), waited.eq(0)]
                m.d.comb += checker.start.eq(receiver.frame.valid)
                with m.If(receiver.frame.valid):
                    m.next = "CHECK"
            if self.config.inbox:
                with m.State("ROOM"):
                    m.d.comb += checker.start.eq(1)
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(checker.done & (checker.status != Status.OK)):
                    if not self.config.inbox:
                        self._refuse(m, replier, checker.status, expected)
                        m.next = "REPLY"
                    else:
                        m.d.sync += [checks.eq(checks + 1), idle.eq(Mux(self.busy, 0, idle + 1))]
                        m.next = "ROOM"
                        over = ~self.busy & idle.all() | checks[-1]
                        full = (checker.status == Status.BUSY) & (checker.target.region == RegionId.INBOX)
                        with m.If(~full | over):
                            self._refuse(m, replier, checker.status, expected)
                            m.next = "REPLY"
                with m.Elif(checker.done):
                    m.d.sync += expected.eq(frame.header.seq + 1)
                    m.next = "READ"
                    with m.If(frame.header.kind == Kind.WRITE):
                        m.next = "WRITE"
                        if self.config.inbox:
                            with m.If(checker.target.region == RegionId.INBOX):
                                m.next = "FEED"
                    with m.If(frame.header.kind == Kind.WAIT):
                        m.next = "WAIT"
            with m.State("READ"):
                m.d.comb += [replier.start.eq(1), replier.header.length.eq(checker.length)]
                m.d.sync += reading.eq(1)
                m.next = "REPLY"
            with m.State("WRITE"):
                m.d.comb += [access.run.eq(1), access.write.eq(1), replier.start.eq(access.done)]
                with m.If(access.done):
                    m.next = "REPLY"
            if self.config.inbox:
                with m.State("FEED"):
                    m.d.comb += [feeding.eq(1), replier.start.eq(fed)]
                    with m.If(fed):
                        m.next = "REPLY"
            with m.State("WAIT"):
                self._wait(m, replier, cycles, elapsed)
                m.d.sync += waited.eq(1)
                with m.If(replier.start):
                    m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += [access.run.eq(reading), receiver.frame.ready.eq(replier.done)]
                m.d.sync += [checks.eq(0), idle.eq(0)]
                with m.If(replier.done):
                    m.next = "IDLE"
        return m

    def _feed(self, m, receiver, checker, access):
        """Bytes to the inbox, one per cycle; returns a signal that lets them go, and whether all have gone."""
        feeding, fed = Signal(), Signal()
        left = Signal.like(checker.words)
        body = receiver.body
        m.d.comb += [
            access.i.payload.eq(body.payload),
            access.i.valid.eq(body.valid & ~feeding),
            self.raw.payload.eq(body.payload),
            self.raw.valid.eq(body.valid & feeding & ~fed),
            body.ready.eq(Mux(feeding, self.raw.ready & ~fed, access.i.ready)),
            fed.eq(left == 0),
            checker.room.eq(self.room),
            checker.produced.eq(self.produced),
            self.acknowledged.eq(checker.kept),
        ]
        with m.If(checker.start):
            m.d.sync += left.eq(receiver.frame.p.words)
        with m.If(self.raw.valid & self.raw.ready):
            m.d.sync += left.eq(left - 1)
        reads = receiver.frame.p.header.kind == Kind.READ
        good = checker.done & (checker.status == Status.OK)
        m.d.comb += self.acknowledge.eq(good & reads & (checker.target.region == RegionId.OUTBOX))
        return feeding, fed

    def _choose(self, m, replier, access, reading, waited, expected):
        """Connect the payload of a reply."""
        index = Signal(range(self.status.shape().width // 8))
        with m.If(reading):
            m.d.comb += [replier.i.payload.eq(access.o.payload), replier.i.valid.eq(access.o.valid)]
            m.d.comb += access.o.ready.eq(replier.i.ready)
        with m.Else():
            m.d.comb += replier.i.valid.eq(1)
            m.d.comb += replier.i.payload.eq(Mux(waited, self.status.word_select(index, 8), expected))
            with m.If(replier.i.ready & waited):
                m.d.sync += index.eq(index + 1)

    def _refuse(self, m, replier, status, expected):
        """Reply that nothing was done, and why."""
        m.d.comb += [replier.start.eq(1), replier.header.kind.eq(status)]
        m.d.sync += self.errors.eq(self.errors + 1)
        with m.If(status == Status.BAD_CRC):
            m.d.comb += [replier.header.kind.eq(status | UNSOLICITED), replier.header.seq.eq(expected)]
        with m.If(status == Status.BAD_SEQ):
            m.d.comb += replier.header.length.eq(1)

    def _wait(self, m, replier, cycles, elapsed):
        """Count cycles until the program has ended or the host's patience has."""
        m.d.sync += cycles.eq(cycles + 1)
        with m.If(~self.busy | elapsed):
            m.d.comb += [replier.start.eq(1), replier.header.length.eq(self.status.shape().width // 8)]
            m.d.sync += cycles.eq(0)
