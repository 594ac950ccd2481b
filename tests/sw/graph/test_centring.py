"""Sums that normalisations alone read have no mean, and constants that follow each other are one."""

from functools import partial

import numpy as np
import pytest

from concord.golden.codes import Codes
from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.passes import centring, offsets
from support.expressions import concat, network, tensor

SUMS = ("s0.out", "s1.out", "s2.out")
INT8 = Codes(8, 0.1)


def normalise(x, axes=(2,), centred=True, width=6, name="norm"):
    scale = np.linspace(0.5, 1.5, width)
    return x.then("Normalise", axes=axes, centred=centred, epsilon=1e-5, scale=scale, name=name)


def dense(rng, x, outputs, name=None):
    return x.dense(rng.normal(1, 1, (outputs, x.shape[-1])), rng.normal(2, 1, outputs), name)


def embedded(rng, name="embed"):
    return dense(rng, tensor(1, 5, 3), 6, name)


def residual(rng, normal=normalise):
    """Two layers added to a sum, as in a transformer that normalises in front of its layers."""
    e = embedded(rng)
    s0 = e.combined("Add", rng.normal(1, 1, (5, 6)), name="s0")
    f = dense(rng, normalise(s0, name="norm0"), 6, "first")
    s1 = s0.combined("Add", f, name="s1")
    g = dense(rng, normal(s1, name="norm1"), 6, "second")
    return network(normalise(s1.combined("Sub", g, name="s2"), name="norm2"))


def check(graph, rewrite=centring):
    """The rewritten graph, which gives the same."""
    rng = np.random.default_rng(3)
    x = {name: np.floor(rng.uniform(0, 4, (3, *graph.sample_shape(name)))) for name in graph.inputs}
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
    assert means(graph, *SUMS) > 1 and means(after, *SUMS, "embed.out", "first.out", "second.out") < 1e-12


def test_what_somebody_else_sees_keeps_its_mean():
    rng, every = np.random.default_rng(2), ["norm0", "norm1", "norm2"]
    assert centred(check(residual(rng))) == []
    for name in ("embed.out", "first.out", "s0.out", "s2.out"):
        graph = residual(rng)
        graph.outputs.append(name)
        assert centred(check(graph)) == every
        graph = residual(rng)
        graph.nodes.append(Node("Relu", "relu", (name,), ("r",), {}))
        graph.shapes["r"] = graph.shapes[name]
        graph.outputs.append("r")
        assert centred(check(graph)) == every
        graph = residual(rng)
        graph.quantization[name] = INT8
        assert centred(check(graph)) == every
    graph = residual(rng)
    graph.weight_quantization["second"] = INT8
    assert centred(check(graph)) == every


@pytest.mark.parametrize("other", [{"axes": (1, 2), "width": 1}, {"centred": False}])
def test_normalisations_of_other_kinds_keep_the_mean(other):
    assert "norm0" in centred(check(residual(np.random.default_rng(3), partial(normalise, **other))))


def test_fixed_weights_keep_the_mean():
    graph = residual(np.random.default_rng(3))
    graph.nodes = [node.with_attrs(fixed=True) if node.name == "first" else node for node in graph.nodes]
    assert len(centred(check(graph))) == 3


def test_inputs_and_what_others_compute_keep_the_mean():
    """A sum with an input, with a function or with an operand of one channel has a mean that nothing can take off."""
    rng, x = np.random.default_rng(4), tensor(1, 5, 3)
    e = dense(rng, x, 6)
    for other in (tensor(1, 5, 6, name="o"), dense(rng, x, 1), e.relu()):
        assert centred(check(network(normalise(e + other)))) == ["norm"]


FACTORS = [((), []), ((5, 1), []), ((1, 1, 1), []), ((6,), ["norm"]), ((5, 6), ["norm"])]


