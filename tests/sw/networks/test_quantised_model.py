"""How far a network is from the quantised model: the reference is ONNX's, and what is said is what is measured."""

from dataclasses import replace

import numpy as np
import pytest

import concord
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.model import compile_graph
from concord.frontend import import_model, reference_graph
from concord.graph import execute
from concord.networks.calibrated import emulate
from concord.networks.folder import recompile
from concord.networks.quantised_model import Reference, with_pairs, with_quantised_model
from concord.spec.presets import ECP5_85F
from support.commands import run
from support.onnx_models import model, node, onnxruntime_results
from support.quantised_nets import BRIDGES, CODES, QdqMaker, bridged, network


def relative(found, want):
    want = np.asarray(want, float)
    return float(np.linalg.norm(np.reshape(found, want.shape) - want) / np.linalg.norm(want))


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("axis", [None, 1])
def test_the_reference_rounds_as_onnxruntime(kind, axis):
    """Beyond the range, too, and at the middle between two codes; with scales that are powers of two, bit for bit."""
    rng, (low, high) = np.random.default_rng(3), CODES[kind]
    scale = np.exp2(rng.integers(-3, 3, 5)) if axis else np.float64(0.25)
    zero = rng.integers(low // 2, high // 2, 5) if axis else np.int64(high // 3)
    maker = QdqMaker((5,), rng)
    proto = maker.model([maker.pair("x", kind, scale, zero, axis)])
    x = np.rint(rng.uniform(1.2 * (low - high), 1.2 * (high - low), (200, 5))) * scale
    x[::2] += scale / 2
    (want,) = onnxruntime_results(proto, {"x": x})
    graph = reference_graph(proto)
    np.testing.assert_array_equal(execute.run(graph, {"x": x})[graph.outputs[0]], want)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_the_reference_of_every_opset(opset):
    """Pairs, weights with a scale per channel, and biases of 32 bits."""
    rng = np.random.default_rng(opset)
    maker, x = QdqMaker((6,), rng, opset), rng.normal(0, 1, (20, 6))
    if opset >= 13:
        hidden = maker.product(maker.fitted("x", "UINT8", x), 6, 4, axis=1)
    else:
        hidden = maker.product(maker.fitted("x", "UINT8", x), 6, 4)
    bias = maker.add("DequantizeLinear", maker.constant(np.arange(4, dtype=np.int32)), maker.constant(np.float32(0.25)))
    proto = maker.model([maker.fitted(maker.add("Add", hidden, bias), "INT8", x)])
    (want,) = onnxruntime_results(proto, {"x": x})
    graph = reference_graph(proto)
    found = execute.run(graph, {"x": x})[graph.outputs[0]]
    assert relative(found, want) < 1e-6 or np.mean(np.abs(found - want) > 1e-5) < 0.02  # float32 beside a middle


@pytest.mark.slow
@pytest.mark.parametrize("kind", BRIDGES)
@pytest.mark.parametrize("schemes", [("INT8", "INT4"), ("INT16", "UINT8"), ("UINT4", "INT8", "INT4")])
def test_what_is_said_is_the_distance_from_onnxruntime(kind, schemes):
    proto, samples = bridged(kind, schemes)
    samples = np.float16(samples).astype(float)
    plain = concord.compile(proto, preset="ecp5-85f")
    compiled = with_quantised_model(plain.compilation.compiled, Reference(reference_graph(proto)), {"x": samples})
    measured = compiled.package.quantised_model
    (want,) = onnxruntime_results(proto, {"x": samples})
    found = relative(next(iter(plain.run(samples).values())), want)
    assert measured.error == pytest.approx(found, rel=0.05) and 0 < measured.error < 0.2 and not measured.exact
    assert plain.package.quantised_model.error < 0.3 and "synthetic samples, x: values in" in plain.warnings[0]


@pytest.mark.slow
def test_exact_and_not(tmp_path):
    """Codes times powers of two are exact, and only then is that said."""
    maker, rng = QdqMaker((6,), np.random.default_rng(5)), np.random.default_rng(6)
    x = rng.integers(-8, 8, (30, 6)) / 4
    weight = maker.constant(rng.integers(-7, 8, (6, 6)).astype(np.int8))
    weight = maker.add("DequantizeLinear", weight, maker.constant(np.float32(0.25)))
    hidden = maker.add("MatMul", maker.pair("x", "INT4", 0.25), weight)
    proto = maker.model([maker.pair(hidden, "INT8", 0.5)])
    net = concord.compile(proto, preset="ecp5-85f")
    assert net.package.quantised_model.exact and net.warnings == []
    text = net.package.quantised_model.text
    assert text.startswith(
        "quantised model: the codes of 2 tensors and 1 weight are reproduced exactly, on 64 synthetic"
    )
    (want,) = onnxruntime_results(proto, {"x": x})
    np.testing.assert_array_equal(next(iter(net.run(x).values())).reshape(want.shape), want)
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    code, output = run("compile", tmp_path / "net.onnx", "--preset", "ecp5-85f")
    assert code == 0 and output.count("quantised model") == 1 and text in output and "not exact" not in output
    other = concord.compile(network(dtype=np.uint8, zero=100, weight_scale=0.01), preset="ecp5-85f")
    measured = other.package.quantised_model
    assert not measured.exact and measured.inexact == len(other.compilation.compiled.inexact) == 3
    assert [line for line in other.warnings if "quantised model" in line] == [measured.text] == other.warnings[:1]
    assert not any("scales are rounded" in line for line in other.warnings)


def test_formats_that_hold_all_codes_may_still_differ():
    """A sum that is rounded to binary16 first becomes the neighbour of its code."""
    net = concord.compile(network(scale=2.0**-5, most=127), preset="ecp5-85f")
    measured = net.package.quantised_model
    assert not measured.exact and not measured.inexact and 0 < measured.error < 0.02
    assert "formats hold the codes of 2 tensors and 2 weights, but sums are rounded to binary16" in measured.text


@pytest.mark.slow
def test_one_line_and_details_on_request(tmp_path):
    proto, samples = bridged("relu", ("INT8", "INT4"))
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "x.npz", x=samples)
    for options, source in (
        ([], "synthetic samples, x: values in"),
        (["--calibrate", tmp_path / "x.npz"], "40 calibration samples"),
    ):
        code, output = run("compile", tmp_path / "net.onnx", "--preset", "ecp5-85f", *options)
        lines = [line for line in output.splitlines() if "quantised model" in line or "not exact" in line]
        assert code == 0 and len(lines) == 1 and source in lines[0] and "concord inspect names them" in lines[0]
    measured = concord.load(tmp_path / "net").package.quantised_model
    assert measured.text in lines[0] and concord.load(tmp_path / "net").warnings[0] == measured.text
    shown = run("inspect", tmp_path / "net")[1]
    assert measured.text in shown and shown.count("not exact: ") == measured.inexact
    verbose = run("compile", tmp_path / "net.onnx", "--preset", "ecp5-85f", "--verbose")[1]
    assert verbose.count("not exact: ") == measured.inexact


