"""The code book of the feeder, in block RAM and in LUTs."""

import random

import pytest

from concord.spec.blocks import blocks_of, code_book_in_ram
from concord.spec.feeder import CODE_PAGE
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.presets import ECP5_25F, ECP5_85F, ECP5_85F_256, PRESETS
from concord_rtl.feeder.code_book import CodeBook
from support.bench import simulate


@pytest.mark.parametrize("config", [ECP5_25F, ECP5_85F_256], ids=lambda config: config.name)
def test_words_come_after_the_latency_at_full_rate(config):
    dut, rng = CodeBook(config), random.Random(6)
    depth = config.code_pages * CODE_PAGE
    words, expected, seen = [0] * depth, [], []

    async def bench(ctx):
        for addr in range(depth):
            words[addr] = rng.getrandbits(BINARY16_WIDTH)
            ctx.set(dut.w_addr, addr)
            ctx.set(dut.w_data, words[addr])
            ctx.set(dut.w_en, 1)
            await ctx.tick()
        for _ in range(600):
            addr, other = rng.sample(range(depth), 2)
            ctx.set(dut.addr, addr)
            ctx.set(dut.w_addr, other)
            ctx.set(dut.w_data, rng.getrandbits(BINARY16_WIDTH))
            ctx.set(dut.w_en, rng.random() < 0.3)
            expected.append(words[addr])
            if ctx.get(dut.w_en):
                words[other] = ctx.get(dut.w_data)
            await ctx.tick()
            seen.append(ctx.get(dut.data))

    simulate(dut, bench)
    assert seen[dut.LATENCY - 1 :] == expected[: len(seen) - dut.LATENCY + 1]


def test_where_it_is():
    """In block RAM where logic is short, in LUTs where block RAMs are."""
    in_ram = {"ecp5-85f", "ecp5-85f-256"}
    assert {name for name, config in PRESETS.items() if code_book_in_ram(config)} == in_ram
    assert code_book_in_ram(ECP5_25F.replace(code_pages=2))
    assert code_book_in_ram(ECP5_85F_256.replace(code_pages=1)) and not code_book_in_ram(ECP5_85F.replace(code_pages=1))
    assert not code_book_in_ram(ECP5_85F_256.replace(inbox=0))
    assert blocks_of(ECP5_85F_256).rams - blocks_of(ECP5_85F_256.replace(inbox=0)).rams == 2
