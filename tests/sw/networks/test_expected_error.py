"""The error that a network is expected to have: what is measured, when it is a warning, and what it is from."""

import json
import zipfile

import numpy as np
import pytest

import concord
from concord.compiler.ir.expected_error import TOO_LARGE, Cause, ExpectedError, LayerError
from concord.compiler.lowering.input_assumptions import assumed, other_samples
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.networks import expected_error
from concord.networks.calibrated import emulate
from concord.networks.expected_error import SAMPLES, with_expected_error
from concord.networks.folder import load_package, recompile
from concord.networks.layer_errors import measured_errors
from concord.spec.presets import ECP5_85F, TINY, with_mantissas
from support.commands import run
from support.compiled_nets import residual
from support.expressions import ROOMY, network, tensor
from support.onnx_expressions import given, model_of, op

RNG = np.random.default_rng(3)


def expected(graph, samples=None, config=ECP5_85F):
    return with_expected_error(graph, compile_graph(graph, config), samples).package.expected_error


def two_layers():
    first, last = (RNG.normal(0, 0.3, (count, 16)) for count in (16, 4))
    return tensor(1, 16).dense(first).relu().dense(last)


def test_it_is_that_of_the_samples():
    graph, x = network(two_layers()), RNG.normal(0, 2, (SAMPLES, 16))
    compiled = compile_graph(graph, ECP5_85F)
    found = with_expected_error(graph, compiled, {"x": x}).package.expected_error
    want, got = execute.run(graph, {"x": x})["y"], emulate(compiled, {"x": x})["y"]
    assert found.result == pytest.approx(np.linalg.norm(got - want) / np.linalg.norm(want), rel=1e-6)
    measured = measured_errors(compiled, {"x": x})
    names = [layer.name for layer in compiled.lowered.layers]
    assert [one.layer for one in found.layers] == names
    assert [one.relative for one in found.layers] == [one.relative for one in measured.layers]
    assert found.samples == f"{SAMPLES} calibration samples" and not found.warnings and 0 < found.result < TOO_LARGE


def test_few_of_many_samples_and_synthetic_ones_without(monkeypatch):
    graph = network(two_layers())
    samples = {"x": RNG.normal(0, 2, (200, 16))}
    assert expected(graph, samples).samples == "64 calibration samples"
    monkeypatch.setattr(expected_error, "_WORK", 1 << 10)  # so this network is a large one
    assert expected(graph, samples).samples == f"{SAMPLES} calibration samples"
    found = expected(graph)
    assert (
        "synthetic samples, x: normal, deviation 1, within -8 to 8 (default for floats, as there are no samples)"
        in found.samples
    )
    assert 0 < found.result < TOO_LARGE


def test_large_arguments_of_a_saturating_function():
    """Inputs of deviation 50 through a product, mantissas of 6 bits."""
    graph = network(tensor(1, 16).dense(RNG.normal(0, 0.25, (16, 16))).function("tanh").same())
    config = with_mantissas(ECP5_85F, 6)
    found = expected(graph, WIDE, config)
    assert found.too_large and any("tanh reads numbers up to" in one.meaning for one in found.causes)
    assert not expected(graph, {"x": WIDE["x"] / 50}, config).too_large


#: Inputs of deviation 50.
WIDE = {"x": RNG.normal(0, 50, (12, 16))}


def test_a_difference_of_nearly_equal_numbers():
    weight = RNG.normal(0, 0.3, (8, 8))
    other = weight * (1 + 1e-3 * RNG.normal(size=(8, 8)))
    x, bias = tensor(1, 8), np.full(8, 3.0)
    y = x.dense(weight, bias).combined("Sub", x.dense(other, bias), name="difference")
    found = expected(network(y), {"x": RNG.normal(0, 1, (12, 8))})
    assert found.result > 0.5
    (cause, *_) = found.causes
    assert "difference is a difference of nearly equal numbers" in cause.meaning and "wider mantissas" in cause.advice
    assert found.warnings == [found.text, *(one.text for one in found.causes)]


def test_channels_of_different_sizes():
    """The small features decide, and the large ones have the exponent."""
    sizes = np.geomspace(0.3, 300, 16)
    graph = network(tensor(1, 16).dense(RNG.normal(0, 1, (4, 16)) * (sizes < 2), name="mix"))
    found = expected(graph, {"x": RNG.normal(0, 1, (12, 16)) * sizes})
    assert found.too_large and "mix reads channels of sizes from" in found.causes[0].meaning
    assert "one scale" in found.causes[0].advice


def test_sums_that_cancel():
    graph = network(tensor(1, 16).dense(np.array([[1.0, -1.0] * 8] * 4), name="mix"))
    found = expected(graph, {"x": 100 + RNG.normal(0, 1, (12, 16))})
    assert found.too_large and "the sums of mix cancel" in found.causes[0].meaning


