# amaranth: UnusedElaboratable=no
"""Matrix-vector unit against exact integers and the golden rounding."""

import random
from itertools import chain

import pytest

from concord.golden.accumulate import acc_to_binary16, accumulate
from concord.spec import multipliers
from concord.spec.presets import ECP5_85F, ECP5_85F_256, PRESETS, TINY
from concord_rtl.memories.matrix_memory import MatrixMemory
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.mvm.mvm import Mvm
from support import naive
from support.bench import simulate

EIGHT = TINY.replace(name="eight", native=8, lanes=4, mfu_lanes=2, acc_width=40)
TWO = TINY.replace(name="two", engines=2, acc_width=40)
FOUR = TINY.replace(name="four", engines=4, lanes=4, mfu_lanes=1)
WHOLE = EIGHT.replace(name="whole", lanes=8, mfu_lanes=4, act_mant=5, wgt_mant=3)
SERIAL = TINY.replace(name="serial", lanes=1, wgt_exp_min=-7, wgt_exp_max=-7, acc_width=40)
CONFIGS = [TINY, EIGHT, TWO, FOUR, WHOLE, SERIAL]
#: Registers that terms alone leave, that sums leave, that only sums of many terms leave.
NARROW = [
    TINY.replace(name="tiny-20", acc_width=20, acc_register=20),
    TINY.replace(name="tiny-12", act_mant=5, wgt_mant=5, acc_width=12, acc_register=12),
    TINY.replace(name="tiny-36", acc_width=30, acc_register=36),
    EIGHT.replace(name="eight-44", acc_register=44),
    TWO.replace(name="two-52", acc_width=47, acc_register=52),
    SERIAL.replace(name="serial-41", acc_register=41),
]


def ids(config):
    return config.name


def number(rng, low, high):
    """A corner of a range as often as anything else in it."""
    return rng.choice([low, high, 0 if low <= 0 <= high else low, rng.randint(low, high), rng.randint(low, high)])


def vector(rng, config):
    q = config.act.q_max
    if rng.random() < 0.1:
        return {"mant": [0] * config.native, "exp": config.act_exp_min}
    if rng.random() < 0.1:
        return {"mant": [rng.choice([-q, q])] * config.native, "exp": config.act.exp_max}
    return {
        "mant": [number(rng, -q, q) for _ in range(config.native)],
        "exp": number(rng, config.act_exp_min, config.act.exp_max),
    }


def matrix(rng, config):
    q = config.wgt.q_max
    span = config.wgt_exp_max - config.wgt_exp_min
    return [
        {"mant": [number(rng, -q, q) for _ in range(config.lanes)], "exp": number(rng, 0, span)}
        for _ in range(config.rows)
    ]


def make_job(rng, config, steps, depthwise=False):
    """Steps with their operands, and the accumulators that must come out."""
    engines = 1 if depthwise else rng.randint(1, config.engines)
    sums = [[] for _ in range(config.rows)]
    job = []
    for k in range(steps):
        x, w = vector(rng, config), matrix(rng, config)
        step = {
            "valid": 1,
            "first": int(k == 0),
            "last": int(k == steps - 1),
            "zero": int(rng.random() < 0.1),
            "depthwise": int(depthwise),
            "lane": rng.randrange(config.lanes),
            "part": rng.randrange(config.steps),
            "vectors": engines - 1 if k == steps - 1 else rng.randrange(config.engines),
        }
        for n in range(config.rows):
            if depthwise:
                dot = w[n]["mant"][step["lane"]] * x["mant"][n % config.native]
            else:
                elements = x["mant"][step["part"] * config.lanes :]
                dot = sum(a * b for a, b in zip(w[n]["mant"], elements, strict=False))
            shift = x["exp"] + w[n]["exp"] + config.wgt_exp_min + config.acc_frac
            sums[n].append(0 if step["zero"] else dot << shift)
        job.append((step, x, w))
    acc = [naive.register_sum(terms, config.acc_register) for terms in sums]
    return job, [acc[e * config.native :][: config.native] for e in range(engines)]


def set_step(ctx, dut, item, vectors, words):
    """Present a step, and vector and matrix word of earlier ones; ``vectors`` and ``words`` are those under way."""
    step, x, w = item
    rows = 0
    for n, row in enumerate(w):
        rows |= dut.config.matrix_row.pack(**row) << n * dut.config.matrix_row.width
    ctx.set(dut.step, step)
    vectors.append(dut.config.narrow_word.pack(**x))
    ctx.set(dut.x.as_value(), vectors.pop(0))
    words.append(rows)
    ctx.set(dut.w.as_value(), words.pop(0))


