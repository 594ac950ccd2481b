"""The integer softmax: exact definitions against fractions with many digits, and the same bits everywhere."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from concord.golden.softmax import exponentials, probabilities
from concord.spec.softmax import powers


def by_hand(below, exp):
    """The three steps for one number, in Python integers."""
    scale, coarse, fine = powers()
    shift = 16 + exp
    d = below << shift if shift >= 0 else (below + (1 << -shift >> 1)) >> -shift
    t = (min(d, 64 << 16) * scale + (1 << 29)) >> 30
    k, f = t >> 16, t & 65535
    power = (coarse[f >> 8] * fine[f & 255] + (1 << 29)) >> 30
    return power if not k else (power + (1 << k - 1)) >> k


@pytest.mark.parametrize("exp", [-70, -40, -31, -17, -16, -9, -1, 0, 1, 5, 6, 7, 40, 46, 47, 48, 64, 127])
def test_exponentials_by_hand_and_close_to_the_function(exp):
    rng = np.random.default_rng(exp + 100)
    below = np.concatenate([[0, 1, 2, (1 << 32) - 1], rng.integers(0, 1 << int(rng.integers(3, 33)), 60)])
    got = exponentials(below, exp)
    for x, value in zip(below.tolist(), got.tolist(), strict=True):
        assert value == by_hand(x, exp)
        with localcontext(prec=60):
            exact = (-(Decimal(x) * Decimal(2) ** exp)).exp() * (1 << 30) if x * 2.0**exp < 200 else Decimal(0)
            assert abs(value - exact) <= 8 + exact * Decimal(2) ** -16


def test_tables_of_powers_are_exact():
    scale, coarse, fine = powers()
    with localcontext(prec=80):
        for j in (0, 1, 100, 255):
            for table, step in ((coarse, 256), (fine, 65536)):
                exact = Decimal(2) ** (30 - Decimal(j) / step)
                assert abs(int(table[j]) - exact) <= Decimal("0.5000001")
        assert abs(scale - (1 << 30) / Decimal(2).ln()) <= Decimal("0.5")


def test_probabilities_have_these_bits():
    """Pinned: the same on every machine."""
    got = probabilities(np.array([[5, -3, 0, 127], [1, 1, 1, 1], [0, 0, 0, 1 << 20]]), -4)
    assert got.tolist() == [
        [523491, 317514, 382996, 1072517824],
        [1 << 28] * 4,
        [0, 0, 0, 1 << 30],
    ]
