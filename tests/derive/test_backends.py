"""ONNX graphs and PyTorch modules of programs and compiled networks compute what the emulator does, to the last bit."""

from importlib.util import find_spec

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

import compiled_nets
from compiled_nets import ROOMY
from concord.cli import main
from concord.compiler.model import compile_graph
from concord.derive.backends.onnx_file import write_onnx
from concord.derive.backends.torch_file import write_torch
from concord.derive.model import derive_image, derive_package
from concord.frontend import import_model
from concord.host import connect
from concord.spec.formats import Rounding
from concord.spec.presets import ECP5_85F, TINY
from derived_twins import NO_TORCH, emulated, image_of_memories, program_rng, random_inputs, same, twin
from program_gen import random_program
from small_examples import SMALL
from trained import DATA, needs_data

CONFIGS = {
    "tiny": TINY,
    "two engines": TINY.replace(engines=2),
    "wide": TINY.replace(act_mant=12, wgt_mant=12, wgt_exp_max=4, acc_width=68),
}
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason=NO_TORCH)


def on_onnxruntime(model, folder, inputs):
    """Outputs of the ONNX graph."""
    write_onnx(model, folder / "twin.onnx")
    session = onnxruntime.InferenceSession(folder / "twin.onnx", providers=["CPUExecutionProvider"])
    given = {name: np.asarray(values, np.float64) for name, values in inputs.items()}
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))


def on_torch(model, folder, inputs):
    """Outputs of the PyTorch module."""
    return twin(model, folder, write_torch).run(inputs)


backends = pytest.mark.parametrize("backend", [on_onnxruntime, pytest.param(on_torch, marks=needs_torch)])


@backends
@pytest.mark.parametrize("name", SMALL)
def test_examples(name, backend, tmp_path):
    image = SMALL[name]().image()
    inputs = random_inputs(image, 3, 1)
    same(backend(derive_image(image), tmp_path, inputs), emulated(image, inputs))


@backends
@pytest.mark.parametrize("config", CONFIGS)
def test_random_programs(config, backend, tmp_path):
    words, memories = random_program(CONFIGS[config], program_rng(f"{config} 0"), 8)
    image = image_of_memories(words, memories)
    model = derive_image(image)
    if config == "tiny":
        assert any(getattr(node, "rounding", None) is Rounding.STOCHASTIC for node in model.body)
    inputs = random_inputs(image, 2, 0)
    same(backend(model, tmp_path, inputs), emulated(image, inputs))


def compare(package, backend, folder, samples):
    """The outputs of the NPU, and what the host computes behind them where there is something."""
    rng = np.random.default_rng(5)
    arrangement = package.arrangement
    x = {name: rng.normal(size=(samples, *arrangement.shapes[name])) for name in arrangement.inputs}
    with connect("emulator", package.config) as device:
        device.load(package.image)
        want = arrangement.unpack(device.run(arrangement.pack(x)), samples)
    found = backend(derive_package(package), folder, x)
    same({name: found[name] for name in want}, want)
    for name, values in package.behind(x, want).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12)


@backends
@pytest.mark.parametrize("name", ["residual", "attention", "grouped_softmax"])
def test_small_networks(name, backend, tmp_path):
    compare(compile_graph(getattr(compiled_nets, name)(), ROOMY).package, backend, tmp_path, 3)


@backends
def test_recurrent_layers(backend, tmp_path):
    compare(compile_graph(compiled_nets.recurrent("LSTM", 5, 3, 6), ROOMY).package, backend, tmp_path, 2)


@backends
def test_several_samples_in_a_run(backend, tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4).package
    compare(package, backend, tmp_path, samples=6)


@needs_data
@backends
@pytest.mark.parametrize("name", ["digits_cnn", "digits_gru64"])
def test_trained_networks(name, backend, tmp_path):
    compare(compile_graph(import_model(DATA / "models" / f"{name}.onnx"), ECP5_85F).package, backend, tmp_path, 4)


def test_the_command(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    package.image.save(tmp_path / "npu.image")
    for name, beside in (("twin.onnx", None), ("twin_torch.py", "twin_torch.npz")):
        found = CliRunner().invoke(main, ["derive", str(tmp_path / "npu.image"), "-o", str(tmp_path / name)])
        assert found.exit_code == 0 and "2 layers, " in found.output
        assert (tmp_path / name).exists() and (beside is None or (tmp_path / beside).exists())
    assert "import torch" in (tmp_path / "twin_torch.py").read_text()
