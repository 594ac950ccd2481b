"""Units of element-serial configurations, and one chain; programs on the whole are in test_core and test_programs."""

import random

import numpy as np
import pytest
from amaranth.hdl import signed

from concord.emulator import ReferenceMachine
from concord.golden import binary16
from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec.config import SERIAL_ROWS
from concord.spec.memmap import Reg
from concord.spec.presets import UP5K
from concord_rtl.arith.binary16_mul import Binary16Mul
from concord_rtl.element_serial.dot_product import DotProduct
from concord_rtl.element_serial.grid_adder import GridAdder
from concord_rtl.host.counter_bank import CounterBank
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.parts.control import AddOp
from support.bench import simulate
from support.core_bench import execute
from support.halves import CORNERS, SUMS, check, pairs


def add(a, b, ops, config=UP5K):
    """Results and overflow flags of the grid adder, its terms added up here."""
    dut = GridAdder(config)
    found, flags = [], []

    async def bench(ctx):
        for x, y, op in zip(a.tolist(), b.tolist(), ops.tolist(), strict=True):
            ctx.set(dut.a, x)
            ctx.set(dut.b, y)
            ctx.set(dut.op, AddOp(op))
            total = 0
            for second in (0, 1):
                ctx.set(dut.second, second)
                *_, term, shift = await ctx.tick().sample(dut.term, dut.shift)
                total += term << shift
            ctx.set(dut.acc, total)
            for _ in range(dut.LATENCY):
                await ctx.tick()
            found.append(ctx.get(dut.o))
            flags.append(ctx.get(dut.overflow))

    simulate(dut, bench, cycles=20 * len(a))
    return np.array(found, dtype=np.uint16), np.array(flags)


def compare(a, b, ops):
    want = np.select([ops == op.value for op in SUMS], [f(a, b) for f in SUMS.values()]).astype(np.uint16)
    o, overflow = add(a, b, ops)
    check(o, want, a, b, ops)
    sums = np.isin(ops, [op.value for op in (AddOp.ADD, AddOp.SUB, AddOp.RSUB)])
    check(overflow, binary16.overflowed(want, a, b) & sums, a, b, ops)


@pytest.mark.slow
def test_sums_on_the_grid_are_those_of_binary16():
    rng = np.random.default_rng(1)
    a, b = pairs(rng, 4_000)
    compare(a, b, rng.integers(1, 6, len(a)))


@pytest.mark.slow
def test_corners_of_sums_on_the_grid():
    a, b = (x.ravel() for x in np.meshgrid(CORNERS[::3], CORNERS[1::5]))
    for op in (AddOp.ADD, AddOp.SUB, AddOp.MAX):
        compare(a, b, np.full(len(a), op.value))


@pytest.mark.slow
def test_zeros_of_both_signs_on_the_grid():
    """Only the sum of two negative zeros is one."""
    zeros = np.array([0, 0x8000], dtype=np.uint16)
    near = np.array([1, 0x8001, 0x7C00, 0xFC00], dtype=np.uint16)
    a, b = (x.ravel() for x in np.meshgrid(zeros, np.concatenate([zeros, near])))
    for op in (AddOp.ADD, AddOp.SUB, AddOp.RSUB, AddOp.MAX, AddOp.MIN):
        compare(a, b, np.full(len(a), op.value))
        compare(b, a, np.full(len(a), op.value))


@pytest.mark.slow
def test_a_product_of_held_factors_is_the_same():
    a, b = pairs(np.random.default_rng(2), 1_500)
    dut, found = Binary16Mul(held=True), []

    async def bench(ctx):
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            ctx.set(dut.a, x)
            ctx.set(dut.b, y)
            for _ in range(dut.LATENCY):
                await ctx.tick()
            found.append(ctx.get(dut.o))

    simulate(dut, bench, cycles=10 * len(a))
    check(np.array(found, dtype=np.uint16), binary16.mul(a, b), a, b)


def test_columns_are_written_alone():
    rng = random.Random(3)
    columns, depth = [3, 8, 5], 16
    words = [rng.getrandbits(16) for _ in range(depth)]
    dut = ColumnMemory(columns, depth, words)

    async def bench(ctx):
        for _ in range(200):
            addr, enables, data = rng.randrange(depth), rng.randrange(8), rng.getrandbits(16)
            for port, value in ((dut.write.addr, addr), (dut.write.en, enables), (dut.write.data, data)):
                ctx.set(port, value)
            await ctx.tick()
            ctx.set(dut.write.en, 0)
            mask = sum((1 << width) - 1 << sum(columns[:k]) for k, width in enumerate(columns) if enables >> k & 1)
            words[addr] = words[addr] & ~mask | data & mask
            addr = rng.choice([addr, rng.randrange(depth)])
            ctx.set(dut.read.addr, addr)
            await ctx.tick()
            assert ctx.get(dut.read.data) == words[addr]

    simulate(dut, bench)


