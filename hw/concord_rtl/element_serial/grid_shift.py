"""Placement on the accumulator grid with multipliers."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord_rtl.cells.dsp import LeftShifter
from concord_rtl.parts.component import Component, Input, Output


class GridShift(Component):
    """Shift left by ``shift``: the lower places in a :class:`concord_rtl.cells.dsp.LeftShifter`, the others after it.

    Does not check the shift: one beyond ``max_shift`` gives an undefined value. One value per cycle, ``LATENCY``
    cycles later.

    Parameters
    ----------
    width : int
        Bits of the value.
    max_shift : int
        Greatest shift, in places.
    """

    i = Input(lambda self: signed(self.width), "Value.")
    shift = Input(lambda self: range(self.max_shift + 1), "Shift of this value.")
    o = Output(lambda self: signed(self.width + self.max_shift), "``i << shift``.")

    LATENCY = timing.GRID_SHIFT

    def __init__(self, width: int, max_shift: int):
        self.width = width
        self.max_shift = max_shift
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits = LeftShifter.SHIFT_BITS
        m.submodules.fine = fine = LeftShifter(self.width)
        coarse = self.shift[bits:]
        for k in range(LeftShifter.LATENCY):
            late = Signal.like(coarse, name=f"coarse{k}", reset_less=True)
            m.d.sync += late.eq(coarse)
            coarse = late
        m.d.comb += [fine.i.eq(self.i), fine.shift.eq(self.shift[:bits])]
        placed = Signal.like(self.o, reset_less=True)
        m.d.sync += placed.eq(fine.o << Cat(Const(0, bits), coarse))
        m.d.comb += self.o.eq(placed)
        return m
