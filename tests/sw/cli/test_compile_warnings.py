"""What ``concord compile`` says, or refuses, before anything is run: overflow, flags on the samples, assumptions."""

from dataclasses import replace

import numpy as np
import pytest

import concord
from concord.compiler.calibration.calibration import Follow
from concord.compiler.calibration.formats import Evidence
from concord.compiler.calibration.observed import NotFiniteError, observed
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import calibration_of, choose_formats
from concord.spec.presets import TINY
from support.commands import run, two_products
from support.onnx_expressions import given, model_of, op
from support.onnx_models import model, node


def saved(path, between):
    """Two products and what is between them."""
    weight = np.eye(4) * 2
    b = between(op.MatMul(given(1, 4), weight, name="first"))
    path.write_bytes(model_of(op.MatMul(b, weight, name="last")).SerializeToString())
    return path


@pytest.fixture
def net(tmp_path):
    """With a function that is one table, of numbers from 1 to 5 if inputs are from -1 to 1."""
    return saved(tmp_path / "net.onnx", lambda p: op.Sigmoid(op.Sqrt(op.Add(p, np.full(4, 3.0))), name="bend"))


@pytest.fixture
def growing(tmp_path):
    """With a function that goes on."""
    return saved(tmp_path / "net.onnx", op.Softplus)


def samples(scale):
    return np.random.default_rng(1).uniform(-scale, scale, (40, 4))


@pytest.mark.slow
def test_overflow_on_the_samples_is_refused(growing, tmp_path):
    np.savez(tmp_path / "x.npz", x=samples(60_000))
    code, output = run("compile", growing, "--preset", "tiny", "--calibrate", tmp_path / "x.npz")
    assert code == 1 and "numbers must be finite on the samples" in output and "Traceback" not in output
    assert "first: HALF_OVERFLOW" in output
    assert not (tmp_path / "net").exists()


@pytest.mark.slow
def test_overflow_is_refused_from_python_too(growing):
    with pytest.raises(NotFiniteError, match="first: HALF_OVERFLOW, a result is beyond 65504"):
        choose_formats(import_model(growing), TINY, {"x": samples(60_000)})


def clamping(graph, x):
    """A candidate whose static exponent saturates, and whose table covers a tenth of the samples."""
    calibration = calibration_of(graph, {"x": x})
    (bend,) = graph.nodes[1].outputs
    formats = Formats({bend: -9}, inputs={"x": (-0.1, 0.1)})
    return calibration, calibration.measure("cut off", TINY, formats, Follow.BIASES)


@pytest.mark.slow
def test_flags_on_the_samples_are_in_the_result(net):
    calibration, candidate = clamping(import_model(net), samples(1))
    found = observed(candidate, calibration).compiled
    assert {(one.layer, one.flag) for one in found.flag_diagnostics} >= {
        ("first", "TABLE_CLAMPED"),
        ("first", "SATURATED"),
    }
    assert {one.advice for one in found.flag_diagnostics if one.address is not None} == {
        "other formats that were tried raise as many flags, or leave clearly more error"
    }
    assert any("TABLE_CLAMPED" in line for line in found.warnings)
    assert choose_formats(calibration.graph, TINY, {"x": samples(1)}).chosen.compiled.flag_diagnostics == ()


def test_a_useless_result_is_told(net):
    calibration, candidate = clamping(import_model(net), samples(1))
    last = observed(replace(candidate, error=0.75), calibration).compiled.flag_diagnostics[-1]
    assert (last.layer, last.flag) == ("result", "ERROR") and "by 75 % on the samples" in last.meaning


def test_the_command_names_the_layers_with_flags(net, tmp_path, monkeypatch):
    _, candidate = clamping(import_model(net), samples(1))
    monkeypatch.setattr("concord.compiler.calibration.formats.rank_exponents", lambda *_: Evidence((candidate,)))
    np.savez(tmp_path / "x.npz", x=samples(1))
    code, output = run("compile", net, "--preset", "tiny", "--calibrate", tmp_path / "x.npz")
    table = output[output.index("Flags on the calibration data") :]
    assert code == 0 and "first" in table and "TABLE_CLAMPED" in table and "SATURATED" in table


def test_what_is_assumed_without_samples(net):
    code, output = run("compile", net, "--preset", "tiny")
    text = " ".join(output.split())
    assert code == 0 and "Assumed, as no samples say it" in text
    assert "normal, deviation 1, within -8 to 8" in text and "the table of sqrt+sigmoid covers" in text


def test_assumptions_from_python(net):
    compiled = compile_graph(import_model(net), TINY, Formats(inputs={"x": (-1.0, 1.0)}))
    source, table = compiled.assumptions
    assert (source.layer, source.range, source.reason) == ("x", (-1.0, 1.0), "given")
    assert (
        (table.layer, table.reason) == ("first", "from the inputs")
        and 0 < table.range[0] < 1
        and 5 < table.range[1] < 6
    )
    assert compiled.warnings == [source.text, table.text]


@pytest.mark.slow
def test_nothing_is_assumed_where_samples_or_functions_say_it(net, tmp_path):
    compiled = choose_formats(import_model(net), TINY, {"x": samples(1)}).chosen.compiled
    assert compiled.assumptions == ()
    w = np.eye(4, dtype=np.float32)
    proto = model([node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["y"])], {"x": (1, 4)}, constants={"w": w})
    (tmp_path / "constant.onnx").write_bytes(proto.SerializeToString())
    assert compile_graph(import_model(tmp_path / "constant.onnx"), TINY).assumptions == ()


def test_what_a_board_has_too_few_of(tmp_path):
    """With its preset and other mantissas, whether the board is named or not; the network is compiled all the same."""
    two_products(tmp_path)
    for where in (("--board", "icebreaker"), ("--preset", "up5k")):
        code, output = run("compile", tmp_path / "net.onnx", *where, "--mantissa", "8", "-o", tmp_path / "net")
        assert code == 0 and "does not fit on icebreaker: up5k-m8 needs 316 block RAMs of 30" in output
    unseen, line = concord.load(tmp_path / "net").warnings
    assert unseen in output and line in output
    code, output = run("compile", tmp_path / "net.onnx", "--board", "icebreaker", "-o", tmp_path / "net")
    assert code == 0 and "does not fit" not in output


def test_what_is_copied_is_said(tmp_path):
    proto = model([node("Add", ["x", "z"], ["y"])], {"x": (1, 4, 1), "z": (1, 1, 5)})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    code, printed = run("compile", tmp_path / "net.onnx", "--preset", "tiny")
    assert code == 0 and "2 operands copied to where a layer needs them, by" in printed
