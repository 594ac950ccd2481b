"""Sums over the beats of a block."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.parts.stages import register


class BlockTally(wiring.Component):
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

    Members
    -------
    valid, last : In(1)
        A beat is there; it is the last one of its block.
    refused, vanished : In(lanes)
        Flags of its elements.
    need : In(needs)
        Bits to be joined.
    done : Out(1)
        Strobe.
    o_refused, o_vanished : Out(range(most + 1))
        Elements with these flags.
    o_need : Out(needs)
        Bits that any beat has had.
    """

    valid: Signal
    last: Signal
    refused: Any
    vanished: Any
    need: Any
    done: Signal
    o_refused: Signal
    o_vanished: Signal
    o_need: Any

    LATENCY = 2

    def __init__(self, lanes, most, needs):
        super().__init__(
            {
                "valid": In(1),
                "last": In(1),
                "refused": In(lanes),
                "vanished": In(lanes),
                "need": In(needs),
                "done": Out(1),
                "o_refused": Out(range(most + 1)),
                "o_vanished": Out(range(most + 1)),
                "o_need": Out(needs),
            }
        )

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