@pytest.mark.parametrize("lanes", [2, 4])
def test_products_of_either_kind(lanes):
    """Steps of dense and depthwise products in random order, some that do not count, and sums begun anew or not."""
    config, rng = UP5K.replace(lanes=lanes), random.Random(6)
    dut = DotProduct(config, term=signed(12), shift=range(8))
    act, wgt = config.act, config.wgt

    async def bench(ctx):
        want = [0] * SERIAL_ROWS
        for _ in range(40):
            clear = rng.randrange(1 << SERIAL_ROWS)
            ctx.set(dut.clear, clear)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            want = [0 if clear >> row & 1 else total for row, total in enumerate(want)]
            for _ in range(rng.randint(1, 5)):
                mant = [rng.randint(-act.q_max, act.q_max) for _ in range(config.native)]
                rows = [[rng.randint(-wgt.q_max, wgt.q_max) for _ in range(lanes)] for _ in range(SERIAL_ROWS)]
                exp = rng.randint(act.exp_min, act.exp_max)
                stored = [rng.randint(0, wgt.exp_max - wgt.exp_min) for _ in rows]
                depthwise, valid = rng.random() < 0.5, rng.random() < 0.8
                lane, part, own = rng.randrange(lanes), rng.randrange(config.steps), rng.choice(mant)
                ctx.set(dut.x, {"mant": mant, "exp": exp})
                ctx.set(dut.w, [{"mant": weight, "exp": e} for weight, e in zip(rows, stored, strict=True)])
                fields = {"depthwise": depthwise, "lane": lane, "part": part, "own": own, "valid": valid}
                for name, value in fields.items():
                    ctx.set(getattr(dut, name), int(value))
                await ctx.tick()
                mine = mant[part * lanes : (part + 1) * lanes]
                for row, weight in enumerate(rows):
                    dot = weight[lane] * own if depthwise else sum(a * b for a, b in zip(weight, mine, strict=True))
                    want[row] += valid * dot << exp - act.exp_min + stored[row]
            ctx.set(dut.valid, 0)
            for _ in range(dut.LATENCY):
                await ctx.tick()
            value, shift = rng.randrange(-2048, 2048), rng.randrange(8)
            for name, term in (("term", value), ("shift", shift), ("term_valid", 1)):
                ctx.set(getattr(dut, name), term)
            await ctx.tick()
            ctx.set(dut.term_valid, 0)
            want[0] += value << shift
            for _ in range(dut.TERM_LATENCY - 1):
                await ctx.tick()
            for row, total in enumerate(want):
                ctx.set(dut.second, row)
                await ctx.delay(0)
                assert ctx.get(dut.acc) == total

    simulate(dut, bench)


@pytest.mark.slow
def test_a_product_takes_all_its_steps():
    """Two parts in each of three column tiles."""
    config = UP5K.replace(lanes=2, matrix_depth=32, narrow_depth=16, wide_depth=16, program_depth=16)
    memories, rng = Memories(config), np.random.default_rng(7)
    words = assemble("set_shape rows=1, cols=3\nv_rd narrow, 2\nmv_mul 3\nv_wr wide, 1\nhalt")
    memories.program[: len(words)] = words
    for mant in (memories.narrow_mant, memories.matrix_mant):
        mant[:] = rng.integers(-50, 51, mant.shape)
    registers, left = execute(memories, cycles=1_000)
    want = memories.copy()
    ReferenceMachine(want).run()
    assert want.differences(left) == [] and want.wide[1].all()
    assert registers[Reg.DENSE_STEPS] == 6


async def word(ctx, dut, number):
    ctx.set(dut.addr, number)
    await ctx.tick()
    await ctx.tick()
    while not ctx.get(dut.valid):
        await ctx.tick()
    return ctx.get(dut.data)


def test_counters_count_from_the_last_clear():
    rng = random.Random(4)
    names = ["often", "high", "seldom", "never"]
    dut = CounterBank(names, {"high": "often"})

    async def bench(ctx):
        for _ in range(6):
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            want = dict.fromkeys(names, 0)
            for _ in range(rng.randrange(300)):
                for name, chance in (("often", 0.9), ("seldom", 0.1)):
                    event = rng.random() < chance
                    ctx.set(getattr(dut, name), event)
                    want[name] += event
                await ctx.tick()
            for name in ("often", "seldom"):
                ctx.set(getattr(dut, name), 0)
            for _ in range(dut.settle):
                await ctx.tick()
            assert {name: await word(ctx, dut, k) for k, name in enumerate(names)} == want

    simulate(dut, bench)


def test_events_before_a_clear_do_not_count():
    """Not even those that still wait for the turn of their word."""
    rng = random.Random(5)
    names = ["often", "seldom"]
    dut = CounterBank(names, {})

    async def bench(ctx):
        for _ in range(20):
            ctx.set(dut.often, 1)
            for _ in range(rng.randint(1, 2 * dut.settle)):
                ctx.set(dut.seldom, rng.random() < 0.3)
                await ctx.tick()
            ctx.set(dut.often, 0)
            ctx.set(dut.seldom, 0)
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            ctx.set(dut.seldom, 1)
            await ctx.tick()
            ctx.set(dut.seldom, 0)
            for _ in range(2 * dut.settle):
                await ctx.tick()
            assert [await word(ctx, dut, k) for k in range(2)] == [0, 1]

    simulate(dut, bench)


def test_overflow_is_counted():
    dut = CounterBank(["low", "high"], {"high": "low"})

    async def bench(ctx):
        ctx.set(dut.store.data[0], (1 << 32) - 3)
        ctx.set(dut.low, 1)
        for _ in range(5):
            await ctx.tick()
        ctx.set(dut.low, 0)
        for _ in range(2 * dut.settle):
            await ctx.tick()
        assert [await word(ctx, dut, k) for k in range(2)] == [2, 1]

    simulate(dut, bench)
