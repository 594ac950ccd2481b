"""The design around the core on a board."""

from typing import Any

from amaranth import *
from amaranth.lib import io, wiring

from concord_boards import Board
from concord_rtl.families.family import Pll
from concord_rtl.flow.clocking import Clocking, clock_of, tuning_of
from concord_rtl.flow.meter import BitMeter
from concord_rtl.link.uart import Uart
from concord_rtl.parts.component import Component

#: Greatest relative error of the bit rate: half of what a receiver tolerates, the other end has an error of its own.
BAUD_ERROR = 0.02


def divisor_of(hz: float, baud: int) -> int:
    """Clock cycles per bit; ``ValueError`` if the bit rate cannot be made of the clock."""
    divisor = round(hz / baud) if baud > 0 else 0
    if divisor < Uart.LEAST_DIVISOR or abs(hz / divisor / baud - 1) > BAUD_ERROR:
        rates = f"{hz / 1e6:g} MHz / n with n of at least {Uart.LEAST_DIVISOR}"
        raise ValueError(f"baud must be within {100 * BAUD_ERROR:g} % of {rates}, not {baud!r}")
    return divisor


def reachable(board: Board, most_hz: float, baud: int) -> tuple[float, Pll | None]:
    """The greatest clock up to ``most_hz`` that the board can make and that gives the bit rate; settings of its PLL.

    Raises
    ------
    ValueError
        If there is none.
    """
    while True:
        hz, pll = clock_of(board, most_hz)
        try:
            divisor_of(hz, baud)
        except ValueError:
            most_hz = hz - 1
        else:
            return hz, pll


class BoardTop(Component):
    """Core, serial port, clock and LEDs on a board.

    Has no ports of its own: pins are requested from the platform. Where the clock can be changed after routing the
    serial port measures it, else its divisor is a constant.

    Parameters
    ----------
    core : Component
        Has the byte streams ``rx`` (received) and ``tx`` (to send), and the outputs ``done``, ``trapped`` and ``busy``.
    board : Board
        The board.
    clock_hz : int
        Clock wanted.
    baud : int
        Bit rate of the serial port.

    Attributes
    ----------
    hz : float
        Frequency of the clock made.
    """

    def __init__(self, core: Any, board: Board, *, clock_hz: float, baud: int):
        self.core = core
        self.board = board
        self.clocking = Clocking(board, clock_hz)
        self.hz = self.clocking.hz
        self.baud = baud
        self.divisor = divisor_of(self.hz, baud)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.clocking = clocking = self.clocking
        m.domains.sync = ClockDomain(reset_less=not clocking.has_reset)
        m.d.comb += ClockSignal().eq(clocking.clk)
        if clocking.has_reset:
            m.d.comb += ResetSignal().eq(clocking.rst)
        m.submodules.core = core = self.core
        m.submodules.uart = uart = self._uart(m)
        wiring.connect(m, uart.o, core.rx)
        wiring.connect(m, core.tx, uart.i)

        pins = platform.request("uart", 0, dir={"rx": "-", "tx": "-"} | self._unused(platform))
        rx: Any = io.Buffer("i", pins.rx)
        m.submodules.rx = rx
        tx: Any = io.FFBuffer("o", pins.tx)
        m.submodules.tx = tx
        m.d.comb += [uart.rx.eq(rx.i), tx.o.eq(uart.tx)]

        states = (core.done, core.trapped, core.busy)
        for (name, number), state in zip(self.board.leds, states, strict=False):
            led: Any = io.FFBuffer("o", platform.request(name, number, dir="-"))
            m.submodules[f"led_{name}{number}"] = led
            m.d.comb += led.o.eq(state)
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
