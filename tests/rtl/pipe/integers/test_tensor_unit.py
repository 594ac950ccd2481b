# amaranth: UnusedElaboratable=no
"""Steps of tensor registers against :class:`concord.golden.tensor_registers.TensorRegisters`."""

import random

import pytest

from concord.golden.integers import IntegerRangeError
from concord.golden.tensor_registers import TensorRegisters
from concord.spec import timing
from concord.spec.integers import FACTORS, SUM_BITS, TENSORS
from concord.spec.operations import TENSOR_OPS, Op
from concord.spec.training import TRAIN_EXP_MAX
from concord_rtl.pipe.integers.highest_bit import HighestBit
from concord_rtl.pipe.integers.tensor_unit import TensorUnit
from support.bench import shared, simulate

EXPS = (0, 1, -1, 127, 128, 126, -127, -128, -129, 511, -512, 255, -256)


def random_top(rng, bits=SUM_BITS):
    """A magnitude, often a power of two or next to one."""
    size = rng.randrange(bits)
    return rng.choice(
        [0, 0, (1 << bits) - 1, (1 << bits - 1) - 1, 1 << size, (1 << size) - 1, (1 << size) + 1, 3 << size,
         rng.getrandbits(size + 1)]
    ) & (1 << bits) - 1  # fmt: skip


def random_exp(rng):
    return rng.choice([rng.choice(EXPS), rng.randrange(-512, 512), rng.randrange(-140, 140), rng.randrange(-40, 40)])


