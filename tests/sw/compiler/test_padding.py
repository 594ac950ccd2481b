"""Padded tensors on small integers, which every format holds exactly."""

import numpy as np
import pytest

from concord.graph.ir import Node
from concord.spec.presets import ECP5_85F
from support.compiled_nets import ROOMY, check, graph_of, integers

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F.replace(narrow_depth=4096, wide_depth=4096, matrix_depth=16384)}
MODES = ["constant", "edge", "reflect", "wrap"]


def pad(x, y, pads, mode, value=0.0, name="pad"):
    return Node("Pad", name, (x,), (y,), {"pads": tuple(int(n) for n in pads), "mode": mode, "value": value})


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(20))
def test_any_axes(name, mode, seed):
    """Of inputs and of computed tensors, as an output and before operations on every element."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(2, 6, rng.integers(1, 5)))
    pads = np.array([int(rng.integers(0, min(3, n))) for n in (*shape, *shape)])
    if len(shape) > 1:
        pads[[(kept := int(rng.integers(len(shape)))), kept + len(shape)]] = 0
    eye = {"weight": np.eye(shape[-1]), "bias": np.zeros(shape[-1])}
    before = [Node("Relu", "relu", ("x",), ("a",)), Node("Dense", "dense", ("x",), ("a",), eye), None][seed % 3]
    nodes = [before] if before else []
    nodes.append(pad("a" if before else "x", "b", pads, mode, float(rng.integers(-2, 3))))
    if seed % 2:
        nodes.append(Node("Mul", "double", ("b",), ("y",), {"constant": np.asarray(2.0)}))
    check(graph_of(nodes, x=shape), rng, CONFIGS[name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_before_a_convolution(mode, value):
    """Of a computed map; what the convolution pads by itself is zero."""
    rng = np.random.default_rng(3)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "bias": integers(rng, 3)}
    nodes = [
        Node("Relu", "relu", ("x",), ("a",)),
        pad("a", "b", (0, 0, 1, 2, 0, 0, 2, 0), mode, value),
        Node("Conv", "conv", ("b",), ("y",), {"weight": integers(rng, (3, 5, 3, 3), 1), **attrs}),
    ]
    check(graph_of(nodes, x=(1, 5, 4, 5)), rng)


@pytest.mark.parametrize("mode", MODES)
def test_elements_of_a_product_are_padded_for_nothing(mode):
    """Those that are there twice have the sum of both weights."""
    rng = np.random.default_rng(4)
    dense = Node("Dense", "dense", ("b",), ("y",), {"weight": integers(rng, (6, 11), 1), "bias": np.zeros(6)})
    compiled = check(graph_of([pad("x", "b", (0, 2, 0, 3), mode), dense], x=(3, 6)), rng)
    assert len(compiled.lowered.layers) == 1


def test_a_padded_tensor_and_its_source_are_both_read():
    rng = np.random.default_rng(5)
    nodes = [
        Node("Relu", "relu", ("x",), ("a",)),
        pad("a", "b", (1, 0, 0, 0), "constant", 7.0),
        Node("ReduceSum", "sum", ("b",), ("c",), {"axes": (0,), "keepdims": True}),
        Node("Sub", "y", ("a", "c"), ("y",)),
    ]
    check(graph_of(nodes, x=(4, 5)), rng)


@pytest.mark.parametrize("number", range(4))
def test_chains_and_nodes_have_different_names(number):
    """Chains that pad have numbers behind the name of their node, as other nodes may have."""
    rng = np.random.default_rng(5)
    nodes = [
        Node("Relu", "relu", ("x",), ("a",)),
        pad("a", "b", (0, 0, 1, 0, 0, 0), "constant", 3.0),
        Node("Add", f"pad.{number}", ("b",), ("c",), {"constant": integers(rng, (1, 3, 4))}),
        Node("Mul", "last", ("c", "b"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 3, 3)), rng)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axes", [(1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
def test_lanes_are_padded(mode, axes):
    """The tensor is copied, with the elements of an axis in lanes that is not padded."""
    rng = np.random.default_rng(6)
    pads = np.zeros((2, 3), int)
    pads[:, axes] = 1
    first = {"strides": (1,), "dilations": (1,), "group": 1, "pads": (0, 0), "bias": np.zeros(4)}
    nodes = [
        Node("Conv", "first", ("x",), ("a",), {"weight": integers(rng, (4, 2, 1), 1), **first}),
        Node("Reshape", "rows", ("a",), ("r",), {"shape": (2, 2, 3)}),
        pad("r", "b", pads.reshape(-1), mode, 2.0),
        Node("Mul", "last", ("b", "b"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 2, 3)), rng, limit=1)
