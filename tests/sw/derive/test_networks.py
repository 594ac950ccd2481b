"""Derived models of compiled networks: the same bits as on the emulator, in the shapes of the network."""

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.derive import ir
from concord.derive.model import derive_package
from concord.frontend import import_model
from concord.host import connect
from concord.spec.presets import ECP5_85F, TINY
from support import compiled_nets
from support.derived_modules import load_derived, same
from support.expressions import ROOMY
from support.trained import DATA, needs_data

NETS = (
    "magnitudes",
    "residual",
    "gru",
    "attention",
    "large_windows",
    "grouped_softmax",
    "normalised",
    "group_normalised",
    "joined_maps",
    "exchanged_axes",
)


def compare(package, folder, samples=3, scale=1.0):
    """Derive, run on random samples and compare with the emulator; returns the model."""
    model = derive_package(package)
    rng = np.random.default_rng(5)
    arrangement = package.arrangement
    x = {name: scale * rng.normal(size=(samples, *arrangement.shapes[name])) for name in arrangement.inputs}
    with connect("emulator", package.config) as device:
        device.load(package.image)
        want = package.run(device, x)
    same(load_derived(model, folder).run(x), want)
    return model


@pytest.mark.parametrize("name", NETS)
def test_small_networks(name, tmp_path):
    compare(compile_graph(getattr(compiled_nets, name)(), ROOMY).package, tmp_path)


def test_several_samples_in_a_run(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4).package
    model = compare(package, tmp_path, samples=6)
    assert model.group == 4


def test_several_engines(tmp_path):
    compare(compile_graph(compiled_nets.residual(), ROOMY.replace(engines=2)).package, tmp_path)


@pytest.mark.parametrize("op, iterations", [("LSTM", 6), ("GRU", 6), ("RNN", 5)])
def test_recurrent_layers_are_loops(op, iterations, tmp_path):
    """The last iteration of the RNN stays apart: its result is not converted."""
    package = compile_graph(compiled_nets.recurrent(op, 5, 3, 6), ROOMY).package
    model = compare(package, tmp_path)
    loops = [node for node in model.body if isinstance(node, ir.Loop)]
    assert [loop.count for loop in loops] == [iterations]


@needs_data
@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn", "digits_lstm64"])
def test_trained_networks(name, tmp_path):
    graph = import_model(DATA / "models" / f"{name}.onnx")
    compare(compile_graph(graph, ECP5_85F).package, tmp_path)


def test_the_file_needs_numpy_only(tmp_path):
    """Concord cannot be imported where it runs."""
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    load_derived(derive_package(package), tmp_path)
    lines = (
        "import sys; sys.modules['concord'] = None; sys.path.insert(0, '.')",
        "import numpy as np; import model; print(model.run({'x': np.ones((2, 6))})['fc1.out'].shape)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "(2, 3)", done.stderr


def test_the_command(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    package.image.save(tmp_path / "npu.image")
    found = CliRunner().invoke(main, ["derive", str(tmp_path / "npu.image"), "-o", str(tmp_path / "model.py")])
    assert found.exit_code == 0, found.output
    assert "2 layers, " in found.output
    assert (tmp_path / "model.npz").exists()
    bad = CliRunner().invoke(main, ["derive", str(tmp_path / "npu.image"), "-o", str(tmp_path / "model.txt")])
    assert bad.exit_code == 1
    assert "must end in" in bad.output