def test_narrow_mantissas():
    config = with_mantissas(ROOMY, 3)
    found = expected(residual(), {"x": RNG.normal(0, 1, (8, *residual().sample_shape("x")))}, config)
    assert found.too_large and "with mantissas of 3 bits" in found.warnings[1]


def test_results_that_floats_do_not_have_are_left_out(monkeypatch):
    graph = network(two_layers())
    compiled, x = compile_graph(graph, ECP5_85F), RNG.normal(0, 2, (6, 16))
    run_exactly = execute.run

    def with_nan(*args, **options):
        found = run_exactly(*args, **options)
        return found | {"y": np.where(np.arange(len(found["y"]))[:, None] == 2, np.nan, found["y"])}

    monkeypatch.setattr("concord.networks.expected_error.execute.run", with_nan)
    found = with_expected_error(graph, compiled, {"x": x}).package.expected_error
    assert found.samples == "5 calibration samples" and 0 < found.result < TOO_LARGE
    assert with_expected_error(graph, compiled, {"x": np.full((1, 16), np.nan)}).package.expected_error is None


def test_a_softmax_of_the_host_is_left_out_where_samples_are_synthetic():
    y = two_layers()
    found, without = expected(network(y.softmax(1))), expected(network(y))
    assert found.samples.endswith("before Softmax of the host") and found.result == without.result


