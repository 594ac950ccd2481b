"""The demonstration: training, the comparison and its failure, the picture, and the whole run on an emulated RTL."""

import io

import numpy as np
import pytest
from rich.console import Console

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.model import compile_graph
from concord.demo import run as demo
from concord.demo.report import LayerFigures, Report, TensorFigures, draw
from concord.demo.tensors import every_tensor
from concord.demo.train import TrainSettings, ensure_model, export_onnx, is_current, load_digits, train
from concord.frontend import import_model
from concord.graph import execute
from concord.host import connect
from concord.networks.calibrated import emulate
from concord.networks.folder import load_package
from concord.spec.presets import ECP5_85F, TINY, UP5K
from support.compiled_nets import residual

QUICK = TrainSettings(hidden=(16,), epochs=15)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


@pytest.fixture(scope="module")
def quick(digits):
    return train(digits, QUICK)


@pytest.mark.slow
def test_split_is_stratified_disjoint_and_repeatable(digits):
    assert len(digits.x_test) >= 360
    assert len(digits.x_train) + len(digits.x_calibration) + len(digits.x_test) == 1797
    counts = np.bincount(digits.y_test)
    assert counts.min() > 0.9 * counts.mean()
    again = load_digits()
    assert np.array_equal(again.x_test, digits.x_test) and np.array_equal(again.y_train, digits.y_train)
    assert digits.x_test.min() == 0 and digits.x_test.max() == 1


def test_training_is_repeatable(digits, quick):
    for (weight, bias), (other, offset) in zip(quick, train(digits, QUICK), strict=True):
        assert np.array_equal(weight, other) and np.array_equal(bias, offset)


def test_export_is_what_was_trained(digits, quick, tmp_path):
    path = tmp_path / "net.onnx"
    export_onnx(quick, QUICK, path)
    graph = import_model(path)
    assert [node.op for node in graph.nodes] == ["Reshape", "Dense", "Relu", "Dense"]
    assert np.array_equal(graph.nodes[1].attrs["weight"], quick[0][0].astype(np.float32))
    (logits,) = execute.run(graph, {"image": digits.x_test.reshape(-1, 1, 8, 8)}).values()
    accuracy = np.mean(logits.argmax(axis=1) == digits.y_test)
    assert accuracy > 0.85


def test_model_is_reused_only_with_the_same_settings(digits, tmp_path):
    path = tmp_path / "net.onnx"
    assert not is_current(path, QUICK)
    assert ensure_model(path, digits, QUICK)
    assert not ensure_model(path, digits, QUICK)
    assert not is_current(path, TrainSettings())


@pytest.mark.slow
def test_picture_is_drawn(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 60)
    reference = rng.normal(size=(60, 4))
    report = Report(
        title="Title",
        headline=(("accuracy", "99 %"), ("cycles", "300")),
        labels=labels,
        predictions=np.where(rng.random(60) < 0.9, labels, 0),
        layers=(LayerFigures("fc1", reference, reference + 0.01), LayerFigures("fc2", reference, reference)),
        tensors=(TensorFigures("input", "dynamic exponent", 2 ** rng.uniform(-6, 8, 500), 8),),
    )
    path = tmp_path / "folder" / "report.png"
    draw(report, path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 20_000


@pytest.fixture
def emulated_rtl(monkeypatch):
    """Let the emulator stand in for the RTL; the result says how many runs to spoil."""
    spoiled = {}

    def fake(compiled, inputs, console):
        with connect("emulator", compiled.image.config) as device:
            outputs = {name: x.copy() for name, x in every_tensor(compiled, inputs, device, console).items()}
        for name, (index, value) in spoiled.items():
            outputs[name][index] = value
        return outputs, 312.0

    monkeypatch.setattr(demo, "_run_rtl", fake)
    return spoiled


def run(tmp_path):
    text = io.StringIO()
    console = Console(file=text, width=100)
    return demo.run_demo(ECP5_85F, tmp_path, 8, console), text.getvalue()


@pytest.mark.slow
def test_whole_run(emulated_rtl, tmp_path):
    passed, text = run(tmp_path)
    assert passed
    lines = text.splitlines()
    assert "emulator = RTL: PASS (848 values)" in lines
    for label in (
        "accuracy in double precision",
        "accuracy on the NPU (BFP8)",
        "cycles per inference",
        "MAC utilisation",
    ):
        assert any(label in line for line in lines)
    assert (tmp_path / "report.png").stat().st_size > 20_000
    assert load_package(tmp_path / "digits_mlp_ecp5-85f").config == ECP5_85F
    assert "64 x 32" in text and "binary16" in text and "double precision" in text


@pytest.mark.slow
def test_the_serial_preset_gives_the_same_on_the_rtl(tmp_path):
    text = io.StringIO()
    assert demo.run_demo(UP5K, tmp_path, 2, Console(file=text, width=100))
    assert "emulator = RTL: PASS (212 values)" in text.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "index"), [("relu1_out", (2, 60)), ("logits", (3, 7))])
def test_a_wrong_value_fails_the_run(emulated_rtl, tmp_path, tensor, index):
    emulated_rtl[tensor] = (index, 1.5e4)
    passed, text = run(tmp_path)
    assert not passed
    assert f"emulator = RTL: FAIL ({tensor}[{index[1]}] of sample {index[0]}: " in text


@pytest.mark.slow
def test_tensors_are_those_of_the_layers():
    graph = residual()
    x = {"x": np.random.default_rng(3).normal(0, 1, (3, 2, 4, 4))}
    compiled = compile_graph(graph, TINY)
    with connect("emulator", TINY) as device:
        found = every_tensor(compiled, x, device, Console(file=io.StringIO()))
    assert list(found) == [layer.tensor for layer in compiled.lowered.layers]
    want = execute.run(graph, x, keep="all")
    for name, values in found.items():
        assert relative_error(values, want[name].reshape(3, -1)) < 0.05, name
    assert np.array_equal(found["y"], emulate(compiled, x)["y"])
