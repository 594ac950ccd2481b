"""From the accumulator grid to binary16."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MAX, BINARY16_EXP_MIN, BINARY16_INF, BINARY16_PRECISION
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, is_special, round_up
from concord_rtl.parts.bits import leading_zeros
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import Stages

#: The least subnormal number is one bit above the last bit that is kept apart; everything below is only zero or not.
LOWEST = BINARY16_EXP_MIN - BINARY16_PRECISION
#: Bits from there up to the greatest power of two in binary16.
GRID = BINARY16_EXP_MAX - LOWEST + 1
#: Greatest shift to the left: the result is subnormal.
LIMIT = BINARY16_EXP_MAX - BINARY16_EXP_MIN
#: Zeros are counted in groups of this many bits.
GROUP = 8
FINE_BITS = (GROUP - 1).bit_length()


class AccToBinary16(Component):
    """Final value of an accumulator: saturate to W bits, then round once, nearest even, to binary16.

    Does not stall. One value per cycle, ``LATENCY`` cycles later. An exact zero gives +0, a negative value that rounds
    to zero -0.

    Parameters
    ----------
    config : NpuConfig
        Gives the width of the register, W and F.
    held : bool
        Inputs are held for ``LATENCY`` cycles and until the result has been used.
    """

    acc = Input(lambda self: signed(self.config.acc_bits), "Sum on the grid, least bit ``2**-F``.")
    o = Output(16, "Result.")
    acc_overflow = Output(1, "The sum did not fit W bits.")
    half_overflow = Output(1, "The result is an infinity.")

    LATENCY = timing.ACC_TO_BINARY16

    def __init__(self, config: NpuConfig, *, held: bool = False):
        self.config = config
        self.held = held
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        stage = Stages(m, held=self.held)
        negative, over, magnitude = self._magnitude(stage)
        huge, grid, lost = self._place(stage, negative, over, magnitude)
        coarse, grid = self._coarse(stage, grid)
        signs = [stage.register(negative, "negative_2")]
        flags = [stage.register(over, "over_2")]
        huge, lost = stage.register(huge, "huge_2"), stage.register(lost, "lost_2")

        # Third cycle: the rest of the count.
        zeros = leading_zeros(grid[GRID - GROUP :])
        most = LIMIT % GROUP
        last_group = coarse == LIMIT // GROUP
        fine = stage.register(Mux(last_group & (zeros > most), most, zeros)[:FINE_BITS], "fine")
        coarse, grid = stage.register(coarse, "coarse_3"), stage.register(grid, "grid_3")
        for k in (3, 4, 5):
            signs.append(stage.register(signs[-1], f"negative_{k}"))
            flags.append(stage.register(flags[-1], f"over_{k}"))
        huge, lost = stage.register(huge, "huge_3"), stage.register(lost, "lost_3")

        result, overflow = self._round(stage, grid, fine, coarse, lost, huge)
        m.d.comb += [self.o.eq(Cat(result, signs[-1])), self.acc_overflow.eq(flags[-1])]
        m.d.comb += self.half_overflow.eq(overflow)
        return m

    def _magnitude(self, stage):
        """First cycle: sign, whether W bits are too few, and the magnitude of the W bits."""
        width = self.config.acc_width
        negative = self.acc[-1]
        excess = self.acc[width - 1 :]
        over = excess.any() & ~excess.all()
        kept = self.acc[:width]
        magnitude = ((kept ^ negative.replicate(width)) + negative)[:width]
        negative, over = stage.register(negative, "negative"), stage.register(over, "over")
        return negative, over, stage.register(magnitude, "magnitude")

    def _place(self, stage, negative, over, magnitude):
        """Second cycle: saturate, and move the point to where binary16 has it."""
        width = self.config.acc_width
        limit = Cat((~negative).replicate(width - 1), negative)
        limited = Mux(over, limit, magnitude)[:width]
        drop = LOWEST + self.config.acc_frac
        aligned = Cat(Const(0, max(0, -drop)), limited)[max(0, drop) :]
        return aligned[GRID:].any(), Cat(aligned, Const(0, GRID))[:GRID], limited[: max(0, drop)].any()

    def _coarse(self, stage, grid):
        """Rest of the second cycle: shift by whole groups of zeros."""
        m = stage.m
        groups = [grid[GRID - GROUP * (k + 1) : GRID - GROUP * k].any() for k in range(LIMIT // GROUP)]
        coarse = Signal(range(len(groups) + 1))
        m.d.comb += coarse.eq(len(groups))
        for k, used in reversed(list(enumerate(groups))):
            with m.If(used):
                m.d.comb += coarse.eq(k)
        shifted = (grid << Cat(Const(0, FINE_BITS), coarse))[:GRID]
        return stage.register(coarse, "coarse_2"), stage.register(shifted, "grid_2")

    def _round(self, stage, grid, fine, coarse, lost, huge):
        """Fourth cycle: shift by the rest. Fifth: round and pack."""
        m = stage.m
        shifted = (grid << fine)[:GRID]
        top = stage.register(shifted[GRID - BINARY16_PRECISION - 1 :], "top")
        sticky = stage.register(shifted[: GRID - BINARY16_PRECISION - 1].any() | lost, "sticky")
        field = stage.register((LIMIT + 1 - Cat(fine, coarse))[: MAGNITUDE - FRACTION], "field")
        huge = stage.register(huge, "huge_4")

        kept = Cat(top[1:BINARY16_PRECISION], field & top[BINARY16_PRECISION].replicate(len(field)))
        rounded = Signal(MAGNITUDE)
        m.d.comb += rounded.eq(kept + round_up(top[1], top[0], sticky))
        result = stage.register(Mux(huge, BINARY16_INF, rounded)[:MAGNITUDE], "result")
        return result, stage.register(huge | is_special(rounded), "overflow")
