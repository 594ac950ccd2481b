"""Operands that primitives of derived models are proven with, and what the golden model makes of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np

from concord.emulator.kernels import DECODED
from concord.golden import accumulate, binary16, blocks, table
from concord.spec.formats import BlockFormat, ExponentMode, Rounding
from concord.spec.presets import PRESETS, with_mantissas
from support.halves import CORNERS, halves, pairs

#: Bits behind the point in which sums of two float64 numbers are exact here.
_FINE = 160
#: All binary16 patterns.
PATTERNS = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
_SPECIAL = np.array(
    [0, 0x8000, 1, 0x8001, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00], dtype=np.uint16
)
_SOME = [("ecp5-85f", 8), ("up5k", 8), ("ecp5-25f", 3), ("tiny", 12)]
_TABLES = [(-128, 127, 4), (0, 95, -10), (-1024, 1023, 7), (-3, 0, 31), (0, 0, 0), (-7, -2, -32), (5, 900, 10)]


def singles(bits):
    """binary16 patterns as float32."""
    return DECODED[bits]


def patterns(values):
    """The binary16 patterns that float32 numbers are; fails if one is none."""
    with np.errstate(all="ignore"):
        bits = binary16.encode(values)
    back = binary16.decode(bits)
    same = ((back == values) & (np.signbit(back) == np.signbit(values))) | np.isnan(values)
    assert same.all(), values[~same][:4]
    return bits


def assert_same(found, want, arrays):
    """Patterns are equal; says the first operands with which they are not."""
    places = np.argwhere(np.atleast_1d(found != want))
    same = [array for array in arrays if array.shape == want.shape]
    shown = [(*(a[tuple(p)] for a in same), hex(int(found[tuple(p)])), hex(int(want[tuple(p)]))) for p in places[:4]]
    assert not len(places), f"{len(places)} of {found.size} differ: {shown}"


def formats(every):
    """Formats of activations: of all presets with mantissas of 3 to 12 bits, and those with the least exponent."""
    if not every:
        return [with_mantissas(PRESETS[name], mant).act for name, mant in _SOME]
    configs = [with_mantissas(config, mant) for config in PRESETS.values() for mant in range(3, 13)]
    of_presets = [config.act for config in configs]
    lowest = [BlockFormat(mant, 4, -14 - (mant - 2), 15 - (mant - 2)) for mant in range(3, 13)]
    return list(dict.fromkeys([*of_presets, *lowest]))


def sums(count, every):
    """float64 numbers around what rounding to binary16 turns on: binary16 numbers, the ties, and their neighbours."""
    rng = np.random.default_rng(1)
    positive = binary16.decode(np.arange(0, 0x7C00, 1 if every else 5, dtype=np.uint16))
    ties = (positive[1:] + positive[:-1]) / 2
    edges = np.concatenate([positive[::9], ties, [65520.0, 2.0**17, 2.0**-25, 2.0**-26, 2.0**40]])
    edges = np.concatenate([edges, -edges])
    moved = [edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf), binary16.decode(PATTERNS[:0x7C00])]
    moved += [edges * (1 + sign * 2.0**-k) for k in (23, 24, 30) for sign in (-1, 1)]
    wild = rng.integers(-(1 << 52), 1 << 52, count) * 2.0 ** rng.integers(-80, -30, count)
    return np.concatenate([*moved, wild])


# Cases: attributes, operands, and the patterns that must come out --------------------------------------------


def _round_to_half(every):
    total = sums(50_000, every)
    return [({}, (total,), binary16.encode(total + 0.0))]


def _round_sum(every):
    rng = np.random.default_rng(2)
    total = rng.choice(sums(20_000, every), 2_000)
    total = total[np.abs(total) > 2.0**-60]
    last = np.spacing(np.abs(total)) * rng.choice([0.0, 0.5, -0.5, 2.0**-40, -(2.0**-40)], total.size)
    scale = 2**_FINE
    exact = [
        int(Fraction(float(a)) * scale) + int(Fraction(float(b)) * scale) for a, b in zip(total, last, strict=True)
    ]
    return [({}, (total, last), accumulate.round_grid(np.array(exact, dtype=object), _FINE))]


def _round_single(every):
    with np.errstate(over="ignore"):
        total = sums(50_000, every).astype(np.float32)
    return [({}, (total,), binary16.encode(total.astype(np.float64) + 0.0))]


def _real_to_half(every):
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e-310, 1e308, -1e308, 1e300, 2.0**-60, -(2.0**-1022)]
    real = np.concatenate([sums(50_000, every), odd, binary16.decode(PATTERNS)])
    return [({}, (real,), binary16.encode(real))]


def _binary(golden):
    def cases(every):
        corners = np.array(np.meshgrid(CORNERS, CORNERS), dtype=np.uint16).reshape(2, -1)
        some = PATTERNS if every else PATTERNS[::11]
        beside = np.repeat(some, len(_SPECIAL)), np.tile(_SPECIAL, len(some))
        parts = [pairs(np.random.default_rng(5), 400_000 if every else 50_000), corners, beside, beside[::-1]]
        a, b = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        return [({}, (singles(a), singles(b)), golden(a, b))]

    return cases


def _relu(every):
    return [({}, (singles(PATTERNS),), binary16.relu(PATTERNS))]


def _table(every):
    found = []
    for low, high, scale in _TABLES:
        entries = halves(np.random.default_rng(6), high - low + 1)
        entries = np.where(binary16.is_nan(entries), np.uint16(0x7E00), entries)
        codes = table.index(PATTERNS, low, high, scale).code
        attributes = {"factor": 2.0**scale, "low": float(low), "high": float(high)}
        found.append((attributes, (singles(PATTERNS), singles(entries)), entries[codes - low]))
    return found


def _blocks(form, every):
    """Every pattern as the greatest of a block, beside another one; and blocks of the native size with corners."""
    rng = np.random.default_rng(form.mant)
    first = PATTERNS if every else PATTERNS[:: 1 if form.mant == 8 else 7]
    other = rng.integers(0, 1 << 16, len(first)).astype(np.uint16)
    led = np.stack([first, np.minimum(other & 0x7FFF, first & 0x7FFF) | other & 0x8000], axis=1)
    shape = (3_000 if every else 500, form.block)
    field = np.clip(rng.integers(0, 30, (shape[0], 1)) - rng.integers(0, form.mant + 4, shape), 0, 31)
    coarse = rng.integers(0, 1 << 10, shape) & rng.choice([0x3FF, 0x3F0, 0x300, 0x200, 0], shape)
    near = field << 10 | coarse | rng.integers(0, 2, shape) << 15
    near = np.where(rng.random(shape) < 0.02, rng.choice([0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x8000], shape), near)
    return led, near.astype(np.uint16)


def _quantised(bits, form, *how):
    found = blocks.quantize(bits, replace(form, block=bits.shape[-1]), *how)
    return blocks.to_binary16(found.mant, found.exp)


def _noise(bits):
    """Noise for every element, often the least or the greatest."""
    rng = np.random.default_rng(9)
    some = rng.integers(0, 1 << 16, bits.shape)
    return np.where(rng.random(bits.shape) < 0.2, rng.choice([0, 0x7FFF, 0x8000, 0xFFFF], bits.shape), some)


def _dynamic(rounding):
    def cases(every):
        found, seen = [], set()
        for form in formats(every):
            attributes = {"share": 2.0**-form.headroom, "greatest_code": float(form.q_max)}
            least = np.float32([2.0**form.exp_min])
            led, native = _blocks(form, every)
            for bits in [native] if (form.mant, form.exp_min) in seen else [led, native]:
                noise = _noise(bits) if rounding is Rounding.STOCHASTIC else None
                want = _quantised(bits, form, ExponentMode.DYNAMIC, 0, rounding, noise)
                beside = () if noise is None else (noise.astype(np.float64),)
                found.append((attributes, (singles(bits), least, *beside), want))
            seen.add((form.mant, form.exp_min))
        return found

    return cases


def _static(rounding):
    def cases(every):
        found = []
        for form in {form.mant: form for form in formats(every)}.values():
            bits = PATTERNS[:: 1 if every or form.mant == 8 else 7, None]
            for exp in {form.exp_min, -form.headroom, form.exp_max}:
                noise = _noise(bits) if rounding is Rounding.STOCHASTIC else None
                want = _quantised(bits, form, ExponentMode.STATIC, exp, rounding, noise)
                beside = () if noise is None else (noise.astype(np.float64),)
                attributes = {"unit": 2.0**exp, "greatest_code": float(form.q_max)}
                found.append((attributes, (singles(bits), *beside), want))
        return found

    return cases


def _canonical(every):
    return [({}, (singles(PATTERNS),), np.where(binary16.is_nan(PATTERNS), np.uint16(0x7E00), PATTERNS))]


_CASES = {
    "RoundToHalf": _round_to_half,
    "RoundSumToHalf": _round_sum,
    "RoundSingleToHalf": _round_single,
    "RealToHalf": _real_to_half,
    "HalfAdd": _binary(binary16.add),
    "HalfSub": _binary(binary16.sub),
    "HalfMul": _binary(binary16.mul),
    "HalfMax": _binary(binary16.maximum),
    "HalfMin": _binary(binary16.minimum),
    "HalfRelu": _relu,
    "HalfTable": _table,
    "BlockQuantize": _dynamic(Rounding.NEAREST_EVEN),
    "BlockQuantizeAway": _dynamic(Rounding.NEAREST_AWAY),
    "StaticQuantize": _static(Rounding.NEAREST_EVEN),
    "StaticQuantizeAway": _static(Rounding.NEAREST_AWAY),
    "BlockQuantizeStochastic": _dynamic(Rounding.STOCHASTIC),
    "StaticQuantizeStochastic": _static(Rounding.STOCHASTIC),
    "HalfToReal": _canonical,
}


def several(count, every=False):
    """Two or three float64 numbers, some of which cancel, and binary16 patterns of their sum."""
    rng = np.random.default_rng(7)
    a = rng.choice(sums(20_000, every), 100_000 if every else 3_000)
    a = a[np.abs(a) > 2.0**-40]
    b = -a * rng.choice([1.0, 1 + 2.0**-11, 1 - 2.0**-52, 2.0**-30, 0.0], a.size)
    c = rng.choice([-1.0, 1.0, 0.0], a.size) * np.spacing(a) * 2.0 ** rng.integers(-8, 3, a.size)
    c += rng.choice([0.0, 1.0], a.size) * rng.choice(a, a.size) * 2.0**-14
    order = rng.permuted(np.stack([a, b, c][:count]), axis=0)
    exact = [sum(int(Fraction(float(x)) * 2**_FINE) for x in one) for one in order.T]
    return order, accumulate.round_grid(np.array(exact, dtype=object), _FINE)


#: Names of all primitives.
PRIMITIVES = tuple(_CASES)


@cache
def cases(name, every=False):
    """Attributes, operands and patterns that must come out, of a primitive; ``every`` for the long way."""
    return _CASES[name](every)


def prove(name, run, every=False):
    """Compare ``run(name, attributes, *operands)`` with the golden model; returns how many results were compared."""
    count = 0
    for attributes, arrays, want in cases(name, every):
        found = run(name, attributes, *arrays)
        assert_same(patterns(found), want, arrays)
        count += want.size
    if name == "HalfToReal":
        quiet = found[np.isnan(found)].view(np.uint64)
        assert len(quiet) and (quiet == 0x7FF8000000000000).all()
    return count
