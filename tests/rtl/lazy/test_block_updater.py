# amaranth: UnusedElaboratable=no
"""Blocks of weights updated in a memory, against the golden model."""

import random

import numpy as np
import pytest

from concord_rtl.lazy.block_updater import BlockUpdater
from concord_rtl.lazy.updated_memory import UpdatedMemory
from support.bench import put, simulate
from support.lazy_blocks import WIDTHS, Block, elements, golden, increments, random_block

SOURCE = WIDTHS["8/16/32"]


class Run:
    """Blocks at random places of a memory, updated by the RTL.

    The memory answers ``read_latency`` cycles after an address, with garbage for a word that is written in the cycle of
    its address. Every write is kept, with the cycle that it came in.
    """

    def __init__(self, widths, lanes, blocks, *, read_latency=2, stalls=(0.0, 0.0, 0.0), gap=1, depth=None):
        self.widths, self.lanes, self.blocks, self.stalls = widths, lanes, blocks, stalls
        self.random = random.Random(11)
        self.bases, free = [], 0
        for block in blocks:
            self.bases.append(free)
            free += -(-block.count // lanes) + self.random.randrange(gap)
        self.dut = BlockUpdater(widths, lanes, max(2, free + 1 if depth is None else depth), read_latency)
        self.memory = [[self.anything() for _ in range(lanes)] for _ in range(self.dut.depth)]
        for base, block in zip(self.bases, blocks, strict=True):
            for k, pair in enumerate(zip(block.weight, block.acc, strict=True)):
                self.memory[base + k // lanes][k % lanes] = pair
        self.before = [list(word) for word in self.memory]
        self.results, self.done, self.steps, self.exps = [], [], [], {}
        self.time = self.last_write = 0
        self.pipe = [self.memory[0]] * read_latency
        simulate(self.dut, self.memory_bench, self.commands, self.updates, self.outcomes)

    def anything(self):
        weight, acc = self.widths.weight.bits, self.widths.accumulator.bits
        return (self.random.getrandbits(weight) - (1 << weight - 1), self.random.getrandbits(acc) - (1 << acc - 1))

    async def memory_bench(self, ctx):
        dut = self.dut
        while len(self.results) < len(self.blocks):
            self.pipe.append(self.pipe.pop(0))
            ctx.set(dut.read.data, [{"weight": w, "acc": a} for w, a in self.pipe[0]])
            *_, addr, en, w_addr, word, exp, step = await ctx.tick().sample(
                dut.read.addr, dut.write.en, dut.write.addr, dut.write.data, dut.write.exp,
                dut.increments.valid & dut.increments.ready,
            )  # fmt: skip
            self.pipe[0] = list(self.memory[addr]) if addr < dut.depth else self.memory[0]
            if en and addr == w_addr:
                self.pipe[0] = [self.anything() for _ in range(self.lanes)]
            for k in range(self.lanes):
                if en >> k & 1:
                    self.memory[w_addr][k] = (int(word[k].weight), int(word[k].acc))
                    self.exps[w_addr] = int(exp)
                    self.last_write = self.time
            self.steps.extend([self.time] if step else [])
            self.time += 1

    async def commands(self, ctx):
        rng = random.Random(3)
        for base, block in zip(self.bases, self.blocks, strict=True):
            while rng.random() < self.stalls[0]:
                await ctx.tick()
            command = {"base": base, "final": block.count - 1, "exp": block.exp, "change_exp": block.change_exp}
            await put(ctx, self.dut.command, command)

    async def updates(self, ctx):
        rng = random.Random(4)
        for block in self.blocks:
            for beat in increments(self.widths, block, self.lanes):
                while rng.random() < self.stalls[1]:
                    await ctx.tick()
                await put(ctx, self.dut.increments, beat)

    async def outcomes(self, ctx):
        rng = random.Random(5)
        result = self.dut.result
        while len(self.results) < len(self.blocks):
            ctx.set(result.ready, rng.random() >= self.stalls[2])
            *_, left, got = await ctx.tick().sample(result.valid & result.ready, result.payload)
            if left:
                self.results.append(tuple(int(got[name]) for name in ("exp", "grown", "refused", "vanished")))
                self.done.append(self.time - 1)
                assert self.last_write < self.time, "a block is written before its result is offered"

    def check(self):
        """Compare with the golden model; what lies around the blocks stays as it was."""
        expected = [list(word) for word in self.before]
        for base, block, got in zip(self.bases, self.blocks, self.results, strict=True):
            want = golden(self.widths, block)
            assert got == (want.exp, want.grown, want.refused.sum(), want.vanished.sum()), block
            for k, pair in enumerate(zip(want.weight.tolist(), want.acc.tolist(), strict=True)):
                expected[base + k // self.lanes][k % self.lanes] = pair
            words = range(base, base + -(-block.count // self.lanes))
            assert all(self.exps[word] == want.exp for word in words), "each word is written with the final exponent"
        assert self.memory == expected
        return self


def random_blocks(widths, rng, lanes, count, most):
    return [random_block(rng, widths, int(rng.integers(1, most + 1))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, lanes, latency, stalls",
    [
        ("8/16/32", 1, 2, (0.0, 0.0, 0.0)),
        ("8/16/32", 4, 2, (0.3, 0.3, 0.3)),
        ("8/16/32", 8, 4, (0.0, 0.0, 0.8)),
        ("5/12/24", 2, 1, (0.5, 0.0, 0.0)),
        ("8/16/32 stochastic", 2, 6, (0.0, 0.5, 0.0)),
        ("8/16/32 point 0", 2, 2, (0.2, 0.2, 0.2)),
        ("4/10/20 point 1", 4, 5, (0.0, 0.0, 0.0)),
    ],
)
def test_random_blocks(name, lanes, latency, stalls):
    rng = np.random.default_rng(lanes)
    blocks = random_blocks(WIDTHS[name], rng, lanes, 40, 5 * lanes)
    run = Run(WIDTHS[name], lanes, blocks, read_latency=latency, stalls=stalls, gap=3).check()
    assert any(grown for _, grown, *_ in run.results)


def quiet(count, exp=0):
    """A block that takes all of its update and does not grow."""
    return Block([3] * count, [5] * count, exp, [7] * count, exp - SOURCE.shift, [0] * count)


def growing(count):
    """A block whose last weight leaves its range."""
    block = quiet(count)
    return Block([*block.weight[1:], 127], [*block.acc[1:], 16383], 0, block.change, block.change_exp, block.noise)


@pytest.mark.slow
@pytest.mark.parametrize("lanes, count", [(1, 1), (2, 2), (4, 3), (8, 8)])
def test_blocks_of_one_word_follow_each_other_in_every_cycle(lanes, count):
    run = Run(SOURCE, lanes, [quiet(count) for _ in range(60)]).check()
    assert run.steps == list(range(run.steps[0], run.steps[0] + 60))
    assert run.done == [step + run.dut.LATENCY for step in run.steps]


def test_cycles():
    """A word per cycle; growth takes as many again, and no other block is touched meanwhile."""
    words, lanes = 20, 2
    run = Run(SOURCE, lanes, [quiet(words * lanes), quiet(words * lanes)]).check()
    assert run.steps == list(range(run.steps[0], run.steps[0] + 2 * words))
    dut = run.dut
    grown = Run(SOURCE, lanes, [growing(words * lanes)]).check()
    assert grown.done[0] == grown.steps[-1] + dut.LATENCY + words + dut.GROWTH_CYCLES
    both = Run(SOURCE, lanes, [growing(words * lanes), quiet(words * lanes)]).check()
    lost = both.steps[-1] - both.steps[0] + 1 - 2 * words
    assert 0 < lost <= words + dut.GROWTH_CYCLES + dut.LATENCY


@pytest.mark.slow
def test_only_so_many_commands_are_under_way():
    """Results that nobody takes hold commands back, and nothing is lost."""
    run = Run(SOURCE, 1, [quiet(1) for _ in range(3 * BlockUpdater(SOURCE, 1, 99).places)], stalls=(0.0, 0.0, 0.95))
    run.check()
    assert max(sum(step < done for step in run.steps) - n for n, done in enumerate(run.done)) <= run.dut.places


def test_a_memory_is_updated_where_it_is():
    """With block RAM: written by the host, updated, read back."""
    lanes, rng = 2, np.random.default_rng(9)
    blocks = [*random_blocks(SOURCE, rng, lanes, 12, 7), growing(5), quiet(1)]
    words = [elements(block.weight, block.acc, lanes) for block in blocks]
    dut = UpdatedMemory(SOURCE, lanes, sum(map(len, words)))
    read, results = [], []

    async def host(ctx):
        ctx.set(dut.host.sel, 1)
        for addr, word in enumerate(word for block in words for word in block):
            ctx.set(dut.host.addr, addr)
            ctx.set(dut.host.w_data, word)
            ctx.set(dut.host.en, (1 << lanes) - 1)
            await ctx.tick()
        ctx.set(dut.host.en, 0)
        ctx.set(dut.host.sel, 0)
        base = 0
        for block, own in zip(blocks, words, strict=True):
            command = {"base": base, "final": block.count - 1, "exp": block.exp, "change_exp": block.change_exp}
            await put(ctx, dut.command, command)
            base += len(own)
        while len(results) < len(blocks):
            await ctx.tick()
        ctx.set(dut.host.sel, 1)
        for addr in range(dut.depth):
            ctx.set(dut.host.addr, addr)
            for _ in range(dut.LATENCY):
                await ctx.tick()
            *_, word = await ctx.tick().sample(dut.host.data)
            read.append([(int(word[k].weight), int(word[k].acc)) for k in range(lanes)])

    async def updates(ctx):
        for block in blocks:
            for beat in increments(SOURCE, block, lanes):
                await put(ctx, dut.increments, beat)

    async def outcomes(ctx):
        ctx.set(dut.result.ready, 1)
        while len(results) < len(blocks):
            *_, left, got = await ctx.tick().sample(dut.result.valid, dut.result.payload)
            if left:
                results.append((int(got.exp), int(got.grown), int(got.refused), int(got.vanished)))

    simulate(dut, host, updates, outcomes)
    at = 0
    for block, own, got in zip(blocks, words, results, strict=True):
        want = golden(SOURCE, block)
        assert got == (want.exp, want.grown, want.refused.sum(), want.vanished.sum())
        found = [pair for word in read[at : at + len(own)] for pair in word]
        beyond = [(1, -1)] * (-block.count % lanes)  # what lies behind the last element stays
        assert found == [*zip(want.weight.tolist(), want.acc.tolist(), strict=True), *beyond]
        at += len(own)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["weight", "acc", "change"])
def test_the_comparison_can_fail(change):
    run = Run(SOURCE, 2, [quiet(3), growing(4)]).check()
    block = run.blocks[1]
    other = [x + 100 if k == 1 else x for k, x in enumerate(getattr(block, change))]
    run.blocks[1] = Block(**vars(block) | {change: other})
    with pytest.raises(AssertionError):
        run.check()


def test_what_is_refused():
    for lanes, text in ((0, "lanes must be a positive integer, not 0"), (3, "lanes must be a power of two, not 3")):
        with pytest.raises(ValueError, match=text):
            BlockUpdater(SOURCE, lanes, 16)
    for depth in (1, 2.5):
        with pytest.raises(ValueError, match=f"depth must be an integer of at least 2, not {depth!r}"):
            BlockUpdater(SOURCE, 2, depth)
    with pytest.raises(ValueError, match="read_latency must be a positive integer, not 0"):
        BlockUpdater(SOURCE, 2, 16, 0)
