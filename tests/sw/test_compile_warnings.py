"""What ``concord compile`` says, or refuses, before anything is run: overflow, flags on the samples, assumptions."""

from dataclasses import replace

import numpy as np
import pytest

from commands import run
from concord.compiler.calibration import Calibration, Follow
from concord.compiler.formats import Evidence, choose_formats
from concord.compiler.judged import NotFiniteError, judged
from concord.compiler.model import compile_graph
from concord.compiler.tensor_formats import Formats
from concord.frontend import import_model
from concord.spec.presets import TINY
from onnx_models import model, node


@pytest.fixture
def net(tmp_path):
    """Two products and a function of the first."""
    w = (np.eye(4) * 2).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"), node("Softplus", ["a"], ["b"], name="bend"),
        node("MatMul", ["b", "w"], ["y"], name="last"),
    ]  # fmt: skip
    proto = model(nodes, {"x": (1, 4)}, constants={"w": w})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    return tmp_path / "net.onnx"


def samples(scale):
    return np.random.default_rng(1).uniform(-scale, scale, (40, 4))


def test_overflow_on_the_samples_is_refused(net, tmp_path):
    np.savez(tmp_path / "x.npz", x=samples(60_000))
    code, output = run("compile", net, "--preset", "tiny", "--calibrate", tmp_path / "x.npz")
    assert code == 1 and "numbers must be finite on the samples" in output and "Traceback" not in output
    assert "first: HALF_OVERFLOW" in output
    assert not (tmp_path / "net").exists()


def test_overflow_is_refused_from_python_too(net):
    with pytest.raises(NotFiniteError, match="first: HALF_OVERFLOW, a result is beyond 65504"):
        choose_formats(import_model(net), TINY, {"x": samples(60_000)})


def clamping(graph, x):
    """A candidate whose static exponent saturates, and whose table covers a tenth of the samples."""
    calibration = Calibration(graph, {"x": x})
    (bend,) = graph.nodes[1].outputs
    formats = Formats({bend: -9}, inputs={"x": (-0.1, 0.1)})
    return calibration, calibration.measure("cut off", TINY, formats, Follow.BIASES)


def test_flags_on_the_samples_are_in_the_result(net):
    calibration, candidate = clamping(import_model(net), samples(1))
    found = judged(candidate, calibration).compiled
    assert {(one.layer, one.flag) for one in found.raised} >= {("first", "TABLE_CLAMPED"), ("first", "SATURATED")}
    assert {one.advice for one in found.raised if one.address is not None} == {
        "no other formats that were tried leave less error"
    }
    assert any("TABLE_CLAMPED" in line for line in found.warnings)
    assert choose_formats(calibration.graph, TINY, {"x": samples(1)}).chosen.compiled.raised == ()


def test_a_useless_result_is_told(net):
    calibration, candidate = clamping(import_model(net), samples(1))
    last = judged(replace(candidate, error=0.75), calibration).compiled.raised[-1]
    assert (last.layer, last.flag) == ("result", "ERROR") and "by 75 % on the samples" in last.meaning


def test_the_command_names_the_layers_with_flags(net, tmp_path, monkeypatch):
    _, candidate = clamping(import_model(net), samples(1))
    monkeypatch.setattr("concord.compiler.formats.rank_exponents", lambda *_: Evidence((candidate,)))
    np.savez(tmp_path / "x.npz", x=samples(1))
    code, output = run("compile", net, "--preset", "tiny", "--calibrate", tmp_path / "x.npz")
    table = output[output.index("Flags on the calibration data") :]
    assert code == 0 and "first" in table and "TABLE_CLAMPED" in table and "SATURATED" in table


def test_what_is_assumed_without_samples(net):
    code, output = run("compile", net, "--preset", "tiny")
    text = " ".join(output.split())
    assert code == 0 and "Assumed, as no samples say it" in text
    assert "normal, deviation 1, within -8 to 8" in text and "the table of softplus covers" in text


def test_assumptions_from_python(net):
    compiled = compile_graph(import_model(net), TINY, Formats(inputs={"x": (-1.0, 1.0)}))
    source, table = compiled.assumptions
    assert (source.layer, source.range, source.reason) == ("x", (-1.0, 1.0), "given")
    assert (table.layer, table.reason) == ("first", "from the inputs") and table.range[0] < -2 < 2 < table.range[1]
    assert compiled.warnings == [source.text, table.text]


def test_nothing_is_assumed_where_samples_or_functions_say_it(net, tmp_path):
    compiled = choose_formats(import_model(net), TINY, {"x": samples(1)}).chosen.compiled
    assert compiled.assumptions == ()
    w = np.eye(4, dtype=np.float32)
    proto = model([node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["y"])], {"x": (1, 4)}, constants={"w": w})
    (tmp_path / "settled.onnx").write_bytes(proto.SerializeToString())
    assert compile_graph(import_model(tmp_path / "settled.onnx"), TINY).assumptions == ()
