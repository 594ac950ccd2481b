"""Functions of codes of TensorFlow Lite beside the functions that they stand for, with scales of all kinds."""

import numpy as np
import pytest

from concord.integer.tflite.point_wise import logistic_16, tanh_16
from concord.transfer import Codes

TARGET = Codes(16, 1 / 32768)


@pytest.mark.parametrize("kernel, exact", [
    (logistic_16, lambda x: 1 / (1 + np.exp(-x))), (tanh_16, np.tanh),
])  # fmt: skip
def test_functions_of_16_bits_are_near(kernel, exact):
    """Within 4 codes of 32,768, for powers of two and for scales beside and between them."""
    codes = np.arange(-32768, 32768, 37)
    rng = np.random.default_rng(1)
    for scale in (2.0**-12, 2.0**-11, 2.0**-13, *np.exp2(rng.uniform(-15, -9, 20))):
        source = Codes(16, float(np.float32(scale)))
        want = np.clip(np.rint(32768 * exact(codes * float(source.scale))), -32768, 32767)
        assert np.abs(kernel(source, TARGET)(codes) - want).max() <= 4, scale
