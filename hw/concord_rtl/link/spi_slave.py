"""Bytes over four wires, with the clock of the host."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.link import ESCAPE, FLAG, RESUME
from concord_rtl.link.crossing_queue import CrossingQueue
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

DATA_BITS = 8


class _Taker(Component):
    """Bytes of the host, each at the edge of its last bit. Of flags that follow each other only the first.

    Bits are counted in the domain ``places``, which has the same clock, and a reset between transfers.
    """

    o = Output(stream_of(DATA_BITS), "Bytes received. Those that are not taken at once are dropped.")
    copi = Input(1, "Pin.")
    dropped = Output(1, "A byte is dropped with the next edge.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        place = Signal(range(DATA_BITS))  # of the next bit
        shift = Signal(DATA_BITS - 1)
        idle = Signal()  # the last byte that was taken is a flag
        byte = self.o.payload
        m.d.comb += byte.eq(Cat(self.copi, shift))
        m.d.places += place.eq(place + 1)
        m.d.sync += shift.eq(byte)
        m.d.comb += self.o.valid.eq(place.all() & ~(idle & (byte == FLAG)))
        m.d.comb += self.dropped.eq(self.o.valid & ~self.o.ready)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += idle.eq(byte == FLAG)
        return m


class _Giver(Component):
    """Bytes for the host; between frames flags, within frames pauses, where there is none when the next is due.

    A byte that was broken off comes once more: bits are counted in the domain ``places``, as those of the taker.
    """

    i = Input(stream_of(DATA_BITS), "Bytes to send.")
    cipo = Output(1, "Pin.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        place = Signal(range(DATA_BITS))  # of the bit on the wire
        first = Signal(init=1)  # it is the first one
        bit = Signal()  # the bit on the wire if it is not
        byte = Signal(DATA_BITS, init=FLAG)
        paused = Signal()  # there was an escape that belongs to no byte
        m.d.comb += self.cipo.eq(Mux(first, byte[-1], bit))
        m.d.places += [place.eq(place + 1), first.eq(place.all())]
        m.d.sync += bit.eq(Cat(byte[-2::-1], byte[-1]).bit_select(place, 1))  # the way to the pin is a short one
        with m.If(place.all()):
            with m.If(self.i.valid):
                m.d.comb += self.i.ready.eq(~paused)
                m.d.sync += [byte.eq(Mux(paused, RESUME, self.i.payload)), paused.eq(0)]
            with m.Elif(byte != FLAG):
                m.d.sync += [byte.eq(ESCAPE), paused.eq(paused | (byte != ESCAPE))]
        return m


class SpiSlave(Component):
    """Slave of a serial peripheral interface: mode 0, the most significant bit first.

    The clock of the host is a clock domain of its own, and stands still between transfers. A byte has arrived at the
    edge of its last bit. The first byte to be sent is ready before the first edge. When ``csn`` is high bits are
    counted from the first one again, and a byte of which some bits were missing is sent anew.

    There is no line that says whether there are bytes, or room for some. Bytes that cannot be taken are dropped, and
    the checksum of the link notices. Where there are none to be sent, the host gets flags between frames and pauses
    within them (:data:`concord.spec.link.RESUME`): so nothing depends on which of the two clocks is faster, and no
    reply has to be complete before it is sent. Of flags that the host sends one after the other only the first is
    passed on.

    A byte takes eight periods of ``sck`` and about three of the domain ``sync``. No byte is lost on the way to ``o`` up
    to an ``sck`` of 4.6 times ``sync``.

    Parameters
    ----------
    early : bool
        ``cipo`` changes with the rising edge at which the host takes the bit before, instead of half a period later: so
        a bit has the whole period to arrive. The way from ``sck`` to ``cipo`` must then take longer than the host
        needs the bit after its edge.
    """

    sck = Input(1, "Pin: clock, at rest low.")
    csn = Input(1, "Pin: low during a transfer.", init=1)
    copi = Input(1, "Pin: to the NPU, taken with the rising edge.")
    cipo = Output(1, "Pin: to the host.")
    i = Input(stream_of(DATA_BITS), "Bytes to send: frames as the framer makes them.")
    o = Output(stream_of(DATA_BITS), "Bytes received.")
    dropped = Output(1, "A received byte is dropped at the rising edge that comes next, as there is no place for it.")

    #: Bytes of the queues to the other clock and back: as many as it takes for bytes without a pause.
    DEPTH = 2

    def __init__(self, *, early: bool = False):
        self.early = early
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        taker, giver = _Taker(), _Giver()
        for name, unit, edge in (("taker", taker, "pos"), ("giver", giver, "pos" if self.early else "neg")):
            # Two domains: where a register has no reset, pysim takes the edge of an asynchronous one for a clock edge.
            m.domains += ClockDomain(name, clk_edge=edge, reset_less=True, local=True)
            m.domains += ClockDomain(f"{name}_places", clk_edge=edge, async_reset=True, local=True)
            m.d.comb += [ClockSignal(name).eq(self.sck), ClockSignal(f"{name}_places").eq(self.sck)]
            m.d.comb += ResetSignal(f"{name}_places").eq(self.csn)
            m.submodules[name] = DomainRenamer({"sync": name, "places": f"{name}_places"})(unit)
        m.submodules.requests = requests = CrossingQueue(self.DEPTH, writing="taker", reading="sync")
        m.submodules.replies = replies = CrossingQueue(self.DEPTH, writing="sync", reading="giver")
        wiring.connect(m, taker.o, requests.i)
        wiring.connect(m, requests.o, wiring.flipped(self.o))
        wiring.connect(m, wiring.flipped(self.i), replies.i)
        wiring.connect(m, replies.o, giver.i)
        m.d.comb += [taker.copi.eq(self.copi), self.cipo.eq(giver.cipo), self.dropped.eq(taker.dropped)]
        return m