class Bench:
    """The unit beside the golden registers; every method checks what it does."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut, self.golden = ctx, dut, TensorRegisters()

    async def strobe(self, name, **values):
        for port, value in values.items():
            self.ctx.set(getattr(self.dut, port), value)
        self.ctx.set(getattr(self.dut, name), 1)
        trap = self.ctx.get(self.dut.trap)
        await self.ctx.tick()
        self.ctx.set(getattr(self.dut, name), 0)
        return trap

    async def _write(self, port, index, word):
        self.ctx.set(port.addr, index)
        self.ctx.set(port.data, word)
        self.ctx.set(port.en, 1)
        await self.ctx.tick()
        self.ctx.set(port.en, 0)

    async def write(self, index, top, exp):
        await self._write(self.dut.write, index, {"top": top, "exp": exp})
        self.golden.top[index], self.golden.exp[index] = top, exp

    async def write_factor(self, index, mant, exp):
        await self._write(self.dut.factor_write, index, {"mant": mant, "exp": exp})
        self.golden.mant[index], self.golden.factor_exp[index] = mant, exp

    async def read(self, index):
        self.ctx.set(self.dut.host_addr, index)
        await self.ctx.tick().repeat(TensorUnit.HOST_LATENCY)
        word = self.ctx.get(self.dut.host_data)
        return int(word.top), int(word.exp)

    async def check_register(self, index):
        want = int(self.golden.top[index]), int(self.golden.exp[index])
        got = await self.read(index)
        assert got == want, f"register {index}: {got}, not {want}"

    async def step(self, op, **fields):
        """A step; returns whether it has trapped."""
        names = {
            name: fields.get(name, 0) for name in ("z", "x", "y", "exp", "place", "factor", "accumulators", "coarser")
        }
        self.ctx.set(self.dut.step, names | {"op": op, "bits": fields.get("bits", 32)})
        self.ctx.set(self.dut.start, 1)
        assert not self.ctx.get(self.dut.busy)
        await self.ctx.tick()
        self.ctx.set(self.dut.start, 0)
        self.ctx.set(self.dut.step, {})  # the unit keeps it
        traps, cycles = [], 1
        while self.ctx.get(self.dut.busy):
            traps.append(self.ctx.get(self.dut.trap))
            await self.ctx.tick()
            cycles += 1
        assert cycles == (timing.TENSOR_SCALE if op is Op.T_SCALE else timing.TENSOR_STEP)
        assert not any(traps[:-1]) and not self.ctx.get(self.dut.trap)
        try:
            self.golden.step(op, **fields)
            wanted = False
        except IntegerRangeError:
            wanted = True
        assert traps[-1] == wanted, f"{op.name} {fields}"
        return wanted

    def check_outputs(self):
        """What is there for the chain that follows."""
        golden, dut, get = self.golden, self.dut, self.ctx.get
        for port, (right, bits) in zip((dut.round0, dut.round1), golden.rounding, strict=True):
            assert (get(port.right), get(port.limit)) == (right, (1 << bits - 1) - 1)
        assert (get(dut.moves.first), get(dut.moves.second)) == tuple(min(move, 63) for move in golden.moves)
        weights, change, accumulators, coarser = golden.update
        want = weights, accumulators, coarser, int(golden.exp[weights]), int(golden.exp[change])
        names = ("weights", "accumulators", "coarser", "exp", "change_exp")
        got = tuple(get(getattr(dut.update, name)) for name in names)
        assert got == want

    async def updated(self, grown, top):
        """The end of an update; returns whether it has trapped."""
        trap = await self.strobe("updated", grown=grown, top=top)
        weights = self.golden.update[0]
        exp = int(self.golden.exp[weights]) + grown
        assert trap == (exp > TRAIN_EXP_MAX)
        if not trap:
            self.golden.exp[weights], self.golden.top[weights] = exp, top
        return bool(trap)

    async def peak(self, index, top):
        assert not await self.strobe("peak", peak_tensor=index, top=top)
        self.golden.top[index] = top

    async def restart(self):
        """A new run: registers stay, what steps have left does not."""
        assert not await self.strobe("reset")
        await self.ctx.tick()
        old = self.golden
        self.golden = TensorRegisters(old.top, old.exp, old.mant, old.factor_exp)


def run(bench):
    async def body(ctx):
        await bench(Bench(ctx, dut))

    dut = shared(TensorUnit)
    simulate(dut, body, cycles=60_000, compiled=True)


def random_fields(rng, registers):
    fields = {name: rng.choice(registers) for name in "zxy"}
    return fields | {
        "exp": random_exp(rng), "bits": rng.choice([2, 3, 8, 16, 31, 32, rng.randrange(2, 33)]),
        "place": rng.randrange(2), "factor": rng.randrange(FACTORS), "accumulators": rng.getrandbits(14),
        "coarser": rng.randrange(6),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("op", TENSOR_OPS, ids=lambda op: op.name)
def test_steps_of_any_registers(op):
    rng = random.Random(int(op))
    traps = []

    async def bench(unit):
        for case in range(250):
            x, y = (rng.sample(range(TENSORS), 2)) if rng.random() < 0.9 else [rng.randrange(TENSORS)] * 2
            base = random_exp(rng)
            near = max(-512, min(511, base + rng.randrange(-48, 49)))
            tops = [random_top(rng, rng.choice((32, 47, 48))) for _ in "xy"]
            if rng.random() < 0.1:  # where a grid may be out of range
                base, near, tops[0] = 511, 500, (1 << rng.choice((46, 47))) - 1 + rng.randrange(2)
            await unit.write(x, tops[0], base)
            await unit.write(y, tops[1], rng.choice((near, near, random_exp(rng))))
            fields = random_fields(rng, [x, y]) | {"x": x, "y": y}
            if rng.random() < 0.5:
                fields["z"] = rng.randrange(TENSORS)
            mant = rng.choice([0, 1, -1, 65535, -65536, -65535, rng.randrange(-65536, 65536)])
            await unit.write_factor(fields["factor"], mant, random_exp(rng))
            traps.append(await unit.step(op, **fields))
            if not traps[-1]:
                unit.check_outputs()
            for index in {x, y, fields["z"]}:
                await unit.check_register(index)
            if case % 50 == 49:
                await unit.restart()
                unit.check_outputs()

    run(bench)
    with_traps = op not in (Op.T_SET, Op.T_UPD)
    assert any(traps) == with_traps and not all(traps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_programs(seed):
    """Steps on a few registers, whose results they read, with what chains and the host do in between."""
    rng = random.Random(seed)
    counts = {"steps": 0, "traps": 0, "grown": 0}

    async def bench(unit):
        registers = [0, 1, 2, 5, 63]
        for _ in range(700):
            match rng.randrange(12):
                case 0:
                    await unit.write(rng.choice(registers), random_top(rng, 32), rng.randrange(-60, 60))
                case 1:
                    await unit.write_factor(
                        rng.randrange(FACTORS), rng.randrange(-65536, 65536), rng.randrange(-20, 20)
                    )
                case 2 | 3:
                    await unit.peak(rng.choice(registers), random_top(rng, SUM_BITS - 1))
                case 4:
                    grown = rng.randrange(2)
                    counts["grown"] += grown and not await unit.updated(grown, rng.randrange(128))
                case 5 if rng.random() < 0.3:
                    await unit.restart()
                case _:
                    fields = random_fields(rng, registers) | {"exp": rng.randrange(-60, 60)}
                    trapped = await unit.step(rng.choice(TENSOR_OPS), **fields)
                    counts["traps" if trapped else "steps"] += 1
                    if trapped:  # that ends a run
                        await unit.restart()
            unit.check_outputs()
            await unit.check_register(rng.choice(registers))
        for index in range(TENSORS):
            await unit.check_register(index)

    run(bench)
    assert counts["steps"] > 150 and counts["traps"] > 3 and counts["grown"] > 3, counts


@pytest.mark.parametrize("bits", [2, 8, 16, 32])
def test_fits_of_powers_of_two(bits):
    async def bench(unit):
        for size in range(SUM_BITS):
            for top in {(1 << size) - 1, 1 << size, (1 << size) + 1}:
                await unit.write(3, top, 0)
                assert not await unit.step(Op.T_FIT, z=4, x=3, bits=bits, place=1)
                unit.check_outputs()
                await unit.check_register(4)

    run(bench)


def test_sums_where_both_have_to_be_coarser():
    """The grid is above both exponents, by one."""

    async def bench(unit):
        await unit.write(1, (1 << 47) - 1, 10)
        await unit.write(2, (1 << 47) - 1, 10)
        await unit.step(Op.T_ADD, z=3, x=1, y=2)
        assert unit.golden.moves == (1, 1) and unit.golden.exp[3] == 11
        unit.check_outputs()
        await unit.check_register(3)

    run(bench)


def test_a_bias_has_46_bits_on_its_grid():
    async def bench(unit):
        for size, trap in ((14, False), (15, True)):
            await unit.write(1, 0, -20)
            await unit.write(2, (1 << size) - 1, 12)
            assert await unit.step(Op.T_BIAS, z=3, x=1, y=2) == trap
            if not trap:
                assert unit.golden.moves == (0, -32)
                unit.check_outputs()

    run(bench)


def test_an_exponent_of_weights_ends_at_127():
    async def bench(unit):
        await unit.write(9, 5, TRAIN_EXP_MAX - 1)
        await unit.write(0, 1, 3)
        await unit.step(Op.T_UPD, z=9, x=0, accumulators=77, coarser=3)
        for grown, trap in ((0, False), (1, False), (0, False), (1, True)):
            assert await unit.updated(grown, 64) == trap
            unit.check_outputs()
            await unit.check_register(9)

    run(bench)


def test_the_factor_of_a_chain():
    async def bench(unit):
        for k in range(FACTORS):
            await unit.write_factor(k, 1000 * k - 3000, k)
        await unit.step(Op.T_SCALE, z=1, x=2, factor=5)
        for k in range(FACTORS):
            unit.ctx.set(unit.dut.factor_number, k)
            await unit.ctx.tick()
            assert unit.ctx.get(unit.dut.factor) == 1000 * k - 3000

    run(bench)


def test_highest_bits():
    dut = HighestBit()
    rng = random.Random(7)

    async def bench(ctx):
        for value in [1 << k for k in range(SUM_BITS)] + [random_top(rng) for _ in range(300)]:
            ctx.set(dut.i, value)
            await ctx.tick().repeat(HighestBit.LATENCY)
            got = ctx.get(dut.place), ctx.get(dut.some), ctx.get(dut.single)
            assert got == (max(value.bit_length() - 1, 0), value != 0, value.bit_count() == 1), value

    simulate(dut, bench)
