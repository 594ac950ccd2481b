"""Reciprocals of sums of powers."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.integers import SUM_BITS
from concord.spec.softmax import RECIPROCAL_BITS
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import register
from concord_rtl.pipe.integers.highest_bit import HighestBit

#: Bits of a result that a cycle gives.
STEP_BITS = 2


class Reciprocal(Component):
    """``(2**(place + 32) - 1) // total``, where ``place`` is that of the highest bit of ``total``: 32 bits.

    Two bits a cycle, ``LATENCY`` cycles after ``start``; the results stay until the next start.
    """

    start = Input(1, "Begin; ``total`` must stay from now on until the result is there.")
    total = Input(SUM_BITS, "At least 1.")
    place = Output(range(SUM_BITS), "Place of its highest bit.")
    o = Output(RECIPROCAL_BITS, "The result.")

    LATENCY = timing.RECIPROCAL

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.highest = highest = HighestBit()
        m.d.comb += highest.i.eq(self.total)
        triple = register(m, self.total + (self.total << 1), "triple")
        rest = Signal(SUM_BITS, reset_less=True)  # less than the total
        left = Signal(range(RECIPROCAL_BITS // STEP_BITS + 1))
        begin = Signal(HighestBit.LATENCY + 1)
        m.d.sync += begin.eq(Cat(self.start, begin))

        following = Cat(Const(3, STEP_BITS), rest)
        rests = [following - multiple for multiple in (0, self.total, self.total << 1, triple)]
        with m.If(begin[HighestBit.LATENCY - 1]):
            m.d.sync += [
                self.place.eq(highest.place),
                rest.eq((1 << highest.place) - 1),
                left.eq(RECIPROCAL_BITS // STEP_BITS),
            ]
        with m.Elif(left.any()):
            digit = Mux(rests[3] >= 0, 3, Mux(rests[2] >= 0, 2, rests[1] >= 0))
            m.d.sync += [
                left.eq(left - 1),
                rest.eq(Mux(digit[1], Mux(digit[0], rests[3], rests[2]), Mux(digit[0], rests[1], rests[0]))),
                self.o.eq(Cat(digit[:STEP_BITS], self.o)),
            ]
        return m
