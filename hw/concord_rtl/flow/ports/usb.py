"""The USB port of a board."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import cdc, io, wiring

from concord_boards import Board
from concord_rtl.families import family_named
from concord_rtl.flow.clocking import Clocking
from concord_rtl.link.usb_port import UsbPort
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class UsbBoardPort(Component):
    """USB full speed at the pins of a board, with a PLL of its own. In reset until its clocks are there.

    Parameters
    ----------
    board : Board
        The board; :class:`ValueError` if its PLLs cannot make the clocks.
    clocking : Clocking
        Of the design.
    """

    i = Input(stream_of(8), "Bytes to send.")
    o = Output(stream_of(8), "Bytes received.")

    def __init__(self, board: Board, clocking: Clocking):
        self.clocking = clocking
        self.pll = family_named(board.family).usb_pll(board.oscillator_hz)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        usb, usb_io, locked = Signal(), Signal(), Signal()
        self.pll.build(m, self.clocking.start_clk, usb, usb_io, locked)
        for name, clk in (("usb", usb), ("usb_io", usb_io)):
            m.domains += ClockDomain(name)
            m.d.comb += ClockSignal(name).eq(clk)
            m.submodules[f"{name}_reset"] = cdc.ResetSynchronizer(~locked, domain=name)

        m.submodules.serial = serial = UsbPort()
        wiring.connect(m, wiring.flipped(self.i), serial.i)
        wiring.connect(m, serial.o, wiring.flipped(self.o))
        pins = platform.request("usb", 0, dir={"d_p": "-", "d_n": "-", "pullup": "-"})
        d_p: Any = io.Buffer("io", pins.d_p)
        d_n: Any = io.Buffer("io", pins.d_n)
        pullup: Any = io.Buffer("o", pins.pullup)
        m.submodules.d_p, m.submodules.d_n, m.submodules.pullup = d_p, d_n, pullup
        m.d.comb += [
            serial.d_p.eq(d_p.i),
            serial.d_n.eq(d_n.i),
            d_p.o.eq(serial.d_p_o),
            d_n.o.eq(serial.d_n_o),
            d_p.oe.eq(serial.oe),
            d_n.oe.eq(serial.oe),
            pullup.o.eq(serial.pullup),
        ]
        return m
