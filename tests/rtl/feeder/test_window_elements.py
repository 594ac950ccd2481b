"""Places of the elements of a window."""

import random

import pytest

from concord.spec.presets import TINY
from concord_rtl.feeder.window_elements import WindowElements
from support.bench import simulate

CONFIG = TINY.replace(inbox=128)
RING = 2 * CONFIG.inbox


@pytest.mark.parametrize("double", [0, 1])
def test_lines_taps_and_elements(double):
    dut, rng = WindowElements(CONFIG), random.Random(9)

    async def strobe(ctx, signal):
        """For a cycle, and another one until all outputs are there."""
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)
        await ctx.tick()

    async def bench(ctx):
        ctx.set(dut.double, double)
        for _ in range(20):
            kh, kw, channels, height, width = (rng.randint(1, 3) for _ in range(5))
            dil_y, dil_x, tap_y, tap_x = rng.randint(1, 2), rng.randint(1, 2), rng.randrange(RING), rng.randrange(RING)
            first, y0, x0 = rng.randrange(RING), rng.randint(-2, 2), rng.randint(-2, 2)
            ctx.set(dut.window, {"op": 0, "kh": kh, "kw": kw, "dil_y": dil_y, "dil_x": dil_x})
            ctx.set(dut.image, {"op": 0, "height": height, "width": width})
            ctx.set(dut.size, {"op": 0, "channels": channels})
            ctx.set(dut.taps, {"op": 0, "tap_y": tap_y, "tap_x": tap_x})
            ctx.set(dut.first, first)
            ctx.set(dut.y, y0)
            ctx.set(dut.x, x0)
            await strobe(ctx, dut.begin)
            passed = 0
            for k in range(kh * kw * channels):
                tap, channel = divmod(k, channels)
                ky, kx = divmod(tap, kw)
                passed = passed if channel else rng.randrange(2)
                if passed and not channel:  # over an exponent
                    await strobe(ctx, dut.skip)
                at = first + ky * tap_y + kx * tap_x + channel * (1 + double) + passed
                y, x = y0 + ky * dil_y, x0 + kx * dil_x
                assert ctx.get(dut.at) == at % RING
                assert ctx.get(dut.channel) == channel
                assert ctx.get(dut.inside) == (0 <= y < height and 0 <= x < width)
                assert not ctx.get(dut.ended)
                await strobe(ctx, dut.step)
            assert ctx.get(dut.ended) and ctx.get(dut.at) == (at + 1 + double) % RING

    simulate(dut, bench)
