"""Addresses of nested loops."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord_rtl.parts.component import Component, Input, Output


class LoopAddress(Component):
    """The address that belongs to the current turns of three nested loops; loop 0 is the innermost one.

    Each loop has a distance from turn to turn. A turn of a loop begins where the turn before began, and a distance
    further. Addresses are modulo ``2**width``. A strobe takes effect in the next cycle.

    Parameters
    ----------
    width : int
        Bits of an address.
    with_shift : bool
        Whether there is a ``shift``.
    """

    LOOPS = 3

    load = Input(1, "Begin all loops at ``start``.")
    start = Input(lambda self: self.width, "First address.")
    step = Input(1, "Go to the next turn of loop 0, or of the first loop around it that has a turn left.")
    last = Input(lambda self: self.LOOPS - 1, "Bit k: the turn of loop k is its last one.")
    distances = Input(lambda self: data.ArrayLayout(self.width, self.LOOPS), "Of each loop.")
    shift = Input(
        1,
        "Move the address by ``offset``, and the later ones of loop 0; never together with ``step``.",
        when=lambda self: self.with_shift,
    )
    offset = Input(lambda self: self.width, "How far ``shift`` moves the address.", when=lambda self: self.with_shift)
    addr = Output(lambda self: self.width, "Address of the turn.")

    def __init__(self, width: int, *, with_shift: bool = False):
        self.width = width
        self.with_shift = with_shift
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        inner, outer, following = (Signal.like(self.addr, name=name) for name in ("inner", "outer", "following"))
        with m.If(~self.last[0]):
            m.d.comb += following.eq(self.addr + self.distances[0])
        with m.Elif(~self.last[1]):
            m.d.comb += following.eq(inner + self.distances[1])
        with m.Else():
            m.d.comb += following.eq(outer + self.distances[2])
        with m.If(self.load):
            m.d.sync += [place.eq(self.start) for place in (self.addr, inner, outer)]
        with m.Elif(self.step):
            m.d.sync += self.addr.eq(following)
            with m.If(self.last[0]):
                m.d.sync += inner.eq(following)
                with m.If(self.last[1]):
                    m.d.sync += outer.eq(following)
        if self.with_shift:
            with m.If(self.shift):
                m.d.sync += self.addr.eq(self.addr + self.offset)
        return m
