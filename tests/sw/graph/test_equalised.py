"""Powers of two that channels are divided by: results stay, and what cannot take them is left alone or refused."""

import numpy as np
import pytest

from concord.golden.codes import Codes
from concord.graph import execute
from concord.graph.channels import FIXED, channels
from concord.graph.equalised import ChannelScale, equalised, fronts, with_preparation
from concord.graph.ir import Node
from support.expressions import graph_of

RNG = np.random.default_rng(3)


def dense(name, x, y, inputs, outputs):
    attrs = {"weight": RNG.normal(size=(outputs, inputs)), "bias": RNG.normal(size=outputs)}
    return Node("Dense", name, (x,), (y,), attrs)


def conv(name, x, y, inputs, outputs, group=1, pads=(1, 1, 1, 1)):
    geometry = {"strides": (1, 1), "pads": pads, "dilations": (1, 1), "group": group}
    attrs = {"weight": RNG.normal(size=(outputs, inputs // group, 3, 3)), "bias": RNG.normal(size=outputs)}
    return Node("Conv", name, (x,), (y,), attrs | geometry)


def node(op, x, y, **attrs):
    return Node(op, f"{op}_{y}", tuple(x.split()), (y,), attrs)


def table(*front, features=6):
    """Two products, with nodes in front of them that end in the tensor t."""
    rest = [dense("a", "t" if front else "x", "h", features, 5), node("Relu", "h", "r"), dense("b", "r", "y", 5, 2)]
    return graph_of([*front, *rest], x=(1, features))


def image():
    """Everything that a factor passes, and a gate."""
    nodes = [
        conv("first", "x", "a", 3, 4), node("Clip", "a", "b", min=0.0, max=6.0),
        conv("depthwise", "b", "c", 4, 4, group=4), node("Mul", "c", "d", constant=np.asarray(0.125)),
        node("Max", "c d", "e"), conv("groups", "e", "f", 4, 4, group=2), node("Add", "b f", "g"),
        node("MaxPool", "g", "h", kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1)),
        node("ReduceMean", "h", "m", axes=(2, 3), keepdims=True),
        conv("squeeze", "m", "q", 4, 4), node("Function", "q", "s", functions=(("sigmoid", {}),)),
        node("Mul", "h s", "i"),
        node("Pad", "i", "j", pads=(0, 0, 1, 0, 0, 0, 1, 0), mode="constant", value=0.0),
        node("Sub", "j", "k", constant=RNG.normal(size=(1, 4, 1, 1)), reversed=True),
        node("Transpose", "k", "l", perm=(0, 2, 3, 1)), node("Reshape", "l", "n", shape=(1, 32)),
        node("Slice", "n", "o", axes=(1,), starts=(4,), stops=(32,), steps=(1,)), dense("last", "o", "y", 28, 2),
    ]  # fmt: skip
    return graph_of(nodes, x=(1, 3, 4, 4))


def recurrent():
    lstm = {
        "W": RNG.normal(size=(1, 8, 3)), "R": RNG.normal(size=(1, 8, 2)), "B": RNG.normal(size=(1, 16)), "P": None,
        "hidden_size": 2, "direction": "forward", "activations": (("Sigmoid", "Tanh", "Tanh"),),
        "activation_parameters": (({}, {}, {}),), "clip": None, "initial_h": None, "initial_c": None,
        "input_forget": False,
    }  # fmt: skip
    return graph_of([Node("LSTM", "lstm", ("x", "", ""), ("y", "", ""), lstm)], x=(5, 1, 3))


def random_scales(graph, limit=6):
    """A power for every channel that may have one."""
    found = channels(graph)
    powers = np.random.default_rng(5).integers(-limit, limit + 1, found.count)
    powers[FIXED] = 0
    return {name: ChannelScale.of(powers[ids]) for name, ids in found.sources.items()}


def both(graph, scales, samples=4):
    x = {name: RNG.normal(size=(samples, *graph.sample_shape(name))) for name in graph.inputs}
    made = with_preparation(equalised(graph, scales), scales)
    made.check()
    return execute.run(graph, x), execute.run(made, x)


@pytest.mark.parametrize("make", [table, image, recurrent])
def test_results_are_the_same_with_any_powers(make):
    graph = make()
    scales = random_scales(graph)
    assert sum(any(scale.exponents) for scale in scales.values()) >= {table: 2, image: 4, recurrent: 1}[make]
    want, got = both(graph, scales)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-12, atol=1e-12)


def test_nothing_but_powers_of_two_is_changed():
    """So bits of weights with an exponent per row are the same."""
    graph = table()
    made = equalised(graph, random_scales(graph))
    after = {one.name: one for one in made.nodes}
    for name in ("weight", "bias"):
        for before in graph.nodes:
            if name in before.attrs:
                assert (np.frexp(before.attrs[name])[0] == np.frexp(after[before.name].attrs[name])[0]).all()
    assert not np.array_equal(graph.nodes[0].attrs["weight"], after["a"].attrs["weight"])


def test_limits_per_channel_become_maxima_and_minima():
    graph = image()
    made = equalised(graph, random_scales(graph))
    assert not [one for one in made.nodes if one.op == "Clip"]
    uniform = {"a": ChannelScale((1, 1, 1, 1), (2,)), "c": ChannelScale((1, 1, 1, 1), (0,))}
    uniform["f"] = uniform["a"]
    (clip,) = [one for one in equalised(graph, uniform).nodes if one.op == "Clip"]
    assert clip.attrs == {"min": 0.0, "max": 1.5}


@pytest.mark.parametrize(
    "behind",
    [
        [node("Function", "h", "r", functions=(("tanh", {}),))],
        [node("Softmax", "h", "r", axis=1)],
        [node("Mul", "h h", "r")],
        [node("Normalise", "h", "r", axes=(1,), centred=True, epsilon=1e-5, scale=np.ones(5))],
        [node("Pad", "h", "p", pads=(0, 1, 0, 0), mode="constant", value=3.0),
         node("Slice", "p", "q", axes=(1,), starts=(0,), stops=(5,), steps=(1,)), node("Max", "q h", "r")],
    ],
    ids=["table", "softmax", "square", "normalisation", "padding"],
)  # fmt: skip
def test_what_is_not_homogeneous_has_the_factor_one(behind):
    graph = graph_of([dense("a", "x", "h", 6, 5), *behind, dense("b", "r", "y", 5, 2)], x=(1, 6))
    found = channels(graph)
    padding = behind[0].op == "Pad"
    assert (found.sources["h"] == FIXED).sum() >= (1 if padding else 5)
    assert (found.sources["x"] != FIXED).all() and (found.sources["y"] == FIXED).all()


def test_sums_have_one_factor():
    """Both operands and the result, element by element."""
    graph = graph_of([dense("a", "x", "p", 4, 3), dense("b", "x", "q", 4, 3), node("Add", "p q", "s"),
                      node("Relu", "s", "r"), dense("c", "r", "y", 3, 2)], x=(1, 4))  # fmt: skip
    found = channels(graph)
    assert np.array_equal(found.sources["p"], found.sources["q"]) and len(np.unique(found.sources["p"])) == 3
    one_sided = {"p": ChannelScale((1, 3), (1, 2, 3)), "q": ChannelScale((1, 3), (1, 2, 0))}
    with pytest.raises(ValueError, match="must be the same where elements meet"):
        equalised(graph, one_sided)


def test_codes_of_quantised_models_stay():
    graph = table()
    graph.quantization["h"] = Codes(8, 0.1)
    graph.weight_quantization["b"] = Codes(8, 0.1)
    found = channels(graph)
    assert (found.sources["h"] == FIXED).all() and (found.columns["b"] == FIXED).all()
    graph.quantization["x"] = graph.quantization.pop("h")
    assert fronts(graph, "x") is None and (channels(graph).sources["x"] == FIXED).all()


def test_a_fixed_matrix_is_no_place_for_factors():
    """Rows of an adjacency are alike, which the compiler makes use of."""
    matrix = dense("adjacency", "t", "m", 4, 4)
    matrix = matrix.with_attrs(weight=np.eye(4), bias=np.zeros(4), fixed=True)
    nodes = [dense("a", "x", "h", 3, 5), node("Transpose", "h", "t", perm=(1, 0)), matrix,
             node("Transpose", "m", "u", perm=(1, 0)), dense("b", "u", "y", 5, 2)]  # fmt: skip
    graph = graph_of(nodes, x=(4, 3))
    scales = random_scales(graph)
    made = equalised(graph, scales)
    assert np.array_equal(next(n for n in made.nodes if n.name == "adjacency").attrs["weight"], np.eye(4))
    assert len(set(scales["h"].exponents)) > 1
    want, got = both(graph, scales)
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-12)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"r": ChannelScale((1, 1), (1,))}, "products compute, not of 'r'"),
        ({"y": ChannelScale((1, 1), (1,))}, "must be the same where elements meet"),
    ],
)
def test_wrong_scales_are_refused(scales, message):
    with pytest.raises(ValueError, match=message):
        equalised(table(), scales)