def drive(dut, jobs, *, gap=0.0, wait=0.0, hold=0, seed=0):
    """Run jobs with as many outstanding as the queue allows; return the beats of every vector, in order.

    ``gap`` and ``wait`` are the probabilities of an idle cycle at the input and at the output; nothing is launched
    before cycle ``hold``.
    """
    rng = random.Random(seed)
    idle = random.Random(seed + 1)
    config = dut.config
    steps = [(k == 0, item) for job in jobs for k, item in enumerate(job)]
    wanted = sum(job[-1][0]["vectors"] + 1 for job in jobs)
    seen, launched, most = [], [], [0]

    async def bench(ctx):
        waiting, outstanding, rest = list(reversed(steps)), 0, 0
        under_way = [0], [0] * (1 + dut.W_DELAY)
        while len(launched) < wanted or len(seen) < launched[-1] + dut.LAUNCH_LATENCY + config.beats:
            now = len(seen)
            credit = waiting and not (waiting[-1][0] and outstanding == dut.RESULT_SLOTS)
            if credit and rng.random() >= gap:
                begins, item = waiting.pop()
                outstanding += begins
                set_step(ctx, dut, item, *under_way)
            else:
                set_step(ctx, dut, make_job(idle, config, 1, idle.random() < 0.5)[0][0], *under_way)
                ctx.set(dut.step.valid, 0)
            most[0] = max(most[0], outstanding)
            launch = bool(ctx.get(dut.ready)) and rest <= 0 and now >= hold and rng.random() >= wait
            ctx.set(dut.launch, launch)
            rest = config.beats - 1 if launch else rest - 1
            if launch:
                launched.append(now)
            *_, beat, acc_over, half_over, free = await ctx.tick().sample(
                dut.beat, dut.acc_overflow, dut.half_overflow, dut.free
            )
            outstanding -= free
            seen.append((list(beat), acc_over, half_over))
        assert outstanding == 0 and not waiting

    simulate(dut, bench, cycles=20_000)
    return [seen[at + dut.LAUNCH_LATENCY :][: config.beats] for at in launched], launched, most[0]


def expected(config, vectors):
    """What the converters make of accumulators: beats of (elements, flag, flag)."""
    beats = []
    for accs in vectors:
        bits, acc_over, half_over = acc_to_binary16(accs, config)
        lanes = range(0, config.native, config.mfu_lanes)
        beats.append(
            [
                (
                    [int(b) for b in bits[k : k + config.mfu_lanes]],
                    int(acc_over[k : k + config.mfu_lanes].any()),
                    int(half_over[k : k + config.mfu_lanes].any()),
                )
                for k in lanes
            ]
        )
    return beats


def some_jobs(config, count, *, longest, seed):
    rng = random.Random(seed)
    jobs, vectors = [], []
    for _ in range(count):
        job, accs = make_job(rng, config, rng.choice([1, 1, 2, rng.randint(1, longest)]), rng.random() < 0.4)
        jobs.append(job)
        vectors += accs
    return jobs, vectors


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=ids)
@pytest.mark.parametrize("gap, wait", [(0.0, 0.0), pytest.param(0.4, 0.0, marks=pytest.mark.deep), (0.1, 0.8)])
def test_random_jobs(config, gap, wait):
    jobs, vectors = some_jobs(config, 40, longest=9, seed=7)
    got, *_ = drive(Mvm(config), jobs, gap=gap, wait=wait, seed=3)
    assert got == expected(config, vectors)


@pytest.mark.slow
@pytest.mark.parametrize("config", NARROW, ids=ids)
@pytest.mark.parametrize("gap, wait", [pytest.param(0.0, 0.0, marks=pytest.mark.deep), (0.3, 0.6)])
def test_registers_of_few_bits(config, gap, wait):
    """Sums and terms that leave the register, in the middle of a job and with its last step."""
    jobs, vectors = some_jobs(config, 25, longest=9, seed=9)
    got, *_ = drive(Mvm(config), jobs, gap=gap, wait=wait, seed=4)
    assert got == expected(config, vectors)
    assert any(flag for beats in got for _, flag, _ in beats)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, EIGHT, TWO, WHOLE, NARROW[3]], ids=ids)
def test_pairs_of_rows(config, monkeypatch):
    """Rows that share their multipliers, dense and depthwise jobs in turn: the same results, one cycle later."""
    alone = Mvm(config).LATENCY
    monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    dut = Mvm(config)
    assert multipliers.paired(config) and dut.LATENCY == alone + 1
    jobs, vectors = some_jobs(config, 25, longest=6, seed=8)
    got, launched, _ = drive(dut, jobs, gap=0.1, wait=0.2, seed=3)
    assert got == expected(config, vectors)
    assert launched[0] >= 1 + dut.LATENCY


