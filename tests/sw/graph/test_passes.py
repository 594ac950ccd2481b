"""Each pass alone: what it does, what it leaves alone, and that results stay."""

import numpy as np
import pytest

from concord.graph.execute import run
from concord.graph.ir import Graph, Node, Quantization
from concord.graph.ops import OPS
from concord.graph.passes import dead, fold_affine, fold_pad, functions, noops, reshapes

RNG = np.random.default_rng(9)
INT8 = Quantization(np.asarray(0.1), np.asarray(0), 8, True)


def chain(shape, *steps, outputs=None):
    """A graph of nodes one after the other, each ``(op, attrs)``; tensors are x, t0, t1 ..."""
    nodes, shapes, last = [], {"x": shape}, "x"
    for k, (op, attrs) in enumerate(steps):
        nodes.append(Node(op, f"n{k}", (last,), (f"t{k}",), attrs))
        shapes[f"t{k}"] = OPS[op].shape(nodes[-1], [shapes[last]])[0]
        last = f"t{k}"
    return Graph("chain", nodes, ["x"], outputs or [last], shapes)


def rewritten(rewrite, graph):
    """Operators behind the pass; outputs must be the same."""
    x = RNG.standard_normal((3, *graph.shapes["x"]))
    before, outputs = run(graph, {"x": x}), list(graph.outputs)
    rewrite.run(graph)
    graph.check()
    after = run(graph, {"x": x})
    assert graph.outputs == outputs
    assert all(np.allclose(after[name], before[name], rtol=1e-12, atol=1e-12) for name in outputs)
    return [node.op for node in graph.nodes]


def dense(k=3, o=4):
    return "Dense", {"weight": RNG.standard_normal((o, k)), "bias": RNG.standard_normal(o)}


def conv(c=3, o=4, k=3, pads=(1, 0, 1, 2)):
    attrs = {"strides": (1, 2), "pads": pads, "dilations": (1, 1), "group": 1}
    return "Conv", {"weight": RNG.standard_normal((o, c, k, k)), "bias": RNG.standard_normal(o)} | attrs


def constant(*shape):
    return {"constant": RNG.standard_normal(shape)}


@pytest.mark.parametrize(("op", "attrs"), [("Add", {}), ("Sub", {}), ("Sub", {"reversed": True}), ("Mul", {})])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (1, 1)])
def test_constants_join_a_product(op, attrs, shape):
    assert rewritten(fold_affine, chain((2, 3), dense(), (op, attrs | constant(*shape)))) == ["Dense"]


