"""Every function of PyTorch against the golden model, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from concord.golden import host_math
from support.derive_flag_numbers import CONDITIONS, prove_condition
from support.derive_numbers import PRIMITIVES, assert_same, patterns, prove, several
from support.derive_runners import OPERATIONS, text_of_torch, torch_function
from support.frameworks import missing, needs

if missing("torch"):
    pytest.skip(missing("torch"), allow_module_level=True)

import torch

pytestmark = needs("torch")


@pytest.mark.parametrize("name", [name for name in PRIMITIVES if name in OPERATIONS["torch"]])
def test_function(name):
    assert prove(name, torch_function) >= 1_900


@pytest.mark.parametrize("name", CONDITIONS)
def test_condition(name):
    assert prove_condition(name, torch_function) >= 900


def test_sums_of_three():
    numbers, want = several(3)
    torch_functions = text_of_torch()
    found = torch_functions.round_sum_to_half(*torch_functions.sum_of_three(*map(torch.from_numpy, numbers)))
    assert_same(patterns(found.numpy()), want, numbers)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("RoundToHalf", lambda total: total.to(torch.float16).float()),  # rounds twice
        ("HalfMax", torch.maximum),
        ("HalfRelu", torch.relu),
        ("HalfMul", lambda a, b: (a.double() * b.double()).to(torch.float16).float() + 0.0),
    ],
)
def test_broken_functions_are_noticed(name, broken):
    with pytest.raises(AssertionError):
        prove(name, lambda _, attributes, *arrays: broken(*map(torch.from_numpy, arrays), **attributes).numpy())


def of_all_sizes():
    """Positive doubles: powers of two and their roots, what is beside them, squares and middles between squares."""
    rng = np.random.default_rng(6)
    powers = np.ldexp(1.0, np.arange(-960, 1000))
    y = rng.uniform(0.5, 2.0, 5000) * np.ldexp(1.0, rng.integers(-400, 400, 5000))
    x = np.concatenate([powers, np.sqrt(0.5) * powers, y, y * y, y * y + y * np.spacing(y)])
    return np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.inf), [0.0, np.inf, np.nan]])


@pytest.mark.parametrize("name", ["host_root", "host_log"])
def test_functions_of_the_host(name):
    """PyTorch's own square root is not that of IEEE 754."""

    x = of_all_sizes()
    want = {"host_root": np.sqrt, "host_log": host_math.host_log}[name](x)
    found = getattr(text_of_torch(), name)(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(found, want)
