# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from concord.golden import binary16
from concord.spec.formats import BINARY16_INF
from concord.spec.presets import ECP5_85F, TINY, UP5K
from concord_rtl.parts.control import REDUCE_CTRL, ReduceMode
from concord_rtl.vector.reduce import Reduce
from support.bench import paced, simulate
from support.halves import halves

CONFIGS = {
    "two beats": TINY,
    "one lane": UP5K,
    "ecp5-85f": ECP5_85F,
    "eight lanes": ECP5_85F.replace(mfu_lanes=8),
}
MINUS_INF = np.uint16(0x8000 | BINARY16_INF)


def windows(rng, config, count):
    """Vectors in the order of launch, and what must leave: pooling, maxima over elements, and copies in between."""
    launched, expected = [], []

    def launch(mode, x, **ctrl):
        launched.append(({"mode": mode, "start": 0, "emit": 0, "skip": 0, **ctrl}, x))

    for _ in range(count):
        mode = [ReduceMode.PASS, ReduceMode.MAX, ReduceMode.LANES][rng.integers(0, 3)]
        taps = int(rng.integers(1, 5))
        x = halves(rng, taps * config.native, corner=0.05 if rng.random() < 0.7 else 0.6).reshape(taps, -1)
        if rng.random() < 0.7:
            x = np.where(binary16.is_nan(x), 0xC000, x).astype(np.uint16)
        if mode == ReduceMode.PASS:
            for row in x:
                launch(mode, row, emit=int(rng.integers(0, 2)))
                expected.append(row)
            continue
        skip = rng.random(taps) < 0.3
        best = np.full(config.native, MINUS_INF)
        for k, row in enumerate(x):
            last = k == taps - 1 and mode == ReduceMode.MAX
            launch(mode, row, start=int(k == 0), skip=int(skip[k]), emit=int(last))
            if not skip[k]:
                best = binary16.maximum(best, row)
            if rng.random() < 0.1 and not last:  # a copy does not disturb a maximum in progress
                launch(ReduceMode.PASS, row)
                expected.append(row)
        if mode == ReduceMode.LANES:
            launch(mode, halves(rng, config.native), emit=1)
            top = MINUS_INF
            for value in best:
                top = binary16.maximum(top, value)
            best = np.full(config.native, top)
        expected.append(best)
    return launched, expected


def run(config, launched, gap=0.0):
    """Launch vectors; return what left, and check that every beat leaves ``LATENCY`` cycles after it came.

    Controls are those of the next beat.
    """
    dut = Reduce(config)
    rng = np.random.default_rng(9)
    lanes = config.mfu_lanes
    out, due = [], {}

    async def bench(ctx):
        time, beat = 0, [0] * lanes

        async def tick(following):
            nonlocal time, beat
            ctx.set(dut.i, beat)
            *_, valid, first, o = await ctx.tick().sample(dut.o_valid, dut.o_first, dut.o)
            assert (bool(valid), bool(first)) == due.pop(time, (False, False)), f"cycle {time}"
            if valid:
                out.extend(o)
            time, beat = time + 1, following

        for ctrl, x in launched:
            while rng.random() < gap:
                ctx.set(dut.valid, 0)
                ctx.set(dut.ctrl, REDUCE_CTRL.const({"mode": ReduceMode.MAX, "start": 1, "emit": 1, "skip": 0}))
                await tick(rng.integers(0, 1 << 16, lanes).tolist())
            ctx.set(dut.valid, 1)
            ctx.set(dut.ctrl, REDUCE_CTRL.const(ctrl))
            for k in range(config.beats):
                ctx.set(dut.first, k == 0)
                if ctrl["mode"] == ReduceMode.PASS or ctrl["emit"]:
                    due[time + 1 + dut.LATENCY] = (True, k == 0)
                await tick(x[k * lanes : (k + 1) * lanes].tolist())
        ctx.set(dut.valid, 0)
        for _ in range(dut.LATENCY + 3):
            await tick([0] * lanes)

    simulate(dut, bench, cycles=len(launched) * config.beats * 10 + 100)
    return np.array(out, dtype=np.uint16).reshape(-1, config.native)


@pytest.mark.slow
@pytest.mark.parametrize(("config", "gap"), paced(CONFIGS, 0.5))
def test_reduce(config, gap):
    launched, expected = windows(np.random.default_rng(1), config, 150)
    got = run(config, launched, gap)
    assert len(got) == len(expected)
    for n, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.tolist() == b.tolist(), f"vector {n}"


def test_signed_zeros_and_a_window_without_taps():
    zero, minus = [0] * 4, [0x8000] * 4
    first = {"mode": ReduceMode.MAX, "start": 1, "emit": 0, "skip": 0}
    last = {"mode": ReduceMode.MAX, "start": 0, "emit": 1, "skip": 0}
    launched = [(first, zero), (last, minus), ({**first, "skip": 1}, zero), ({**last, "skip": 1}, zero)]
    got = run(TINY, [(ctrl, np.array(x, dtype=np.uint16)) for ctrl, x in launched])
    assert got.tolist() == [zero, [0xFC00] * 4]


def test_the_comparison_can_fail():
    launched, expected = windows(np.random.default_rng(2), TINY, 20)
    skipped = [({**ctrl, "skip": 0}, x) for ctrl, x in launched]
    assert run(TINY, skipped).tolist() != [x.tolist() for x in expected]
