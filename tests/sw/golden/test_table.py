"""Table index and look-up against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.table import index, lookup
from support import naive

ALL = np.arange(1 << 16, dtype=np.uint16)


def code_of(bits, low, high, scale):
    """clamp(rne(x * 2**scale), low, high), by the definition."""
    if naive.is_nan(bits):
        return min(max(0, low), high)
    finite = bits - 1 if naive.is_inf(bits) else bits
    x = naive.value(finite) * naive.power(scale)
    size = naive.round_magnitude(abs(x), "even")
    return min(max(size if x > 0 else -size, low), high)


@pytest.mark.parametrize(
    "low, high, scale", [(-128, 127, 4), (0, 255, 10), (-1024, 1023, 12), (5, 9, 0), (-9, -3, -2), (-2048, 2047, -32)]
)
def test_index_of_every_pattern(low, high, scale):
    got = index(ALL, low, high, scale)
    chosen = naive.corners() + naive.sample(6000, seed=1)
    assert [int(got.code[b]) for b in chosen] == [code_of(b, low, high, scale) for b in chosen]
    assert np.array_equal(got.nonfinite, (ALL & 0x7C00) == 0x7C00)
    unlimited = [code_of(b, -(1 << 80), 1 << 80, scale) for b in chosen]
    assert [bool(got.under[b]) for b in chosen] == [code < low for code in unlimited]
    assert [bool(got.over[b]) for b in chosen] == [code > high for code in unlimited]


def test_ties_of_both_signs():
    x = binary16.encode([0.5, 1.5, 2.5, -0.5, -1.5, -2.5])
    assert index(x, -8, 7, 0)[0].tolist() == [0, 2, 2, 0, -2, -2]
    assert Fraction(5, 2) == naive.value(binary16.encode(2.5).item())


def test_specials():
    got = index([0x7C00, 0xFC00, 0x7E00, 0x7BFF], -(1 << 20), 1 << 20, 0)
    assert got.code.tolist() == [65504, -65504, 0, 65504] and got.nonfinite.tolist() == [True, True, True, False]
    assert not got.under.any() and not got.over.any()
    small = index([0x7C00, 0xFC00, 0x7E00, 0x7BFF], 1, 9, 0)
    assert small.under.tolist() == [False, True, True, False] and small.over.tolist() == [True, False, False, True]


def test_lookup_adds_the_offset():
    memory = np.arange(100, 164, dtype=np.uint16)
    slot = {"low": -8, "high": 7, "offset": 24, "scale": 1, "settled_low": 0, "settled_high": 0}
    got = lookup(binary16.encode([-9.0, -4.0, 0.0, 0.26, 3.5, 99.0]), memory, slot)
    assert got.entries.tolist() == [116, 116, 124, 125, 131, 131] and not got.nonfinite.any()


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("high", [0, 1])
def test_what_is_clamped_at_an_end_that_is_not_constant(low, high):
    slot = {"low": -8, "high": 7, "offset": 8, "scale": 1, "settled_low": low, "settled_high": high}
    x = binary16.encode([-np.inf, -9.0, -4.25, -4.3, -4.0, 0.0, 3.5, 3.74, 3.75, 99.0, np.inf, np.nan])
    got = lookup(x, np.zeros(16, dtype=np.uint16), slot)
    under, over = not low, not high
    assert got.clamped.tolist() == [under, under, False, under, *[False] * 4, over, over, over, False]


def test_lookup_stays_in_the_memory():
    for offset in (7, 57):
        with pytest.raises(ValueError, match="slot must stay inside 64 entries"):
            lookup([0], np.zeros(64, dtype=np.uint16), {"low": -8, "high": 7, "offset": offset, "scale": 0})
