"""Products of magnitudes with more bits than a multiplier of the device has."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord_rtl.cells.dsp import MOST_BITS, Multiplier
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import register

#: Bits of the parts of an operand: those of a multiplier without the sign.
PART_BITS = MOST_BITS - 1


class WideMultiplier(Component):
    """The lowest bits of the product of two magnitudes.

    Does not stall, and its registers have no reset. One product per cycle, ``LATENCY`` cycles later. Each part of the
    first operand and each part of the second one take a multiplier, unless their product is beyond the result.

    Parameters
    ----------
    a_bits, b_bits : int
        Bits of the operands.
    bits : int
        Bits of the result.
    """

    a = Input(lambda self: self.a_bits, "First operand.")
    b = Input(lambda self: self.b_bits, "Second operand.")
    o = Output(lambda self: self.bits, "The lowest bits of the product.")

    LATENCY = timing.WIDE_MULTIPLIER

    def __init__(self, a_bits: int, b_bits: int, bits: int):
        self.a_bits, self.b_bits, self.bits = a_bits, b_bits, bits
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        rows = []
        for i, a in enumerate(_parts(self.a)):
            row: Value = Const(0)
            for k, b in enumerate(_parts(self.b)):
                if PART_BITS * (i + k) < self.bits:
                    m.submodules[f"part{i}_{k}"] = part = Multiplier(len(a) + 1, len(b) + 1)
                    m.d.comb += [part.a.eq(a), part.b.eq(b)]
                    row = row + (part.o[:-2] << PART_BITS * k)
            rows.append(register(m, row[: self.bits - PART_BITS * i], f"row{i}") << PART_BITS * i)
        m.d.comb += self.o.eq(register(m, sum(rows[1:], rows[0])[: self.bits], "sum"))
        return m


def _parts(operand):
    """Parts of an operand, the lowest one first."""
    return [operand[start : start + PART_BITS] for start in range(0, len(operand), PART_BITS)]
