"""Perceptrons from ONNX, or from a graph, to their bits: on the emulator those of the reference machine."""

import numpy as np
import pytest

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.cost import macs
from concord.networks.calibrated import emulate
from concord.networks.layer_results import results
from concord.program.allocator import CapacityError
from concord.report.prefixes import prefixes
from concord.spec.isa import Mem
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import perceptron
from support.onnx_expressions import given, model_of, op
from support.onnx_models import floats
from support.reference_runs import run_reference


def reference(compiled, image, inputs):
    """Outputs of an image with one input on the reference machine, by port."""
    (port,) = compiled.package.arrangement.pack(inputs).values()
    return run_reference(image, port)[0]


def check(graph, inputs, limit, exponents=None):
    """Compare emulator and reference machine after every layer, and the result with double precision."""
    compiled = compile_graph(graph, TINY, Formats(exponents or {}))
    samples = len(next(iter(inputs.values())))
    for prefix, (found, _) in zip(prefixes(compiled), results(compiled, inputs), strict=True):
        want = prefix.results(reference(compiled, prefix.image, inputs), samples)
        for one, other in zip(found, want, strict=True):
            assert one.values.keys() == other.values.keys() and one.values
            for mem, values in one.values.items():
                assert values.tobytes() == other.values[mem].tobytes(), (one.tensor, mem)
    (name,) = graph.outputs
    want = compiled.package.finish(inputs, reference(compiled, compiled.image, inputs))[name]
    got = emulate(compiled, inputs)[name]
    assert got.tobytes() == want.tobytes()
    assert relative_error(got, execute.run(graph, inputs)[name]) < limit
    return compiled


@pytest.mark.parametrize(
    ("graph", "limit"),
    [
        (perceptron(7, 9, 5), 0.03),
        (perceptron(4, 4, 4, 4), 0.03),
        (perceptron(1, 1), 0.03),
        (perceptron(8, 8, 3, functions=["sigmoid", "tanh"]), 0.1),
        (perceptron(6, 5, 4, functions=[None, "relu"]), 0.03),
    ],
)
def test_every_layer_is_that_of_the_reference_machine(graph, limit):
    check(graph, {"x": np.random.default_rng(1).normal(0, 1, (4, *graph.sample_shape("x")))}, limit)


def test_from_onnx():
    """Every spelling of a layer."""
    b = op.Reshape(op.Identity(given("n", 4)), [-1, 4])
    d = op.Sigmoid(op.Gemm(b, floats(6, 4), floats(6), transB=1, alpha=0.5, beta=2.0))
    f = op.Add(floats(5), op.MatMul(d, floats(6, 5)))
    scale, shift, mean, variance = floats(5), floats(5), floats(5), np.abs(floats(5))
    h = op.Tanh(op.BatchNormalization(f, scale, shift, mean, variance, epsilon=0.01))
    graph = import_model(model_of(op.Relu(op.MatMul(op.Flatten(h), floats(5, 3)))))
    assert macs(graph) == 6 * 4 + 6 * 5 + 5 * 3
    x = {"x": np.random.default_rng(2).normal(0, 1, (5, 4))}
    assert len(check(graph, x, 0.1).lowered.layers) == 5, "three products, and two chains of the tanh"


def test_static_exponents():
    graph = perceptron(7, 9, 5)
    x = {"x": np.random.default_rng(3).normal(0, 1, (4, 7))}
    compiled = check(graph, x, 0.05, {"relu0.out": -4})
    (hidden,), _ = next(results(compiled, x))
    codes = hidden.values[Mem.NARROW] * 16
    assert np.array_equal(codes, np.rint(codes)) and codes.max() > 8
    want = execute.run(graph, x, keep=["relu0.out"])["relu0.out"].reshape(4, -1)
    assert np.abs(codes / 16 - want).max() < 1 / 16
    forms = [layer["output"] for layer in compiled.image.metadata["layers"]]
    assert forms == ["static exponent -4", "dynamic exponent"]


def test_an_exponent_of_zero_is_static():
    """Not the dynamic one that an instruction has where nothing is said."""
    graph = perceptron(7, 9, 5)
    x = {"x": 20 * np.random.default_rng(3).normal(0, 1, (4, 7))}
    compiled = check(graph, x, 0.05, {"relu0.out": 0})
    (hidden,), _ = next(results(compiled, x))
    codes = hidden.values[Mem.NARROW]
    assert np.array_equal(codes, np.rint(codes)) and (codes % 2).any()
    assert compiled.image.metadata["layers"][0]["output"] == "static exponent 0"


def test_everything_that_does_not_fit_is_named():
    with pytest.raises(CapacityError) as caught:
        compile_graph(perceptron(64, 400, 400, 10), TINY.replace(max_terms=128))
    message = str(caught.value)
    assert "tiny" in message
    assert "matrix memory has 256 words, but 23800 are needed (weight.fc1 20000, weight.fc0 3200" in message
    assert "wide memory has 64 vectors" in message and "narrow memory has 64 vectors" in message


def test_large_preset_compiles_an_autoencoder():
    image = compile_graph(perceptron(640, 128, 128, 8, 128, 640), ECP5_85F).image
    assert image.inputs[0].elements == 640 and len(image.program) < 60
