"""What stays of a FakeQuantize, what a tensor remembers instead, and that the results differ by rounding alone."""

import numpy as np
import pytest

from concord.golden.codes import CodeRange, Codes
from concord.graph import execute
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS
from concord.graph.passes import CANONICAL, Rewriting, fake_quantize


def codes(scale=0.5, zero=0, bits=8, signed=True, axis=None):
    return Codes(bits, scale, zero, CodeRange.of(signed), axis=axis)


INT8, UINT8, INT4, FINE = codes(), codes(0.25, 0, 8, False), codes(2.0, bits=4), codes(0.25)


def graph_of(*rows, outputs=("y",), shape=(1, 4)):
    """Rows ``op, inputs, output, attributes``; Codes in the place of the operator is a FakeQuantize."""
    nodes, shapes = [], {"x": shape}
    for k, (op, inputs, output, *attrs) in enumerate(rows):
        more = attrs[0] if attrs else {}
        if isinstance(op, Codes):
            op, more = "FakeQuantize", {"quantization": op}
        nodes.append(Node(op, f"n{k}", tuple(inputs), (output,), more))
        shapes[output] = OPS[op].shape(nodes[-1], [shapes[name] for name in inputs])[0]
    return Graph("net", nodes, ["x"], list(outputs), shapes)


def dense(x, y):
    return "Dense", [x], y, {"weight": np.eye(4), "bias": np.zeros(4)}


def stays(graph):
    """Codes of those that stay, in order; results must be those of the graph, but for codes that are remembered."""
    x = {"x": np.random.default_rng(3).normal(0, 3, (50, *graph.sample_shape("x")))}
    want = execute.run(graph, x)
    CANONICAL.run(Rewriting(graph))
    graph.check()
    assert not list(fake_quantize_problems(graph))
    rounded = max((one.scale for one in graph.quantization.values()), default=0.0)
    for name, value in execute.run(graph, x).items():
        assert np.abs(value - want[name]).max() <= 4 * rounded + 1e-9
    return [node.attrs["quantization"] for node in graph.nodes if node.op == "FakeQuantize"]


def fake_quantize_problems(graph):
    """Every FakeQuantize has its codes as those of its result."""
    for node in graph.nodes:
        if node.op == "FakeQuantize" and graph.quantization[node.outputs[0]] != node.attrs["quantization"]:
            yield node.name


def test_codes_of_eight_bits_are_remembered():
    graph = graph_of(dense("x", "a"), (INT8, ["a"], "b"), dense("b", "y"))
    assert stays(graph) == [] and {name: one.scale for name, one in graph.quantization.items()} == {"a": 0.5}


def test_several_readers_share_codes():
    graph = graph_of(
        dense("x", "a"), (INT8, ["a"], "b"), (codes(), ["a"], "c"), dense("b", "d"), ("Add", ["c", "d"], "y")
    )
    assert stays(graph) == [] and set(graph.quantization) == {"a"}


def test_coarse_codes_stay():
    graph = graph_of(dense("x", "a"), (INT4, ["a"], "b"), dense("b", "y"))
    assert stays(graph) == [INT4]


@pytest.mark.parametrize(
    "between",
    [
        (),
        ("Relu", {}),
        ("Reshape", {"shape": (2, 2)}),
        ("Transpose", {"perm": (1, 0)}),
        ("ReduceMax", {"axes": (0,), "keepdims": True}),
        ("Slice", {"axes": (1,), "starts": (0,), "stops": (3,), "steps": (1,)}),
    ],
)
@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (INT8, INT4, True),
        (INT4, INT8, True),
        (INT8, codes(0.1), True),  # cuts off four fifths
        (INT8, codes(8.0), True),  # has few codes where the others are
        (codes(8.0), INT8, True),
        (INT8, codes(0.51), False),
        (codes(0.505, 3), codes(0.5, 3), False),
    ],
)
def test_two_in_a_row(between, first, second, both):
    """In a row both stay if codes differ at all; with a data-moving operator between them where it matters."""
    rows = [dense("x", "a"), (first, ["a"], "b")]
    rows += [(between[0], ["b"], "c", between[1]), (second, ["c"], "d")] if between else [(second, ["b"], "d")]
    graph = graph_of(*rows, ("Relu", ["d"], "y"))
    together = not between or between[0] in ("Reshape", "Transpose")
    assert stays(graph) == ([first, second] if both or together else [])


