"""Sums that normalisations alone read have no mean, and constants that follow each other are one."""

import numpy as np
import pytest

from concord.golden.codes import Codes
from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS
from concord.graph.passes import centring, offsets

INT8 = Codes(8, 0.1)


def normalise(name, x, y, axes=(2,), centred=True, width=6):
    scale = np.linspace(0.5, 1.5, width)
    return Node("Normalise", name, (x,), (y,), {"axes": axes, "centred": centred, "epsilon": 1e-5, "scale": scale})


def dense(rng, name, x, y, inputs, outputs):
    return Node("Dense", name, (x,), (y,), {
        "weight": rng.normal(1, 1, (outputs, inputs)), "bias": rng.normal(2, 1, outputs)
    })  # fmt: skip


def graph_of(nodes, inputs, outputs):
    shapes = dict(inputs)
    for node in nodes:
        shapes |= zip(node.outputs, OPS[node.op].shape(node, [shapes[name] for name in node.inputs]), strict=True)
    return Graph("test", list(nodes), list(inputs), list(outputs), shapes)


def residual(rng):
    """Two layers added to a sum, as in a transformer that normalises in front of its layers."""
    nodes = [
        dense(rng, "embed", "x", "e", 3, 6),
        Node("Add", "positions", ("e",), ("s0",), {"constant": rng.normal(1, 1, (5, 6))}),
        normalise("norm0", "s0", "n0"),
        dense(rng, "first", "n0", "f", 6, 6),
        Node("Add", "sum1", ("s0", "f"), ("s1",)),
        normalise("norm1", "s1", "n1"),
        dense(rng, "second", "n1", "g", 6, 6),
        Node("Sub", "sum2", ("s1", "g"), ("s2",)),
        normalise("norm2", "s2", "n2"),
    ]
    return graph_of(nodes, {"x": (1, 5, 3)}, ["n2"])


def check(graph, rewrite=centring):
    """The rewritten graph, which gives the same."""
    rng = np.random.default_rng(3)
    x = {name: np.floor(rng.uniform(0, 4, (3, *graph.shapes[name]))) for name in graph.inputs}
    before = run(graph, x)
    after = graph.copy()
    rewrite.run(after)
    after.check()
    for name, want in run(after, x).items():
        np.testing.assert_allclose(want, before[name], rtol=1e-9, atol=1e-9)
    return after


def centred(graph):
    """Names of normalisations that take a mean off."""
    return [node.name for node in graph.nodes if node.op == "Normalise" and node.attrs["centred"]]


def means(graph, *tensors, axis=-1):
    """The largest mean of tensors along an axis, of a few inputs."""
    rng = np.random.default_rng(4)
    seen = Graph(graph.name, graph.nodes, graph.inputs, list(tensors), graph.shapes)
    x = {name: np.floor(rng.uniform(0, 4, (3, *graph.shapes[name]))) for name in graph.inputs}
    return max(np.abs(values.mean(axis=axis)).max() for values in run(seen, x).values())


def test_a_residual_sum():
    graph = residual(np.random.default_rng(1))
    after = check(graph)
    assert centred(graph) == ["norm0", "norm1", "norm2"] and centred(after) == []
    assert means(graph, "s0", "s1", "s2") > 1 and means(after, "s0", "s1", "s2", "e", "f", "g") < 1e-12


def changed(graph, name, **fields):
    graph.nodes = [node.replace(**fields) if node.name == name else node for node in graph.nodes]
    return graph


def test_what_somebody_else_sees_keeps_its_mean():
    rng = np.random.default_rng(2)
    assert centred(check(residual(rng))) == []
    for tensor in ("e", "f", "s0", "s2"):
        graph = residual(rng)
        graph.outputs.append(tensor)
        assert centred(check(graph)) == ["norm0", "norm1", "norm2"]
        graph = residual(rng)
        graph.nodes.append(Node("Relu", "relu", (tensor,), ("r",), {}))
        graph.shapes["r"] = graph.shapes[tensor]
        graph.outputs.append("r")
        assert centred(check(graph)) == ["norm0", "norm1", "norm2"]
        graph = residual(rng)
        graph.quantization[tensor] = INT8
        assert centred(check(graph)) == ["norm0", "norm1", "norm2"]
    graph = residual(rng)
    graph.weight_quantization["second"] = INT8
    assert centred(check(graph)) == ["norm0", "norm1", "norm2"]


