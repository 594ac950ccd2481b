"""The design around the core on a board."""

from importlib.util import find_spec
from typing import Any

from amaranth import *
from amaranth.lib import io, wiring

from concord.spec.links import LinkKind, LinkSpec
from concord_boards import Board
from concord_rtl.families.family import Pll
from concord_rtl.flow.clocking import Clocking, clock_of
from concord_rtl.flow.ports.sdram import SdramPads
from concord_rtl.flow.ports.spi import SpiPort
from concord_rtl.flow.ports.uart import UartPort, divisor_of
from concord_rtl.parts.component import Component


def check_link(hz: float, link: LinkSpec) -> None:
    """``ValueError`` if a link cannot be had with a clock, or without packages that are not installed."""
    if link.baud is not None:
        divisor_of(hz, link.baud)
    if link.kind is LinkKind.USB and find_spec("luna") is None:
        raise ValueError("link must be one whose packages are installed, not 'usb': luna-usb is of the extra usb")


def reachable(board: Board, most_hz: float, link: LinkSpec) -> tuple[float, Pll | None]:
    """The greatest clock up to ``most_hz`` that the board can make and that gives the link; settings of its PLL.

    Raises
    ------
    ValueError
        If there is none.
    """
    while True:
        hz, pll = clock_of(board, most_hz)
        try:
            check_link(hz, link)
        except ValueError:
            most_hz = hz - 1
        else:
            return hz, pll


class BoardTop(Component):
    """Core, link, clock and LEDs on a board.

    Has no ports of its own: pins are requested from the platform.

    Parameters
    ----------
    core : Component
        Has the byte streams ``rx`` (received) and ``tx`` (to send), and the outputs ``done``, ``trapped`` and ``busy``;
        ``sdram``, if it has an external memory.
    board : Board
        The board.
    clock_hz : int
        Clock that is wanted, in hertz.
    link : LinkSpec
        What carries the bytes; :class:`ValueError` if the clock does not give it.

    Attributes
    ----------
    hz : float
        Frequency of the clock made.
    """

    def __init__(self, core: Any, board: Board, *, clock_hz: float, link: LinkSpec):
        self.core = core
        self.board = board
        self.sdram = getattr(core, "sdram", None)
        self.clocking = Clocking(board, clock_hz, shifted=self.sdram is not None)
        self.hz = self.clocking.hz
        self.port = self._port(link)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.clocking = clocking = self.clocking
        m.domains.sync = ClockDomain(reset_less=not clocking.has_reset)
        m.d.comb += ClockSignal().eq(clocking.clk)
        if clocking.has_reset:
            m.d.comb += ResetSignal().eq(clocking.rst)
        m.submodules.core = core = self.core
        m.submodules.port = port = self.port
        wiring.connect(m, port.o, core.rx)
        wiring.connect(m, core.tx, port.i)

        if self.sdram is not None:
            m.submodules.sdram = pads = SdramPads(self.sdram.signature.part)
            wiring.connect(m, core.sdram.pins, pads.pins)
            wiring.connect(m, core.sdram.step, clocking.step)
            m.d.comb += pads.clk.eq(clocking.memory_clk)

        states = (core.done, core.trapped, core.busy)
        for (name, number), state in zip(self.board.leds, states, strict=False):
            led: Any = io.FFBuffer("o", platform.request(name, number, dir="-"))
            m.submodules[f"led_{name}{number}"] = led
            m.d.comb += led.o.eq(state)
        return m

    def _port(self, link: LinkSpec) -> Any:
        """Component at the pins, with the byte streams ``o`` (received) and ``i`` (to send)."""
        if link.kind is LinkKind.UART and link.baud is not None:
            return UartPort(self.board, self.clocking, link.baud)
        if link.kind is LinkKind.SPI:
            return SpiPort(self.board)
        if link.kind is LinkKind.USB:
            from concord_rtl.flow.ports.usb import UsbBoardPort  # needs the package luna

            return UsbBoardPort(self.board, self.clocking)
        raise ValueError(f"link must be one that there are pins for, not {link.name!r}")
