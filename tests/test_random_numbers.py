"""A test gets the same numbers whatever ran before it."""

import numpy as np
import pytest

from support.onnx_models import floats

RNG = np.random.default_rng(4)
AT_IMPORT = floats(3)


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_numbers_are_those_of_the_first_test(taken):
    assert RNG.normal() == np.random.default_rng(4).normal()
    np.testing.assert_array_equal(floats(3), AT_IMPORT)
    RNG.normal(size=taken)
    floats(taken)
