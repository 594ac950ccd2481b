"""Masks in front of a softmax: -infinity, or numbers that nothing survives, in all forms exporters write."""

import numpy as np
import pytest
from onnx import TensorProto

import concord
from concord.compiler.calibration.calibration import function_ranges
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees

CAUSAL = np.tril(np.ones((6, 6), bool))
LOWEST = float(np.finfo(np.float32).min)
X = given(1, 6, 6)


def added(low):
    return op.Add(X, np.where(CAUSAL, 0, low))


def chosen(low):
    return op.Where(CAUSAL, X, low)


def built(low):
    """As an exporter writes it: a triangle of a filled shape, by folding."""
    square = op.Slice(op.Shape(X), [1], [3])
    return op.Add(X, op.Trilu(op.Expand(low, square), 1, upper=1))


def counted(low):
    """Positions compared with each other."""
    k = op.Range(0, 6, 1)
    return op.Where(op.LessOrEqual(k, op.Unsqueeze(k, [1])), X, low)


def compared(low):
    """A mask that depends on the inputs."""
    return op.Where(op.Greater(X, 0.5), low, X)


@pytest.mark.parametrize("low", [-np.inf, LOWEST, -1e9, -1e4])
@pytest.mark.parametrize("form", [added, chosen, built, counted, compared])
def test_nothing_is_left_of_what_is_masked(form, low):
    graph = agrees(op.Softmax(form(float(low)), axis=-1))
    x = {"x": np.random.default_rng(3).normal(0, 1, (4, 6, 6))}
    want = run(graph, x)["y"]
    network = compile_graph(graph, ECP5_85F, Formats(ranges=function_ranges(graph, run(graph, x, keep="all"))))
    got = emulate(network, x)["y"]
    np.testing.assert_array_equal(got[want == 0], 0)
    assert (want == 0).any() and np.abs(got - want).max() < 0.01


def test_other_layers_have_no_infinite_constants():
    for low, error, message in (
        (-np.inf, Unsupported, "constants must be below 65520 in magnitude"),
        (np.inf, UnsupportedModel, "constant 't[0-9]*': must be finite"),
    ):
        proto = model_of(op.Relu(op.Add(X, np.where(CAUSAL, 0, low), name="m")))
        with pytest.raises((error, ValueError), match=message):
            compile_graph(import_model(proto), ECP5_85F)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.BOOL])
def test_a_mask_of_whole_numbers_times_the_least_float(kind):
    """What BERT makes of the mask of its words: (1 - mask) times the least float, added to scores."""
    hidden = op.Sub(1.0, op.Cast(given(1, 5, name="m", kind=kind), to=TensorProto.FLOAT))
    mask = op.Mul(hidden, LOWEST)
    proto = model_of(op.Softmax(op.Add(given(1, 5), mask), axis=-1))
    graph = import_model(proto)
    x, m = np.random.default_rng(1).normal(size=(4, 5)), np.array([[1, 0, 1, 1, 0]] * 4)
    masked = np.where(m, np.exp(x), 0)
    want = masked / masked.sum(axis=1, keepdims=True)
    assert np.abs(run(graph, {"x": x, "m": m})["y"] - want).max() < 1e-12
    net = concord.compile(proto, preset="ecp5-25f")
    results = net.run({"x": x, "m": m})["y"]
    assert np.abs(results - want).max() < 2e-3 and not results[m == 0].any()


def test_a_factor_that_is_no_mask_stays():
    """A fraction times the least float is not zero or far below."""
    low = np.float32(-1e9)
    masked = op.Add(given(1, 5), op.Mul(given(1, 5, name="m"), low))
    graph = import_model(model_of(op.Softmax(masked, axis=-1)))
    (factor,) = [item.attrs["constant"] for item in graph.nodes if item.op == "Mul" and "constant" in item.attrs][:1]
    assert factor == low or np.abs(factor).max() >= 1e4


@pytest.mark.parametrize("low", [-np.inf, LOWEST, -1e9])
def test_what_is_no_mask_is_refused_or_raises_a_flag(low):
    """Numbers that binary16 does not have must not become others where no softmax takes them off."""
    x = given(1, 4)
    proto = model_of(op.Where(op.Greater(x, 0.0), x, float(low)))
    if low != -1e9:  # which two factors of binary16 make
        with pytest.raises(Unsupported, match="constants must be below 65520 in magnitude"):
            compile_graph(import_model(proto), ECP5_85F)
        return
    with pytest.raises(concord.api.FlagError, match=r"HALF_OVERFLOW|infinity"):
        concord.compile(proto, preset="ecp5-85f").run(np.array([[1.0, -1.0, 2.0, -2.0]]), strict=True)
