"""Registered multiplier: the vendor's DSP block where the family is known, plain logic elsewhere."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.families import primitives_of


class Multiplier(wiring.Component):
    """Signed product with registered inputs and a registered output.

    Does not stall, and its registers have no reset: the product of a cycle is only worth as much as its operands.
    One product per cycle, ``LATENCY`` cycles later. The DSP block of a known device is instantiated, because synthesis
    does not infer its registers (:mod:`concord_rtl.families`); the registers of plain logic behave the same.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the operands, 1 to ``MOST_BITS``.

    Members
    -------
    a : In(signed(a_width))
        First operand.
    b : In(signed(b_width))
        Second operand.
    o : Out(signed(a_width + b_width))
        Product.
    """

    a: Signal
    b: Signal
    o: Signal

    LATENCY = 2
    #: Greatest width of an operand.
    MOST_BITS = 18

    def __init__(self, a_width: int, b_width: int):
        for name, width in [("a_width", a_width), ("b_width", b_width)]:
            if not isinstance(width, int) or not 1 <= width <= self.MOST_BITS:
                raise ValueError(f"{name} must be in 1..{self.MOST_BITS}, not {width!r}")
        super().__init__({"a": In(signed(a_width)), "b": In(signed(b_width)), "o": Out(signed(a_width + b_width))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        primitives_of(platform).multiplier(m, self.a, self.b, self.o)
        return m
