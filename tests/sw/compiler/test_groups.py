"""Softmax and maxima over axes that are some lanes of a position, all of them, or positions."""

import numpy as np
import pytest

from concord.compiler.lowering.reductions import places_apart
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import ROOMY, check, grouped_softmax, integers
from support.expressions import exact, tensor
from support.onnx_models import floats, ints, model, node, onnxruntime_results, samples

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
    nodes = [
        node("Conv", ["x", "v"], ["c"]),
        node("Reshape", ["c", "groups"], ["g"]),
        node("Softmax", ["g"], ["s"], axis=axis, name="softmax"),
        node("Reshape", ["s", "map"], ["m"]),
        node("Conv", ["m", "w"], ["y"]),
    ]
    constants = {"v": floats(8, 3, 3, 3) / 5, "w": np.abs(floats(4, 8, 3, 3))}
    constants |= {"groups": ints(*shape), "map": ints(1, 8, 4, 3)}
    proto = model(nodes, {"x": (1, 3, 6, 5)}, ["y", "c"][: 1 + seen], constants)
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
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("name", CONFIGS)
def test_maxima_over_positions_and_lanes_between_which_are_others(name, op, channels):
    """Three maxima, each over five channels of two rows: between the vectors of these lie those of the other maxima."""
    nodes = [node("Abs", ["x"], ["a"]), node(op, ["a", "axes"], ["y"], keepdims=0)]
    graph = import_model(model(nodes, {"x": (1, 2, 3, channels)}, constants={"axes": ints(1, 3)}, opset=18))
    check(graph, np.random.default_rng(channels), CONFIGS[name], limit=500)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("channels", [4, 5, 16])
@pytest.mark.parametrize("step", [-1, -2])
def test_maxima_from_the_last_position_to_the_first(name, channels, step):
    """Of some positions of an image, in reverse order; a position more is never read."""
    backwards = {"start": ints(-1), "end": ints(-100), "axis": ints(1), "step": ints(step)}
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Slice", ["a", *backwards], ["s"]),
        node("ReduceMax", ["s", "lanes"], ["y"]),
        node("Neg", ["a"], ["z"]),
    ]
    constants = {**backwards, "lanes": ints(2)}
    graph = import_model(model(nodes, {"x": (1, 5, channels)}, ["y", "z"], constants, opset=18))
    check(graph, np.random.default_rng(channels), CONFIGS[name], limit=500)


@pytest.mark.parametrize("name", CONFIGS)
def test_groups_that_lie_in_no_order_once_they_are_apart(name):
    """They are copied: another product would come behind the mask, whose numbers leave nothing of the others."""
    nodes = [
        node("Expand", ["x", "shape"], ["e"]),
        node("CumSum", ["e", "axis"], ["c"], exclusive=1),
        node("Transpose", ["c"], ["t"], perm=[2, 4, 0, 3, 5, 1]),
        node("Split", ["t"], ["s", "y0"], axis=3, num_outputs=2),
        node("ReduceMin", ["y0", "axes"], ["y"], keepdims=1),
    ]
    constants = {"shape": ints(2, 2, 1, 4, 2, 4), "axis": np.array(1), "axes": ints(0, 3, 4)}
    graph = import_model(model(nodes, {"x": (2, 1, 4, 2, 4)}, constants=constants, opset=18))
    check(graph, np.random.default_rng(0), CONFIGS[name], limit=3)


@pytest.mark.parametrize("channels", [4, 5, 16])
@pytest.mark.parametrize("op", ["ReduceMax", "Softmax"])
@pytest.mark.parametrize("name", CONFIGS)
def test_an_axis_whose_elements_lie_in_vectors_apart(name, op, channels):
    """Channels of two rows as one axis: those of other columns lie between them."""
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Transpose", ["a"], ["t"], perm=[0, 3, 2, 1]),
        node("Reshape", ["t", "rows"], ["r"]),
        node("ReduceMax", ["r", "axis"], ["s"]) if op == "ReduceMax" else node("Softmax", ["r"], ["s"], axis=2),
        node("MatMul", ["s", "v"], ["y"]),
    ]
    weight = integers(np.random.default_rng(0), (channels, 2, 1, 1)).astype(np.float32)
    ones = np.ones((1 if op == "ReduceMax" else 2 * channels, 1), np.float32)
    ones[0] = 2
    constants = {"w": weight, "v": ones, "rows": ints(1, 3, 2 * channels)} | (
        {"axis": ints(2)} if op == "ReduceMax" else {}
    )
    proto = model(nodes, {"x": (1, 2, 2, 3)}, constants=constants, opset=18)
    graph = import_model(proto)
    if op == "ReduceMax":
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
