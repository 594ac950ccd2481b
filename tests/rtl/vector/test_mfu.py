# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from concord.golden import binary16, table
from concord.spec.presets import ECP5_85F, TINY, UP5K
from concord_rtl.parts.control import MFU_CTRL, Act, AddOp
from concord_rtl.vector.mfu import Mfu
from support.bench import paced, simulate
from support.halves import SUMS, halves

CONFIGS = {"tiny": TINY, "one lane": UP5K, "ecp5-85f": ECP5_85F}
SLOTS = [
    {"low": -128, "high": 127, "offset": 128, "scale": 4, "settled_low": 0, "settled_high": 1},
    {"low": 0, "high": 100, "offset": 17, "scale": -3, "settled_low": 1, "settled_high": 0},
]


def vectors(rng, config, count):
    """Operations with their vectors: (ctrl, x, mul operand, add operand)."""
    out = []
    for _ in range(count):
        calm = rng.random() < 0.7
        x, f, g = (halves(rng, config.native, corner=0.02 if calm else 0.5) for _ in range(3))
        if calm:  # moderate numbers: results of one operation matter in the next
            x, f, g = ((v & 0xBFFF) ^ 0x3000 for v in (x, f, g))
        ctrl = {
            "mul": int(rng.integers(0, 2)),
            "add": AddOp(int(rng.integers(0, len(AddOp)))),
            "act": Act(int(rng.integers(0, len(Act)))),
            "slot": int(rng.integers(0, len(SLOTS))),
        }
        out.append((ctrl, x, f, g))
    return out


def expected(entries, ctrl, x, f, g):
    """Result and flags of one vector, per element."""
    over = np.zeros(len(x), dtype=bool)
    y = x
    if ctrl["mul"]:
        y = binary16.mul(x, f)
        over |= binary16.overflowed(y, x, f)
    z = SUMS[ctrl["add"]](y, g)
    if ctrl["add"] in (AddOp.ADD, AddOp.SUB, AddOp.RSUB):
        over |= binary16.overflowed(z, y, g)
    wild = clamped = np.zeros(len(x), dtype=bool)
    if ctrl["act"] == Act.RELU:
        z = binary16.relu(z)
    elif ctrl["act"] == Act.TABLE:
        z, wild, clamped = table.lookup(z, entries, SLOTS[ctrl["slot"]])
    return z, over, wild, clamped


def run(config, entries, work, gap=0.0):
    """Run vectors; operands come from queues, as they are taken. Some of those without a table leave early."""
    dut = Mfu(config, 0, entries.tolist(), [config.table_slot.pack(**slot) for slot in SLOTS])
    rng = np.random.default_rng(5)
    lanes = config.mfu_lanes
    queues = {"mul": [], "add": []}
    results, due, early_due, takes = {}, {}, {}, set()
    soon = (False,) * 4

    async def bench(ctx):
        time = 0

        async def tick():
            nonlocal time, soon
            for name, port in [("mul", dut.mul_operand), ("add", dut.add_operand)]:
                beat = queues[name][0] if queues[name] else rng.integers(0, 1 << 16, lanes)
                ctx.set(port, beat.tolist())
            outputs = [dut.o_valid, dut.o_first, dut.half_overflow, dut.nonfinite, dut.table_clamped, dut.o]
            before = soon
            strobes = [dut.add_soon, dut.valid_soon, dut.first_soon, dut.early_soon]
            _, _, *now, valid, first, half, nonfinite, clamped, o, early = await ctx.tick().sample(
                *strobes, *outputs, dut.early
            )
            flags, soon = (half, nonfinite, clamped), tuple(map(bool, now))
            for name in queues:
                if (name, time) in takes:
                    queues[name].pop(0)
            expected = due.pop(time, None)
            assert (bool(valid), bool(first)) == (expected is not None, expected is not None and expected[1] == 0)
            assert before == (("add", time) in takes, bool(valid), bool(first), bool(early.valid)), f"cycle {time}"
            if valid:
                results[expected] = (list(o), *map(bool, flags))
            else:
                assert not any(flags)
            assert bool(early.valid) == (time in early_due), f"cycle {time}"
            if early.valid:
                left = early_due.pop(time)
                assert bool(early.first) == (left[1] == 0)
                results[left] = (list(early["values"]), bool(early.half_overflow), False, False)
            time += 1

        for n, (ctrl, x, f, g) in enumerate(work):
            leaves = ctrl["act"] != Act.TABLE and rng.random() < 0.5
            ctx.set(dut.valid, 0)
            while rng.random() < gap:
                ctx.set(dut.i, rng.integers(0, 1 << 16, lanes).tolist())
                await tick()
            ctx.set(dut.ctrl, MFU_CTRL.const(ctrl))
            ctx.set(dut.leaves, leaves)
            ctx.set(dut.valid, 1)
            for k in range(config.beats):
                beat = slice(k * lanes, (k + 1) * lanes)
                ctx.set(dut.i, x[beat].tolist())
                ctx.set(dut.first, k == 0)
                if leaves:
                    early_due[time + dut.EARLY] = n, k
                else:
                    due[time + dut.LATENCY] = n, k
                if ctrl["mul"]:
                    queues["mul"].append(f[beat])
                    takes.add(("mul", time))
                if ctrl["add"] != AddOp.NONE:
                    queues["add"].append(g[beat])
                    takes.add(("add", time + dut.ADD_OFFSET))
                await tick()
        ctx.set(dut.valid, 0)
        for _ in range(dut.LATENCY + 2):
            await tick()
        assert not queues["mul"] and not queues["add"]

    simulate(dut, bench, cycles=len(work) * config.beats * 10 + 100)
    return [results[key] for key in sorted(results)]


