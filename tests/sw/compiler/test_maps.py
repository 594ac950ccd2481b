"""Images that come in a batch, in parts or with three axes, on small integers, which every format holds exactly."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.compiled_nets import ROOMY, check
from support.onnx_models import ints, model, node

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F.replace(narrow_depth=4096, wide_depth=4096)}


def compiled(nodes, inputs, constants=None, name="tiny", outputs=("y",)):
    graph = import_model(model(nodes, inputs, outputs, constants, opset=19))
    return check(graph, np.random.default_rng(5), CONFIGS[name])


def weights(*shape):
    return np.random.default_rng(6).integers(-1, 2, shape).astype(np.float32)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("spatial", [(7,), (5, 6)])
def test_a_batch_of_fixed_size(name, group, spatial):
    constants = {"w": weights(4, 4 // group, *(3,) * len(spatial)), "b": weights(4)}
    layers = [
        node("Conv", ["x", "w", "b"], ["c"], group=group, pads=[1, 0] * len(spatial)),
        node("MaxPool", ["c"], ["y"], kernel_shape=[2] * len(spatial)),
    ]
    compiled(layers, {"x": (3, 4, *spatial)}, constants, name)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("op", "kernel"), [("MaxPool", [3, 2, 2]), ("AveragePool", [2, 2, 4]), ("MaxPool", [1, 2, 1])])
def test_pooling_of_volumes(name, op, kernel):
    pool = node(op, ["x"], ["y"], kernel_shape=kernel, strides=[2, 1, 2], dilations=[1, 2, 1])
    compiled([pool], {"x": (1, 2, 5, 6, 7)}, name=name)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("axis", "spatial", "state"), [(2, (8,), (3,)), (2, (6, 5), (2, 5)), (1, (4, 5), (4, 5))])
@pytest.mark.parametrize("kept", [False, True])
def test_a_convolution_of_a_stream(name, images, axis, spatial, state, kept):
    """Inputs that lie one behind the other: what is new, and what is kept of the last run, which is a result, too."""
    constants = {"w": weights(8 if axis == 1 else 4, 1, *(3,) * len(spatial))}
    constants |= {"start": ints(-2), "end": ints(1000), "axis": ints(axis)}
    nodes = [
        node("Concat", ["state", "x"], ["c"], axis=axis),
        node("Conv", ["c", "w"], ["y"], group=8 if axis == 1 else 4),
    ]
    nodes += [node("Slice", ["c", "start", "end", "axis"], ["next"])] if kept else []
    inputs = {"state": (images, 4, *state), "x": (images, 4, *spatial)}
    compiled(nodes, inputs, constants, name, ["y", "next"] if kept else ["y"])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("first", [True, False])
def test_an_output_that_is_part_of_another_one(name, axis, first):
    """Its vectors lie in those of the whole, at distances of their own."""
    parts = ["y", "x"] if first else ["x", "y"]
    nodes = [node("Abs", ["x"], ["y"]), node("Concat", parts, ["z"], axis=axis)]
    compiled(nodes, {"x": (1, 6, 3, 4)}, name=name, outputs=["y", "z"])


def test_a_slice_of_a_part_is_an_output():
    constants = {"start": ints(2), "end": ints(4), "axis": ints(1)}
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Slice", ["a", "start", "end", "axis"], ["y"]),
        node("Concat", ["a", "x"], ["z"], axis=2),
    ]
    compiled(nodes, {"x": (1, 6, 4)}, constants, outputs=["y", "z"])


def test_an_output_that_is_a_part_of_a_part():
    nodes = [
        node("Abs", ["x"], ["y"]),
        node("Neg", ["x"], ["n"]),
        node("Concat", ["n", "y"], ["z"], axis=2),
        node("Concat", ["u", "z"], ["v"], axis=1),
    ]
    compiled(nodes, {"x": (1, 6, 4), "u": (1, 3, 8)}, outputs=["y", "z", "v"])


def across_positions(last):
    """A map, what reads two positions of it as one, and the map beside another one, in this order or the other."""
    small = np.random.default_rng(0)
    first = node("MatMul", ["x", "w"], ["a"])
    flat = [node("Reshape", ["a", "flat"], ["f"]), node("MatMul", ["f", "v"], ["b"])]
    beside = [node("Abs", ["u"], ["n"]), node("Concat", ["a", "n"], ["z"], axis=2), node("Neg", ["z"], ["y"])]
    constants = {"w": small.integers(-1, 2, (7, 4)), "v": small.integers(-1, 2, (8, 4))}
    constants = {name: value.astype(np.float32) for name, value in constants.items()} | {"flat": ints(1, 8)}
    nodes = [first, *beside, *flat] if last else [first, *flat, *beside]
    return nodes, {"x": (1, 2, 7), "u": (1, 2, 4)}, constants


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("last", [False, True])
def test_two_positions_are_read_as_one_and_lie_beside_others(name, last):
    nodes, inputs, constants = across_positions(last)
    compiled(nodes, inputs, constants, name, ["y", "b"] if last else ["b", "y"])


def test_an_operand_of_several_positions_that_lie_beside_others():
    """Four vectors of two positions meet those of one position of a product."""
    small = np.random.default_rng(0)
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Concat", ["a", "u"], ["z"], axis=2),
        node("Neg", ["z"], ["y"]),
        node("Reshape", ["a", "flat"], ["f"]),
        node("MatMul", ["q", "v"], ["d"]),
        node("Add", ["d", "f"], ["b"]),
    ]
    constants = {name: small.integers(-1, 2, shape).astype(np.float32) for name, shape in
                 {"w": (7, 8), "v": (3, 16)}.items()}  # fmt: skip
    inputs = {"x": (1, 2, 7), "u": (1, 2, 8), "q": (1, 3)}
    compiled(nodes, inputs, constants | {"flat": ints(1, 16)}, outputs=["y", "b"])


def test_an_input_of_which_nothing_is_read_is_no_port():
    part = {"start": ints(3), "end": ints(5), "axis": ints(1)}
    nodes = [node("Relu", ["x"], ["a"]), node("Concat", ["z", "a"], ["j"], axis=1)]
    nodes.append(node("Slice", ["j", *part], ["y"]))
    graph = import_model(model(nodes, {"x": (1, 4), "z": (1, 3)}, ["y"], part))
    made = compile_graph(graph, ROOMY)
    assert [port.name for port in made.image.inputs] == list(made.package.arrangement.inputs) == ["x"]
    assert emulate(made, {"x": np.ones((1, 4))})["y"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_input_that_gets_another_axis(axis, swapped):
    """What moves elements of a sum counts axes of the sum: all elements of the input are stored."""
    backwards = {"start": ints(-1), "end": ints(-100), "axis": ints(axis), "step": ints(-1)}
    nodes = [
        node("Sub", ["x", "z"] if swapped else ["z", "x"], ["a"]),
        node("Slice", ["a", *backwards], ["y"]),
        node("AveragePool", ["z"], ["p"], kernel_shape=[2], strides=[2]),
    ]
    compiled(nodes, {"x": (1, 6), "z": (1, 1, 6)}, backwards, outputs=["p", "y"])
