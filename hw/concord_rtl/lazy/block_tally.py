"""Sums over the beats of a block."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import register


class BlockTally(Component):
    """Counts the elements of a block with flags, and joins what they need.

    Does not stall. Beats come in any cycles, blocks back to back or with gaps; results are there ``LATENCY`` cycles
    after the last beat, in the cycle of ``done`` only.

    Parameters
    ----------
    lanes : int
        Elements of a beat.
    most : int
        Greatest number of elements in a block.
    needs : int
        Bits of ``need``.
    """

    valid = Input(1, "A beat is there.")
    last = Input(1, "It is the last one of its block.")
    refused = Input(lambda self: self.lanes, "Elements of which a part was refused.")
    vanished = Input(lambda self: self.lanes, "Elements that were rounded to zero.")
    need = Input(lambda self: self.needs, "Bits to be joined.")
    done = Output(1, "Strobe.")
    o_refused = Output(lambda self: range(self.most + 1), "Number of refused elements of the block.")
    o_vanished = Output(lambda self: range(self.most + 1), "Number of vanished elements of the block.")
    o_need = Output(lambda self: self.needs, "Bits that any beat has had.")

    LATENCY = 2

    def __init__(self, lanes, most, needs):
        self.lanes, self.most, self.needs = lanes, most, needs
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        valid, last, fresh = Signal(), register(m, self.last, "late_last"), Signal(init=1)
        need = register(m, self.need, "late_need")
        m.d.sync += [valid.eq(self.valid), self.done.eq(valid & last)]
        with m.If(valid):
            m.d.sync += [fresh.eq(last), self.o_need.eq(need | Mux(fresh, 0, self.o_need))]
        for name in ("refused", "vanished"):
            count = register(m, sum(getattr(self, name)), f"count_of_{name}")
            total = getattr(self, f"o_{name}")
            with m.If(valid):
                m.d.sync += total.eq(Mux(fresh, 0, total) + count)
        return m
