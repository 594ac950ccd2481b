"""Noise of the converters."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

STATE_BITS = 32
NOISE_BITS = 16
SEED = 0x9E3779B9


class Noise(wiring.Component):
    """One 32-bit xorshift register per lane; lane p starts at ``SEED * (p + 1)``, modulo 2**32.

    Reproducible, and not for cryptography. One step per cycle; the period is 2**32 - 1 steps.

    Parameters
    ----------
    lanes : int
        Number of registers.

    Members
    -------
    step : In(1)
        Advance all registers; the new noise is there in the next cycle.
    reset : In(1)
        Return to the start; goes before ``step``.
    noise : Out(ArrayLayout(16, lanes))
        Low half of each register.
    """

    def __init__(self, lanes: int):
        if not isinstance(lanes, int) or lanes < 1:
            raise ValueError(f"lanes must be a positive integer, not {lanes!r}")
        self.lanes = lanes
        super().__init__({"step": In(1), "reset": In(1), "noise": Out(data.ArrayLayout(NOISE_BITS, lanes))})

    def elaborate(self, platform):
        m = Module()
        for lane in range(self.lanes):
            seed = SEED * (lane + 1) % (1 << STATE_BITS)
            state = Signal(STATE_BITS, name=f"state_{lane}", init=seed)
            a = state ^ (state << 13)[:STATE_BITS]
            b = a ^ (a >> 17)
            with m.If(self.step):
                m.d.sync += state.eq(b ^ (b << 5)[:STATE_BITS])
            with m.If(self.reset):
                m.d.sync += state.eq(seed)
            m.d.comb += self.noise[lane].eq(state[:NOISE_BITS])
        return m
