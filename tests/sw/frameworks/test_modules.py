"""Modules and programs of PyTorch given to ``concord.compile``."""

import warnings

import numpy as np
import onnx
import pytest

import concord
from concord.frontend.load import serialized
from support.frameworks import missing, needs

if missing("torch"):
    pytest.skip(missing("torch"), allow_module_level=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from torch import nn

from concord.frameworks import from_torch

pytestmark = needs("torch")

RNG = torch.Generator().manual_seed(4)


class Recurrent(nn.Module):
    """An LSTM, of which the last step counts, with a second input that may be left out."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, sequence, scale=None):
        scores = self.head(self.cell(sequence)[0][:, -1])
        return scores if scale is None else scores * scale


def images(count=4):
    return torch.rand(count, 3, 8, 8, generator=RNG)


def convolutional():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(), nn.Linear(8, 5),
    )  # fmt: skip


def agrees(network, module, *inputs):
    """Whether a network computes what a module does, up to the formats."""
    with torch.no_grad():
        want = module.eval()(*inputs).numpy()
    results = network.run(dict(zip(network.inputs, inputs, strict=True)))
    (got,) = results.values()
    return np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.fixture(params=["torch.export", "tracing"])
def exporter(request, monkeypatch):
    """With and without the package that the exporter on torch.export needs."""
    if request.param == "tracing":
        monkeypatch.setattr(from_torch, "find_spec", lambda name: None)
    return request.param


def test_a_module_is_compiled(exporter):
    module, x = convolutional(), images()
    network = concord.compile(module, example=x, preset="ecp5-85f")
    assert network.inputs == {"input": (3, 8, 8)} and [*network.outputs.values()] == [(5,)]
    assert network.source.startswith(f"PyTorch {torch.__version__}: Sequential, exported by {exporter} in evaluation")
    assert network.source.endswith("and put back in training mode") and "PyTorch" in network.report()
    assert agrees(network, module, x)


def test_modes_are_put_back(exporter):
    """Also where parts have another mode than the module, and where the export fails."""
    module = convolutional()
    module[1].eval()
    modes = [part.training for part in module.modules()]
    mean = module[1].running_mean.clone()
    concord.compile(module, example=images(), preset="ecp5-85f")
    with pytest.raises(ValueError, match="example must be what Sequential can be called with"):
        concord.compile(module, example=images()[0], preset="ecp5-85f")
    assert [part.training for part in module.modules()] == modes and set(modes) == {True, False}
    assert torch.equal(module[1].running_mean, mean)
    assert not module[0].weight.grad_fn and module[0].weight.requires_grad


@pytest.mark.slow
def test_inputs_by_position_and_by_name(exporter):
    module = Recurrent()
    sequence, scale = torch.rand(3, 5, 6, generator=RNG), torch.full((3, 2), 2.0)
    alone = concord.compile(module, example=sequence, preset="ecp5-85f")
    assert alone.inputs == {"sequence": (5, 6)} and agrees(alone, module, sequence)
    named = {"scale": scale, "sequence": sequence, "y": np.zeros(3)}
    for example in ((sequence, scale), named):
        network = concord.compile(module, example=example, preset="ecp5-85f")
        assert network.inputs == {"sequence": (5, 6), "scale": (2,)} and agrees(network, module, sequence, scale)


def test_samples_are_an_example(exporter):
    module, x = nn.Linear(6, 3), np.random.default_rng(1).normal(size=(20, 6))
    network = concord.compile(module, calibrate=x, quick=True, preset="tiny")
    assert network.inputs == {"input": (6,)} and agrees(network, module, torch.tensor(x, dtype=torch.float32))
    tensors = concord.compile(module, calibrate=torch.tensor(x).requires_grad_(), quick=True, preset="tiny")
    assert tensors.image.program == network.image.program


@pytest.mark.parametrize("scale", [1, 300])
def test_a_small_example_is_a_kind_of_input(scale):
    x = scale * np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    network = concord.compile(nn.Linear(6, 3), example=x, preset="tiny")
    told = [line for line in network.warnings if "INPUT_RANGE" in line]
    assert len(told) == (scale == 300) and any(
        line.startswith("no samples of input input") for line in network.warnings
    )


def test_an_example_of_many_samples_is_what_formats_are_chosen_for():
    x = 300 * np.random.default_rng(1).normal(size=(16, 6)).astype(np.float32)
    module = nn.Linear(6, 3)
    network = concord.compile(module, example=x, preset="tiny")
    assert network.expected_error.samples == "16 calibration samples" and not network.warnings
    assert concord.compile(module, example=np.zeros((16, 6)), preset="tiny").warnings


def test_programs_have_an_example():
    module, x = convolutional().eval(), images()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (x[:1],))
        traced = torch.jit.trace(module, (x[:1],))
        exported = torch.onnx.export(module, (x[:1],), dynamo=True, verbose=False)
    for given in (program, exported):
        network = concord.compile(given, preset="ecp5-85f")
        assert agrees(network, module, x)
        with pytest.raises(
            ValueError, match=r"example must be left out: the (ExportedProgram|ONNXProgram) has its own"
        ):
            concord.compile(given, example=x)
    assert agrees(concord.compile(traced, example=x, preset="ecp5-85f"), module, x)


def test_a_module_that_was_converted():
    from concord.train.torch import convert, export_onnx

    module, x = convert(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))), torch.rand(2, 6, generator=RNG)
    assert concord.compile(module, example=x, preset="tiny").model == export_onnx(module, x)


def test_nothing_of_the_machine_is_in_the_model():
    network = concord.compile(convolutional(), example=images(), preset="ecp5-85f")
    assert b".py" not in network.model and b"site-packages" not in network.model
    onnx.checker.check_model(onnx.load_model_from_string(network.model), full_check=True)


class Branch(nn.Module):
    """What it computes depends on values."""

    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


@pytest.mark.parametrize(
    ("make", "parameters", "message"),
    [
        (convolutional, {}, r"example must be what the module is called with, .*concord\.compile\(module, example=x\)"),
        (convolutional, {"example": 1.0}, r"must have samples along its first axis, not the shape \[\]"),
        (convolutional, {"example": np.zeros((0, 3))}, r"samples along its first axis, not the shape \[0, 3\]"),
        (convolutional, {"example": np.zeros((1, 2, 8, 8))}, r"with the shapes \[\[1, 2, 8, 8\]\] it says: "),
        (Branch, {"example": np.ones((1, 4))}, r"Branch cannot be exported by torch\.onnx\.export: .*; export"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_said(make, parameters, message):
    with pytest.raises(ValueError, match=message) as caught:
        concord.compile(make(), **parameters)
    assert "\n" not in str(caught.value)


def test_without_the_package_of_the_exporter(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(nn.Linear(3, 2), (torch.zeros(1, 3),))
    monkeypatch.setattr(from_torch, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package onnxscript: pip install 'concord-npu\[torch\]'"):
        concord.compile(program)


def test_other_objects_say_what_they_are():
    with pytest.raises(TypeError, match=r"not an object of PyTorch \(Tensor\)"):
        concord.compile(torch.zeros(3))
    with pytest.raises(
        TypeError, match=r"not an object of PyTorch \(Linear\); .*concord\.compile\(module, example=x\)"
    ):
        serialized(nn.Linear(3, 2))