@pytest.mark.parametrize(("op", "attrs"), [("Add", {}), ("Sub", {"reversed": True}), ("Mul", {})])
@pytest.mark.parametrize("shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1)])
def test_constants_join_a_convolution(op, attrs, shape):
    assert rewritten(fold_affine, chain((1, 3, 5, 6), conv(), (op, attrs | constant(*shape)))) == ["Conv"]


def test_constants_join_along_the_last_axis():
    """Not along the second one, whatever its length."""
    assert rewritten(fold_affine, chain((1, 4, 3), dense(), ("Mul", constant(4)))) == ["Dense"]
    assert rewritten(fold_affine, chain((1, 5, 3), dense(), ("Add", constant(1, 1, 4)))) == ["Dense"]
    assert rewritten(fold_affine, chain((1, 4, 3), dense(), ("Mul", constant(4, 1)))) == ["Dense", "Mul"]


def test_several_constants_join():
    steps = [
        dense(),
        ("Mul", constant(4)),
        ("Add", constant(4)),
        ("Mul", constant(1)),
        ("Relu", {}),
        ("Add", constant(4)),
    ]
    assert rewritten(fold_affine, chain((1, 3), *steps)) == ["Dense", "Relu", "Add"]


@pytest.mark.parametrize("shape", [(2, 1), (2, 4), (1, 1, 4), (5, 1, 1)])
def test_constants_that_are_not_per_channel_stay(shape):
    assert rewritten(fold_affine, chain((2, 3), dense(), ("Add", constant(*shape)))) == ["Dense", "Add"]


def test_a_convolution_differs_along_its_channels_only():
    graph = chain((1, 4, 4, 4), conv(4, 4, 1, (0, 0, 0, 2)), ("Add", constant(1, 1, 3)))
    assert rewritten(fold_affine, graph) == ["Conv", "Add"]


def test_results_that_others_read_stay():
    steps = [dense(), ("Mul", constant(4))]
    assert rewritten(fold_affine, chain((1, 3), *steps, outputs=["t1", "t0"])) == ["Dense", "Mul"]
    graph = chain((1, 3), *steps, ("Add", {"constant": np.ones(4)}))
    graph.nodes[-1] = Node("Add", "n2", ("t1", "t0"), ("t2",))
    assert rewritten(fold_affine, graph) == ["Dense", "Mul", "Add"]


def test_quantised_weights_stay():
    graph = chain((1, 3), dense(), ("Add", constant(4)), ("Mul", constant(4)))
    graph.weight_quantization["n0"] = INT8
    assert rewritten(fold_affine, graph) == ["Dense", "Mul"]
    graph = chain((1, 3), dense(), ("Sub", constant(4) | {"reversed": True}))
    graph.weight_quantization["n0"] = INT8
    assert rewritten(fold_affine, graph) == ["Dense", "Sub"]


NOTHING = [
    ("Reshape", {"shape": (2, 3)}),
    ("Transpose", {"perm": (0, 1)}),
    ("Slice", {"axes": (1,), "starts": (0,), "stops": (3,), "steps": (1,)}),
    ("Concat", {"axis": 0}),
    ("Pad", {"pads": (0, 0, 0, 0), "mode": "edge", "value": 0.0}),
]


@pytest.mark.parametrize("nothing", NOTHING)
def test_nothing_is_removed(nothing):
    for steps in ([nothing, ("Relu", {})], [("Relu", {}), nothing], [("Relu", {}), nothing, nothing]):
        assert rewritten(noops, chain((2, 3), *steps)) == ["Relu"]
    assert rewritten(noops, chain((2, 3), nothing)) == [nothing[0]], "an output is not the input"
    graph = chain((2, 3), ("Relu", {}), nothing, outputs=["t0", "t1"])
    assert rewritten(noops, graph) == ["Relu", nothing[0]], "both names are outputs"


def test_something_stays():
    mirror = ("Slice", {"axes": (1,), "starts": (2,), "stops": (-1,), "steps": (-1,)})
    steps = [mirror, ("Reshape", {"shape": (3, 2)}), ("Transpose", {"perm": (1, 0)})]
    assert rewritten(noops, chain((2, 3), *steps)) == ["Slice", "Reshape", "Transpose"]


def test_quantization_moves_to_the_tensor_that_stays():
    graph = chain((2, 3), ("Relu", {}), NOTHING[0], ("Relu", {}))
    graph.quantization["t1"] = INT8
    rewritten(noops, graph)
    assert graph.quantization == {"t0": INT8}
    graph = chain((2, 3), ("Relu", {}), NOTHING[0])
    graph.quantization["t0"] = INT8
    rewritten(noops, graph)
    assert graph.quantization == {"t1": INT8} and graph.nodes[0].outputs == ("t1",)


def test_transpositions_of_short_axes_are_reshapes():
    assert rewritten(reshapes, chain((1, 5, 3), ("Transpose", {"perm": (1, 0, 2)}))) == ["Reshape"]
    assert rewritten(reshapes, chain((2, 5, 3), ("Transpose", {"perm": (1, 0, 2)}))) == ["Transpose"]


def test_chains_of_reshapes_are_one():
    steps = [("Reshape", {"shape": (6,)}), ("Reshape", {"shape": (3, 2)}), ("Reshape", {"shape": (1, 6)})]
    assert rewritten(reshapes, chain((2, 3), *steps)) == ["Reshape"]
    assert rewritten(reshapes, chain((2, 3), *steps, outputs=["t1", "t2"])) == ["Reshape", "Reshape"]


def test_chains_of_transpositions_are_one():
    steps = [("Transpose", {"perm": (1, 2, 0)})] * 2
    graph = chain((2, 3, 4), *steps)
    assert rewritten(reshapes, graph) == ["Transpose"]
    assert graph.nodes[0].attrs["perm"] == (2, 0, 1)
    assert rewritten(noops, chain((2, 3, 4), ("Relu", {}), *steps[:1])) == ["Relu", "Transpose"]


def test_functions_that_follow_each_other_are_one():
    steps = [("Function", {"functions": (("sigmoid", {}),)}), ("Function", {"functions": (("log", {}), ("sqrt", {}))})]
    graph = chain((2, 3), *steps)
    assert rewritten(functions, graph) == ["Function"]
    assert [name for name, _ in graph.nodes[0].attrs["functions"]] == ["sigmoid", "log", "sqrt"]
    assert rewritten(functions, chain((2, 3), *steps, *steps)) == ["Function"]
    assert rewritten(functions, chain((2, 3), *steps, outputs=["t0", "t1"])) == ["Function", "Function"]
    alone = {"functions": (("tanh", {}),)}
    assert rewritten(functions, chain((2, 3), steps[0], ("Function", alone))) == ["Function", "Function"]
    gate = [("Function", {"functions": (("softplus", {}),)}), ("Function", alone)]
    assert rewritten(functions, chain((2, 3), *gate)) == ["Function"]


def test_one_over_a_root_is_a_function_by_itself():
    """That one has several tables, and no entry at zero."""
    root, one_over = (("Function", {"functions": ((name, {}),)}) for name in ("sqrt", "reciprocal"))
    graph = chain((2, 3), root, one_over)
    assert rewritten(functions, graph) == ["Function"]
    assert graph.nodes[0].attrs["functions"] == (("rsqrt", {}),)


def test_padding_joins_a_convolution():
    pad = {"pads": (0, 0, 1, 2, 0, 0, 0, 1), "mode": "constant", "value": 0.0}
    graph = chain((1, 3, 5, 6), ("Pad", pad), conv())
    assert rewritten(fold_pad, graph) == ["Conv"]
    assert graph.nodes[0].attrs["pads"] == (2, 2, 1, 3)
    for other in ({"value": 1.0}, {"mode": "edge"}, {"pads": (0, 1, 1, 2, 0, 0, 0, 1)}):
        channels = 3 + sum((pad | other)["pads"][1::4])
        assert rewritten(fold_pad, chain((1, 3, 5, 6), ("Pad", pad | other), conv(channels))) == ["Pad", "Conv"]
    assert rewritten(fold_pad, chain((1, 3, 5, 6), ("Pad", pad), ("Relu", {}))) == ["Pad", "Relu"]
    assert rewritten(fold_pad, chain((1, 3, 5, 6), ("Pad", pad), conv(), outputs=["t0", "t1"])) == ["Pad", "Conv"]


def test_what_nothing_reads_goes():
    graph = chain((2, 3), ("Relu", {}), ("Relu", {}), outputs=["t0"])
    graph.quantization["t1"] = INT8
    assert rewritten(dead, graph) == ["Relu"]
    assert set(graph.shapes) == {"x", "t0"} and not graph.quantization