def test_a_large_distance_is_a_warning():
    near = QuantisedModel(3, 2, 1, 0.01, False, "4 samples")
    assert not near.too_large and near.warnings == [near.text] and "1 of 5 tensors and weights" in near.text
    for far in (replace(near, error=0.06), replace(near, error=None)):
        assert far.too_large and QuantisedModel.from_dict(far.to_dict()) == far
    assert "the result is not finite from that" in replace(near, error=None).text
    assert replace(near, inexact=0, equal=True).warnings == []


def test_a_model_without_codes_has_no_line():
    proto = model([node("Relu", ["x"], ["y"])], {"x": ["N", 4]})
    net = concord.compile(proto, preset="ecp5-85f", input_range=(-1, 1))
    assert net.package.quantised_model is None and net.warnings == []


def test_another_reference_is_refused():
    compiled = compile_graph(import_model(network()), ECP5_85F)
    other = reference_graph(model([node("Relu", ["x"], ["z"])], {"x": ["N", 6]}, ["z"]))
    with pytest.raises(
        ValueError, match=r"reference must have the inputs \['x'\] and outputs \['y'\], not \['x'\] and"
    ):
        with_quantised_model(compiled, Reference(other))


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "what"), [(0.25, "cuts off most"), (40.0, "uses six codes"), (1.0, "fits")])
def test_pairs_that_change_much_are_computed(tmp_path, factor, what):
    """Codes of 8 bits that samples show to be too few or not to reach far enough; the folder knows them, too."""
    maker, rng = QdqMaker((12,), np.random.default_rng(1)), np.random.default_rng(2)
    x = rng.normal(0, 1, (50, 12))
    hidden = maker.fitted(maker.product("x", 12, 12), "INT8", x, factor)
    proto = maker.model([maker.product(maker.add("Sigmoid", hidden), 12, 4)])
    data = proto.SerializeToString()
    (want,) = onnxruntime_results(proto, {"x": x})
    graph, reference = with_pairs(data, import_model(data), {"x": x})
    assert len(reference.stay) == (factor != 1)
    found = {
        name: relative(emulate(compile_graph(one, ECP5_85F), {"x": x})[graph.outputs[0]], want)
        for name, one in (("with", graph), ("without", import_model(data)))
    }
    assert found["with"] < 0.04 and (factor == 1 or found["without"] > 2 * found["with"])
    (tmp_path / "net.onnx").write_bytes(data)
    np.savez(tmp_path / "x.npz", x=x)
    assert run("compile", tmp_path / "net.onnx", "--preset", "ecp5-85f", "--calibrate", tmp_path / "x.npz")[0] == 0
    kept = concord.load(tmp_path / "net")
    assert kept.package.quantised_model.stay == reference.stay
    assert relative(next(iter(kept.run(x).values())), want) < 0.04
    again = recompile(tmp_path / "net")
    assert sum(node.op == "FakeQuantize" for node in again.graph.nodes) == (factor != 1)


