"""The float32 arithmetic of the fast emulator against the golden model."""

import math

import numpy as np
import pytest

from concord.emulator.kernels import (
    DECODED,
    decode,
    elementwise,
    encode,
    look_up,
    quantize,
    round_sums,
)
from concord.golden import accumulate, binary16, blocks, table
from concord.operations import OPERATIONS
from concord.operations.float32 import Pool
from concord.program import Quant
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode, Flag, Rounding
from concord.spec.isa import Op
from concord.spec.presets import TINY
from support.program_gen import random_halves

NAN = 0x7E00
WITH_OPERAND = sorted(OPERATIONS.keys() - {Op.V_RELU})


def canonical(bits):
    return np.where(binary16.is_nan(bits), np.uint16(NAN), bits)


def patterns(rng, shape, k):
    """Anything at all, finite numbers, numbers near one another, and the generator's mixture, in turn."""
    bits = canonical(rng.integers(0, 1 << 16, shape).astype(np.uint16))
    if k % 4 == 1:
        bits &= 0xBFFF
    if k % 4 == 2:
        exponent = np.clip(rng.integers(1, 30) + rng.integers(-2, 3, shape), 0, 30)
        bits = (bits & 0x83FF | exponent << 10).astype(np.uint16)
    return random_halves(rng, shape, wild=True) if k % 4 == 3 else bits


def test_every_pattern_survives_decoding_and_encoding():
    every = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(encode(decode(every)), every)
    with np.errstate(all="ignore"):
        values = DECODED.astype(np.float64)
    assert np.array_equal(values, binary16.decode(every), equal_nan=True)


@pytest.mark.parametrize("op", WITH_OPERAND, ids=lambda op: op.name)
def test_operations_round_once(op):
    rng, pool = np.random.default_rng(op), Pool()
    for k in range(60):
        a, b = patterns(rng, (8, 4, 64), k), patterns(rng, (8, 4, 64), k)
        out = np.empty(a.shape, dtype=np.float32)
        with np.errstate(all="ignore"):
            flags = elementwise(op, [decode(a), decode(b)], out, pool)
        want = OPERATIONS[op].golden(a, b)
        over = OPERATIONS[op].rounds and binary16.overflowed(want, a, b).any()
        assert np.array_equal(encode(out), want)
        assert flags == over << Flag.HALF_OVERFLOW


def test_all_sums_and_products_of_a_few_binades():
    """Every pair of a coarse significand with every significand, where double rounding would show."""
    fine = np.arange(0x3C00, 0x4000, dtype=np.uint16)[:, None, None]
    rng, pool = np.random.default_rng(3), Pool()
    for shift in range(-14, 15):
        other = rng.choice(np.arange(0x3C00, 0x4000), (1, 1, 64)).astype(np.int64) + (shift << 10)
        b = np.broadcast_to(other | rng.integers(0, 2, (1, 1, 64)) << 15, (1024, 1, 64)).astype(np.uint16)
        a = np.broadcast_to(fine, b.shape)
        for op in (Op.VV_ADD, Op.VV_SUB, Op.VV_MUL):
            out = np.empty(b.shape, dtype=np.float32)
            elementwise(op, [decode(a), decode(b)], out, pool)
            assert np.array_equal(encode(out), OPERATIONS[op].golden(a, b))


def test_relu():
    every = np.arange(1 << 16, dtype=np.uint16).reshape(64, 16, 64)
    out = np.empty(every.shape, dtype=np.float32)
    with np.errstate(all="ignore"):
        elementwise(Op.V_RELU, [decode(every)], out, Pool())
    assert np.array_equal(encode(out), binary16.relu(every))


