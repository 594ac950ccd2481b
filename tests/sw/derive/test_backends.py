"""ONNX graphs and PyTorch modules of programs and compiled networks compute what the emulator does, to the last bit."""

import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.derive.model import derive_image
from concord.frontend import import_model
from concord.spec.formats import Rounding
from concord.spec.presets import ECP5_85F, TINY
from support import compiled_nets
from support.derived_backends import CONFIGS, compiled, networks
from support.derived_modules import emulated, image_of_memories, program_rng, random_inputs, same
from support.expressions import ROOMY
from support.program_gen import random_program
from support.small_examples import SMALL
from support.trained import DATA, needs_data


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("name", SMALL)
def test_examples(name, backend, tmp_path):
    image = SMALL[name]().image()
    inputs = random_inputs(image, 3, 1)
    same(backend(derive_image(image), tmp_path, inputs)[0], emulated(image, inputs))


@compiled
@pytest.mark.parametrize("config", CONFIGS)
def test_random_programs(config, backend, tmp_path):
    words, memories = random_program(CONFIGS[config], program_rng(f"{config} 0"), 8)
    image = image_of_memories(words, memories)
    model = derive_image(image)
    if config == "tiny":
        assert any(getattr(node, "rounding", None) is Rounding.STOCHASTIC for node in model.body)
    inputs = random_inputs(image, 2, 0)
    same(backend(model, tmp_path, inputs)[0], emulated(image, inputs))


@compiled
@pytest.mark.parametrize("name", ["residual", "attention", "grouped_softmax"])
def test_small_networks(name, backend, tmp_path):
    networks(compile_graph(getattr(compiled_nets, name)(), ROOMY).package, backend, tmp_path, 3)


@compiled
def test_recurrent_layers(backend, tmp_path):
    networks(compile_graph(compiled_nets.recurrent("LSTM", 5, 3, 6), ROOMY).package, backend, tmp_path, 2)


@compiled
def test_several_samples_in_a_run(backend, tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4).package
    networks(package, backend, tmp_path, 6)


@needs_data
@compiled
@pytest.mark.parametrize("name", ["digits_cnn", "digits_gru64"])
def test_trained_networks(name, backend, tmp_path):
    networks(compile_graph(import_model(DATA / "models" / f"{name}.onnx"), ECP5_85F).package, backend, tmp_path, 4)


def test_the_command(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    package.image.save(tmp_path / "npu.image")
    for name, beside in (("model.onnx", None), ("model_torch.py", "model_torch.npz")):
        found = CliRunner().invoke(main, ["derive", str(tmp_path / "npu.image"), "-o", str(tmp_path / name)])
        assert found.exit_code == 0 and "2 layers, " in found.output
        assert (tmp_path / name).exists() and (beside is None or (tmp_path / beside).exists())
    assert "import torch" in (tmp_path / "model_torch.py").read_text()
