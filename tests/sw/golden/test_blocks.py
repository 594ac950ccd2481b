"""Conversion to and from block floating point against the rules in fractions."""

from fractions import Fraction

import numpy as np
import pytest

from concord.golden import binary16, blocks
from concord.spec.formats import BLOCK_ROUNDINGS, MXINT8, BlockFormat, ExponentMode, Rounding
from concord.spec.presets import PRESETS
from support import naive

ALL = np.arange(1 << 16, dtype=np.uint16)
NAMES = {Rounding.NEAREST_EVEN: "even", Rounding.NEAREST_AWAY: "away", Rounding.STOCHASTIC: "stochastic"}


def fmt_of(mant, block, exp_min=-15):
    return BlockFormat(mant, block, exp_min, 15 - (mant - 2))


def check(bits, fmt, got, **rules):
    """Compare with the naive rule, block by block."""
    noise = rules.pop("noise", None)
    for k, block in enumerate(bits.tolist()):
        lanes = None if noise is None else noise[k].tolist()
        want = naive.quantize(block, fmt.mant, fmt.exp_min, noise=lanes, **rules)
        have = got.mant[k].tolist(), got.exp[k], got.nonfinite[k], got.saturated[k]
        assert have == want, f"block {[hex(b) for b in block]} {fmt} {rules}"


