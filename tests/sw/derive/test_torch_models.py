"""Derived models as PyTorch modules give what the golden model gives, to the last bit."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from concord.derive import evaluate
from concord.derive.backends.python_file import write_torch
from support.derive_models import MODELS, assert_equal, samples, softmax
from support.derived_modules import load_derived
from support.frameworks import missing, needs

pytestmark = needs("torch")

if missing("torch"):
    pytest.skip(missing("torch"), allow_module_level=True)


def load(model, folder):
    """The module of a model, from its file."""
    return load_derived(model, folder, write_torch)


def outputs(module, inputs):
    """Without the check of inputs: infinities and NaNs, too."""
    import torch

    found = module.network(module.W, {name: torch.from_numpy(x) for name, x in inputs.items()})
    return {name: x.numpy() for name, x in found.items()}


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, tmp_path):
    model = MODELS[name]()
    module = load(model, tmp_path)
    for count in (1, 20):
        inputs = samples(model, count, seed=count)
        assert_equal(outputs(module, inputs), evaluate.run(model, inputs))


def test_host_partition_has_the_bits_of_the_host(tmp_path):
    model = softmax()
    inputs = samples(model, 5)
    inputs["input:0"] = np.nan_to_num(inputs["input:0"])
    found = outputs(load(model, tmp_path), inputs)
    want = evaluate.run(replace(model, host_partition=None), inputs)
    assert_equal(found, {**evaluate.run(model, inputs), **want})


def test_the_file_needs_torch_and_numpy_only(tmp_path):
    tree = ast.parse(Path(load(MODELS["products"](), tmp_path).__file__).read_text())
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert plain == {"numpy", "torch", "hashlib", "io"} and parts == {"pathlib", "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arithmetic", "loops", "products"])
def test_a_model_is_a_module_like_others(name, tmp_path):
    """Of any batch, on any number of threads, in a sequence, and exported with a free number of samples."""
    import torch

    model = MODELS[name]()
    module = load(model, tmp_path)
    network = module.Model().eval()
    x = [torch.from_numpy(array) for array in samples(model, 5, seed=1).values()]
    want = network(*x)
    for count in (0, 1, 3):
        for whole, part in zip(want, network(*(one[:count] for one in x)), strict=True):
            assert torch.equal(part.nan_to_num(7.5), whole[:count].nan_to_num(7.5))
    free = tuple({0: torch.export.Dim.DYNAMIC} for _ in x)
    exported = torch.export.export(network, tuple(x), dynamic_shapes=free).module()
    for whole, part in zip(want, exported(*(one[:3] for one in x)), strict=True):
        assert torch.equal(part.nan_to_num(7.5), whole[:3].nan_to_num(7.5))
    if len(x) == 1:
        for one, other in zip(torch.nn.Sequential(torch.nn.Identity(), network)(*x), want, strict=True):
            assert torch.equal(one.nan_to_num(7.5), other.nan_to_num(7.5))