def test_equal_ones_in_a_row_are_one():
    graph = graph_of(dense("x", "a"), (INT4, ["a"], "b"), (codes(2.0, bits=4), ["b"], "c"), dense("c", "y"))
    assert stays(graph) == [INT4]
    graph = graph_of(dense("x", "a"), (INT8, ["a"], "b"), (codes(), ["b"], "c"), dense("c", "y"))
    assert stays(graph) == [] and set(graph.quantization) == {"a"}


def test_readers_with_codes_of_their_own():
    rows = dense("x", "a"), (INT8, ["a"], "b"), (FINE, ["a"], "c"), dense("b", "d"), ("Add", ["c", "d"], "y")
    assert stays(graph_of(*rows)) == [FINE, INT8]
    # One that reads the tensor itself wants it wide, and codes are narrow.
    rows = dense("x", "a"), (INT8, ["a"], "b"), dense("b", "d"), ("Add", ["a", "d"], "y")
    assert stays(graph_of(*rows)) == []


def test_inputs():
    graph = graph_of((INT8, ["x"], "b"), dense("b", "y"))
    assert stays(graph) == [] and set(graph.quantization) == {"x"}
    rows = (INT8, ["x"], "b"), dense("b", "d"), ("Add", ["x", "d"], "y")
    assert stays(graph_of(*rows)) == [INT8]
    graph = graph_of(("Reshape", ["x"], "a", {"shape": (2, 2)}), (INT8, ["a"], "b"), ("Relu", ["b"], "y"))
    assert stays(graph) == [] and set(graph.quantization) == {"x"}


def test_codes_of_joined_tensors():
    """Those of the result are those of its parts, unless these have others."""
    parts = dense("x", "a"), dense("x", "b")
    last = "Relu", ["e"], "y"
    graph = graph_of(*parts, ("Concat", ["a", "b"], "c", {"axis": 1}), (INT8, ["c"], "e"), last)
    assert stays(graph) == [] and set(graph.quantization) == {"a", "b"}
    rows = (codes(0.49), ["a"], "d"), ("Concat", ["d", "b"], "c", {"axis": 1}), (INT8, ["c"], "e")
    graph = graph_of(*parts, *rows, last)
    assert stays(graph) == [] and set(graph.quantization) == {"a", "c"}


def test_outputs_are_codes_and_keep_their_names():
    graph = graph_of(dense("x", "a"), (INT8, ["a"], "y"), (codes(), ["a"], "z"), outputs=("y", "z", "a"))
    assert stays(graph) == [INT8, graph.nodes[-1].attrs["quantization"]] and graph.outputs == ["y", "z", "a"]
    graph = graph_of(dense("x", "a"), (INT8, ["a"], "b"), ("Transpose", ["b"], "y", {"perm": (1, 0)}))
    assert stays(graph) == [INT8]


def test_codes_per_channel_stay_where_they_are():
    rows = ("Reshape", ["x"], "a", {"shape": (2, 2)}), (codes([0.5, 0.25], [0, 0], axis=0), ["a"], "b")
    graph = graph_of(*rows, ("Relu", ["b"], "y"))
    fake_quantize.run(graph)
    assert set(graph.quantization) == {"a"} and graph.quantization["a"].axis == 0


def test_passes_leave_codes_between_two_operators():
    """Padding, biases and second Reshapes are not moved across codes."""
    padded = "Pad", ["a"], "b", {"pads": (0, 0, 1, 1, 0, 0, 1, 1), "mode": "constant", "value": 0.0}
    conv = {"weight": np.ones((1, 1, 3, 3)), "bias": np.zeros(1), "group": 1, "strides": (1, 1), "dilations": (1, 1),
            "pads": (0, 0, 0, 0)}  # fmt: skip
    for first, kept in (((INT8, ["x"], "a"), False), (("Relu", ["x"], "a"), True)):
        graph = graph_of(first, padded, (codes(), ["b"], "c"), ("Conv", ["c"], "y", conv), shape=(1, 1, 3, 3))
        stays(graph)
        assert ("Pad" in [node.op for node in graph.nodes]) == kept
    bias = {"constant": np.arange(4.0)}
    graph = graph_of(dense("x", "a"), (INT8, ["a"], "b"), ("Add", ["b"], "y", bias))
    stays(graph)
    assert [node.op for node in graph.nodes] == ["Dense", "Add"] and "a" in graph.quantization
