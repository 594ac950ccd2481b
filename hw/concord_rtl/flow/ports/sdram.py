"""The external memory of a board."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import io

from concord.spec.dram import SdramPart
from concord_rtl.dram.pins import SdramPins
from concord_rtl.parts.component import Component, Input

#: Pins of the resource of Amaranth's platforms; those that a board may have tied off.
_PINS = ("clk", "we", "ras", "cas", "ba", "a", "dq")
_OPTIONAL_PINS = ("clk_en", "cs", "dqm")


class SdramPads(Component):
    """Registers in the pads of an SDRAM, which is always selected, and the pad of its clock.

    A board may have tied off the clock enable, the selection and the masks.

    Parameters
    ----------
    part : SdramPart
        The memory, resource ``sdram`` 0 of the platform.
    """

    pins = Input(lambda self: SdramPins(self.part), "Pins, one cycle in front of the registers in the pads.")
    clk = Input(1, "The clock of the memory.")

    def __init__(self, part: SdramPart):
        self.part = part
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        known = {part.name for part in platform.lookup("sdram", 0).ios}
        there = [*_PINS, *(name for name in _OPTIONAL_PINS if name in known)]
        resource, pins = platform.request("sdram", 0, dir=dict.fromkeys(there, "-")), self.pins
        clk: Any = io.Buffer("o", resource.clk)
        dq: Any = io.FFBuffer("io", resource.dq)
        m.submodules.clk, m.submodules.dq = clk, dq
        m.d.comb += [clk.o.eq(self.clk), dq.o.eq(pins.dq_o), dq.oe.eq(pins.oe), pins.dq_i.eq(dq.i)]
        values = {
            "clk_en": Const(1),
            "cs": Const(1),
            **{name: ~pins.command[bit] for bit, name in enumerate(("ras", "cas", "we"))},
            "ba": pins.bank,
            "a": pins.addr,
            "dqm": pins.mask,
        }
        for name, value in values.items():
            if name not in there:
                continue
            pad: Any = io.FFBuffer("o", getattr(resource, name))
            m.submodules[name] = pad
            m.d.comb += pad.o.eq(value)
        return m
