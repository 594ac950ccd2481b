# amaranth: UnusedElaboratable=no
"""Window unit and matrix-vector unit together: sliding products against exact integers, among other jobs."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from concord.golden.accumulate import acc_to_binary16
from concord.spec import multipliers
from concord.spec.presets import TINY
from concord.spec.windows import lane_of
from concord_rtl.mvm.mvm import Mvm
from concord_rtl.mvm.window import WindowUnit, push_layout
from support.bench import simulate

pytestmark = pytest.mark.slow

#: Engines and lanes of their own; what a product takes fits into 40 bits.
ROWS = TINY.replace(name="rows", lanes=4, window_taps=4, acc_width=40)
ENGINES = ROWS.replace(name="engines", engines=2)
#: Of these the second half of the places is partly there, and whole.
SIX = TINY.replace(name="six", native=8, lanes=8, mfu_lanes=4, window_taps=6, acc_width=40)
EIGHT = SIX.replace(name="eight", window_taps=8)
PAIRED_ENGINES = ROWS.replace(name="paired-engines", engines=2)
#: With one place in the second half, and with all of them.
NINE = TINY.replace(name="nine", native=16, lanes=16, mfu_lanes=8, window_taps=9, acc_width=40)
SIXTEEN = NINE.replace(name="sixteen", window_taps=16)


class Together(wiring.Component):
    """Both units, connected as in the pipe."""

    def __init__(self, config):
        self.config, self.window, self.mvm = config, WindowUnit(config), Mvm(config, slots=16)
        super().__init__({"valid": In(1), "i": In(push_layout(config))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.window, m.submodules.mvm = window, mvm = self.window, self.mvm
        rest = Signal(range(self.config.beats))  # cycles until a vector may be launched
        m.d.comb += [
            window.valid.eq(self.valid),
            window.i.eq(self.i),
            mvm.window.push.eq(window.push),
            mvm.window.copy.eq(window.copy),
            mvm.window.mant.eq(window.mant),
            mvm.window.step.eq(window.o),
            mvm.launch.eq(mvm.ready & (rest == 0)),
        ]
        with m.If(mvm.launch):
            m.d.sync += rest.eq(self.config.beats - 1)
        with m.Elif(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        return m


def vector_of(rng, config, exponents):
    """A vector, and whether it lies outside the image; exponents are above ``act_exp_min``."""
    q = config.act.q_max
    mant = [rng.choice([-q, q, rng.randint(-q, q)]) for _ in range(config.native)]
    return {"mant": mant, "exp": rng.choice(exponents)}, rng.random() < 0.15


def weights_of(rng, config):
    """Mantissas and exponent of all rows of a matrix word."""
    q, span = config.wgt.q_max, config.wgt_exp_max - config.wgt_exp_min
    return [([rng.randint(-q, q) for _ in range(config.lanes)], rng.randint(0, span)) for _ in range(config.rows)]


def scaled(config, product, *exponents):
    """A product in units of the accumulator; exponents are above the least ones."""
    return product << sum(exponents) + config.act_exp_min + config.wgt_exp_min + config.acc_frac


def windows_in(vectors):
    """How many windows some vectors complete."""
    return sum(vector["last"] for vector in vectors)


def slide(rng, config, taps, count, exponents):
    """Vectors and weights of ``count`` windows, of one new vector each behind the first one, and their sums."""
    w, vectors, places, sums = weights_of(rng, config), [], [], []
    for k in range(count):
        for n in range(1 if k else taps):
            vector, outside = vector_of(rng, config, exponents)
            marks = {"clears": k == n == 0, "grows": k == 0, "last": k > 0 or n == taps - 1}
            vectors.append({**vector, "outside": outside, **marks})
            places = [vectors[-1], *places][:taps]
        sums.append([
            sum(
                scaled(config, mant[lane_of(place, config.lanes)] * vector["mant"][n], exp, vector["exp"])
                for place, vector in enumerate(places)
                if not vector["outside"]
            )
            for n, (mant, exp) in enumerate(w[: config.native])
        ])  # fmt: skip
    return (vectors, w), sums


def job_of(rng, config, depthwise):
    """A job of one step, and the sums of its vectors."""
    (vector, _), w, lane = vector_of(rng, config, [0, 3, 9]), weights_of(rng, config), rng.randrange(config.lanes)
    count = 1 if depthwise else config.engines
    step = {"valid": 1, "first": 1, "last": 1, "zero": 0, "part": 0, "vectors": count - 1}
    sums = []
    for n, (mant, exp) in enumerate(w[: count * config.native]):
        own = mant[lane] * vector["mant"][n % config.native]
        dot = sum(a * b for a, b in zip(mant, vector["mant"], strict=True))
        sums.append(scaled(config, own if depthwise else dot, exp, vector["exp"]))
    vector["exp"] += config.act_exp_min
    part = step | {"depthwise": int(depthwise), "lane": lane}, vector, w
    return part, [sums[k : k + config.native] for k in range(0, len(sums), config.native)]


def execute(config, parts):
    """Run parts one after the other; beats of all vectors. What nobody asked for is on all other inputs meanwhile.

    A part is (vectors, weights) of windows, or (control, vector, weights) of a job of one step.
    """
    dut = Together(config)
    mvm, row, beats, rng = dut.mvm, config.matrix_row, [], random.Random(4)
    wanted = config.beats * sum(part[0]["vectors"] + 1 if len(part) == 3 else windows_in(part[0]) for part in parts)

    def word(rows):
        return sum(row.pack(mant=mant, exp=exp) << n * row.width for n, (mant, exp) in enumerate(rows))

    def idle(ctx):
        ctx.set(mvm.step.valid, 0)
        ctx.set(mvm.step.depthwise, rng.randrange(2))
        ctx.set(mvm.step.lane, rng.randrange(config.lanes))

    async def job(ctx, step, vector, w):
        ctx.set(mvm.step, step)
        await ctx.tick()
        idle(ctx)
        ctx.set(mvm.x, vector)
        await ctx.tick()
        ctx.set(mvm.x, {"mant": vector["mant"][::-1], "exp": config.act_exp_min + 1})
        await ctx.tick().repeat(mvm.W_DELAY - 1)
        ctx.set(mvm.w.as_value(), word(w))
        await ctx.tick()

    async def windows(ctx, vectors, w):
        ctx.set(mvm.w.as_value(), word(w))
        waiting, left, held = list(reversed(vectors)), windows_in(vectors), 0
        while left:
            there = bool(waiting) and held < WindowUnit.DEPTH
            idle(ctx)
            ctx.set(dut.valid, there)
            if there:
                ctx.set(dut.i, waiting.pop())
            *_, taken, done = await ctx.tick().sample(dut.window.taken, dut.window.o.last)
            held, left = held + there - taken, left - done
        await ctx.tick().repeat(mvm.W_DELAY)  # until the last weights have been used

    async def feed(ctx):
        for part in parts:
            await (job if len(part) == 3 else windows)(ctx, *part)

    async def watch(ctx):
        under_way = []
        while len(beats) < wanted:
            *_, launch, beat = await ctx.tick().sample(mvm.launch, mvm.beat)
            under_way = [cycles + 1 for cycles in under_way if cycles < mvm.LAUNCH_LATENCY + config.beats - 1]
            under_way += [0] * launch
            if any(cycles >= mvm.LAUNCH_LATENCY for cycles in under_way):
                beats.append([int(x) for x in beat])

    simulate(dut, feed, watch, cycles=5_000)
    return beats


def expected(config, sums):
    """Beats of vectors with these sums."""
    bits, *_ = acc_to_binary16(sums, config)
    firsts = range(0, config.native, config.mfu_lanes)
    return [[int(b) for b in vector[k : k + config.mfu_lanes]] for vector in bits for k in firsts]


def parts_of(config, seed, shapes):
    """Windows of these numbers of taps with other jobs in front of them, and the sums of all vectors."""
    rng, parts, sums = random.Random(seed), [], []
    for taps in shapes:
        for depthwise in (True, False):
            part, found = job_of(rng, config, depthwise)
            parts, sums = [*parts, part], sums + found
        part, found = slide(rng, config, taps, 4, rng.choice([[3], [3, 4], [0, 2, 5, 9]]))
        parts, sums = [*parts, part], sums + found
    return parts, sums


@pytest.mark.parametrize("config", [ROWS, ENGINES], ids=lambda config: config.name)
def test_rows_of_their_own(config):
    assert not multipliers.paired(config)
    parts, sums = parts_of(config, 1, range(1, 5))
    assert execute(config, parts) == expected(config, sums)


@pytest.mark.parametrize("config", [SIX, EIGHT, PAIRED_ENGINES], ids=lambda config: config.name)
def test_pairs_of_rows(config, monkeypatch):
    """Windows that end in the first half of their places, at its end, and in the second half."""
    monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    parts, sums = parts_of(config, 2, range(config.lanes // 2 - 1, config.window_taps + 1))
    assert execute(config, parts) == expected(config, sums)


@pytest.mark.parametrize(
    "config", [NINE, pytest.param(SIXTEEN, marks=pytest.mark.deep)], ids=lambda config: config.name
)
def test_pairs_of_sixteen_rows(config):
    """As in ``ecp5-85f-256``, where 3 x 3 windows have one place in the second half."""
    assert multipliers.paired(config)
    parts, sums = parts_of(config, 3, (config.window_taps, 8, 9))
    assert execute(config, parts) == expected(config, sums)
