"""The serial peripheral interface of a board."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import io, wiring

from concord_boards import Board
from concord_rtl.link.spi_slave import SpiSlave
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class SpiPort(Component):
    """Slave of a host with the clock, at the pins of a board. ``cipo`` is driven while the host has chosen it.

    Parameters
    ----------
    board : Board
        The board; :class:`ValueError` if it has no such pins.
    """

    i = Input(stream_of(8), "Bytes to send.")
    o = Output(stream_of(8), "Bytes received.")

    def __init__(self, board: Board):
        if board.spi is None:
            raise ValueError(f"board must be one with pins for SPI, not {board.name!r}")
        self.resource = board.spi
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.slave = slave = SpiSlave()
        wiring.connect(m, wiring.flipped(self.i), slave.i)
        wiring.connect(m, slave.o, wiring.flipped(self.o))
        platform.add_resources([self.resource])
        names = ("sck", "csn", "copi", "cipo")
        pins = platform.request(self.resource.name, self.resource.number, dir=dict.fromkeys(names, "-"))
        for name in names[:-1]:
            pad: Any = io.Buffer("i", getattr(pins, name))
            m.submodules[name] = pad
            m.d.comb += getattr(slave, name).eq(pad.i)
        cipo: Any = io.Buffer("o", pins.cipo)
        m.submodules.cipo = cipo
        m.d.comb += [cipo.o.eq(slave.cipo), cipo.oe.eq(~slave.csn)]
        return m
