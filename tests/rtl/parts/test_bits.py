"""Small expressions that arithmetic units share."""

import pytest
from amaranth import *
from amaranth.sim import Simulator

from concord_rtl.parts.bits import at_least


@pytest.mark.parametrize("shape", [unsigned(5), signed(5)], ids=["unsigned", "signed"])
def test_comparisons_with_constants(shape):
    """All values with all constants, also those beyond all values."""
    limits = range(-20, 36)
    m, value, found = Module(), Signal(shape), Signal(len(limits))
    m.d.comb += found.eq(Cat(at_least(value, limit) for limit in limits))

    async def bench(ctx):
        for number in range(-16, 16) if shape.signed else range(32):
            ctx.set(value, number)
            await ctx.delay(0)
            assert ctx.get(found) == sum((number >= limit) << k for k, limit in enumerate(limits))

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
