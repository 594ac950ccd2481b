"""Running a graph in double precision."""

from dataclasses import replace

import numpy as np
import pytest

from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS, OperatorKind
from support.operator_examples import EXAMPLES

RNG = np.random.default_rng(5)


def residual():
    """``y = relu(a) + (a @ w.T)``, with ``a`` of two axes and no batch."""
    weight = np.arange(9.0).reshape(3, 3)
    return Graph(
        "residual",
        [
            Node("Relu", "relu", ("a",), ("r",)),
            Node("Dense", "dense", ("r",), ("d",), {"weight": weight, "bias": np.ones(3)}),
            Node("Add", "add", ("d", "b"), ("y",)),
        ],
        ["a", "b"],
        ["y"],
        {"a": (2, 3), "b": (1, 3), "r": (2, 3), "d": (2, 3), "y": (2, 3)},
        {"b"},
    )


def inputs(count=4):
    return {"a": RNG.standard_normal((count, 2, 3)), "b": RNG.standard_normal((count, 3))}


def test_samples_are_independent():
    graph, data = residual(), inputs()
    result = run(graph, data)["y"]
    for k in range(4):
        r = np.maximum(data["a"][k], 0)
        assert np.allclose(result[k], r @ np.arange(9.0).reshape(3, 3).T + 1 + data["b"][k], rtol=1e-15)


def test_only_what_is_wanted_is_kept():
    graph = residual()
    graph.check()
    assert run(graph, inputs()).keys() == {"y"}
    assert run(graph, inputs(), keep={"r", "b"}).keys() == {"y", "r", "b"}
    everything = run(graph, inputs(), keep="all")
    assert {name: value.shape[1:] for name, value in everything.items()} == {
        name: graph.sample_shape(name) for name in graph.shapes
    }
    with pytest.raises(ValueError, match=r"tensors to keep must be of the graph, not \['q'\]"):
        run(graph, inputs(), keep={"q"})


def test_outputs_have_the_order_of_the_graph():
    """Not that in which they are computed; what is kept follows."""
    graph = replace(residual(), outputs=["y", "r"])
    assert list(run(graph, inputs(), keep={"a"})) == ["y", "r", "a"]


def test_no_samples():
    assert run(residual(), inputs(0))["y"].shape == (0, 2, 3)


def test_inputs_are_checked():
    graph, data = residual(), inputs()
    with pytest.raises(ValueError, match=r"inputs of residual must be \['a', 'b'\], not \['a'\]"):
        run(graph, {"a": data["a"]})
    with pytest.raises(ValueError, match=r"input 'a' must have the shape \(samples, 2, 3\), not \(2, 3\)"):
        run(graph, data | {"a": data["a"][0]})
    with pytest.raises(ValueError, match=r"input 'b' must have the shape \(samples, 3\), not \(4, 1, 3\)"):
        run(graph, data | {"b": data["b"][:, None]})
    with pytest.raises(ValueError, match=r"must have the same number of samples, not \{'a': 4, 'b': 3\}"):
        run(graph, data | {"b": data["b"][:3]})


def test_inputs_are_not_changed():
    graph, data = residual(), inputs()
    copies = {name: value.copy() for name, value in data.items()}
    kept = run(graph, data, keep="all")
    for value in kept.values():
        assert np.isfinite(value).all()
    assert all(np.array_equal(data[name], copies[name]) for name in data)


def test_kinds():
    """[dtype-pass]"""
    kinds = {kind: {name for name, op in OPS.items() if op.kind is kind} for kind in OperatorKind}
    means = {"AveragePool", "ReduceMean", "GroupMean"}  # products with ones
    sums = {"MatMul", "ReduceSum", "Expand", "AlignGroups"}  # products with ones, or with zeros and ones
    assert kinds[OperatorKind.QUANTISED] >= {"Conv", "Dense", "LSTM", "GRU", "RNN"} | means | sums
    assert kinds[OperatorKind.MOVING] >= {
        "Relu",
        "MaxPool",
        "ReduceMax",
        "Reshape",
        "Transpose",
        "Concat",
        "Slice",
        "Pad",
        "PadCopy",
    }


