"""Pooling and reductions over more elements than a window of a chain has."""

import numpy as np
import pytest

from concord.compiler.ir.layers import Reduction
from concord.compiler.lowering.large_windows import divisor
from concord.compiler.lowering.legality import TAPS
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.compiled_nets import large_windows
from support.expressions import ROOMY, check
from support.onnx_models import floats, ints, model, node, onnxruntime_results, samples, unary

CONFIGS = {
    "tiny": ROOMY.replace(narrow_depth=8192, wide_depth=8192, program_depth=1024),
    "ecp5-85f": ECP5_85F.replace(narrow_depth=8192, wide_depth=8192),
}


def compiled_and_compared(proto, config, tolerance):
    """Compile, and compare what the emulator computes with onnxruntime."""
    graph = import_model(proto)
    compiled = compile_graph(graph, config)
    inputs = samples(graph)
    got = emulate(compiled, inputs)
    for k in range(3):
        one = {name: values[k].reshape(graph.shapes[name]) for name, values in inputs.items()}
        for name, want in zip(graph.outputs, onnxruntime_results(proto, one), strict=True):
            assert np.abs(got[name][k].reshape(want.shape) - want).max() <= tolerance * np.abs(want).max()
    return compiled


def staged(compiled, config):
    """Every chain keeps to what it can do; returns how many reduce."""
    layers = [layer for layer in compiled.lowered.layers if layer.reduction is not Reduction.NONE]
    for layer in layers:
        assert max(layer.window.kernel) <= TAPS
        assert layer.weight is None or layer.window.taps <= config.max_terms
    return len(layers)


POOLS = [
    ((1, 3, 64, 4), {"kernel_shape": [64, 1]}),
    ((1, 3, 8, 128), {"kernel_shape": [8, 64], "strides": [8, 64]}),
    ((1, 3, 40, 40), {"kernel_shape": [40, 40]}),
    ((1, 3, 20, 20), {"kernel_shape": [9, 9], "strides": [3, 3]}),
    ((1, 3, 20, 20), {"kernel_shape": [9, 9], "strides": [3, 3], "pads": [4, 3, 2, 1]}),
    ((1, 3, 20, 20), {"kernel_shape": [9, 9], "strides": [4, 4], "ceil_mode": 1}),
    ((1, 3, 24, 24), {"kernel_shape": [9, 9], "dilations": [2, 1]}),
    ((1, 3, 256, 2), {"kernel_shape": [128, 1], "strides": [64, 1]}),
    ((1, 3, 300, 2), {"kernel_shape": [80, 2], "strides": [40, 1], "pads": [7, 1, 3, 0]}),
    ((1, 3, 300), {"kernel_shape": [128], "strides": [128]}),
]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("shape", "attrs"), POOLS, ids=str)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "AveragePool with padding"])
def test_pooling(name, op, shape, attrs):
    """Behind a convolution, as in networks; a stage of a mean rounds like any narrow tensor."""
    counted = {"count_include_pad": 1} if "with" in op else {}
    weight = floats(3, 3, *(1,) * (len(shape) - 2))
    bias = np.float32([2, 3, -2])  # means that are not near zero
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        node(op.split()[0], ["c"], ["y"], name="pool", **attrs, **counted),
    ]
    proto = model(nodes, {"x": shape}, constants={"w": weight, "b": bias}, opset=19)
    compiled = compiled_and_compared(proto, CONFIGS[name], 0.02)
    assert staged(compiled, CONFIGS[name]) >= 2


@pytest.mark.parametrize("spatial", [(64, 64), (67, 5), (100, 4), (130,), (1000,)])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("name", CONFIGS)
def test_global_pooling(name, op, spatial):
    weight = {"w": np.abs(floats(3, 2, *(1,) * len(spatial))), "b": floats(3)}
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["r"]), node(op, ["r"], ["y"], name="pool")]
    compiled = compiled_and_compared(model(nodes, {"x": (1, 2, *spatial)}, constants=weight), CONFIGS[name], 0.02)
    assert staged(compiled, CONFIGS[name]) > 2


REDUCED = [
    ((1, 100, 16), [1]), ((1, 67, 3), [1]), ((1, 127, 5), [1]), ((1, 4, 9, 9), [2, 3]), ((1, 4, 9, 9), [1, 2, 3]),
    ((1, 4, 70, 3), [1, 2]), ((1, 1000, 4), [1]), ((1, 65, 4, 3), [1, 3]), ((1, 1000), [1]), ((1, 3, 1000), [2]),
]  # fmt: skip


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(("shape", "axes"), REDUCED, ids=str)
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_sums_and_maxima_of_small_integers_are_exact(op, shape, axes, keep):
    """What a stage writes narrow has fewer bits than a mantissa."""
    proto = unary(op, 18, shape, {"axes": ints(*axes)}, keepdims=keep)
    compiled = check(import_model(proto), np.random.default_rng(1), CONFIGS["tiny"], limit=1)
    staged(compiled, CONFIGS["tiny"])


@pytest.mark.parametrize(("shape", "axes"), REDUCED, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_means(name, shape, axes):
    nodes = [node("Add", ["x", "c"], ["a"]), node("ReduceMean", ["a", "axes"], ["y"], keepdims=0)]
    proto = model(nodes, {"x": shape}, constants={"axes": ints(*axes), "c": np.float32(1)}, opset=18)
    compiled_and_compared(proto, CONFIGS[name], 0.02)


def test_what_no_stages_share_is_refused():
    for attrs in ({"kernel_shape": [67]}, {"kernel_shape": [64], "dilations": [2], "strides": [64]},
                  {"kernel_shape": [70], "strides": [35], "pads": [60, 0]}):  # fmt: skip
        graph = import_model(unary("MaxPool", shape=(1, 3, 400), **attrs))
        with pytest.raises(Unsupported, match="windows over 63 elements along an axis must be made of equal parts"):
            compile_graph(graph, CONFIGS["tiny"])


def test_divisors():
    for number in range(1, 200):
        for limit, unit in ((63, 1), (16, 4)):
            fitting = [k for k in range(2, limit + 1) if number % k == 0 and k % unit == 0]
            assert divisor(number, limit, unit) == max(fitting, default=1)


def test_the_network_for_the_rtl_is_in_stages():
    compiled = compile_graph(large_windows(), CONFIGS["tiny"])
    assert staged(compiled, CONFIGS["tiny"]) == 1 + 2 + 2
