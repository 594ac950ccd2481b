"""What the host computes behind the NPU has the same bits for every size of the batch and every layout in memory."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.emission.package import Package
from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.model import compile_graph
from concord.graph.ir import Graph, Node
from concord.host import connect
from concord.spec.presets import TINY
from support.compiled_nets import graph_of


def package(shape, axis, functions=("tanh",)):
    """A softmax, and functions of what it gives, on the host."""
    nodes = [
        Node("Softmax", "softmax", ("x",), ("p",), {"axis": axis}),
        Node("Function", "more", ("p",), ("y",), {"functions": tuple((name, {}) for name in functions)}),
        Node("Mul", "scaled", ("p",), ("z",), {"constant": np.full((1,), 1 / 3)}),
    ]
    shapes = dict.fromkeys(("x", "p", "y", "z"), (1, *shape))
    graph = Graph("behind", nodes, ["x"], ["p", "y", "z"], shapes, {"x", "p", "y", "z"})
    return Package(None, Arrangement({}, {}, {"x": shape}), graph)


@pytest.mark.parametrize("shape", [(10,), (100,), (1000,), (3, 37), (7, 4, 5), (64, 9, 1)], ids=str)
@pytest.mark.parametrize("order", ["C", "F", "picked"])
def test_every_batch_has_the_same_bits(shape, order):
    rng = np.random.default_rng(len(shape) * 100 + shape[0])
    x = rng.normal(0, 3, (33, *shape))
    if order == "F":
        x = np.asfortranarray(x)
    if order == "picked":  # as the outputs of the NPU are
        x = x.reshape(33, -1)[:, np.arange(x[0].size).reshape(shape)]
    for axis in range(1, len(shape) + 1):
        host = package(shape, axis, ["exp", "tanh"])
        single = [host.host_outputs({}, {"x": np.ascontiguousarray(x[k : k + 1])}) for k in range(33)]
        for size in (1, 2, 3, 8, 33):
            for first in range(0, 33, size):
                part = host.host_outputs({}, {"x": x[first : first + size]})
                for name, values in part.items():
                    for k, value in enumerate(values):
                        assert value.tobytes() == single[first + k][name][0].tobytes(), (name, axis, size, first + k)


def test_a_compiled_network_row_for_row():
    rng = np.random.default_rng(4)
    dense = {"weight": rng.normal(0, 0.5, (11, 6)), "bias": rng.normal(0, 1, 11)}
    nodes = [
        Node("Dense", "dense", ("x",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Function", "log", ("p",), ("y",), {"functions": (("log", {}),)}),
    ]
    compiled = compile_graph(graph_of(nodes, x=(1, 6)), TINY)
    x = rng.normal(0, 1, (9, 6))
    with connect("emulator", TINY) as device:
        device.load(compiled.image)
        runs = [
            np.concatenate([compiled.package.run(device, {"x": x[k : k + size]})["y"] for k in range(0, 9, size)])
            for size in (1, 2, 4, 9)
        ]
    assert {run.tobytes() for run in runs} == {runs[0].tobytes()}


def test_no_samples():
    assert {
        name: values.shape for name, values in package((3,), 1).host_outputs({}, {"x": np.zeros((0, 3))}).items()
    } == {
        "p": (0, 3),
        "y": (0, 3),
        "z": (0, 3),
    }


def test_outputs_that_the_host_does_not_read_are_there():
    """Two heads, of which one ends in a softmax; and an input that is an output, as it is given."""
    rng = np.random.default_rng(6)
    dense = [{"weight": rng.normal(0, 0.5, (5, 6)), "bias": rng.normal(0, 1, 5)} for _ in range(2)]
    nodes = [Node("Dense", f"dense{k}", ("x",), (f"a{k}",), one) for k, one in enumerate(dense)]
    nodes.append(Node("Softmax", "softmax", ("a0",), ("p",), {"axis": 1}))
    names = ["a0", "a1", "p", "x"]
    graph = replace(graph_of(nodes, x=(1, 6)), outputs=names, batched={*names})
    alone = replace(graph, nodes=nodes[1:2], outputs=["a1"])
    x = rng.normal(0, 1, (3, 6))
    found = []
    for one in (graph, alone):
        compiled = compile_graph(one, TINY)
        with connect("emulator", TINY) as device:
            device.load(compiled.image)
            found.append(compiled.package.run(device, {"x": x}))
    assert set(found[0]) == set(names) and found[0]["x"].tobytes() == x.tobytes()
    assert found[0]["a1"].tobytes() == found[1]["a1"].tobytes()
