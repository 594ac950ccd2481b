"""Derived models as PyTorch modules give what the golden model gives, to the last bit."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

import pytest

from concord.derive import evaluate
from derive_models import MODELS, assert_equal, samples

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e .[torch])")


def load(model, folder):
    """The module of a model, from its file."""
    from concord.derive.backends.torch_file import write_torch

    path = folder / "twin.py"
    write_torch(model, path)
    spec = spec_from_file_location("twin", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, tmp_path):
    model = MODELS[name]()
    module = load(model, tmp_path)
    for count in (1, 20):
        inputs = samples(model, count, seed=count)
        assert_equal(module.run(inputs), evaluate.run(model, inputs))