def test_text_and_json():
    found = ExpectedError("3 samples", 0.25, (LayerError("a", 0.25, None),), (Cause("a", "what", "help"),))
    assert found.text == "expected error of the result: 25.00 %, on 3 samples"
    assert found.warnings == [found.text, "a: what; what helps: help"]
    assert ExpectedError.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert ExpectedError("3 samples", None).warnings == ["expected error of the result: not finite, on 3 samples"]
    assert ExpectedError("3 samples", TOO_LARGE).warnings == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tanh of numbers of deviation 50, mantissas of 4 bits."""
    where = tmp_path_factory.mktemp("expected")
    weight = np.random.default_rng(1).normal(0, 0.25, (16, 16)).astype(np.float32)
    proto = model_of(op.Tanh(op.MatMul(given(1, 16), weight, name="first"), name="bend"))
    (where / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(where / "x.npz", **WIDE)
    code, output = run(
        "compile", where / "net.onnx", "--preset", "tiny", "--mantissa", "4", "--calibrate", where / "x.npz"
    )
    assert code == 0, output
    (where / "compile.txt").write_text(output)
    return where


@pytest.mark.slow
def test_the_commands_show_it(folder):
    text = (folder / "compile.txt").read_text()
    package = load_package(folder / "net")
    assert package.expected_error.text in text
    assert all(f"warning: {line}" in text for line in package.expected_error.warnings[1:])
    code, output = run("inspect", folder / "net", "--only", "layers")
    assert code == 0 and package.expected_error.text in output and "of the layer alone" in output
    assert f"input x: {package.input_records['x'].text}" in output
    code, output = run("report", folder / "net", "-i", folder / "x.npz")
    assert code == 0 and package.expected_error.text in output


def test_a_folder_keeps_it(folder):
    package = load_package(folder / "net")
    net = concord.load(folder / "net")
    assert net.expected_error == package.expected_error and set(net.input_records) == {"x"}
    assert package.expected_error.too_large and net.warnings[:1] == [package.expected_error.text]
    again = recompile(folder / "net").package
    assert (again.expected_error, again.input_records) == (package.expected_error, package.input_records)


def test_from_python(folder):
    net = concord.compile(folder / "net.onnx", preset="tiny", mantissa=4, calibrate=WIDE)
    assert net.expected_error == load_package(folder / "net").expected_error
    assert set(net.expected_error.warnings) <= set(net.warnings)


@pytest.mark.slow
def test_the_report_and_prove_tell_unlike_inputs(folder, tmp_path):
    np.savez(tmp_path / "x.npz", x=WIDE["x"] / 64)
    code, output = run("report", folder / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "r.html")
    assert code == 0 and "input x: INPUT_RANGE, about" in output
    assert "Inputs unlike those it was compiled for" in (tmp_path / "r.html").read_text()
    code, output = run("prove", folder / "net", "-i", tmp_path / "x.npz", "--with", "numpy", "-o", tmp_path / "p.html")
    assert code == 0 and "input x: INPUT_RANGE, about" in output
    code, output = run("report", folder / "net", "-i", folder / "x.npz", "-o", tmp_path / "r.html")
    assert code == 0 and "INPUT_RANGE" not in output


def test_a_network_whose_errors_were_not_measured(folder, tmp_path):
    """Its folder loads, and nothing is compared."""
    from concord.compiler.emission.package import Package
    from concord.networks.folder import save_package

    package = load_package(folder / "net")
    bare = Package(package.image, package.arrangement, package.host_graph, package.formats)
    save_package(bare, tmp_path / "net", folder / "net.onnx")
    with zipfile.ZipFile(tmp_path / "net" / "network.npz") as archive:
        assert b"expected_error" not in b"".join(archive.read(name) for name in archive.namelist())
    loaded = concord.load(tmp_path / "net")
    assert loaded.expected_error is None and loaded.warnings == [] and loaded.input_records == {}
    assert loaded.config.name == with_mantissas(TINY, 4).name


def pair_of_inputs(weight):
    """The distance of what one layer makes of two inputs."""
    a, b = (tensor(1, 16, name=name).dense(weight) for name in "ab")
    e = a.combined("Sub", b, name="difference")
    return e * e


def test_inputs_that_are_nearly_equal_are_tried():
    found = expected(network(pair_of_inputs(RNG.normal(0, 0.3, (8, 16)))))
    assert "with inputs that are nearly equal" in found.samples and found.result > TOO_LARGE
    assert "difference of nearly equal numbers" in " ".join(found.warnings)


def far_apart(rng, count=16):
    return {"a": rng.normal(0, 1, (count, 16)), "b": rng.normal(0, 1, (count, 16))}


def test_inputs_that_are_nearly_equal_are_tried_beside_samples():
    """The error on the samples is small, so that a line about other inputs is all there is."""
    square, x = pair_of_inputs(RNG.normal(0, 0.3, (8, 16))), far_apart(RNG)
    graph = network(square)
    found = expected(graph, x)
    scaled = network(square * tensor(1, 8, name="f"))
    assert expected(scaled, {**x, "f": RNG.uniform(1, 2, (16, 8))}).doubts[0].startswith("inputs a, b that are")
    (line,) = found.doubts
    assert not found.too_large and found.warnings == [line]
    assert line.startswith("inputs a, b that are nearly equal: expected error of the result: ") and "--mantissa" in line
    near = {"a": x["a"], "b": x["a"] + (x["b"] - x["a"]) / 32}
    compiled = compile_graph(graph, ECP5_85F)
    assert measured_errors(compiled, near).relative > TOO_LARGE
    assert ExpectedError.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_inputs_whose_difference_does_not_count_are_no_doubt():
    """A sum; and a difference of inputs of two shapes."""
    weight = RNG.normal(0, 0.3, (8, 16))
    a, b, short = (tensor(1, size, name=name) for name, size in (("a", 16), ("b", 16), ("b", 12)))
    assert expected(network(a.dense(weight) + b.dense(weight)), far_apart(RNG)).warnings == []
    x = far_apart(RNG)
    graph = network(a.dense(weight) - short.dense(weight[:, :12]))
    assert expected(graph, {"a": x["a"], "b": x["b"][:, :12]}).warnings == []


def test_the_worst_kind_of_inputs_counts():
    """Mixed inputs have large results where a layer adds up their elements; independent ones have small ones."""
    weight = 1 + RNG.normal(0, 0.01, (4, 64))
    graph = network(tensor(1, 64).dense(weight).dense(np.array([[1.0, -1, 1, -1]])))
    found = expected(graph)
    compiled = compile_graph(graph, ECP5_85F)
    kinds = other_samples(graph, assumed(graph), 2)
    errors = [measured_errors(compiled, inputs).relative for inputs in kinds.values()]
    assert found.result >= max(errors) and list(kinds) == ["independent elements"]


@pytest.mark.parametrize("seed", range(8))
def test_inputs_beyond_what_was_assumed_are_told(seed):
    """Networks of any depth, compiled without samples, on inputs of any size."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(0, 0.3, (8, 8)) for _ in range(int(rng.integers(1, 4)))]
    y = given("n", 8)
    for weight in weights:
        y = op.MatMul(y, weight)
    kind = str(rng.choice(["Relu", "Tanh", "Identity", "Sigmoid"]))
    net = concord.compile(model_of(getattr(op, kind)(y)), preset="tiny")
    assert any(line.startswith("no samples of input x: formats, tables") for line in net.warnings)
    x = np.clip(rng.normal(size=(20, 8)), -4, 4)
    assert not net.package.input_flags({"x": x})
    for sigma in (10.0 ** rng.uniform(1, 4), -50.0):
        (flag,) = net.package.input_flags({"x": sigma * x})
        assert flag.flag == "INPUT_RANGE" and "compiled for values from -8 to 8" in flag.meaning
