"""Constants that are beyond binary16, or so small that they vanish: scaled exactly, or refused with their layer."""

import numpy as np
import pytest

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model, masks
from concord.frontend.errors import UnsupportedModel
from concord.graph.execute import run
from concord.graph.passes import scales
from concord.networks.calibrated import emulate
from support.expressions import ROOMY, network, tensor
from support.onnx_models import floats, model, node

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(0, 1, (4, 8))


def dense(factor, bias=0.0):
    return network(tensor(1, 8).dense(factor * WEIGHT, np.full(4, bias), name="fc"))


def conv(factor, bias=0.0):
    return network(tensor(1, 2, 5, 5).conv(factor * RNG.normal(0, 1, (4, 2, 3, 3)), np.full(4, bias)))


def gain(factor):
    return network(tensor(1, 8).combined("Mul", factor * np.abs(WEIGHT[0]), name="gain"))


def error(graph, scale):
    x = {"x": np.random.default_rng(1).normal(0, scale, (16, *graph.sample_shape("x")))}
    return relative_error(emulate(compile_graph(graph, ROOMY), x)["y"], run(graph, x)["y"])


@pytest.mark.parametrize("make, factor, scale, limit", [
    (dense, 1e-5, 100, 0.02), (dense, 1e-7, 10_000, 0.02), (dense, 300, 0.1, 0.02), (dense, 1e5, 1e-2, 0.02),
    (conv, 1e-5, 100, 0.02), (conv, 1e4, 0.01, 0.02),
    (gain, 1e-7, 1e4, 0.001), (gain, 1e-9, 1e4, 0.02), (gain, 1e6, 1e-3, 0.001), (gain, 1e8, 1e-5, 0.01),
])  # fmt: skip
def test_constants_far_from_one_are_scaled_exactly(make, factor, scale, limit):
    """As a power of two of them is taken back, results are as exact as those of constants near 1."""
    graph = make(factor)
    before = run(graph, x := {"x": np.random.default_rng(2).normal(0, 1, (3, *graph.sample_shape("x")))})
    scales.run(graph)
    graph.check()
    np.testing.assert_array_equal(run(graph, x)["y"], before["y"])
    assert error(graph, scale) < limit


@pytest.mark.parametrize("make", [dense, conv])
@pytest.mark.parametrize("factor, bias", [(1e-6, 0.3), (1e-6, 3000.0), (300.0, -2.0)])
def test_biases_go_with_scaled_weights(make, factor, bias):
    graph = make(factor, bias)
    scales.run(graph)
    graph.check()
    assert error(graph, 1000 if factor < 1 else 0.1) < 0.02


@pytest.mark.parametrize("factor", [0.01, 1.0, 20.0])
def test_ordinary_constants_stay(factor):
    for make in (dense, conv, gain):
        graph = make(factor)
        scales.run(graph)
        assert len(graph.nodes) == 1


@pytest.mark.parametrize("graph, reason", [
    (dense(1, 1e6), r"Dense 'fc': constants must be below 65520 in magnitude, not 1e\+06"),
    (dense(1, np.nan), "Dense 'fc': constants must be below 65520 in magnitude, not nan"),
    (dense(1e6), "Dense 'fc': weights must be below"),
    (gain(1e6), "Mul 'gain': constants must be below 65520"),
])  # fmt: skip
def test_what_no_number_holds_is_refused_with_its_layer(graph, reason):
    with pytest.raises(Unsupported, match=reason):
        compile_graph(graph, ROOMY)


def test_limits_beyond_all_numbers_are_none():
    graph = network(tensor(1, 8).clip(-1e9, 1e9).combined("Max", -1e6).combined("Min", 1e6))
    x = {"x": np.linspace(-65504, 65504, 8)[None].astype(np.float16).astype(float)}
    np.testing.assert_array_equal(emulate(compile_graph(graph, ROOMY), x)["y"], x["x"])


def test_a_mask_in_front_of_a_softmax_may_be_beyond_all_numbers():
    """What it takes away is nothing behind the softmax."""
    mask = np.where(np.arange(8) % 3 == 0, -1e9, 0.0)
    graph = network((tensor(1, 8) + mask).softmax(1).same())
    masks.limit(graph)
    x = {"x": np.random.default_rng(3).normal(0, 1, (4, 8))}
    got = emulate(compile_graph(graph, ROOMY), x)["y"]
    assert np.abs(got - run(graph, x)["y"]).max() < 0.02


@pytest.mark.parametrize("op, constants, attrs, reason", [
    ("Gemm", {"w": floats(4, 3), "c": floats(3)}, {"beta": float("nan")}, "attribute beta must be a number, not NaN"),
    ("Gemm", {"w": floats(4, 3), "c": floats(3)}, {"alpha": float("inf")}, "attribute alpha must be finite"),
    ("LeakyRelu", {}, {"alpha": float("nan")}, "attribute alpha must be a number, not NaN"),
    ("Elu", {}, {"alpha": float("-inf")}, "attribute alpha must be finite, not infinite"),
])  # fmt: skip
def test_attributes_must_be_numbers(op, constants, attrs, reason):
    proto = model([node(op, ["x", *constants], ["y"], name="here", **attrs)], {"x": (1, 4)}, constants=constants)
    with pytest.raises(UnsupportedModel, match=f"{op} 'here': {reason}"):
        import_model(proto)