def test_normalisations_of_other_kinds_keep_the_mean():
    rng = np.random.default_rng(3)
    for other in (normalise("norm1", "s1", "n1", axes=(1, 2), width=1), normalise("norm1", "s1", "n1", centred=False)):
        graph = residual(rng)
        graph.nodes = [other if node.name == "norm1" else node for node in graph.nodes]
        assert "norm0" in centred(check(graph))
    graph = residual(rng)
    graph = changed(graph, "first", attrs=graph.nodes[3].attrs | {"fixed": True})
    assert len(centred(check(graph))) == 3


def test_inputs_and_what_others_compute_keep_the_mean():
    """A sum with an input, with a function or with an operand of one channel has a mean that nothing can take off."""
    rng = np.random.default_rng(4)
    function, single = Node("Relu", "relu", ("e",), ("o",), {}), dense(rng, "single", "x", "o", 3, 1)
    for extra, shape in (([], (1, 5, 6)), ([single], None), ([function], None)):
        nodes = [
            dense(rng, "embed", "x", "e", 3, 6), *extra, Node("Add", "sum", ("e", "o"), ("s",)),
            normalise("norm", "s", "n"),
        ]  # fmt: skip
        inputs = {"x": (1, 5, 3)} | ({"o": shape} if shape else {})
        assert centred(check(graph_of(nodes, inputs, ["n"]))) == ["norm"]


FACTORS = [((), []), ((5, 1), []), ((1, 1, 1), []), ((6,), ["norm"]), ((5, 6), ["norm"])]


@pytest.mark.parametrize("shape, left", FACTORS)
def test_factors_must_be_those_of_all_channels(shape, left):
    rng = np.random.default_rng(5)
    nodes = [
        dense(rng, "embed", "x", "e", 3, 6),
        Node("Mul", "factor", ("e",), ("s",), {"constant": rng.normal(1, 1, shape)}),
        normalise("norm", "s", "n"),
    ]  # fmt: skip
    assert centred(check(graph_of(nodes, {"x": (1, 5, 3)}, ["n"]))) == left


@pytest.mark.parametrize("op, attrs", [("Add", {}), ("Sub", {}), ("Sub", {"reversed": True})])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (5, 1), (5, 6), (1, 5, 6)])
def test_constants(op, attrs, shape):
    rng = np.random.default_rng(6)
    nodes = [
        dense(rng, "embed", "x", "e", 3, 6),
        Node(op, "sum", ("e",), ("s",), attrs | {"constant": rng.normal(2, 1, shape)}),
        normalise("norm", "s", "n"),
    ]  # fmt: skip
    after = check(graph_of(nodes, {"x": (1, 5, 3)}, ["n"]))
    assert centred(after) == [] and means(after, "s") < 1e-12


MOVES = {
    "transposed": ([("Transpose", {"perm": (0, 2, 1)})], (1,)),
    "reshaped": ([("Reshape", {"shape": (1, 1, 5, 6)})], (3,)),
    "both": ([("Reshape", {"shape": (5, 6, 1)}), ("Transpose", {"perm": (1, 0, 2)})], (0,)),
    "padded": ([("Pad", {"pads": (0, 1, 0, 0, 0, 0), "mode": "constant", "value": 0.0})], (2,)),
    "taken": ([("Slice", {"axes": (1,), "starts": (2,), "stops": (3,), "steps": (1,)})], (2,)),
}
BROKEN = {
    "split": ([("Reshape", {"shape": (1, 5, 2, 3)})], (3,)),
    "joined": ([("Reshape", {"shape": (1, 30, 1)})], (1,)),
    "across": ([("Reshape", {"shape": (1, 6, 5)})], (1,)),
    "padded with ones": ([("Pad", {"pads": (0, 1, 0, 0, 0, 0), "mode": "constant", "value": 1.0})], (2,)),
    "padded along": ([("Pad", {"pads": (0, 0, 1, 0, 0, 0), "mode": "constant", "value": 0.0})], (2,)),
    "taken apart": ([("Slice", {"axes": (2,), "starts": (2,), "stops": (5,), "steps": (1,)})], (2,)),
    "of positions": ([], (1,)),
    "of all": ([], (1, 2)),
}


def moved(steps, axes):
    rng, last = np.random.default_rng(7), "e"
    nodes = [dense(rng, "embed", "x", "e", 3, 6)]
    for k, (op, attrs) in enumerate(steps):
        nodes.append(Node(op, f"move{k}", (last,), (f"m{k}",), attrs))
        last = f"m{k}"
    attrs = {"axes": axes, "centred": True, "epsilon": 1e-5, "scale": np.ones(())}
    return graph_of([*nodes, Node("Normalise", "norm", (last,), ("n",), attrs)], {"x": (1, 5, 3)}, ["n"]), last, axes