@pytest.mark.parametrize("shape, left", FACTORS)
def test_factors_must_be_those_of_all_channels(shape, left):
    rng = np.random.default_rng(5)
    assert centred(check(network(normalise(embedded(rng) * rng.normal(1, 1, shape))))) == left


@pytest.mark.parametrize("op, attrs", [("Add", {}), ("Sub", {}), ("Sub", {"reversed": True})])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (5, 1), (5, 6), (1, 5, 6)])
def test_constants(op, attrs, shape):
    rng = np.random.default_rng(6)
    s = embedded(rng).with_constant(op, rng.normal(2, 1, shape), name="s", **attrs)
    after = check(network(normalise(s)))
    assert centred(after) == [] and means(after, "s.out") < 1e-12


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
    last = embedded(np.random.default_rng(7), "last" if not steps else None)
    for k, (op, attrs) in enumerate(steps):
        last = last.then(op, name="last" if k == len(steps) - 1 else None, **attrs)
    normal = last.then("Normalise", axes=axes, centred=True, epsilon=1e-5, scale=np.ones(()), name="norm")
    return network(normal), "last.out", axes


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
    rng, x = np.random.default_rng(8), tensor(1, 5, 3)
    for axis, left in ((1, []), (2, ["norm"])):
        both = concat(axis, dense(rng, x, 6), dense(rng, x, 6))
        assert centred(check(network(normalise(both, width=6 if axis == 1 else 12)))) == left


@pytest.mark.parametrize("group, left", [(1, []), (3, ["norm"])])
def test_channels_of_a_convolution(group, left):
    rng = np.random.default_rng(9)
    weight, bias = rng.normal(1, 1, (6, 3 // group, 3, 3)), rng.normal(1, 1, 6)
    c = tensor(1, 3, 5, 6).conv(weight, bias, strides=(1, 2), pads=(1, 0, 1, 2), group=group, name="c")
    graph = network(normalise(c, (1,), width=1))
    after = check(graph)
    assert centred(after) == left
    assert left or means(after, "c.out", axis=2) < 1e-12


@pytest.mark.parametrize("axis, shape, left", [(0, (4, 6), []), (1, (6, 4), ["norm"]), (1, (2, 4, 6), [])])
def test_a_table_of_embeddings(axis, shape, left):
    """Rows of a table have no mean, as long as a row is what the normalisation is over."""
    rng = np.random.default_rng(10)
    e = tensor(1, 3).then("Lookup", table=rng.normal(2, 1, shape), axis=axis, name="e")
    rank = len(shape)
    axes = (rank - 1 + (1 if axis == 0 or rank == 3 else 0),) if left == [] else (1,)
    after = check(network(normalise(e, axes, width=1)))
    assert centred(after) == left
    assert left or means(after, "e.out") < 1e-12


def constants(*shapes):
    """Sums with constants, one behind the other."""
    rng, sums = np.random.default_rng(11), [tensor(2, 3)]
    for shape in shapes:
        sums.append(sums[-1] + rng.normal(0, 1, shape))
    return sums[1:]


@pytest.mark.parametrize("shapes", [((), ()), ((3,), (2, 1)), ((2, 3), (1,)), ((4, 2, 3), (2, 3))])
def test_constants_that_follow_each_other(shapes):
    assert [node.op for node in check(network(constants(*shapes)[-1]), offsets).nodes] == ["Add"]


def test_several_constants_that_follow_each_other():
    assert len(check(network(constants((3,), (2, 1), ())[-1]), offsets).nodes) == 1


def test_constants_between_which_somebody_reads():
    first, last = constants((3,), (2, 1))
    assert len(check(network(t1=last, t0=first), offsets).nodes) == 2
    assert len(check(network(t1=last, y=first.relu()), offsets).nodes) == 3
    graph = network(last)
    graph.quantization["add0.out"] = INT8
    assert len(check(graph, offsets).nodes) == 2
    assert len(check(network(first + tensor(2, 3, name="z")), offsets).nodes) == 2