WRONG = [
    ("Dense", [(1, 4)], {"weight": np.zeros((2, 3)), "bias": np.zeros(2)}, "last axis must have 3 elements"),
    ("Conv", [(1, 2, 5)], {"weight": np.zeros((2, 3, 1)), "bias": np.zeros(2)}, "3 channels"),
    (
        "Conv",
        [(1, 3, 5)],
        {"weight": np.zeros((2, 3, 1)), "bias": np.zeros(1), "group": 1},
        r"bias must .* not \[1\]",
    ),
    ("Dense", [(1, 3)], {"weight": np.zeros((2, 3)), "bias": np.zeros((1, 2))}, r"bias .* \[2\], not \[1, 2\]"),
    ("MaxPool", [(1, 2, 3)], {"kernel": (5,), "strides": (1,), "pads": (0, 1), "dilations": (1,)}, "must fit into"),
    ("Reshape", [(2, 3)], {"shape": (5,)}, "must have as many elements"),
    ("Transpose", [(2, 3)], {"perm": (0, 2)}, "must be a permutation"),
    ("Concat", [(2, 3), (3, 3)], {"axis": 1}, "must be equal but for axis 1"),
    ("Slice", [(2, 3)], {"axes": (1,), "starts": (1,), "stops": (4,), "steps": (1,)}, "inside axis 1"),
    ("Pad", [(2, 3)], {"pads": (0, 3, 0, 0), "mode": "reflect", "value": 0.0}, "must be smaller"),
    ("Pad", [(2, 3)], {"pads": (0, 3), "mode": "edge", "value": 0.0}, "must be 4 numbers"),
    ("Add", [(2, 3), (4,)], {}, "broadcast"),
    ("Add", [(2, 3)] * 3, {}, "operands must be two, a constant among them, not 3"),
    ("Max", [(2, 3)] * 2, {"constant": np.ones(3)}, "operands must be two, a constant among them, not 3"),
    ("Softmax", [(2, 3)], {"axis": 2}, r"axes must be of the 2 that \[2, 3\] has, not \[2\]"),
    ("ReduceSum", [(2, 3)], {"axes": (0, 2)}, r"axes must be of the 2 that \[2, 3\] has, not \[0, 2\]"),
    ("Concat", [(2, 3), (2, 3)], {"axis": 2}, "axis must be one that"),
    ("GRU", [(5, 1, 4)], {"direction": "bidirectional"}, r"W must have the shape \[2, 9, 4\], not \[1, 9, 4\]"),
    ("GRU", [(5, 1, 4)], {"R": np.zeros((1, 9, 2))}, r"R must have the shape \[1, 9, 3\]"),
    ("LSTM", [(5, 1, 4)], {"activations": (("Tanh",),)}, "activations must be 3 for each of 1 directions"),
    ("MatMul", [(2, 3), (2, 3)], {}, r"\[..., I, K\] and \[..., K, J\], not \[2, 3\] and \[2, 3\]"),
    ("MatMul", [(3,), (3, 2)], {}, "factors must be"),
    ("MatMul", [(2, 3, 4), (3, 4, 2)], {}, "broadcast"),
    (
        "BatchNorm",
        [(1, 2, 3)],
        dict.fromkeys(("scale", "bias", "mean", "variance"), np.ones(3)),
        "must have 3 channels",
    ),
    (
        "BatchNorm",
        [(1, 3)],
        dict.fromkeys(("scale", "bias", "mean"), np.ones(3)) | {"variance": np.ones(2)},
        "must have 3 elements",
    ),
    ("Expand", [(2, 3)], {"shape": (2, 1)}, r"shape \[2, 1\] must be one that \[2, 3\] broadcasts to"),
]


@pytest.mark.parametrize(("op", "shapes", "attrs", "message"), WRONG)
def test_shapes_that_do_not_fit(op, shapes, attrs, message):
    node = Node(op, "node", tuple("abc"[: len(shapes)]), ("y",), EXAMPLES[op][0] | attrs)
    with pytest.raises(ValueError, match=message):
        OPS[op].shape(node, shapes)
