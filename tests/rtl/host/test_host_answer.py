"""The word of every region, when it is there, and nothing else below the bytes it has."""

import random

import pytest

from concord.spec.memmap import RegionId, regions
from concord.spec.presets import ECP5_85F, TINY
from concord_rtl.host.host_answer import HostAnswer
from concord_rtl.host.host_port import VECTOR_REGIONS
from support.bench import simulate


@pytest.mark.parametrize("config", [TINY, ECP5_85F], ids=["tiny", "ecp5-85f"])
def test_words_of_all_regions(config):
    dut, rng = HostAnswer(config), random.Random(2)
    assert RegionId.SLOTS not in dut.bits and set(VECTOR_REGIONS) < set(dut.bits)

    async def bench(ctx):
        for _ in range(20):
            for key, bits in dut.bits.items():
                words = {other: rng.getrandbits(size) for other, size in dut.bits.items()}
                for other, word in words.items():
                    ctx.set(getattr(dut, dut.name_of(other)), word)
                ctx.set(dut.region, key)
                await ctx.tick().repeat(dut.LATENCY)
                if key in VECTOR_REGIONS:  # another word in this cycle is in the answer at once
                    words[key] = rng.getrandbits(bits)
                    ctx.set(getattr(dut, dut.name_of(key)), words[key])
                assert ctx.get(dut.o) & (1 << bits) - 1 == words[key], key
                assert bits == 8 * regions(config)[key].nbytes

    simulate(dut, bench)
