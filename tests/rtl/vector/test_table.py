# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from concord.golden import binary16, table
from concord.spec.presets import ECP5_85F, TINY, UP5K
from concord_rtl.parts.shapes import shape_of
from concord_rtl.vector.table import TableBank
from support.bench import simulate
from support.halves import check, halves

CONFIGS = {
    "tiny": TINY,
    "one lane": UP5K.replace(table_slots=1),
    "deep": ECP5_85F.replace(table_depth=4096, table_slots=16),
}


def slots(rng, config):
    """Descriptors that use the memory from end to end, among them all extremes of the scale."""
    out = []
    depth = config.table_depth
    for k in range(config.table_slots):
        low = int(rng.integers(-depth, 1))
        high = int(min(depth - 1, low + rng.integers(0, depth)))
        base = int(rng.integers(0, depth - (high - low)))
        scale = [-32, 31, 24, 3][k % 4] if k < 4 else int(rng.integers(-10, 12))
        constant_ends = {"settled_low": k & 1, "settled_high": k >> 1 & 1}
        out.append({"low": low, "high": high, "offset": base - low, "scale": scale, **constant_ends})
    out[-1] |= {"low": -depth // 2, "high": depth // 2 - 1, "offset": depth // 2, "scale": 5}
    return out


def arguments(rng, config, slot, count):
    """Numbers around the codes of a slot, half-way cases among them, and everything else."""
    codes = rng.integers(slot["low"] - 3, slot["high"] + 4, count) + rng.choice([0, 0.5, 0.25, 0.499, -0.5], count)
    with np.errstate(over="ignore"):
        near = np.ldexp(codes, -slot["scale"]).astype(np.float16).view(np.uint16)
    return np.where(rng.random(count) < 0.6, near, halves(rng, count))


def setup(config, seed):
    rng = np.random.default_rng(seed)
    entries = rng.integers(0, 1 << 16, config.table_depth, dtype=np.uint16)
    descriptors = slots(rng, config)
    beats = 1_500
    which = np.repeat(rng.integers(0, config.table_slots, beats // 2), 2)
    xs = np.array([arguments(rng, config, descriptors[s], config.mfu_lanes) for s in which])
    return entries, descriptors, which, xs


async def look_up(ctx, dut, which, xs):
    """One beat per cycle; returns entries and flags."""
    entries, flags = [], []
    for k in range(len(xs) + dut.LATENCY + 1):
        ctx.set(dut.slot, int(which[min(k, len(xs) - 1)]))
        if 0 < k <= len(xs):
            ctx.set(dut.i, xs[k - 1].tolist())
        *_, o, wild, clamped = await ctx.tick().sample(dut.o, dut.nonfinite, dut.clamped)
        if k > dut.LATENCY:
            entries.append(list(o))
            flags.append((wild, clamped))
    return np.array(entries), np.array(flags)


def compare(got, flags, entries, descriptors, which, xs):
    want = np.empty(xs.shape, dtype=np.uint16)
    raised = np.empty((len(xs), 2), dtype=bool)
    for k, s in enumerate(which):
        want[k], wild, clamped = table.lookup(xs[k], entries, descriptors[s])
        raised[k] = wild.any(), clamped.any()
    check(got.ravel(), want.ravel(), xs.ravel(), np.repeat(which, xs.shape[1]))
    check(flags.ravel(), raised.ravel(), np.repeat(which, 2))
    assert raised[:, 1].any() and not raised[:, 1].all()


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_initial_contents(config):
    entries, descriptors, which, xs = setup(config, 1)
    words = [config.table_slot.pack(**slot) for slot in descriptors]
    dut = TableBank(config, entries.tolist(), words)

    async def bench(ctx):
        compare(*await look_up(ctx, dut, which, xs), entries, descriptors, which, xs)

    simulate(dut, bench)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, UP5K], ids=["tiny", "one lane"])
def test_written_contents_and_host_reads(config):
    entries, descriptors, which, xs = setup(config, 2)
    dut = TableBank(config)

    async def bench(ctx):
        ctx.set(dut.tables.write.en, 1)
        for k, entry in enumerate(entries.tolist()):
            ctx.set(dut.tables.write.addr, k)
            ctx.set(dut.tables.write.data, entry)
            await ctx.tick()
        ctx.set(dut.tables.write.en, 0)
        ctx.set(dut.tables.slot_write.en, 1)
        for k, slot in enumerate(descriptors):
            ctx.set(dut.tables.slot_write.addr, k)
            ctx.set(dut.tables.slot_write.data, shape_of(config.table_slot).const(slot))
            await ctx.tick()
        ctx.set(dut.tables.slot_write.en, 0)
        ctx.set(dut.tables.sel, 1)
        for k, entry in enumerate(entries.tolist()):
            ctx.set(dut.tables.addr, k)
            for _ in range(dut.HOST_LATENCY):
                await ctx.tick()
            assert ctx.get(dut.tables.data) == entry
        ctx.set(dut.tables.sel, 0)
        compare(*await look_up(ctx, dut, which, xs), entries, descriptors, which, xs)

    simulate(dut, bench)


def near_the_ends(slot):
    """All binary16 patterns within a code of the ends, on both sides of the borders, and special ones."""
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        codes = np.ldexp(binary16.decode(every), slot["scale"])
    near = np.minimum(np.abs(codes - slot["low"]), np.abs(codes - slot["high"])) <= 1
    return np.concatenate([every[near], binary16.encode([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, -65504])])


@pytest.mark.slow
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("constant_ends", [0, 1, 2, 3])
def test_numbers_at_the_ends(constant_ends, held):
    """Where a code is the last one, where it is beyond it, and whether that is told; one lane, inputs held or not."""
    slot = {
        "low": -20,
        "high": 11,
        "offset": 100,
        "scale": 3,
        "settled_low": constant_ends & 1,
        "settled_high": constant_ends >> 1,
    }
    entries = np.random.default_rng(4).integers(0, 1 << 16, UP5K.table_depth, dtype=np.uint16)
    dut = TableBank(UP5K, entries.tolist(), [UP5K.table_slot.pack(**slot)], held=held)
    xs = near_the_ends(slot)[:: 4 if held else 1]
    want = table.lookup(xs, entries, slot)
    assert set(want.clamped.tolist()) == ({False} if constant_ends == 3 else {False, True})

    async def bench(ctx):
        if not held:
            got, flags = await look_up(ctx, dut, np.zeros(len(xs), dtype=int), xs[:, None])
        else:
            got, flags = [], []
            for x in xs.tolist():
                ctx.set(dut.i, [x])
                for _ in range(dut.SLOT_LEAD + dut.LATENCY):
                    await ctx.tick()
                got.append(ctx.get(dut.o[0]))
                flags.append((ctx.get(dut.nonfinite), ctx.get(dut.clamped)))
        check(np.ravel(got), want.entries, xs)
        check(np.array(flags)[:, 0], want.nonfinite, xs)
        check(np.array(flags)[:, 1], want.clamped, xs)

    simulate(dut, bench, cycles=20 * len(xs) + 100)


@pytest.mark.slow
def test_the_comparison_can_fail():
    entries, descriptors, which, xs = setup(TINY, 3)
    dut = TableBank(TINY, entries.tolist(), [TINY.table_slot.pack(**slot) for slot in descriptors])
    entries = entries ^ (np.arange(len(entries)) == 130)

    async def bench(ctx):
        with pytest.raises(AssertionError, match="of 3000 differ"):
            compare(*await look_up(ctx, dut, which, xs), entries, descriptors, which, xs)

    simulate(dut, bench)


def test_refuses_too_many_entries():
    with pytest.raises(ValueError, match="table_init must have at most 256 items, not 257"):
        TableBank(TINY, [0] * 257)
    with pytest.raises(ValueError, match="slot_init must have at most 4 items, not 5"):
        TableBank(TINY, (), [0] * 5)
