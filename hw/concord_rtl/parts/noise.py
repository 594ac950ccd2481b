"""Noise of the converters."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.formats import NOISE_BITS, NOISE_SEED, NOISE_SHIFTS, NOISE_STATE_BITS
from concord_rtl.parts.component import Component, Input, Output


class Noise(Component):
    """One xorshift register per lane, as :mod:`concord.spec.formats` defines it.

    Reproducible, and not for cryptography. One step per cycle; the period is 2**32 - 1 steps.

    Parameters
    ----------
    lanes : int
        Number of registers.
    """

    step = Input(1, "Advance all registers; the new noise is there in the next cycle.")
    reset = Input(1, "Return to the start; goes before ``step``.")
    noise = Output(lambda self: data.ArrayLayout(NOISE_BITS, self.lanes), "Low half of each register.")

    def __init__(self, lanes: int):
        if not isinstance(lanes, int) or lanes < 1:
            raise ValueError(f"lanes must be a positive integer, not {lanes!r}")
        self.lanes = lanes
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self.lanes):
            seed = NOISE_SEED * (lane + 1) % (1 << NOISE_STATE_BITS)
            state = Signal(NOISE_STATE_BITS, name=f"state_{lane}", init=seed)
            left, right, again = NOISE_SHIFTS
            a = state ^ (state << left)[:NOISE_STATE_BITS]
            b = a ^ (a >> right)
            with m.If(self.step):
                m.d.sync += state.eq(b ^ (b << again)[:NOISE_STATE_BITS])
            with m.If(self.reset):
                m.d.sync += state.eq(seed)
            m.d.comb += self.noise[lane].eq(state[:NOISE_BITS])
        return m
