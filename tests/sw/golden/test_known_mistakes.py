"""Mistakes that other block-floating-point projects made: one test each, by name."""

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.accumulate import acc_to_binary16
from concord.golden.blocks import dequantize, noise, quantize, quantize_float, to_binary16
from concord.golden.table import index
from concord.image import Image, ImageError, MemorySegment, pack_matrix, pack_vectors
from concord.image.packing import quantize_matrix
from concord.spec.formats import BLOCK_ROUNDINGS, MXINT8, ExponentMode, Rounding
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F, TINY
from support import naive

ACT = ECP5_85F.act
POWERS = range(-14, 16)


def one(value, beside=0.0, fmt=ACT, **rules):
    """Quantise a block that holds ``value``, ``beside`` and zeros."""
    return quantize(binary16.encode([value, beside] + [0.0] * (fmt.block - 2)), fmt, **rules)


def test_a_block_never_straddles_rows():
    """Rows of 5 in blocks of 4: a loud row must not change the exponents of its neighbours."""
    quiet = np.full((6, 5), 0.01)
    loud = quiet.copy()
    loud[3] = 100.0
    a, b = quantize_matrix(quiet, TINY), quantize_matrix(loud, TINY)
    others = np.arange(len(a.exp)) != 3
    assert np.array_equal(a.exp[others], b.exp[others]) and np.array_equal(a.mant[others], b.mant[others])
    assert np.all(b.exp[3] > a.exp[3])
    # The same for vectors: the second row begins in a native vector of its own.
    words = pack_vectors(np.arange(1.0, 11.0).reshape(2, 5), TINY)
    assert binary16.decode(TINY.wide_word.unpack(words[2])["elem"]).tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_exponent_of_a_power_of_two_is_not_off_by_one(sign):
    for k in POWERS:
        got = one(sign * 2.0**k)
        assert got.exp == max(k - 6, ACT.exp_min)
        assert dequantize(got.mant, got.exp)[0] == sign * 2.0**k
        assert got.exp == ACT.exp_min or got.mant[0] == sign * 64
    for k in range(-60, 60):  # a floating-point log2 goes wrong just above and below some of these
        for value in (2.0**k, np.nextafter(2.0**k, np.inf), np.nextafter(2.0**k, 0)):
            got = quantize_float([sign * value] + [0.0] * 31, MXINT8)
            assert got.exp == (k if value >= 2.0**k else k - 1) - 6


def test_the_exponent_is_taken_before_rounding():
    """Just below a power of two the mantissa saturates; the exponent does not move up."""
    for k in POWERS:
        below = binary16.decode(binary16.encode(2.0**k) - np.uint16(1))
        got = one(below)
        if got.exp > ACT.exp_min:
            assert got.exp == k - 1 - 6 and got.mant[0] == 127
        assert not got.saturated
    weights = quantize_float([0.999999] + [0.0] * 15, ECP5_85F.wgt)
    assert weights.exp == -7 and weights.mant[0] == 127


def test_the_scale_belongs_to_the_block():
    """A small element beside a large one is rounded with the block's step, not with one of its own."""
    got = one(100.0, beside=0.75)
    assert got.exp == 0 and got.mant[:2].tolist() == [100, 1]
    assert one(0.75).exp == -7 and one(0.75).mant[0] == 96
    assert got.exp.shape == ()


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
def test_requantising_a_quantised_block_changes_nothing(rounding):
    rng = np.random.default_rng(1)
    for config in (TINY, ECP5_85F, TINY.replace(act_mant=3), TINY.replace(act_mant=12, act_exp_min=-24)):
        n = config.native
        random = noise(n, 2000)
        bits = np.array(naive.sample(2000 * n, seed=2), dtype=np.uint16).reshape(-1, n)
        bits = np.where(rng.random((2000, 1)) < 0.3, bits & 0x83FF, bits).astype(np.uint16)
        once = quantize(bits, config.act, rounding=rounding, noise=random)
        for again in (ExponentMode.DYNAMIC, ExponentMode.STATIC):
            wide = to_binary16(once.mant, once.exp)
            twice = quantize(wide, config.act, again, once.exp, rounding, random[::-1])
            assert np.array_equal(twice.mant, once.mant)
            assert np.array_equal(twice.exp, np.where(once.mant.any(axis=-1), once.exp, twice.exp))
            assert not twice.saturated.any() and not twice.nonfinite.any()


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
def test_negative_halves_round_like_positive_ones(rounding):
    """Roundings act on magnitudes: what is not symmetric in one of model and RTL makes them disagree."""
    halves = np.arange(64, 127) + 0.5
    blocks = binary16.encode(np.stack([np.full(63, 100.0), halves, -halves, np.zeros(63)], axis=-1))
    got = quantize(blocks, TINY.act, rounding=rounding, noise=np.full(blocks.shape, 0x8000))
    assert np.array_equal(got.mant[:, 1], -got.mant[:, 2])
    up = {Rounding.NEAREST_EVEN: np.arange(64, 127) % 2, Rounding.NEAREST_AWAY: 1, Rounding.STOCHASTIC: 1}[rounding]
    assert np.array_equal(got.mant[:, 1], np.arange(64, 127) + up)
    weights = quantize_float(binary16.decode(blocks), TINY.wgt, rounding, np.full(blocks.shape, 0x8000))
    assert np.array_equal(weights.mant, got.mant)


def test_negative_halves_in_tables_and_sums():
    codes = index(binary16.encode([-0.5, -1.5, -2.5, 0.5, 1.5, 2.5]), -8, 7, 0).code
    assert codes.tolist() == [0, -2, -2, 0, 2, 2]
    sums = np.array([(2048 + 2 * k + 1) << 20 for k in range(4)])
    up, _, _ = acc_to_binary16(sums, (48, 20))
    down, _, _ = acc_to_binary16(-sums, (48, 20))
    assert np.array_equal(up | 0x8000, down)
    assert binary16.decode(up).tolist() == [2048, 2052, 2052, 2056]


def test_a_corrupted_golden_file_does_not_pass(tmp_path):
    """Every stored bit counts: one that is flipped, with the archive's own checksums made good, is still found."""
    path = tmp_path / "image.npz"
    words = pack_matrix(np.eye(4), TINY)
    Image(TINY, (1,), (MemorySegment.from_words(RegionId.MATRIX, 0, words, TINY),)).save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name in arrays:
        for bit in (0, 7):
            damaged = {key: array.copy() for key, array in arrays.items()}
            damaged[name].view(np.uint8).flat[bit] ^= 1 << bit
            np.savez_compressed(path, **damaged)
            with pytest.raises(ImageError):
                Image.load(path)
    np.savez_compressed(path, **arrays)
    assert Image.load(path).segments[0].words() == words


def test_a_wrong_result_is_noticed_by_every_comparison_here():
    """The comparisons above are made with exact equality; show that the smallest possible error is seen."""
    got = one(1.0, beside=-0.5)
    off = got.mant.copy()
    off[1] += 1
    assert not np.array_equal(off, got.mant)
    assert not np.array_equal(to_binary16(off, got.exp), to_binary16(got.mant, got.exp))
    assert not np.array_equal(to_binary16(got.mant, got.exp + 1), to_binary16(got.mant, got.exp))
