"""Bytes over two wires."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import cdc, wiring

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

DATA_BITS = 8


class _Transmitter(Component):
    """Send bytes as start bit, eight bits (the least significant first) and stop bit. Ten bit times per byte."""

    i = Input(stream_of(DATA_BITS), "Bytes to send.")
    tx = Output(1, "Pin.", init=1)
    divisor = Input(lambda self: range(self.most + 1), "Clock cycles per bit.")

    def __init__(self, most):
        self.most = most
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        timer = Signal(range(self.most))
        shift = Signal(DATA_BITS + 1)  # what follows the bit on the wire; 1 when only stop bits are left
        left = Signal(range(DATA_BITS + 2))  # bits until the line is free, the one on the wire included
        m.d.comb += self.i.ready.eq(left == 0)
        with m.If(self.i.ready):
            m.d.sync += timer.eq(self.divisor - 1)
            with m.If(self.i.valid):
                m.d.sync += [self.tx.eq(0), shift.eq(Cat(self.i.payload, 1)), left.eq(DATA_BITS + 2)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [
                timer.eq(self.divisor - 1),
                left.eq(left - 1),
                self.tx.eq(shift[0]),
                shift.eq(Cat(shift[1:], 1)),
            ]
        return m


class _Receiver(Component):
    """Receive bytes, each bit sampled in its middle. Drops bytes without stop bit and those that find ``o`` full."""

    o = Output(stream_of(DATA_BITS), "Bytes received.")
    rx = Input(1, "Pin, synchronised.")
    dropped = Output(1, "A byte was dropped.")
    divisor = Input(lambda self: range(self.most + 1), "Clock cycles per bit.")

    def __init__(self, most):
        self.most = most
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = cdc.FFSynchronizer(self.rx, line, init=1)
        timer = Signal(range(self.most))
        shift = Signal(DATA_BITS)
        left = Signal(range(DATA_BITS + 1))
        sample = Signal()
        m.d.comb += sample.eq(timer == 0)
        m.d.sync += timer.eq(Mux(sample, self.divisor - 1, timer - 1))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [timer.eq((self.divisor >> 1) - 1), left.eq(DATA_BITS)]
                with m.If(~line):
                    m.next = "START"
            with m.State("START"):
                with m.If(sample):
                    m.next = "BITS"
                    with m.If(line):  # a glitch
                        m.next = "IDLE"
            with m.State("BITS"):
                with m.If(sample):
                    m.d.sync += [shift.eq(Cat(shift[1:], line)), left.eq(left - 1)]
                    with m.If(left == 1):
                        m.next = "STOP"
            with m.State("STOP"):
                with m.If(sample):
                    m.next = "IDLE"
                    with m.If(~line):
                        m.d.comb += self.dropped.eq(1)
                        m.next = "BREAK"
                    with m.Elif(self.o.valid & ~self.o.ready):
                        m.d.comb += self.dropped.eq(1)
                    with m.Else():
                        m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(shift)]
            with m.State("BREAK"):
                with m.If(line):
                    m.next = "IDLE"
        return m


class Uart(Component):
    """Asynchronous serial port: 8 data bits, no parity, 1 stop bit.

    Has no flow control and no buffer: a byte must be taken within ten bit times, or the next one is dropped. The
    checksum of the link notices.

    Tolerates 2.5 % between the bit rates of the two ends for a divisor of 4, and more than 4 % for those of 16 and more
    (:meth:`tolerance`).

    Parameters
    ----------
    divisor : int
        Clock cycles per bit, at least ``LEAST_DIVISOR``; the greatest number of them if they are set by the member.
    """

    divisor = Input(
        lambda self: range(self.most + 1),
        "Clock cycles per bit, at least ``LEAST_DIVISOR``; those of the parameter unless driven.",
        init=lambda self: self.most,
    )
    rx = Input(1, "Pin; synchronised here.", init=1)
    tx = Output(1, "Pin.", init=1)
    i = Input(stream_of(DATA_BITS), "Bytes to send.")
    o = Output(stream_of(DATA_BITS), "Bytes received.")
    dropped = Output(1, "A received byte was dropped: it had no stop bit, or the one before it had not been taken.")

    LEAST_DIVISOR = 4

    def __init__(self, divisor: int):
        if not isinstance(divisor, int) or divisor < self.LEAST_DIVISOR:
            raise ValueError(f"divisor must be an integer of at least {self.LEAST_DIVISOR}, not {divisor!r}")
        self.most = divisor
        super().__init__()

    @staticmethod
    def tolerance(divisor: int) -> float:
        """Relative difference of the bit rates of the two ends at which every bit is still sampled.

        The stop bit of a faster sender is the first to be missed: it ends ten bits after an edge that is known to a
        cycle.
        """
        return (divisor - divisor // 2 - 1) / (10 * divisor)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        most = self.divisor.init
        m.submodules.transmitter = transmitter = _Transmitter(most)
        m.submodules.receiver = receiver = _Receiver(most)
        wiring.connect(m, wiring.flipped(self.i), transmitter.i)
        wiring.connect(m, receiver.o, wiring.flipped(self.o))
        m.d.comb += [self.tx.eq(transmitter.tx), receiver.rx.eq(self.rx), self.dropped.eq(receiver.dropped)]
        m.d.comb += [unit.divisor.eq(self.divisor) for unit in (transmitter, receiver)]
        return m
