"""Tensors of two implementations, compared by name and bit for bit."""

import numpy as np
import pytest

from concord.prove.compare import compare


def test_comparison_counts_and_passes():
    values = {"a": np.zeros((2, 3), np.float32), "y": np.full((2, 2), np.nan, np.float32)}
    assert str(compare(values, values)) == "emulator = RTL: PASS (10 values)"


@pytest.mark.parametrize("wrong", [1.0000001, -0.0, np.nan])
def test_comparison_names_the_first_difference(wrong):
    right = {"fc1.out": np.zeros((2, 3), np.float32), "y": np.zeros((2, 2), np.float32)}
    other = {name: values.copy() for name, values in right.items()}
    other["y"][0, 0] = 5
    other["fc1.out"][1, 2] = wrong
    result = compare(right, other)
    assert not result.passed
    assert str(result).startswith("emulator = RTL: FAIL (fc1.out[2] of sample 1: 0.0 in the emulator, ")


@pytest.mark.parametrize("other", [{"b": np.zeros(1)}, {"a": np.zeros(2)}])
def test_comparison_refuses_other_tensors(other):
    with pytest.raises(ValueError, match="must"):
        compare({"a": np.zeros(1)}, other)
