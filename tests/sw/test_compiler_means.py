"""Biases that take over what the rounding of weights changes in the mean."""

import numpy as np
import pytest

from compiled_nets import graph_of
from concord.compiler.formats import Calibration, choose_formats, product_means
from concord.compiler.model import compile_graph
from concord.compiler.tensor_formats import Formats
from concord.graph import execute
from concord.graph.ir import Node
from concord.packing import rounded_depthwise, rounded_matrix
from concord.spec.presets import TINY


def conv(name, x, y, channels, outputs, group=1, kernel=(2, 2)):
    rng = np.random.default_rng(9)
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": group}
    weight = rng.normal(0, 0.5, (outputs, channels // group, *kernel))
    return Node("Conv", name, (x,), (y,), {"weight": weight, "bias": rng.normal(0, 0.2, outputs), **attrs})


def dense(bias=0.1):
    rng = np.random.default_rng(10)
    attrs = {"weight": rng.normal(0, 0.5, (6, 9)), "bias": bias * np.arange(1, 7)}
    return graph_of([Node("Dense", "last", ("x",), ("y",), attrs)], x=(1, 9))


def unfolded():
    return graph_of([conv("last", "x", "y", 2, 6)], x=(1, 2, 3, 3))


def behind(group, outputs):
    """A convolution that does not read the input of the network."""
    relu = Node("Relu", "relu", ("x",), ("a",))
    return lambda: graph_of([relu, conv("last", "a", "y", 6, outputs, group)], x=(1, 6, 3, 3))


def steps():
    """A product at every step of a sequence whose channels are permuted and sliced apart behind it."""
    rng = np.random.default_rng(11)
    attrs = {"weight": rng.normal(0, 0.5, (6, 5)), "bias": rng.normal(0, 0.3, 6)}
    cut = {"axes": (2,), "steps": (1,)}
    return graph_of(
        [
            Node("Transpose", "turn", ("x",), ("t",), {"perm": (0, 2, 1)}),
            Node("Dense", "last", ("t",), ("d",), attrs),
            Node("Slice", "low", ("d",), ("l",), {"starts": (0,), "stops": (3,), **cut}),
            Node("Slice", "high", ("d",), ("h",), {"starts": (3,), "stops": (6,), **cut}),
            Node("Sub", "sum", ("l", "h"), ("y",)),
        ],
        x=(1, 5, 4),
    )


def twice():
    """A product of which every element is two inputs."""
    rng = np.random.default_rng(13)
    attrs = {"weight": rng.normal(0, 0.5, (6, 10)), "bias": rng.normal(0, 0.3, 6)}
    join = Node("Concat", "join", ("x", "x"), ("xx",), {"axis": 1})
    return graph_of([join, Node("Dense", "last", ("xx",), ("y",), attrs)], x=(1, 5))


@pytest.mark.parametrize(
    "make",
    [dense, unfolded, behind(1, 5), behind(2, 4), behind(6, 6), steps, twice],
    ids=["dense", "unfolded", "conv", "groups", "depthwise", "steps", "twice"],
)
@pytest.mark.parametrize("mant", [8, 3])
def test_the_mean_of_the_result_is_right(make, mant):
    graph = make()
    x = {"x": np.random.default_rng(12).normal(2, 0.3, (64, *graph.sample_shape("x")))}
    calibration = Calibration(graph, x)
    formats = Formats(mantissas={"last": mant})
    means = []
    for shifted in (False, True):
        found = calibration.measure("", TINY, formats, shifted)
        error = found.outputs["y"] - calibration.values["y"]
        means.append(np.linalg.norm(error.mean(axis=0)))
        assert bool(found.compiled.package.formats.means) == shifted
    # What is left is the rounding of activations and, per position, what differs from the mean over all of them.
    assert means[1] < means[0] / (3 if mant == 3 else 1.5)
    plain, corrected = (calibration.measure("", TINY, formats, s).compiled.image for s in (False, True))
    assert plain.program == corrected.program


def test_rounded_weights_keep_their_places():
    rng = np.random.default_rng(1)
    for shape in ((5, 6), (3, 2, 2, 5)):
        weight = rng.normal(0, 1, shape)
        rounded = rounded_matrix(weight, TINY, mant=5)
        assert 0 < np.abs(rounded - weight).max() < np.abs(weight).max() / 16
        assert np.array_equal(rounded_matrix(rounded, TINY, mant=5), rounded)
    kernels = rng.normal(0, 1, (5, 3, 2))
    assert 0 < np.abs(rounded_depthwise(kernels, TINY) - kernels).max() < np.abs(kernels).max() / 64


def test_means_are_those_of_the_channels():
    graph = behind(1, 5)()
    values = execute.run(graph, {"x": np.random.default_rng(2).normal(1, 1, (7, 6, 3, 3))}, keep="all")
    assert product_means(graph, values) == {"last": pytest.approx(tuple(values["a"].mean(axis=(0, 1, 3, 4))))}


def test_products_without_bias_stay_as_they_are():
    graph = dense(bias=0.0)
    with_means = compile_graph(graph, TINY, Formats(means={"last": (1.0,) * 9}))
    assert with_means.image.segments == compile_graph(graph, TINY).image.segments


def test_calibration_takes_what_has_less_error():
    graph = unfolded()
    labels = [
        c.label
        for c in choose_formats(graph, TINY, {"x": np.random.default_rng(3).normal(2, 1, (32, 2, 3, 3))}).candidates
    ]
    assert labels.index("dynamic exponents") < labels.index("dynamic exponents, biases as they are")
    assert Formats.from_dict(Formats(means={"a": (1.0, 2.0)}).to_dict()) == Formats(means={"a": (1.0, 2.0)})