MIDDLE, FACTOR = np.array([2000.0, -3, 0, 1, 50, 7]), np.array([1.0, 2, 4, -0.3, 0.1, 9])


@pytest.mark.parametrize(
    "front",
    [
        [node("Sub", "x", "c", constant=MIDDLE), node("Mul", "c", "t", constant=FACTOR)],
        [node("Add", "x", "c", constant=-MIDDLE[None]), node("Mul", "c", "t", constant=FACTOR)],
        [node("Mul", "x", "c", constant=FACTOR), node("Sub", "c", "t", constant=MIDDLE * FACTOR)],
        [node("Sub", "x", "c", constant=MIDDLE, reversed=True), node("Mul", "c", "t", constant=-FACTOR)],
        [node("Reshape", "x", "c", shape=(1, 2, 3)), node("Sub", "c", "d", constant=MIDDLE.reshape(2, 3)),
         node("Reshape", "d", "e", shape=(1, 6)), node("Mul", "e", "t", constant=FACTOR)],
    ],
    ids=["scaler", "sum", "factor first", "reversed", "views"],
)  # fmt: skip
def test_the_first_product_takes_over_what_is_in_front(front):
    graph = table(*front)
    (found,) = fronts(graph, "x")
    np.testing.assert_allclose(found.middle, MIDDLE, rtol=1e-12)
    np.testing.assert_allclose(found.factor, FACTOR)
    scales = {"x": ChannelScale.of(np.array([[0, 1, 2, 3, -1, 0]]), MIDDLE[None])}
    made = equalised(graph, scales)
    assert {one.op for one in made.nodes} <= {"Reshape", "Dense", "Relu"}
    want, got = both(graph, scales)
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-9)


