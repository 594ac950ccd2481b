# amaranth: UnusedElaboratable=no
"""Source reads go as long as there is room for their data, and no longer."""

import pytest

from concord.spec.presets import TINY
from concord.spec.timing import VECTOR_READ, source_places
from concord_rtl.pipe.hazard import HazardGate
from concord_rtl.pipe.layouts import Reduction
from concord_rtl.pipe.source import SourceReader
from concord_rtl.pipe.tap_walker import step_layout
from support.bench import simulate

SLOTS = 3
SLIDING = TINY.replace(lanes=4, window_taps=4)


def reader():
    request = HazardGate(TINY, memories=2, payload=step_layout(TINY)).o.p.shape()
    return SourceReader(TINY, slots=SLOTS, request=request)


async def accepted(ctx, dut, most, *, reduction, first=1):
    """How many of ``most`` requests are taken within as many cycles, and some more."""
    ctx.set(dut.i.p, {"addr": 1, "memory": 0, "payload": {"reduction": reduction, "first": first, "last": 1}})
    count = 0
    for _ in range(most + 12):
        ctx.set(dut.i.valid, count < most)
        *_, moved = await ctx.tick().sample(dut.i.valid & dut.i.ready)
        count += moved
    ctx.set(dut.i.valid, 0)
    return count


@pytest.mark.parametrize("products", [0, 1, 7, 8, 9, 40])
def test_products_take_no_place_in_the_queue(products):
    dut = reader()

    async def bench(ctx):
        ctx.set(dut.free, 0)
        assert await accepted(ctx, dut, 1, reduction=Reduction.PRODUCT) == 1
        assert await accepted(ctx, dut, products, reduction=Reduction.PRODUCT, first=0) == products
        assert await accepted(ctx, dut, 30, reduction=Reduction.NONE) == source_places(TINY)
        ctx.set(dut.queue.ready, 1)
        ctx.set(dut.soon, 1)
        assert await accepted(ctx, dut, 30, reduction=Reduction.NONE) == 30

    simulate(dut, bench)


def test_only_the_first_step_of_a_product_needs_a_slot():
    dut = reader()

    async def bench(ctx):
        assert await accepted(ctx, dut, 10, reduction=Reduction.PRODUCT) == SLOTS
        assert await accepted(ctx, dut, 10, reduction=Reduction.PRODUCT, first=0) == 10
        ctx.set(dut.free, 1)
        await ctx.tick()
        ctx.set(dut.free, 0)
        assert await accepted(ctx, dut, 10, reduction=Reduction.PRODUCT) == 1

    simulate(dut, bench)


async def offered(ctx, dut, cycles, **payload):
    """How many requests of a product are taken within some cycles, all of them alike."""
    ctx.set(dut.i.p, {"addr": 1, "memory": 0, "payload": {"reduction": Reduction.PRODUCT, **payload}})
    ctx.set(dut.i.valid, 1)
    count = 0
    for _ in range(cycles):
        *_, moved = await ctx.tick().sample(dut.i.valid & dut.i.ready)
        count += moved
    ctx.set(dut.i.valid, 0)
    return count


def test_vectors_of_windows_need_a_place_each_and_the_next_chain_waits_for_the_last_step():
    request = HazardGate(SLIDING, memories=2, payload=step_layout(SLIDING)).o.p.shape()
    dut = SourceReader(SLIDING, slots=SLOTS, places=5, request=request)

    async def bench(ctx):
        assert await offered(ctx, dut, 1, sliding=1, starts=1, first=1) == 1
        assert await offered(ctx, dut, 9, sliding=1, starts=1, first=0) == 4
        ctx.set(dut.taken, 1)
        await ctx.tick().repeat(3)
        ctx.set(dut.taken, 0)
        assert await offered(ctx, dut, 1, sliding=1, starts=0, first=1) == 1
        assert await offered(ctx, dut, 9, sliding=1, starts=0, first=0) == 2
        for windows in (2, 1):
            assert await offered(ctx, dut, 4, sliding=0, starts=1, first=1) == 0, windows
            ctx.set(dut.done, 1)
            await ctx.tick()
            ctx.set(dut.done, 0)
        assert await offered(ctx, dut, 1, sliding=0, starts=1, first=1) == 1

    simulate(dut, bench)


def test_the_matrix_word_of_a_window_stays():
    request = HazardGate(SLIDING, memories=2, payload=step_layout(SLIDING)).o.p.shape()
    dut = SourceReader(SLIDING, slots=SLOTS, places=5, request=request)

    async def bench(ctx):
        assert await offered(ctx, dut, 1, sliding=1, starts=1, first=1, matrix=7) == 1
        assert await offered(ctx, dut, 3, sliding=0, starts=1, first=1, matrix=9) == 0
        assert ctx.get(dut.matrix_addr) == 7

    simulate(dut, bench)


def test_a_window_that_ends_when_another_one_begins():
    """In the same cycle: as many as before are left, one or two."""
    request = HazardGate(SLIDING, memories=2, payload=step_layout(SLIDING)).o.p.shape()
    dut = SourceReader(SLIDING, slots=8, places=5, request=request)

    async def done(ctx, times):
        for _ in range(times):
            ctx.set(dut.done, 1)
            await ctx.tick()
        ctx.set(dut.done, 0)

    async def bench(ctx):
        for begun in (1, 2):
            assert await offered(ctx, dut, begun, sliding=1, starts=0, first=1) == begun
            ctx.set(dut.done, 1)
            assert await offered(ctx, dut, 1, sliding=1, starts=0, first=1) == 1
            await done(ctx, begun - 1)
            assert await offered(ctx, dut, 3, sliding=0, starts=1, first=1) == 0, "a window is left"
            await done(ctx, 1)
            assert await offered(ctx, dut, 1, sliding=0, starts=1, first=1) == 1
            ctx.set(dut.taken, 1)
            ctx.set(dut.free, 1)
            await ctx.tick().repeat(begun + 1)
            ctx.set(dut.taken, 0)
            await ctx.tick()
            ctx.set(dut.free, 0)

    simulate(dut, bench)


@pytest.mark.parametrize("sliding", [0, 1])
def test_data_go_to_the_window_unit_or_to_the_tile_engines(sliding):
    request = HazardGate(SLIDING, memories=2, payload=step_layout(SLIDING)).o.p.shape()
    dut = SourceReader(SLIDING, slots=SLOTS, places=5, request=request)

    async def bench(ctx):
        assert await offered(ctx, dut, 1, sliding=sliding, starts=1, first=1) == 1
        strobes = []
        for _ in range(VECTOR_READ + 3):
            strobes.append((ctx.get(dut.coming_valid), ctx.get(dut.push)))
            await ctx.tick()
        engines, windows = zip(*strobes, strict=True)
        assert (sum(engines), sum(windows)) == (1 - sliding, sliding)
        assert windows.index(1) == VECTOR_READ if sliding else engines.index(1) == VECTOR_READ - 1

    simulate(dut, bench)
