# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from concord.golden import blocks
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode, Rounding
from concord.spec.presets import ECP5_85F, TINY, UP5K
from concord_rtl.parts.control import QUANT_CTRL
from concord_rtl.parts.noise import Noise
from concord_rtl.vector.quantizer import Quantizer
from support.bench import paced, simulate
from support.halves import halves
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES

CONFIGS = {
    "ecp5-85f": ECP5_85F,
    "tiny": TINY,
    "one lane": UP5K,
    "three bits": TINY.replace(act_mant=3),
    "twelve bits": TINY.replace(act_mant=12, act_exp_min=-24),
    "many lanes": ECP5_85F.replace(mfu_lanes=8),
    "coarse": TINY.replace(act_exp_min=-2),
    "weights, too": WRITABLE_ENGINES,
    "finer weights": WRITABLE.replace(act_exp_min=-6, wgt_exp_min=-20, wgt_exp_max=8, max_terms=1),
}


def vectors(rng, config, count):
    """Native vectors: small and large spreads of exponents, zeros, subnormal blocks, infinities and NaNs."""
    out = []
    for _ in range(count):
        x = halves(rng, config.native, corner=0.1)
        kind = rng.integers(0, 6)
        if kind < 3:  # exponents close to each other, finite
            field = np.clip(rng.integers(0, 31) - rng.integers(0, 12, config.native), 0, 30)
            x = (x & 0x83FF) | (field << 10).astype(np.uint16)
        elif kind == 3:  # zeros and subnormal numbers
            x = x & 0x83FF if rng.random() < 0.7 else x & 0x8000
        elif kind == 4:  # just below a power of two: rounds up and saturates
            x = (x & 0xFC00) | rng.choice(np.array([0x3FF, 0x3FE, 0x3FC, 0x3F8], dtype=np.uint16), config.native)
        out.append(x)
    return np.array(out, dtype=np.uint16)


def controls(rng, config, count):
    fmt = config.act
    roundings = len(BLOCK_ROUNDINGS) if config.stochastic else 2
    return [
        {
            "mode": int(rng.integers(0, 2)),
            "exp": int(rng.integers(fmt.exp_min, fmt.exp_max + 1)),
            "rounding": int(rng.integers(0, roundings)),
            "to_matrix": int(config.writable_matrix and rng.integers(0, 2)),
        }
        for _ in range(count)
    ]


def expected(config, xs, ctrls):
    """Words and flags by the golden model; noise is drawn for vectors with stochastic rounding only."""
    noise = blocks.Noise(config.mfu_lanes)
    for x, ctrl in zip(xs, ctrls, strict=True):
        random = None
        if ctrl["rounding"] == Rounding.STOCHASTIC:
            random = noise.take(config.beats).reshape(-1)
        fmt = config.wgt if ctrl.get("to_matrix") else config.act
        exp = min(max(ctrl["exp"], fmt.exp_min), fmt.exp_max)
        q = blocks.quantize(x, fmt, ExponentMode(ctrl["mode"]), exp, Rounding(ctrl["rounding"]), random)
        yield q.mant.tolist(), int(q.exp), bool(q.nonfinite), bool(q.saturated)


def run(config, xs, ctrls, gap=0.0, seed=0):
    """Feed vectors; return what came with ``done``, and check the cycle in which it came."""
    dut = Quantizer(config)
    rng = np.random.default_rng(seed)
    got, due = [], []
    lanes, beats = config.mfu_lanes, config.beats

    async def bench(ctx):
        time = 0

        async def tick():
            nonlocal time
            *_, done, word, nonfinite, saturated = await ctx.tick().sample(
                dut.done, dut.word, dut.nonfinite, dut.saturated
            )
            assert done == (time in due), f"done is {done} in cycle {time}, due {due}"
            if done:
                fields = config.narrow_word.unpack(word.as_bits())
                got.append((fields["mant"], fields["exp"], bool(nonfinite), bool(saturated)))
            time += 1

        for x, ctrl in zip(xs, ctrls, strict=True):
            while rng.random() < gap:
                ctx.set(dut.valid, 0)
                ctx.set(dut.i, rng.integers(0, 1 << 16, lanes).tolist())
                await tick()
            ctx.set(dut.ctrl, QUANT_CTRL.const({name: value for name, value in ctrl.items() if name != "to_matrix"}))
            if config.writable_matrix:
                ctx.set(dut.to_matrix, ctrl["to_matrix"])
            for k in range(beats):
                ctx.set(dut.i, x[k * lanes : (k + 1) * lanes].tolist())
                ctx.set(dut.valid, 1)
                ctx.set(dut.first, k == 0)
                if k == beats - 1:
                    due.append(time + dut.LATENCY)
                await tick()
        ctx.set(dut.valid, 0)
        for _ in range(dut.LATENCY + 2):
            await tick()

    simulate(dut, bench, cycles=len(xs) * beats * 20 + 100)
    return got


