"""Registers that stay where they are wanted."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.families import primitives_of
from concord_rtl.parts.component import Component, Input, Output


class KeptRegister(Component):
    """A register without reset that synthesis does not join with others of the same contents.

    Copies of an address near their block RAMs, all over the device, would otherwise become one register with long wires
    to all of them. Where the family has a cell for it each bit is one, elsewhere it is a register like any other.
    Latency 1.

    Parameters
    ----------
    width : int
        Bits, at least 1.
    """

    i = Input(lambda self: self.width, "Value.")
    o = Output(lambda self: self.width, "The value of the cycle before.")

    def __init__(self, width: int):
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width!r}")
        self.width = width
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        primitives_of(platform).kept_register(m, self.i, self.o)
        return m
