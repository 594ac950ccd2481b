"""Vectors of numbers, mantissas and codes whose words wait for the bus, however long."""

import random
from itertools import pairwise

import numpy as np
import pytest

from concord.golden.blocks import quantize
from concord.spec import timing
from concord.spec.presets import ECP5_85F, TINY
from concord_rtl.feeder.maker import VectorMaker
from support.bench import simulate
from support.halves import halves

VECTORS = 60
#: Configurations, and what is made of vectors.
CASES = {
    "numbers, tiny": (TINY, "numbers"),
    "numbers, ecp5-85f": (ECP5_85F, "numbers"),
    "numbers, three bits": (TINY.replace(act_mant=3), "numbers"),
    "wide, tiny": (TINY, "wide"),
    "wide, ecp5-85f": (ECP5_85F, "wide"),
    "blocks, tiny": (TINY, "blocks"),
    "blocks, ecp5-85f": (ECP5_85F, "blocks"),
}


def words_of(config, elements, wide, blocks, exponents):
    """What should be written."""
    for vector, exponent in zip(elements, exponents, strict=True):
        full = np.array([*vector, *[vector[-1]] * (config.native - len(vector))], np.uint16)
        if wide:
            yield int.from_bytes(full.tobytes(), "little")
        elif blocks:
            yield config.narrow_word.pack(mant=(full.astype(np.int16) << 8 >> 8).tolist(), exp=exponent)
        else:
            block = quantize(full, config.act)
            yield config.narrow_word.pack(mant=block.mant.tolist(), exp=int(block.exp))


@pytest.mark.slow
@pytest.mark.parametrize("stall", [0.0, 0.8, 0.97])
@pytest.mark.parametrize("name", CASES)
def test_words(name, stall):
    config, kind = CASES[name]
    dut, rng = VectorMaker(config), random.Random(f"{name} {stall}")
    wide, blocks = kind == "wide", kind == "blocks"
    lengths = [rng.randint(1, config.native) for _ in range(VECTORS)]
    numbers = np.random.default_rng(7)
    elements = [halves(numbers, length, corner=0.2) for length in lengths]
    exponents = [rng.randint(config.act.exp_min, config.act.exp_max) for _ in lengths]
    wanted = list(words_of(config, elements, wide, blocks, exponents))
    width = config.wide_word.width if wide else config.narrow_word.width
    got: list[int] = []

    async def pushes(ctx):
        ctx.set(dut.wide, wide)
        ctx.set(dut.blocks, blocks)
        await ctx.tick().repeat(2)
        for vector, exponent in zip(elements, exponents, strict=True):
            for lane, element in enumerate(vector):
                ctx.set(dut.push, 1)
                ctx.set(dut.lane, lane)
                ctx.set(dut.element, int(element))
                await ctx.tick()
                ctx.set(dut.push, 0)
                ctx.set(dut.element, rng.randrange(1 << 16))
                if rng.random() < 0.2:
                    await ctx.tick()
            while not ctx.get(dut.ready):
                await ctx.tick()
            await ctx.tick().repeat(dut.NOTICE)
            ctx.set(dut.exp, exponent)
            ctx.set(dut.finish, 1)
            await ctx.tick()
            ctx.set(dut.finish, 0)
            ctx.set(dut.exp, 0)
        while not ctx.get(dut.idle):
            await ctx.tick()

    async def bus(ctx):
        addr = 100
        while len(got) < VECTORS:
            ctx.set(dut.addr, addr)
            ctx.set(dut.o.ready, rng.random() >= stall)
            *_, made, valid, word = await ctx.tick().sample(dut.made, dut.o.valid & dut.o.ready, dut.o.p)
            addr += made
            if valid:
                assert word.wide == wide and word.addr == 100 + len(got)
                got.append(word.data & (1 << width) - 1)

    simulate(dut, pushes, bus, cycles=200_000)
    assert got == wanted


def test_a_vector_is_converted_while_the_next_one_comes():
    """Vectors that are finished as soon as can be are made at the rate at which they are played, each in the time that
    the timing model says."""
    dut, times, made = VectorMaker(ECP5_85F), [], []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        await ctx.tick().repeat(2)
        since = None
        for time in range(300):
            if since is None and ctx.get(dut.ready):
                since = time
            ctx.set(dut.finish, since is not None and time == since + dut.NOTICE)
            if ctx.get(dut.finish):
                since = None
                times.append(time)
            if ctx.get(dut.made):
                made.append(time)
            await ctx.tick()

    simulate(dut, bench)
    beats = timing.feeder_beats(ECP5_85F)
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) > 20
    # Two vectors may be on their way to ``o``, which takes so many cycles longer than to play them.
    assert {sum(both) for both in pairwise(gaps)} == {2 * beats + timing.feeder_close(coded=False)}
    assert {end - begin for begin, end in zip(times, made, strict=False)} == {timing.feeder_convert(ECP5_85F) + 1}
