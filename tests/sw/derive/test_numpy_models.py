"""Derived models as NumPy files: every operation gives what the golden model gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from concord.derive import evaluate
from support.derive_models import MODELS, assert_equal, samples
from support.derived_modules import load_derived


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, tmp_path):
    model = MODELS[name]()
    module = load_derived(model, tmp_path)
    for count in (1, 20):
        inputs = samples(model, count, seed=count)
        with np.errstate(all="ignore"):  # without the check of inputs: infinities and NaNs, too
            found = module.network(module.W, {name: np.asarray(x, np.float64) for name, x in inputs.items()})
        assert_equal(found, evaluate.run(model, inputs))