def test_sums_round_once():
    rng, pool = np.random.default_rng(5), Pool()
    for bits in (20, 40, 47, 52):
        grid = rng.integers(-(1 << bits), 1 << bits, (4, 4, 4096)) >> rng.integers(0, bits, (4, 4, 4096))
        drop = rng.integers(0, 30, (4, 4, 1365))
        grid[:, :, ::3][..., :1365] = grid[:, :, ::3][..., :1365] >> drop << drop  # ties
        out = np.empty(grid.shape, dtype=np.float32)
        flags = round_sums(np.ldexp(grid.astype(np.float64), -30), out, pool)
        want, _, over = accumulate.acc_to_binary16(grid, (54, 30))
        assert np.array_equal(encode(out), want)
        assert flags == bool(over.any()) << Flag.HALF_OVERFLOW
    zeros = np.full((1, 4, 8), -0.0)
    out = np.empty(zeros.shape, dtype=np.float32)
    assert round_sums(zeros, out, pool) == 0
    assert not np.signbit(out).any()


@pytest.mark.parametrize("mode", ExponentMode, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS, ids=lambda rounding: rounding.name.lower())
@pytest.mark.parametrize("mant", [3, 8, 12])
def test_conversion(mant, rounding, mode):
    act = TINY.replace(act_mant=mant, act_exp_min=-14).act
    rng, pool = np.random.default_rng(mant), Pool()
    for k in range(24):
        bits = patterns(rng, (64, 4, 32), k)
        exp = int(rng.integers(act.exp_min, act.exp_max + 1))
        noise = rng.integers(0, 1 << 16, (64, 4)).astype(np.uint16)
        x, scale = decode(bits), np.empty((64, 32), dtype=np.float32)
        out = np.empty_like(x)
        with np.errstate(all="ignore"):
            flags = quantize(x, act, Quant(mode, exp, rounding), noise, out, scale, pool)
        want = blocks.quantize(bits.swapaxes(1, 2), act, mode, exp, rounding, noise[:, None])
        assert np.array_equal(scale, np.ldexp(1.0, want.exp))
        assert np.array_equal((out / scale[:, None]).swapaxes(1, 2), want.mant)
        assert not np.signbit(out[out == 0]).any()
        raised = bool(want.nonfinite.any()) << Flag.NONFINITE | bool(want.saturated.any()) << Flag.SATURATED
        assert flags == raised
        with np.errstate(all="ignore"):
            assert quantize(x, act, Quant(mode, exp, rounding), noise, x, scale, pool) == flags
        assert np.array_equal(x, out)


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS, ids=lambda rounding: rounding.name.lower())
@pytest.mark.parametrize(
    "value, limited", [(4.0, True), (np.nextafter(np.float16(4), np.float16(0)), False), (6e4, True)]
)
def test_dynamic_exponents_are_limited(value, limited, rounding):
    """As with weights: mantissas of a format whose greatest number is below those that come."""
    fmt, pool = TINY.replace(wgt_exp_min=-9, wgt_exp_max=-5).wgt, Pool()
    bits = np.zeros((2, 4, 3), dtype=np.uint16)
    bits[1, 2, 0], bits[1, 1, 0], bits[1, 3, 1] = binary16.encode([-value, 1.0, 2.0**-12])
    noise = np.full((2, 4), 1 << 15, dtype=np.uint16)
    x, scale, grain = decode(bits), np.empty((2, 3), dtype=np.float32), np.empty((2, 3), dtype=np.float32)
    out = np.empty_like(x)
    flags = quantize(x, fmt, Quant(rounding=rounding), noise, out, scale, pool, grain)
    want = blocks.quantize(bits.swapaxes(1, 2), fmt, rounding=rounding, noise=noise[:, None])
    assert np.array_equal(scale, np.ldexp(1.0, want.exp))
    assert np.array_equal((out / scale[:, None]).swapaxes(1, 2), want.mant)
    assert np.array_equal(grain, np.where((decode(bits) == 0).all(axis=1), np.inf, scale))
    assert flags == want.saturated.any() << Flag.SATURATED == limited << Flag.SATURATED


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS, ids=lambda rounding: rounding.name.lower())
@pytest.mark.parametrize("sign", [1, -1])
def test_saturation_at_either_end(sign, rounding):
    """One element beyond the greatest mantissa, of one sign alone, raises the flag; the greatest itself does not."""
    act, quant, pool = TINY.act, Quant(ExponentMode.STATIC, 0, rounding), Pool()
    noise = np.zeros((1, 4), dtype=np.uint16)
    for value, flags in ((127, 0), (128, 1 << Flag.SATURATED), (30000, 1 << Flag.SATURATED)):
        x = np.zeros((1, 4, 2), dtype=np.float32)
        x[0, 1, 1] = sign * value
        out, scale = np.empty_like(x), np.empty((1, 2), dtype=np.float32)
        assert quantize(x, act, quant, noise, out, scale, pool) == flags
        assert out[0, 1, 1] == sign * 127 and np.count_nonzero(out) == 1