@pytest.mark.slow
def test_a_folder_of_a_part_knows_the_pairs(tmp_path):
    """The host computes the first product and the last one; how far that is from the model is not measured."""
    maker, rng = QdqMaker((12,), np.random.default_rng(1)), np.random.default_rng(2)
    x = rng.normal(0, 1, (50, 12))
    hidden = maker.fitted(maker.product("x", 12, 400), "INT8", x, 0.25)
    proto = maker.model([maker.product(maker.product(maker.add("Sigmoid", hidden), 400, 160), 160, 20)])
    (want,) = onnxruntime_results(proto, {"x": x})
    net = concord.compile(proto, preset="ecp5-25f", calibrate=x, quick=True, partition="any")
    results = net.run(x)
    assert net.compilation.share and len(net.package.stay) == 1 and net.package.quantised_model is None
    assert relative(next(iter(results.values())), want) < 0.04
    net.save(tmp_path / "net")
    kept = concord.load(tmp_path / "net")
    assert kept.package.stay == net.package.stay
    assert [values.tobytes() for values in kept.run(x).values()] == [values.tobytes() for values in results.values()]
    assert recompile(tmp_path / "net").image.program == net.image.program


@pytest.mark.slow
def test_an_input_that_codes_cut_off():
    """Unsigned codes make zeros of negative samples; without samples an input is taken for what its codes mean."""
    maker, x = QdqMaker((6,), np.random.default_rng(1)), np.random.default_rng(2).normal(0, 1, (50, 6))
    proto = maker.model([maker.product(maker.pair("x", "UINT8", 0.013), 6, 4)])
    (want,) = onnxruntime_results(proto, {"x": x})
    net = concord.compile(proto, preset="ecp5-85f", calibrate=x)
    assert relative(next(iter(net.run(x).values())), want) < 0.02 and len(net.package.quantised_model.stay) == 1
    plain = concord.compile(proto, preset="ecp5-85f")
    assert plain.package.quantised_model.stay == () and "x: values in 0 to 3.315" in plain.warnings[0]
