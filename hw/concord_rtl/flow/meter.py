"""Bit rate of the serial port from the board's oscillator, whatever the clock is."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import cdc

from concord_rtl.parts.component import Component, Input, Output

#: Cycles of the oscillator that are measured, at the least: the window is a whole number of them.
LEAST_WINDOW = 1000


class BitMeter(Component):
    """Measures once, after the start, how many cycles of the clock a bit lasts.

    The PLL of a bitstream is set when place and route has told which clock it can have, so nothing in the netlist may
    depend on the clock. The oscillator counts out the time of ``2**shift`` bits; cycles of the clock in it, rounded,
    are the divisor. The result is off by one cycle in ``2**shift`` bits, and by the rounding.

    Parameters
    ----------
    oscillator_hz : int
        Frequency of the domain ``oscillator`` in hertz.
    baud : int
        Bits per second.
    most : int
        Greatest divisor.
    """

    run = Input(1, "The clock runs; synchronous to ``oscillator``.")
    divisor = Output(
        lambda self: range(self.most + 1),
        "Cycles per bit; ``most`` until they have been measured.",
        init=lambda self: self.most,
    )

    def __init__(self, oscillator_hz: int, baud: int, most: int):
        self.shift = max(0, (-(-LEAST_WINDOW * baud // oscillator_hz) - 1).bit_length())
        self.window = round((oscillator_hz << self.shift) / baud)
        self.most = most
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left = Signal(range(self.window + 1), init=self.window)
        open_ = Signal()
        with m.If(self.run & (left != 0)):
            m.d.oscillator += left.eq(left - 1)
        m.d.oscillator += open_.eq(self.run & (left != 0))

        counts, ends = Signal(), Signal()
        m.submodules.synchronizer = cdc.FFSynchronizer(open_, counts)
        count = Signal(range((self.most + 1) << self.shift), init=(1 << self.shift) >> 1)
        m.d.sync += ends.eq(counts)
        with m.If(counts):
            m.d.sync += count.eq(count + 1)
        with m.Elif(ends):
            m.d.sync += self.divisor.eq(count >> self.shift)
        return m