def test_several_readers_take_over_their_own():
    nodes = [node("Sub", "x", "c", constant=MIDDLE), dense("a", "c", "p", 6, 3), dense("b", "x", "q", 6, 3),
             node("Add", "p q", "y")]  # fmt: skip
    graph = graph_of(nodes, x=(1, 6))
    assert len(fronts(graph, "x")) == 2
    want, got = both(graph, {"x": ChannelScale.of(np.arange(6)[None], MIDDLE[None])})
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-9)


def test_padding_needs_the_offset_that_the_network_has():
    """Zeros beside the image are zeros behind the constants."""
    mean, factor = np.array([0.5, 100, -3]).reshape(1, 3, 1, 1), np.array([[[2.0]], [[0.5]], [[4]]])
    nodes = [node("Sub", "x", "c", constant=mean), node("Mul", "c", "t", constant=factor),
             conv("first", "t", "y", 3, 4)]  # fmt: skip
    graph = graph_of(nodes, x=(1, 3, 4, 4))
    want, got = both(graph, {"x": ChannelScale.of(np.zeros((1, 3, 1, 1), int), mean)})
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="first makes up for"):
        equalised(graph, {"x": ChannelScale.of(np.zeros((1, 3, 1, 1), int), mean + 1)})


@pytest.mark.parametrize(
    "front",
    [
        [node("Function", "x", "t", functions=(("tanh", {}),))],
        [node("Mul", "x", "t", constant=np.array([0.0, 1, 1, 1, 1, 1]))],
        [node("Pad", "x", "c", pads=(0, 1, 0, 0), mode="constant", value=0.0),
         node("Slice", "c", "t", axes=(1,), starts=(0,), stops=(6,), steps=(1,))],
    ],
    ids=["table", "zero", "padding"],
)  # fmt: skip
def test_other_readers_take_nothing_over(front):
    graph = table(*front)
    assert fronts(graph, "x") is None
    with pytest.raises(ValueError, match="offsets must be of an input that products read, not of 'x'"):
        equalised(graph, {"x": ChannelScale.of(np.zeros((1, 6), int), np.ones((1, 6)))})


def test_what_the_host_does_is_undone():
    scale = ChannelScale.of(np.array([[1, -2, 3]]), np.array([[0.0, 1000, -1]]))
    x = RNG.normal(size=(5, 1, 3))
    np.testing.assert_allclose(scale.restore(scale.prepare(x)), x, rtol=1e-12)
    np.testing.assert_array_equal(scale.prepare(x), (x - [0, 1000, -1]) / [2, 0.25, 8])
    assert scale.text == "less -1 to 1000, divided by 2**-2 to 2**3"
    assert ChannelScale.of(np.full((1, 3, 2), 4)) == ChannelScale((1, 1, 1), (4,))
