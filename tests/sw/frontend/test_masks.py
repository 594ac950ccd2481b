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
from support.onnx_models import agrees, ints, model, node

CAUSAL = np.tril(np.ones((6, 6), bool))
LOWEST = float(np.finfo(np.float32).min)
SOFTMAX = node("Softmax", ["m"], ["y"], axis=-1)


def added(low):
    return [node("Add", ["x", "mask"], ["m"]), SOFTMAX], {"mask": np.where(CAUSAL, 0, low).astype(np.float32)}


def chosen(low):
    return [node("Where", ["keep", "x", "low"], ["m"]), SOFTMAX], {"keep": CAUSAL, "low": np.float32(low)}


def built(low):
    """As an exporter writes it: a triangle of a filled shape, by folding."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "end"], ["square"]),
        node("Expand", ["low", "square"], ["full"]),
        node("Trilu", ["full", "up"], ["mask"], upper=1),
        node("Add", ["x", "mask"], ["m"]),
        SOFTMAX,
    ]
    return nodes, {"one": ints(1), "end": ints(3), "low": np.float32(low), "up": np.int64(1)}


def counted(low):
    """Positions compared with each other."""
    nodes = [
        node("Range", ["start", "count", "step"], ["k"]),
        node("Unsqueeze", ["k", "last"], ["rows"]),
        node("LessOrEqual", ["k", "rows"], ["keep"]),
        node("Where", ["keep", "x", "low"], ["m"]),
        SOFTMAX,
    ]
    constants = {
        "start": np.int64(0),
        "count": np.int64(6),
        "step": np.int64(1),
        "last": ints(1),
        "low": np.float32(low),
    }
    return nodes, constants


def compared(low):
    """A mask that depends on the inputs."""
    nodes = [node("Greater", ["x", "half"], ["b"]), node("Where", ["b", "low", "x"], ["m"]), SOFTMAX]
    return nodes, {"half": np.float32(0.5), "low": np.float32(low)}


@pytest.mark.parametrize("low", [-np.inf, LOWEST, -1e9, -1e4])
@pytest.mark.parametrize("form", [added, chosen, built, counted, compared])
def test_nothing_is_left_of_what_is_masked(form, low):
    nodes, constants = form(low)
    proto = model(nodes, {"x": (1, 6, 6)}, constants=constants)
    graph = agrees(proto)
    x = {"x": np.random.default_rng(3).normal(0, 1, (4, 6, 6))}
    want = run(graph, x)["y"]
    network = compile_graph(graph, ECP5_85F, Formats(ranges=function_ranges(graph, run(graph, x, keep="all"))))
    got = emulate(network, x)["y"]
    np.testing.assert_array_equal(got[want == 0], 0)
    assert (want == 0).any() and np.abs(got - want).max() < 0.01


def test_other_layers_have_no_infinite_constants():
    for low, error, message in (
        (-np.inf, Unsupported, "constants must be below 65520 in magnitude"),
        (np.inf, UnsupportedModel, "constant 'mask': must be finite"),
    ):
        nodes, constants = added(low)
        proto = model([nodes[0], node("Relu", ["m"], ["y"])], {"x": (1, 6, 6)}, constants=constants)
        with pytest.raises((error, ValueError), match=message):
            compile_graph(import_model(proto), ECP5_85F)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.BOOL])
def test_a_mask_of_whole_numbers_times_the_least_float(kind):
    """What BERT makes of the mask of its words: (1 - mask) times the least float, added to scores."""
    low = np.finfo(np.float32).min
    nodes = [
        node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        node("Sub", ["one", "f"], ["hidden"]),
        node("Mul", ["hidden", "low"], ["mask"]),
        node("Add", ["x", "mask"], ["masked"]),
        SOFTMAX,
    ]
    nodes[-1] = node("Softmax", ["masked"], ["y"], axis=-1)
    proto = model(nodes, {"x": [1, 5], "m": [1, 5]}, constants={"one": np.float32(1), "low": low})
    proto.graph.input[1].type.tensor_type.elem_type = kind
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
    nodes = [node("Mul", ["m", "low"], ["mask"]), node("Add", ["x", "mask"], ["masked"])]
    nodes.append(node("Softmax", ["masked"], ["y"], axis=-1))
    low = np.float32(-1e9)
    graph = import_model(model(nodes, {"x": [1, 5], "m": [1, 5]}, constants={"low": low}))
    (factor,) = [item.attrs["constant"] for item in graph.nodes if item.op == "Mul" and "constant" in item.attrs][:1]
    assert factor == low or np.abs(factor).max() >= 1e4


@pytest.mark.parametrize("low", [-np.inf, LOWEST, -1e9])
def test_what_is_no_mask_is_refused_or_raises_a_flag(low):
    """Numbers that binary16 does not have must not become others where no softmax takes them off."""
    nodes = [node("Greater", ["x", "zero"], ["c"]), node("Where", ["c", "x", "low"], ["y"])]
    constants = {"zero": np.float32(0), "low": np.float32(low)}
    proto = model(nodes, {"x": [1, 4]}, constants=constants)
    if low != -1e9:  # which two factors of binary16 make
        with pytest.raises(Unsupported, match="constants must be below 65520 in magnitude"):
            compile_graph(import_model(proto), ECP5_85F)
        return
    with pytest.raises(concord.api.FlagError, match=r"HALF_OVERFLOW|infinity"):
        concord.compile(proto, preset="ecp5-85f").run(np.array([[1.0, -1.0, 2.0, -2.0]]), strict=True)
