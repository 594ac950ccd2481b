"""Operands that the conditions of sticky flags are proven with, and where the golden model raises the flags."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from concord.golden import accumulate, binary16, blocks, table
from concord.spec.formats import ExponentMode, Rounding
from support.derive_numbers import PATTERNS, assert_same, formats, singles
from support.halves import CORNERS, pairs

_TABLES = [(-128, 127, 4), (0, 95, -10), (-1024, 1023, 7), (-3, 0, 31), (0, 0, 0), (-7, -2, -32), (5, 900, 10)]


def _grid(width, some):
    """Integers around what ``width`` bits hold."""
    top = 1 << width - 1
    near = [sign * top + k for sign in (-1, 1) for k in (-3, -2, -1, 0, 1, 2, 3, -(1 << width - 9), 1 << width - 9)]
    return [*near, 0, 1, -1, *(int(n) for n in some * 2.0 ** (width - 1))]


def _beyond(every):
    some = np.random.default_rng(1).normal(size=300)
    found = []
    for width, frac in ((20, 8), (36, 20), (48, 30), (53, 48)):
        whole = np.array(_grid(width, some), dtype=np.int64)
        want = accumulate.saturate(whole, width)[1]
        found.append(({"limit": 2.0 ** (width - 1 - frac)}, (whole * 2.0**-frac,), want))
    return found


def _beyond_sum(every):
    some = np.random.default_rng(2).normal(size=300)
    found = []
    for width, frac in ((60, 40), (67, 54), (90, 60)):
        whole = _grid(width, some)
        total = np.array([float(n) for n in whole])
        rest = np.array([float(n - int(first)) for n, first in zip(whole, total, strict=True)])
        want = accumulate.saturate(np.array(whole, dtype=object), width)[1]
        scaled = total * 2.0**-frac, rest * 2.0**-frac
        found.append(({"limit": 2.0 ** (width - 1 - frac)}, scaled, want))
    return found


def _overflowed(every):
    corners = np.array(np.meshgrid(CORNERS, CORNERS), dtype=np.uint16).reshape(2, -1)
    parts = [pairs(np.random.default_rng(5), 200_000 if every else 20_000), corners]
    a, b = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    with np.errstate(all="ignore"):
        made = [operation(a, b) for operation in (binary16.add, binary16.sub, binary16.mul)]
    return [({}, (singles(y), singles(a), singles(b)), binary16.overflowed(y, a, b)) for y in made]


def _saturated(rounding):
    def cases(every):
        found = []
        for form in {form.mant: form for form in formats(every)}.values():
            bits = PATTERNS[:: 1 if every or form.mant == 8 else 7, None]
            for exp in sorted({form.exp_min, -form.headroom, form.exp_max}):
                noise = np.random.default_rng(3).integers(0, 1 << 16, bits.shape)
                random = noise if rounding is Rounding.STOCHASTIC else None
                block = replace(form, block=1)
                want = blocks.quantize(bits, block, ExponentMode.STATIC, exp, rounding, random).saturated[:, None]
                beside = () if random is None else (noise.astype(np.float64),)
                found.append(({"unit": 2.0**exp, "codes": form.q_max + 1.0}, (singles(bits), *beside), want))
        return found

    return cases


def _clamped(every):
    found = []
    for low, high, scale in _TABLES:
        codes = table.index(PATTERNS, low, high, scale)
        for constant_ends in ((0, 0), (0, 1), (1, 0)):
            ends = {
                "low": -np.inf if constant_ends[0] else float(low),
                "high": np.inf if constant_ends[1] else float(high),
            }
            found.append(({"factor": 2.0**scale, **ends}, (singles(PATTERNS),), table.clamped(codes, *constant_ends)))
    return found


_CASES = {
    "Beyond": _beyond,
    "BeyondSum": _beyond_sum,
    "Infinite": lambda every: [({}, (singles(PATTERNS),), binary16.is_inf(PATTERNS))],
    "Overflowed": _overflowed,
    "NotFinite": lambda every: [({}, (singles(PATTERNS),), ~binary16.is_finite(PATTERNS))],
    "Saturated": lambda every: _saturated(Rounding.NEAREST_EVEN)(every) + _saturated(Rounding.NEAREST_AWAY)(every),
    "SaturatedStochastic": _saturated(Rounding.STOCHASTIC),
    "TableClamped": _clamped,
}

#: Names of all conditions.
CONDITIONS = tuple(_CASES)


@cache
def _cases(name, every):
    return _CASES[name](every)


def prove_condition(name, run, every=False):
    """Compare ``run(name, attributes, *operands)`` with the golden model; returns how many results were compared."""
    count = 0
    for attributes, arrays, want in _cases(name, every):
        assert_same(run(name, attributes, *arrays), want, arrays)
        count += want.size
    return count
