"""Bounds of sums, and types that hold them exactly."""

import numpy as np
import pytest

from concord.sums.exact import exact_type
from concord.sums.reach import sum_bound


@pytest.mark.parametrize("bound, kind", [(1 << 24, np.float32), ((1 << 24) + 1, np.float64), (1 << 53, np.float64),
                                         ((1 << 53) + 1, np.int64)])  # fmt: skip
def test_types(bound, kind):
    """The first integer that a type does not hold is the one behind the bound, if it is a type of floats."""
    assert exact_type(bound) is kind
    assert int(np.asarray(bound).astype(kind)) == bound
    if kind is not np.int64 and not bound & 1:
        assert int(np.asarray(bound + 1).astype(kind)) != bound + 1


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_reached_and_not_passed(seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(-128, 128, (4, 5, 3))
    bound = sum_bound(weights, (1, 2), 255)
    factors = 255 * np.sign(weights)
    assert np.abs((weights * factors).sum((1, 2))).max() == bound
    assert np.abs((weights * rng.integers(-255, 256, weights.shape)).sum((1, 2))).max() <= bound
