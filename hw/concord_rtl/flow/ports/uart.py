"""The serial port of a board."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import io, wiring

from concord_boards import Board
from concord_rtl.flow.clocking import Clocking, tuning_of
from concord_rtl.flow.meter import BitMeter
from concord_rtl.link.uart import Uart
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

#: Greatest relative error of the bit rate, or half of what a receiver tolerates: the other end has one of its own.
BAUD_ERROR = 0.02


def divisor_of(hz: float, baud: int) -> int:
    """Clock cycles per bit; ``ValueError`` if the bit rate cannot be made of the clock."""
    divisor = round(hz / baud) if baud > 0 else 0
    most = min(BAUD_ERROR, Uart.tolerance(max(divisor, Uart.LEAST_DIVISOR)) / 2)
    if divisor < Uart.LEAST_DIVISOR or abs(hz / divisor / baud - 1) > most:
        rates = f"{hz / 1e6:g} MHz / n with n of at least {Uart.LEAST_DIVISOR}"
        raise ValueError(f"baud must be within {100 * most:.2g} % of {rates}, not {baud!r}")
    return divisor


class UartPort(Component):
    """Serial port at the pins of a board. Where the clock can be changed after routing it measures the clock.

    Parameters
    ----------
    board : Board
        The board.
    clocking : Clocking
        Of the design.
    baud : int
        Bits per second; :class:`ValueError` if the clock does not give it.
    """

    i = Input(stream_of(8), "Bytes to send.")
    o = Output(stream_of(8), "Bytes received.")

    def __init__(self, board: Board, clocking: Clocking, baud: int):
        self.board, self.clocking, self.baud = board, clocking, baud
        self.divisor = divisor_of(clocking.hz, baud)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.uart = uart = self._uart(m)
        wiring.connect(m, wiring.flipped(self.i), uart.i)
        wiring.connect(m, uart.o, wiring.flipped(self.o))
        pins = platform.request("uart", 0, dir={"rx": "-", "tx": "-"} | self._unused(platform))
        rx: Any = io.Buffer("i", pins.rx)
        m.submodules.rx = rx
        tx: Any = io.FFBuffer("o", pins.tx)
        m.submodules.tx = tx
        m.d.comb += [uart.rx.eq(rx.i), tx.o.eq(uart.tx)]
        return m

    def _uart(self, m: Module) -> Uart:
        """The serial port with its bit rate."""
        if not self.clocking.tunable:
            return Uart(self.divisor)
        m.domains.oscillator = ClockDomain(reset_less=True)
        m.d.comb += ClockSignal("oscillator").eq(self.clocking.start_clk)
        uart = Uart(int(tuning_of(self.board).most_hz / self.baud))
        m.submodules.meter = meter = BitMeter(self.board.oscillator_hz, self.baud, uart.divisor.init)
        m.d.comb += [meter.run.eq(self.clocking.runs), uart.divisor.eq(meter.divisor)]
        return uart

    @staticmethod
    def _unused(platform: Any) -> dict[str, str]:
        """Signals of the serial port that are left alone."""
        names = [sub.name for sub in platform.lookup("uart", 0).ios]
        return {name: "-" for name in names if name not in ("rx", "tx")}