#: Bits of mantissas for which every pattern is tried.
WIDTHS = [pytest.param(mant, marks=[] if mant == 4 else pytest.mark.deep) for mant in (3, 4, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize("mant", WIDTHS)
def test_every_single_value(mant, rounding):
    fmt, bits = fmt_of(mant, 1), ALL.reshape(-1, 1)
    noise = np.random.default_rng(mant).integers(0, 1 << 16, bits.shape)
    got = blocks.quantize(bits, fmt, rounding=rounding, noise=noise)
    check(bits, fmt, got, rounding=NAMES[rounding], noise=noise)


@pytest.mark.slow
@pytest.mark.parametrize("mant", WIDTHS)
def test_every_value_beside_another(mant):
    """Blocks of two: every pattern with a partner that may or may not set the exponent."""
    partners = np.array(naive.corners(), dtype=np.uint16)
    bits = np.stack([ALL, partners[np.arange(1 << 16) % len(partners)]], axis=-1)
    fmt = fmt_of(mant, 2)
    check(bits, fmt, blocks.quantize(bits, fmt), rounding="even")


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize("mant, exp_min", [(3, -15), (8, -15), (8, -20), (8, -10), (12, -24), (16, -28)])
def test_blocks_of_corners(mant, exp_min, rounding):
    fmt = fmt_of(mant, 4, exp_min)
    bits = np.array(naive.sample(4 * 700, seed=mant), dtype=np.uint16).reshape(-1, 4)
    noise = np.random.default_rng(mant).choice([0, 1, 0x7FFF, 0x8000, 0xFFFF], bits.shape)
    got = blocks.quantize(bits, fmt, rounding=rounding, noise=noise)
    check(bits, fmt, got, rounding=NAMES[rounding], noise=noise)


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize("exp", [-15, -9, -6, 0, 4, 9])
def test_static_exponent(exp, rounding):
    fmt = fmt_of(8, 4)
    bits = np.array(naive.sample(4 * 500, seed=exp), dtype=np.uint16).reshape(-1, 4)
    noise = np.random.default_rng(0).integers(0, 1 << 16, bits.shape)
    got = blocks.quantize(bits, fmt, ExponentMode.STATIC, exp, rounding, noise)
    check(bits, fmt, got, rounding=NAMES[rounding], static=exp, noise=noise)
    assert got.saturated.any() and not got.saturated.all()


def test_static_exponents_may_differ_per_block():
    fmt, bits = fmt_of(8, 2), binary16.encode([[1.0, 2.0], [1.0, 2.0]])
    got = blocks.quantize(bits, fmt, ExponentMode.STATIC, [-5, -6])
    assert got.mant.tolist() == [[32, 64], [64, 127]] and got.saturated.tolist() == [False, True]


def test_greatest_exponent_of_a_foreign_format_saturates_with_a_flag():
    fmt = BlockFormat(8, 2, -15, 0)
    got = blocks.quantize(binary16.encode([[127.0, -1.0], [128.0, -1.0], [65504.0, 0.0]]), fmt)
    assert got.exp.tolist() == [0, 0, 0]
    assert got.mant.tolist() == [[127, -1], [127, -1], [127, 0]]
    assert got.saturated.tolist() == [False, True, True]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_greatest_mantissa_itself_is_no_saturation(sign):
    """With a static exponent: up to what rounds to it."""
    values = sign * np.array([[126.0, 0], [127.0, 0], [127.25, 0], [127.5, 0], [128.0, 0]])
    got = blocks.quantize(binary16.encode(values), fmt_of(8, 2), ExponentMode.STATIC, 0)
    assert got.mant[:, 0].tolist() == [sign * q for q in (126, 127, 127, 127, 127)]
    assert got.saturated.tolist() == [False, False, False, True, True]


def test_ordinary_saturation_is_not_flagged():
    got = blocks.quantize(binary16.encode([[0.9995, 0.25]]), fmt_of(8, 2))
    assert got.exp == [-7] and got.mant.tolist() == [[127, 32]] and not got.saturated.any()


def test_specials_have_one_outcome_and_a_flag():
    got = blocks.quantize(np.array([[0x7C00, 0x3C00], [0xFC00, 0], [0x7E00, 0x3C00], [0xFFFF, 0x8000]]), fmt_of(8, 2))
    assert got.mant.tolist() == [[127, 0], [-127, 0], [0, 64], [0, 0]]
    assert got.exp.tolist() == [9, 9, -6, -15] and got.nonfinite.all() and not got.saturated.any()


def test_noise_is_xorshift_per_lane():
    got = blocks.noise(8, 300)
    assert got.dtype == np.uint16 and got.shape == (300, 8)
    assert got.T.tolist() == [naive.xorshift(lane, 300) for lane in range(8)]


def test_noise_continues():
    stream = blocks.Noise(3)
    parts = np.concatenate([stream.take(5), stream.take(0), stream.take(7)])
    assert np.array_equal(parts, blocks.noise(3, 12))


def test_stochastic_rounding_is_unbiased():
    x = binary16.encode(np.full((4000, 4), 1 + 1 / 3))
    got = blocks.quantize(x, fmt_of(4, 4), rounding=Rounding.STOCHASTIC, noise=blocks.noise(4, 4000))
    mean = blocks.dequantize(got.mant, got.exp).mean()
    assert abs(mean - binary16.decode(x[0, 0])) < 0.005


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_every_code_of_a_configuration_is_a_binary16_number(config):
    codes = np.arange(-config.act.q_max, config.act.q_max + 1)
    mant = np.resize(codes, (-(-len(codes) // config.native), config.native))
    for exp in range(config.act.exp_min, config.act.exp_max + 1):
        exps = np.full(len(mant), exp)
        assert np.array_equal(binary16.decode(blocks.to_binary16(mant, exps)), blocks.dequantize(mant, exps))
    assert not np.any(blocks.to_binary16(np.zeros((1, config.native), dtype=int), [3]))


@pytest.mark.parametrize("mant", [3, 8, 12])
@pytest.mark.parametrize("rounding", [Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY])
def test_float_and_binary16_inputs_agree(mant, rounding):
    fmt = fmt_of(mant, 4)
    bits = np.array(naive.sample(4 * 3000, seed=5), dtype=np.uint16)
    bits = bits[binary16.is_finite(bits)]
    bits = bits[: len(bits) // 4 * 4].reshape(-1, 4)
    want = blocks.quantize(bits, fmt, rounding=rounding)
    got = blocks.quantize_float(binary16.decode(bits), fmt, rounding)
    assert np.array_equal(got.mant, want.mant) and np.array_equal(got.exp, want.exp)


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
def test_float_input_is_exact(rounding):
    """float64 values next to halves, where adding 0.5 and cutting off would be wrong."""
    fmt = BlockFormat(8, 2, -15, 0)
    steps = [np.nextafter(k + 0.5, side) for k in range(64, 127) for side in (0, 1e9)] + [0.49999999999999994, 64.5]
    values = np.array([[100.0, sign * v] for v in steps for sign in (1, -1)])
    noise = np.full(values.shape, 0x8000)
    got = blocks.quantize_float(values, fmt, rounding, noise)
    for (_, v), (_, q), e in zip(values, got.mant, got.exp, strict=True):
        peak = max(Fraction(100), abs(Fraction(v)))
        assert e == naive.floor_log2(peak) - 6
        size = naive.round_magnitude(abs(Fraction(v)) / Fraction(2) ** int(e), NAMES[rounding], 0x8000)
        assert q == (min(size, 127) if v > 0 else -min(size, 127))


def test_float32_weights_are_the_same_as_float64():
    values = np.random.default_rng(3).normal(size=(50, 8)).astype(np.float32)
    fmt = fmt_of(8, 8)
    one, two = blocks.quantize_float(values, fmt), blocks.quantize_float(values.astype(np.float64), fmt)
    assert np.array_equal(one.mant, two.mant) and np.array_equal(one.exp, two.exp)


def test_small_weights_clamp_and_large_ones_are_refused():
    fmt = BlockFormat(8, 2, -15, 0)
    tiny = blocks.quantize_float([[2.0**-15, 2.0**-17], [0.0, 5e-324]], fmt)
    assert tiny.exp.tolist() == [-15, -15] and tiny.mant.tolist() == [[1, 0], [0, 0]]
    assert blocks.quantize_float([[127.9, 0.0]], fmt).mant.tolist() == [[127, 0]]
    with pytest.raises(ValueError, match=r"values must be below 128 in magnitude \(exp_max=0\), not 128"):
        blocks.quantize_float([[0.0, -128.0]], fmt)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="values must be finite"):
            blocks.quantize_float([[0.0, bad]], fmt)


def mxint8(values):
    """OCP Microscaling 1.0, MXINT8: the scale is the largest power of two <= max|v|; elements are int8 / 64."""
    peak = max(abs(v) for v in values)
    scale = Fraction(2) ** naive.floor_log2(peak) if peak else Fraction(1)
    out = []
    for v in values:
        code = naive.round_magnitude(abs(v) / scale * 64, "even")
        out.append(Fraction(min(code, 127), 64) * scale * (-1 if v < 0 else 1))
    return out


def test_mxint8_is_an_instance():
    rng = np.random.default_rng(8)
    values = rng.normal(size=(60, 32)) * 2.0 ** rng.integers(-60, 60, (60, 1))
    values[0] = 0
    values[1] = 2.0 ** np.arange(32)
    values[2, 0] = np.abs(values[2]).max() * 1.9999
    got = blocks.quantize_float(values, MXINT8)
    for row, mant, exp in zip(values, got.mant, got.exp, strict=True):
        assert [int(q) * Fraction(2) ** int(exp) for q in mant] == mxint8([Fraction(v) for v in row])


def test_mxint8_from_binary16():
    bits = np.array([b for b in naive.sample(4000, seed=9) if b & 0x7C00 != 0x7C00][: 32 * 80]).reshape(-1, 32)
    bits = bits & ~(np.arange(80)[:, None] % 8 << 11)  # blocks of smaller and smaller numbers
    got = blocks.quantize(bits, MXINT8)
    for row, mant, exp in zip(bits.tolist(), got.mant, got.exp, strict=True):
        assert [int(q) * Fraction(2) ** int(exp) for q in mant] == mxint8([naive.value(b) for b in row])


def test_errors():
    fmt, x = fmt_of(8, 4), np.zeros((2, 4), dtype=np.uint16)
    with pytest.raises(ValueError, match="last dimension must be the block of 4 elements"):
        blocks.quantize(x[:, :3], fmt)
    with pytest.raises(ValueError, match="noise must be given"):
        blocks.quantize(x, fmt, rounding=Rounding.STOCHASTIC)
    with pytest.raises(ValueError, match=r"exp must be in -15\.\.9, not 10"):
        blocks.quantize(x, fmt, ExponentMode.STATIC, 10)
    with pytest.raises(ValueError, match="lanes must be at least 1"):
        blocks.Noise(0)


def test_the_comparison_can_fail():
    fmt, bits = fmt_of(8, 4), np.array(naive.sample(40, seed=4)).reshape(-1, 4)
    got = blocks.quantize(bits, fmt)
    check(bits, fmt, got)
    got.exp[3] += 1
    with pytest.raises(AssertionError, match="block"):
        check(bits, fmt, got)
