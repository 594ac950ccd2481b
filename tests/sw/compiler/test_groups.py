"""Softmax and maxima over axes that are some lanes of a position, all of them, or positions."""

import numpy as np
import pytest

from concord.compiler.lowering.reductions import places_apart
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import grouped_softmax
from support.expressions import ROOMY, check, exact, integers, tensor
from support.onnx_expressions import given, model_of, op
from support.onnx_models import floats, onnxruntime_results, samples

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F}
SHAPES = [(1, 2, 4, 12), (1, 4, 2, 12), (1, 8, 4, 3)]
#: Axes that are some of the lanes of a position: 4 lanes of a native vector on one, 16 on the other.
APART = {
    "tiny": {(SHAPES[1], 1), (SHAPES[1], 2)},
    "ecp5-85f": {(shape, axis) for shape in SHAPES[:2] for axis in (1, 2)},
}


def parts(compiled):
    return [layer.name.rpartition("/")[2] for layer in compiled.lowered.layers]


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seen", [False, True])
def test_softmax_inside_a_network(name, shape, axis, seen):
    """8 channels at 12 positions, as other axes; what others see is moved apart, else it is written like that."""
    c = op.Conv(given(1, 3, 6, 5), floats(8, 3, 3, 3) / 5)
    s = op.Softmax(op.Reshape(c, list(shape)), axis=axis, name="softmax")
    y = op.Conv(op.Reshape(s, [1, 8, 4, 3]), np.abs(floats(4, 8, 3, 3)))
    proto = model_of(y, **({"c": c} if seen else {}))
    graph = import_model(proto)
    compiled = compile_graph(graph, CONFIGS[name])
    assert ("apart" in parts(compiled)) == (seen and (shape, axis) in APART[name])
    inputs = samples(graph)
    got = emulate(compiled, inputs)["y"]
    want = np.stack([onnxruntime_results(proto, {"x": x[None]})[0][0] for x in inputs["x"]])
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("groups", [(3, 5), (5, 3), (2, 8), (8, 2), (15, 1), (2, 2, 4)], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_maxima_of_small_integers_are_exact(name, groups):
    """Along every axis of groups of lanes, with and without lanes that are none of them."""
    split = tensor(1, 6).whole_dense(int(np.prod(groups))).reshape(1, *groups)
    for axis in range(1, len(groups) + 1):
        exact(split.reduce("Max", axis, keep=axis % 2 == 0), CONFIGS[name])


@pytest.mark.parametrize("channels", [3, 5, 8, 16, 20])
@pytest.mark.parametrize("reduction", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("name", CONFIGS)
def test_maxima_over_positions_and_lanes_between_which_are_others(name, reduction, channels):
    """Three maxima, each over five channels of two rows: between the vectors of these lie those of the other maxima."""
    y = getattr(op, reduction)(op.Abs(given(1, 2, 3, channels)), [1, 3], keepdims=0)
    graph = import_model(model_of(y, opset=18))
    check(graph, np.random.default_rng(channels), CONFIGS[name], limit=500)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("channels", [4, 5, 16])
@pytest.mark.parametrize("step", [-1, -2])
def test_maxima_from_the_last_position_to_the_first(name, channels, step):
    """Of some positions of an image, in reverse order; a position more is never read."""
    a = op.Relu(given(1, 5, channels))
    y = op.ReduceMax(op.Slice(a, [-1], [-100], [1], [step]), [2])
    graph = import_model(model_of(y=y, z=op.Neg(a), opset=18))
    check(graph, np.random.default_rng(channels), CONFIGS[name], limit=500)


@pytest.mark.parametrize("name", CONFIGS)
def test_groups_that_lie_in_no_order_once_they_are_apart(name):
    """They are copied: another product would come behind the mask, whose numbers leave nothing of the others."""
    e = op.Expand(given(2, 1, 4, 2, 4), [2, 2, 1, 4, 2, 4])
    t = op.Transpose(op.CumSum(e, np.array(1), exclusive=1), perm=[2, 4, 0, 3, 5, 1])
    _, half = op.Split(t, axis=3, num_outputs=2, outputs=2)
    graph = import_model(model_of(op.ReduceMin(half, [0, 3, 4], keepdims=1), opset=18))
    check(graph, np.random.default_rng(0), CONFIGS[name], limit=3)


@pytest.mark.parametrize("channels", [4, 5, 16])
@pytest.mark.parametrize("reduction", ["ReduceMax", "Softmax"])
@pytest.mark.parametrize("name", CONFIGS)
def test_an_axis_whose_elements_lie_in_vectors_apart(name, reduction, channels):
    """Channels of two rows as one axis: those of other columns lie between them."""
    a = op.Conv(given(1, 2, 2, 3), integers(np.random.default_rng(0), (channels, 2, 1, 1)))
    r = op.Reshape(op.Transpose(a, perm=[0, 3, 2, 1]), [1, 3, 2 * channels])
    s = op.ReduceMax(r, [2]) if reduction == "ReduceMax" else op.Softmax(r, axis=2)
    ones = np.ones((1 if reduction == "ReduceMax" else 2 * channels, 1), np.float32)
    ones[0] = 2
    proto = model_of(op.MatMul(s, ones), opset=18)
    graph = import_model(proto)
    if reduction == "ReduceMax":
        check(graph, np.random.default_rng(channels), CONFIGS[name], limit=3)
        return
    inputs = {"x": 4 * samples(graph)["x"]}  # exponentials of a difference to a larger maximum would be zero
    got = emulate(compile_graph(graph, CONFIGS[name]), inputs)["y"]
    want = np.stack([onnxruntime_results(proto, {"x": x[None]})[0][0] for x in inputs["x"]])
    assert np.abs(got - want).max() < 0.1 * np.abs(want).max()


def test_places_of_groups_that_are_moved_apart():
    """Groups begin with vectors of their own, or elements do, whatever takes fewer vectors."""
    assert places_apart(3, 6, 4).tolist() == [list(range(first, first + 6)) for first in (0, 8, 16)]
    assert places_apart(5, 3, 4).tolist() == [[4 * group, 4 * group + 1, 4 * group + 2] for group in range(5)]
    assert places_apart(3, 5, 4).tolist() == [
        [group, group + 4, group + 8, group + 12, group + 16] for group in range(3)
    ]


def test_the_network_for_the_rtl_has_groups():
    assert "apart" in parts(compile_graph(grouped_softmax(seen=True), TINY))
