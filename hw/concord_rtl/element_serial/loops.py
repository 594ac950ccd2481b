"""The outer loops of a chain in an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import isa
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.pipe.layouts import chain_layout

#: Bits of a coordinate of an image, and of the positions that are told apart: none further out ever comes back.
IMAGE_BITS = isa.FORMS[isa.Op.SET_PAD].fields["height"].width


def near_shape() -> Shape:
    """A row or column of an image, or one so far beyond it that no tap of the window is inside."""
    return signed(IMAGE_BITS + 2)


def is_far(position) -> Value:
    """Bit that is set if a position is beyond every image."""
    return ~position[IMAGE_BITS + 1] & position[IMAGE_BITS]


class VectorLoops(NpuUnit):
    """Counts rows, inner and outer iterations, and the position of the window in the image.

    Parameters
    ----------
    config : NpuConfig
    """

    chain = Input(lambda self: chain_layout(self.config), "The chain, held while it is walked.")
    load = Input(1, "Begin with its first vector.")
    step = Input(1, "Go to the next vector.")
    last_row = Output(1, "The vector is the last one of its row loop.")
    last_inner = Output(1, "The vector is the last one of its inner loop.")
    last = Output(1, "The vector is the last one of the chain.")
    y = Output(near_shape(), "Row of the first tap, exact as long as a tap may be inside.")
    x = Output(near_shape(), "Column of the first tap, likewise.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        chain = self.chain
        rows, inner, outer = (Signal.like(chain[name], name=f"{name}_left") for name in ("rows", "inner", "outer"))
        new_inner, new_outer = Signal(), Signal()
        m.d.comb += [
            self.last_row.eq(rows == 1),
            self.last_inner.eq(inner == 1),
            new_inner.eq(self.step & self.last_row),
            new_outer.eq(new_inner & self.last_inner),
            self.last.eq(self.last_row & self.last_inner & (outer == 1)),
        ]
        with m.If(self.load | self.step):
            m.d.sync += rows.eq(Mux(self.load | self.last_row, chain.rows, rows - 1))
        with m.If(self.load | new_inner):
            m.d.sync += inner.eq(Mux(self.load | self.last_inner, chain.inner, inner - 1))
        with m.If(self.load | new_outer):
            m.d.sync += outer.eq(Mux(self.load, chain.outer, outer - 1))
        # Positions only grow: those that have left the image stay where they are.
        with m.If(self.load | new_outer | (new_inner & ~is_far(self.x))):
            m.d.sync += self.x.eq(Mux(self.load | self.last_inner, chain.x0, self.x + chain.step_x))
        with m.If(self.load | (new_outer & ~is_far(self.y))):
            m.d.sync += self.y.eq(Mux(self.load, chain.y0, self.y + chain.step_y))
        return m