def test_rows_share_multipliers_where_no_device_has_enough():
    assert [config.name for config in PRESETS.values() if multipliers.paired(config)] == ["ecp5-85f-256"]
    assert multipliers.lanes_in_logic(ECP5_85F_256) == 0
    # 256 pairs and 8 multipliers of the multifunction units are 108 too many for 16 pairs of rows.
    assert multipliers.lanes_in_logic(ECP5_85F_256.replace(engines=2, matrix_depth=512)) == 7
    assert not multipliers.paired(ECP5_85F_256.replace(wgt_mant=9)), "too wide for a pair"


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, EIGHT, TWO], ids=ids)
@pytest.mark.parametrize("slots", [1, 3, 8])
def test_queue_filled_to_the_brim(config, slots):
    jobs, vectors = some_jobs(config, 2 * slots + 3, longest=1, seed=slots)
    dut = Mvm(config, slots=slots)
    got, _, most = drive(dut, jobs, hold=60, seed=1)
    assert most == slots
    assert got == expected(config, vectors)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, EIGHT, TWO], ids=ids)
def test_full_rate(config):
    """One step per cycle with vectors back to back, as long as a job takes no less than its vectors take to leave."""
    rng = random.Random(5)
    jobs, vectors = [], []
    for k in range(30):
        job, accs = make_job(rng, config, config.beats * config.engines, k % 3 == 0)
        jobs.append(job)
        vectors += accs
    dut = Mvm(config, slots=16)
    got, launched, _ = drive(dut, jobs)
    assert got == expected(config, vectors)
    assert launched[-1] <= len(jobs) * config.beats * config.engines + 1 + dut.LATENCY


@pytest.mark.slow
def test_latency_is_as_stated():
    dut = Mvm(EIGHT)
    job, vectors = make_job(random.Random(2), EIGHT, 1)
    got, launched, _ = drive(dut, [job])
    assert launched == [1 + dut.LATENCY]
    assert got == expected(EIGHT, vectors)


@pytest.mark.slow
@pytest.mark.parametrize("config", [EIGHT, TWO], ids=ids)
def test_whole_tiles_against_golden(config):
    """Columns of native tiles: what the golden model calls a dense product."""
    rng = random.Random(11)
    columns = 5
    xs = [vector(rng, config) for _ in range(columns)]
    rows = [[matrix(rng, config) for _ in range(config.steps)] for _ in range(columns)]
    job = []
    for c in range(columns):
        for part in range(config.steps):
            for n, row in enumerate(rows[c][part]):
                row["exp"] = rows[c][0][n]["exp"]
            last = c == columns - 1 and part == config.steps - 1
            step = {
                "valid": 1,
                "first": int(c == part == 0),
                "last": int(last),
                "zero": 0,
                "depthwise": 0,
                "lane": 0,
                "part": part,
                "vectors": config.engines - 1,
            }
            job.append((step, xs[c], rows[c][part]))
    got, *_ = drive(Mvm(config), [job])
    accs = accumulate(
        [x["mant"] for x in xs],
        [x["exp"] for x in xs],
        [[list(chain(*(part[n]["mant"] for part in rows[c]))) for c in range(columns)] for n in range(config.rows)],
        [[rows[c][0][n]["exp"] + config.wgt_exp_min for c in range(columns)] for n in range(config.rows)],
        config.acc_frac,
    )
    assert got == expected(config, accs.reshape(config.engines, config.native))


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=ids)
def test_no_sum_wraps(config):
    """The greatest products with the greatest exponents, ``max_terms`` of them, saturate and do not wrap."""
    q = config.act.q_max
    x = {"mant": [-q] * config.native, "exp": config.act.exp_max}
    span = config.wgt_exp_max - config.wgt_exp_min
    w = [{"mant": [config.wgt.q_max] * config.lanes, "exp": span}] * config.rows
    count = config.max_terms * config.steps
    job = []
    for k in range(count):
        step = {"valid": 1, "first": int(k == 0), "last": int(k == count - 1), "part": k % config.steps}
        job.append(({"zero": 0, "depthwise": 0, "lane": 0, "vectors": 0} | step, x, w))
    got, *_ = drive(Mvm(config), [job])
    dot = -q * config.wgt.q_max * config.native * config.max_terms
    assert got == expected(config, [[dot << config.max_shift] * config.native])


@pytest.mark.slow
@pytest.mark.parametrize("field", ["zero", "depthwise", "lane", "part", "first"])
def test_a_wrong_control_bit_is_noticed(field):
    jobs, vectors = some_jobs(EIGHT, 12, longest=4, seed=1)
    for job in jobs:
        for step, _, _ in job:
            step[field] ^= 1
    got, *_ = drive(Mvm(EIGHT), jobs)
    assert got != expected(EIGHT, vectors)


def test_the_matrix_memory_is_as_late_as_the_unit_expects():
    assert MatrixMemory.LATENCY - VectorMemory.LATENCY == Mvm.W_DELAY


def test_rejects_a_queue_without_slots():
    with pytest.raises(ValueError, match="slots must be an integer of at least 1, not 0"):
        Mvm(ECP5_85F, slots=0)
