"""Maxima over some channels of a position: a product in front writes these where they can be compared."""

import numpy as np
import pytest

from concord.compiler.ir.layers import Layer
from concord.compiler.model import compile_graph
from concord.graph.execute import run
from concord.graph.ir import Node
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.compiled_nets import ROOMY, check, graph_of, integers

GEOMETRY = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (0,) * 4}
WIDE = ECP5_85F.replace(narrow_depth=8192, wide_depth=8192)


def dense(rng, name, x, y, inputs, outputs):
    return Node("Dense", name, (x,), (y,), {"weight": integers(rng, (outputs, inputs), 1), "bias": np.zeros(outputs)})


def maxout(groups, size, last=True, between=()):
    """The greatest of ``size`` products, ``groups`` times, as a Reshape and a maximum over its last axis."""
    rng = np.random.default_rng(groups)
    nodes = [
        dense(rng, "first", "x", "a", 6, groups * size), *between,
        Node("Reshape", "split", ("b" if between else "a",), ("s",), {"shape": (1, groups, size)}),
        Node("ReduceMax", "max", ("s",), ("m",), {"axes": (2,), "keepdims": False}),
        *([dense(rng, "last", "m", "y", groups, 3)] if last else []),
    ]  # fmt: skip
    return graph_of(nodes, x=(1, 6))


def aligned(compiled):
    """Matrix words of products with zeros and ones in front of a maximum."""
    names = {node.name for node in compiled.graph.nodes if node.op == "AlignGroups"}
    layers = [layer for layer in compiled.lowered.layers if isinstance(layer, Layer) and names & set(layer.nodes)]
    return sum(layer.weight.size // layer.target.native**2 for layer in layers)


@pytest.mark.parametrize(("groups", "size"), [(20, 3), (3, 5), (2, 7), (5, 2), (4, 4), (7, 9)])
@pytest.mark.parametrize("config", [ROOMY, WIDE], ids=lambda config: config.name)
@pytest.mark.parametrize("last", [True, False])
def test_a_product_in_front_writes_groups_apart(groups, size, config, last):
    compiled = check(maxout(groups, size, last), np.random.default_rng(1), config, limit=1)
    assert not aligned(compiled)


def test_operations_in_between():
    between = (
        Node("Add", "bias", ("a",), ("c",), {"constant": np.arange(60.0) % 7 - 3}),
        Node("Relu", "relu", ("c",), ("b",)),
    )
    assert not aligned(check(maxout(20, 3, between=between), np.random.default_rng(1), limit=1))


@pytest.mark.parametrize(("groups", "words"), [(20, 15 * 15), (3, 3 * 3)])
def test_what_others_read_is_copied_to_the_fewest_vectors(groups, words):
    """Three elements of every group: 3 * 5 vectors of four groups each, or one for each of three groups."""
    graph = maxout(groups, 3)
    graph.outputs.append("a")
    graph.batched.add("a")
    assert aligned(check(graph, np.random.default_rng(1), limit=1)) == words


def test_a_maximum_over_a_part_is_refused_a_place():
    """Channels of which only some are compared stay where they are."""
    rng = np.random.default_rng(2)
    part = {"axes": (1,), "starts": (0,), "stops": (6,), "steps": (1,)}
    nodes = [
        dense(rng, "first", "x", "a", 6, 9),
        Node("Slice", "part", ("a",), ("p",), part),
        Node("Reshape", "split", ("p",), ("s",), {"shape": (1, 2, 3)}),
        Node("ReduceMax", "max", ("s",), ("y",), {"axes": (2,), "keepdims": False}),
    ]
    assert aligned(check(graph_of(nodes, x=(1, 6)), rng, limit=1))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("groups", "size"), [(4, 8), (8, 4), (20, 3)])
def test_softmax_of_groups_of_channels(op, groups, size):
    """As the distances of a detector: bins of four sides at every place."""
    rng = np.random.default_rng(3)
    channels = groups * size
    weight = rng.normal(0, 0.5, (channels, 5, 1, 1))
    nodes = [
        Node("Conv", "first", ("x",), ("a",), {"weight": weight, "bias": rng.normal(0, 0.2, channels), **GEOMETRY}),
        Node("Reshape", "split", ("a",), ("s",), {"shape": (1, groups, size, 6)}),
        Node("Transpose", "turn", ("s",), ("t",), {"perm": (0, 2, 1, 3)}),
        Node(op, "softmax", ("t",), ("y",), {"axis": 1}),
    ]
    graph, x = graph_of(nodes, x=(1, 5, 2, 3)), {"x": rng.normal(0, 1, (4, 5, 2, 3))}
    compiled = compile_graph(graph, WIDE)
    assert not aligned(compiled)
    want = run(graph, x)["y"]
    assert np.abs(emulate(compiled, x)["y"] - want).max() < 0.02 * np.abs(want).max()