@pytest.mark.parametrize("case", MOVES)
def test_what_is_moved(case):
    graph, last, (axis,) = moved(*MOVES[case])
    after = check(graph)
    assert centred(after) == [] and means(after, last, axis=axis + 1) < 1e-12


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_moved_apart(case):
    assert centred(check(moved(*BROKEN[case])[0])) == ["norm"]


def test_a_token_beside_others():
    """Both parts of a Concat have no mean; along the channels there is none of a part."""
    rng = np.random.default_rng(8)
    for axis, left in ((1, []), (2, ["norm"])):
        nodes = [
            dense(rng, "embed", "x", "e", 3, 6), dense(rng, "other", "x", "o", 3, 6),
            Node("Concat", "join", ("e", "o"), ("s",), {"axis": axis}),
            normalise("norm", "s", "n", width=6 if axis == 1 else 12),
        ]  # fmt: skip
        assert centred(check(graph_of(nodes, {"x": (1, 5, 3)}, ["n"]))) == left


@pytest.mark.parametrize("group, left", [(1, []), (3, ["norm"])])
def test_channels_of_a_convolution(group, left):
    rng = np.random.default_rng(9)
    attrs = {"strides": (1, 2), "pads": (1, 0, 1, 2), "dilations": (1, 1), "group": group}
    weights = {"weight": rng.normal(1, 1, (6, 3 // group, 3, 3)), "bias": rng.normal(1, 1, 6)}
    norm = Node("Normalise", "norm", ("c",), ("n",), {
        "axes": (1,), "centred": True, "epsilon": 1e-5, "scale": np.ones(())
    })  # fmt: skip
    graph = graph_of([Node("Conv", "conv", ("x",), ("c",), attrs | weights), norm], {"x": (1, 3, 5, 6)}, ["n"])
    after = check(graph)
    assert centred(after) == left
    assert left or means(after, "c", axis=2) < 1e-12


@pytest.mark.parametrize("axis, shape, left", [(0, (4, 6), []), (1, (6, 4), ["norm"]), (1, (2, 4, 6), [])])
def test_a_table_of_embeddings(axis, shape, left):
    """Rows of a table have no mean, as long as a row is what the normalisation is over."""
    rng = np.random.default_rng(10)
    lookup = Node("Lookup", "table", ("x",), ("e",), {"table": rng.normal(2, 1, shape), "axis": axis})
    rank = len(shape)
    norm = Node("Normalise", "norm", ("e",), ("n",), {
        "axes": (rank - 1 + (1 if axis == 0 or rank == 3 else 0),) if left == [] else (1,),
        "centred": True, "epsilon": 1e-5, "scale": np.ones(()),
    })  # fmt: skip
    after = check(graph_of([lookup, norm], {"x": (1, 3)}, ["n"]))
    assert centred(after) == left
    assert left or means(after, "e") < 1e-12


def constants(*shapes, outputs=("t1",)):
    rng = np.random.default_rng(11)
    nodes = [
        Node("Add", f"n{k}", ("x" if k == 0 else f"t{k - 1}",), (f"t{k}",), {"constant": rng.normal(0, 1, shape)})
        for k, shape in enumerate(shapes)
    ]
    return graph_of(nodes, {"x": (2, 3)}, list(outputs))


@pytest.mark.parametrize("shapes", [((), ()), ((3,), (2, 1)), ((2, 3), (1,)), ((4, 2, 3), (2, 3))])
def test_constants_that_follow_each_other(shapes):
    assert [node.op for node in check(constants(*shapes), offsets).nodes] == ["Add"]


def test_several_constants_that_follow_each_other():
    assert len(check(constants((3,), (2, 1), (), outputs=["t2"]), offsets).nodes) == 1


def test_constants_between_which_somebody_reads():
    graph = constants((3,), (2, 1), outputs=["t1", "t0"])
    assert len(check(graph, offsets).nodes) == 2
    graph = constants((3,), (2, 1))
    graph.nodes.append(Node("Relu", "r", ("t0",), ("y",), {}))
    graph.shapes["y"] = graph.shapes["t0"]
    graph.outputs.append("y")
    assert len(check(graph, offsets).nodes) == 3
    graph = constants((3,), (2, 1))
    graph.quantization["t0"] = INT8
    assert len(check(graph, offsets).nodes) == 2
    graph = constants((3,), (2, 1))
    graph.nodes[1] = Node("Add", "n1", ("t0", "x"), ("t1",))
    assert len(check(graph, offsets).nodes) == 2
