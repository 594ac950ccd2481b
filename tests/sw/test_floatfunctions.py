"""Transfer functions in double precision against those in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from concord.functions import FUNCTIONS, function
from concord.functions.float64 import FLOAT_FUNCTIONS, evaluate

PARAMETERS = {
    "leaky_relu": {"alpha": 0.3},
    "elu": {"alpha": 1.7},
    "hardsigmoid": {"alpha": 0.4, "beta": 0.1},
    "celu": {"alpha": 0.6},
    "celu_ratio": {"alpha": 2.5},
    "linear": {"slope": 0.5, "offset": -1.0},
}
POINTS = np.concatenate(
    [
        np.random.default_rng(1).normal(0, 4, 60),
        [0.0, 1.0, -1.0, 6.0, -3.0, 3.0, 1e-9, -1e-9, 40.0, -40.0, 700.0, -700.0],
    ]
)


def test_both_know_the_same_functions():
    assert FLOAT_FUNCTIONS.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("parameters", [{}, PARAMETERS], ids=["defaults", "parameters"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_exact_arithmetic(name, parameters):
    own = parameters.get(name, {})
    exact = function(name, **own)
    want = np.array([float(exact(Fraction(x))) for x in POINTS])
    got = FLOAT_FUNCTIONS[name](POINTS, **own)
    assert got.shape == POINTS.shape
    assert np.allclose(got, want, rtol=1e-13, atol=3e-15)


def test_functions_are_applied_in_order():
    x = np.array([[0.25, 4.0]])
    assert np.array_equal(evaluate((("sqrt", {}), ("leaky_relu", {"alpha": 2.0})), x), [[0.5, 2.0]])
    assert evaluate((("log", {}), ("exp", {})), x) == pytest.approx(x)