def by_beats(config, z, *flags):
    for k in range(0, config.native, config.mfu_lanes):
        beat = slice(k, k + config.mfu_lanes)
        yield z[beat].tolist(), *(bool(flag[beat].any()) for flag in flags)


@pytest.mark.slow
@pytest.mark.parametrize(("config", "gap"), paced(CONFIGS, 0.5))
def test_mfu(config, gap):
    rng = np.random.default_rng(1)
    entries = rng.integers(0, 1 << 16, config.table_depth, dtype=np.uint16)
    work = vectors(rng, config, 300)
    got = iter(run(config, entries, work, gap))
    for n, (ctrl, x, f, g) in enumerate(work):
        for want in by_beats(config, *expected(entries, ctrl, x, f, g)):
            assert next(got) == want, f"vector {n}: {ctrl}"
    assert next(got, None) is None


@pytest.mark.slow
def test_relu_of_numbers_that_nothing_has_touched():
    """NaNs of both signs and every pattern become the one NaN, zeros of both signs +0."""
    entries = np.zeros(TINY.table_depth, dtype=np.uint16)
    ctrl = {"mul": 0, "add": AddOp.NONE, "act": Act.RELU, "slot": 0}
    none = np.zeros(4, dtype=np.uint16)
    special = np.array(
        [0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0x7C00, 0xFC00, 0x8000, 0, 0x8001, 1, 0xBC00, 0x3C00], np.uint16
    )
    work = [(ctrl, x, none, none) for x in special.reshape(-1, 4)]
    want = [w for v in work for w in by_beats(TINY, *expected(entries, *v))]
    assert run(TINY, entries, work) == want


@pytest.mark.slow
def test_the_comparison_can_fail():
    rng = np.random.default_rng(2)
    entries = rng.integers(0, 1 << 16, TINY.table_depth, dtype=np.uint16)
    work = vectors(rng, TINY, 30)
    got = run(TINY, entries, work)
    want = [w for v in work for w in by_beats(TINY, *expected(entries ^ 1, *v))]
    assert len(got) == len(want) and got != want


@pytest.mark.slow
def test_writes_reach_the_tables():
    dut = Mfu(TINY, 1)

    async def bench(ctx):
        ctx.set(dut.tables.write.addr, 7)
        ctx.set(dut.tables.write.data, 0x1234)
        ctx.set(dut.tables.write.en, 1)
        ctx.set(dut.tables.addr, 7)
        ctx.set(dut.tables.sel, 1)
        for _ in range(4):
            await ctx.tick()
        assert ctx.get(dut.tables.data) == 0x1234

    simulate(dut, bench)


@pytest.mark.parametrize("unit", [-1, 2, "0"])
def test_refuses_units(unit):
    with pytest.raises(ValueError, match=r"unit must be in 0\.\.1, not"):
        Mfu(TINY, unit)
