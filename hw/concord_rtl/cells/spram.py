"""Single-port memory, which some devices have as a cell."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.families import primitives_of
from concord_rtl.parts.component import Component, Input, Output


class Spram(Component):
    """Words of 16 bits in one single-port memory of the device.

    Cannot be initialised: the contents are undefined until written. Reads and writes share the address; data appears
    ``LATENCY`` cycles after its address, one less if not ``registered``, and is undefined for the cycle of a write. On
    devices without such a cell this is plain memory.

    Parameters
    ----------
    registered : bool
        Whether there is an output register; without it ``r_en`` has no effect.
    """

    addr = Input(lambda self: range(self.DEPTH), "Word address.")
    r_en = Input(1, "If not set, ``data`` is zero instead of the word at this cycle's address.", init=1)
    w_en = Input(1, "Write ``w_data`` at the edge.")
    w_data = Input(lambda self: self.WIDTH, "Word to write.")
    data = Output(lambda self: self.WIDTH, "Word read.")

    LATENCY = 2
    WIDTH = 16
    DEPTH = 1 << 14

    def __init__(self, *, registered=True):
        self.registered = registered
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        word = Signal(self.WIDTH)
        if self.registered:
            register = Signal(self.WIDTH, reset_less=True)
            enabled = Signal()
            m.d.sync += [enabled.eq(self.r_en), register.eq(Mux(enabled, word, 0))]
            m.d.comb += self.data.eq(register)
        else:
            m.d.comb += self.data.eq(word)
        primitives_of(platform).single_port_ram(m, self.addr, self.w_en, self.w_data, word)
        return m