def test_conversion_needs_noise():
    x = np.ones((1, 4, 2), dtype=np.float32)
    scale = np.empty((1, 2), dtype=np.float32)
    stochastic = Quant(rounding=Rounding.STOCHASTIC)
    with pytest.raises(ValueError, match="noise must be given"):
        quantize(x, TINY.act, stochastic, None, x, scale, Pool())


def descriptor(low, high, offset, scale, constant_ends=(0, 0)):
    return dict(
        zip((field.name for field in TINY.table_slot.fields), (low, high, offset, scale, *constant_ends), strict=True)
    )


def raised(found):
    return bool(found.nonfinite.any()) << Flag.NONFINITE | bool(found.clamped.any()) << Flag.TABLE_CLAMPED


def test_tables():
    rng, pool = np.random.default_rng(9), Pool()
    entries = random_halves(rng, (256,), wild=True)
    every = np.arange(1 << 16, dtype=np.uint16).reshape(64, 16, 64)
    for low, high, offset, scale in [(-128, 127, 128, 4), (0, 15, 9, 0), (-3, -3, 100, -32), (-100, 100, 101, 31)]:
        slot = descriptor(low, high, offset, scale)
        out = np.empty(every.shape, dtype=np.float32)
        with np.errstate(all="ignore"):
            flags = look_up(decode(every), slot, decode(entries), out, pool)
        found = table.lookup(every, entries, slot)
        assert np.array_equal(encode(out), found.entries)
        assert flags == raised(found)
    with pytest.raises(ValueError, match=r"slot must stay inside 256 entries, not -1\.\.0"):
        look_up(decode(every), descriptor(0, 1, -1, 0), decode(entries), out, pool)


@pytest.mark.parametrize("constant_ends", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_flags_of_tables(constant_ends):
    """Few numbers at a time, near the ends: half-way cases, both signs of zero, infinities and NaNs among them."""
    rng, pool, seen = np.random.default_rng(10), Pool(), set()
    entries = random_halves(rng, (64,), wild=False)
    special = binary16.encode([0.0, -0.0, np.inf, -np.inf, np.nan])
    for low, high, scale in [(-8, 7, 1), (0, 15, 0), (3, 40, -2), (-20, -5, 6)]:
        slot = descriptor(low, high, -low, scale, constant_ends)
        near = np.ldexp(rng.integers(4 * low - 9, 4 * high + 10, (300, 1, 4, 1)) / 4, -scale)
        for numbers in binary16.encode(near):
            numbers = np.where(rng.random(numbers.shape) < 0.02, rng.choice(special, numbers.shape), numbers)
            out = np.empty(numbers.shape, dtype=np.float32)
            with np.errstate(all="ignore"):
                flags = look_up(decode(numbers), slot, decode(entries), out, pool)
            assert flags == raised(table.lookup(numbers, entries, slot))
            seen.add(flags)
    want = {0, 1 << Flag.NONFINITE} | ({1 << Flag.TABLE_CLAMPED} if constant_ends != (1, 1) else set())
    assert want <= seen


def test_pool_reuses_its_memory():
    pool = Pool()
    first = pool.take("x", (4, 4))
    assert pool.take("x", (4, 4)) is first
    assert np.shares_memory(pool.take("x", (8,), np.int32), first)
    assert not np.shares_memory(pool.take("y", (4, 4)), first)
    assert pool.take("x", (100,)).size == 100
    assert math.prod(pool.take("x", (4, 4)).shape) == 16
