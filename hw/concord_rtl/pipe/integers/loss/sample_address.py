"""Addresses of the vectors of samples that are gone over several times."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.pipe.loop_address import LoopAddress


class SampleAddress(Component):
    """The address of a vector of a sample, and of the same sample from its beginning whenever that is asked for.

    A strobe takes effect in the next cycle. Behind ``load`` and ``step`` the address is that of the sample before until
    it is ``again``, a cycle later or more.

    Parameters
    ----------
    width : int
        Bits of an address.
    """

    strides = Input(
        lambda self: data.StructLayout(dict.fromkeys(("addr", "row", "inner", "outer"), self.width)),
        "The first address, and distances from turn to turn of the loops.",
    )
    load = Input(1, "Begin with the first sample.")
    step = Input(1, "Go to the next sample.")
    last = Input(2, "Turn of the inner and of the outer loop: it is the last one.")
    again = Input(1, "Go to the first vector of the sample.")
    advance = Input(1, "Go to the next vector of the sample.")
    addr = Output(lambda self: self.width, "Address of the vector.")

    def __init__(self, width: int):
        self.width = width
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.first = first = LoopAddress(self.width)
        m.d.comb += [
            first.load.eq(self.load),
            first.start.eq(self.strides.addr),
            first.step.eq(self.step),
            first.last.eq(self.last),
            first.distances[0].eq(self.strides.inner),
            first.distances[1].eq(self.strides.outer),
        ]
        with m.If(self.again):
            m.d.sync += self.addr.eq(first.addr)
        with m.Elif(self.advance):
            m.d.sync += self.addr.eq(self.addr + self.strides.row)
        return m
