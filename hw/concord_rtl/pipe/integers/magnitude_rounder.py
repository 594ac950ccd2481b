"""Magnitudes that drop bits and are limited."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord_rtl.families import primitives_of
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import register
from concord_rtl.pipe.integers.layouts import PLACE_BITS

#: Bits of the places that are left for the second stage of a shift.
FINE_BITS = PLACE_BITS // 2


class MagnitudeRounder(Component):
    """``min(magnitude * 2**-right, limit)``, to the nearest, halves up.

    Does not stall. One magnitude per cycle, ``LATENCY`` cycles later. ``right`` and ``limit`` must stay the same while
    magnitudes are on their way.

    Parameters
    ----------
    bits : int
        Bits of a magnitude.
    """

    i = Input(lambda self: self.bits, "Magnitude.")
    right = Input(PLACE_BITS, "Bits that it drops.")
    limit = Input(lambda self: self.bits, "Greatest result, all ones; at least 1.")
    o = Output(lambda self: self.bits, "Result.")
    limited = Output(1, "The limit is less than what was rounded.")

    LATENCY = timing.MAGNITUDE_ROUNDER

    def __init__(self, bits: int):
        self.bits = bits
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        halves = shift_right(m, Cat(Const(0, 1), self.i), self.right, "halves")
        whole, up = halves[1:], halves[0]

        # Of a number that is the limit already nothing is rounded up, so that the sum needs no limit.
        high = register(m, (whole & ~self.limit).any(), "high")
        full = (whole | ~self.limit).all()
        carry, ends = register(m, up & ~full, "carry"), register(m, up & full, "ends")
        terms = (self.limit, register(m, whole, "whole"), high.replicate(self.bits))
        rounded = primitives_of(platform).sum_of_function(
            m, "sum", lambda limit, whole, high: limit & (whole | high), terms, carry & ~high
        )
        m.d.comb += [
            self.o.eq(register(m, rounded, "rounded")),
            self.limited.eq(register(m, high | ends, "limited_0")),
        ]
        return m


def shift_right(m, value, places, name):
    """``value >> places``, two cycles later; the places must stay the same."""
    coarse = register(m, value >> Cat(Const(0, FINE_BITS), places[FINE_BITS:]), f"{name}_coarse")
    return register(m, coarse >> places[:FINE_BITS], name)


def shift_left(m, value, places, name):
    """The last bits of ``value << places``, and a bit if others are lost, two cycles later; the places must stay."""
    width, lost = len(value), Const(0, 1)
    for step, count in ((1 << FINE_BITS, places[FINE_BITS:]), (1, places[:FINE_BITS])):
        leaving = [value[max(width - step * k, 0) :].any() for k in range(1, 1 << len(count))]
        gone = Array([Const(0, 1), *leaving])[count]
        lost = register(m, lost | gone, f"{name}_lost_{step}")
        value = register(m, (value << Cat(Const(0, step.bit_length() - 1), count))[:width], f"{name}_{step}")
    return value, lost
