# amaranth: UnusedElaboratable=no
"""Units by themselves on the pins of a device."""

import random

from concord_rtl.flow.unit import OnPins
from concord_rtl.parts.register_slice import RegisterSlice
from support.bench import simulate


def test_every_input_is_driven_and_every_output_is_seen():
    """Bits that are shifted in come out joined, and each of them makes a difference."""
    width = 6
    unit = RegisterSlice(width)
    dut = OnPins(unit)
    rng = random.Random(1)
    moved, outputs = set(), []

    async def bench(ctx):
        for _ in range(400):
            ctx.set(dut.i, rng.getrandbits(1))
            *_, valid, ready, payload, out = await ctx.tick().sample(unit.o.valid, unit.i.ready, unit.o.p, dut.o)
            moved.update((valid, ready, payload >> k & 1, k) for k in range(width))
            outputs.append((out, (valid + ready + payload.bit_count()) & 1))

    simulate(dut, bench)
    assert len(moved) >= 4 * width
    # Eight output bits in steps of four: two registers on the way.
    assert all(out == parity for (out, _), (_, parity) in zip(outputs[2:], outputs, strict=False))