@pytest.mark.slow
@pytest.mark.parametrize(("config", "gap"), paced(CONFIGS, 0.6))
def test_quantizer(config, gap):
    rng = np.random.default_rng(1)
    xs, ctrls = vectors(rng, config, 250), controls(rng, config, 250)
    got = run(config, xs, ctrls, gap)
    for n, (a, b) in enumerate(zip(got, expected(config, xs, ctrls), strict=True)):
        assert a == b, f"vector {n}: {[hex(v) for v in xs[n]]} {ctrls[n]}"


@pytest.mark.parametrize("static", [0, 1])
def test_exponents_of_rows_are_those_of_weights(static):
    """At both ends of -9 .. -5, and in between; a greater one is limited, and the flag says so."""
    config, wanted = WRITABLE_ENGINES, [-14, -10, -9, -8, -6, -5, -4, 0, 9]
    xs = np.array([[np.float16(2.0 ** (exp + config.wgt.headroom)).view(np.uint16)] * 8 for exp in wanted])
    exps = wanted if not static else [min(max(exp, config.act.exp_min), config.act.exp_max) for exp in wanted]
    ctrls = [{"mode": static, "exp": exp, "rounding": 0, "to_matrix": 1} for exp in exps]
    got = run(config, xs, ctrls)
    assert [exp for _, exp, _, _ in got] == [min(max(exp, -9), -5) for exp in wanted]
    assert [saturated for *_, saturated in got] == [exp > -5 for exp in wanted]
    assert got == list(expected(config, xs, ctrls))


def test_every_rounding_of_ties():
    config = TINY
    # 127.5, 0.5, 1.5 and 2.5 units of the exponent 0 of the first element, with both signs.
    xs = np.array([[0x57F8, 0x3800, 0x3E00, 0x4100], [0xD7F8, 0xB800, 0xBE00, 0xC100]], dtype=np.uint16)
    ctrls = [{"mode": 0, "exp": 0, "rounding": 0}, {"mode": 1, "exp": 0, "rounding": 1}]
    got = run(config, xs, ctrls)
    assert got == [([127, 0, 2, 2], 0, False, False), ([-127, -1, -2, -3], 0, False, True)]


def test_the_comparison_can_fail():
    rng = np.random.default_rng(2)
    xs, ctrls = vectors(rng, TINY, 40), controls(rng, TINY, 40)
    other = [{**ctrl, "rounding": (ctrl["rounding"] + 1) % 3} for ctrl in ctrls]
    assert run(TINY, xs, ctrls) != list(expected(TINY, xs, other))


def test_noise_is_the_documented_sequence_and_restarts():
    dut = Noise(3)
    want = blocks.noise(3, 50)

    async def bench(ctx):
        for _ in range(2):
            for row in want:
                ctx.set(dut.step, 1)
                await ctx.tick()
                assert [ctx.get(dut.noise[p]) for p in range(3)] == row.tolist()
                ctx.set(dut.step, 0)
                await ctx.tick()
                assert ctx.get(dut.noise[0]) == row[0]
            ctx.set(dut.reset, 1)
            await ctx.tick()
            ctx.set(dut.reset, 0)

    simulate(dut, bench)


@pytest.mark.parametrize("lanes", [0, -1, 1.5])
def test_noise_refuses(lanes):
    with pytest.raises(ValueError, match=f"lanes must be a positive integer, not {lanes!r}"):
        Noise(lanes)
