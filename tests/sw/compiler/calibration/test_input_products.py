"""Mean products of inputs: sums over parts of the samples, and over some windows of large maps."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from concord.compiler.calibration import input_products
from concord.compiler.calibration.input_products import channel_means, input_sums, moments
from concord.compiler.calibration.weights import loss
from concord.graph import execute
from concord.graph.ir import Node
from support.expressions import graph_of

WINDOWS = {
    "dense": ({}, (7, 5), (4, 3, 5)),
    "plain": ({"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}, (5, 3, 2, 2), (4, 3, 5, 4)),
    "all": ({"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2), "group": 2}, (6, 2, 3, 2), (5, 4, 6, 7)),
    "depthwise": (
        {"strides": (1, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 3},
        (3, 1, 3, 3),
        (4, 3, 5, 5),
    ),
    "line": ({"strides": (2,), "pads": (2, 1), "dilations": (2,), "group": 2}, (4, 2, 3), (6, 4, 9)),
}


def product(case):
    """A node, and the shapes of its weights and inputs."""
    attrs, shape, size = WINDOWS[case]
    outputs = 40 * shape[0]
    weight = np.random.default_rng(4).normal(0, 1, (outputs, *shape[1:]))
    attrs = {"weight": weight, "bias": np.zeros(outputs), **attrs}
    return Node("Dense" if case == "dense" else "Conv", "n", ("x",), ("y",), attrs), shape, size


@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("block", [1, 1 << 22])
def test_moments_are_mean_squares_of_results(case, block, monkeypatch):
    """For any weights ``w`` of an output, ``w @ products @ w`` is the mean square of what it differs from its mean."""
    monkeypatch.setattr(input_products, "_BLOCK", block)
    rng = np.random.default_rng(4)
    node, shape, size = product(case)
    weight, channel, group = node.attrs["weight"], 2 if case == "dense" else 1, node.attrs.get("group", 1)
    outputs = len(weight)
    graph = graph_of([node], x=(1, *size[1:]))
    x, mean = rng.normal(1, 1, size), rng.normal(1, 1, size[channel])
    products = moments(node, x, mean)
    inputs = int(np.prod(shape[1:]))
    assert products.shape == (group, inputs, inputs)
    np.testing.assert_allclose(products, products.swapaxes(1, 2))
    y = execute.run(graph, {"x": x})["y"]
    y = np.moveaxis(y, channel, 0).reshape(outputs, -1)
    flat = weight.reshape(group, outputs // group, inputs)
    each = np.repeat(mean.reshape(group, -1), inputs // (len(mean) // group), axis=1)
    want = np.mean((y - np.einsum("goi,gi->go", flat, each).reshape(-1, 1)) ** 2, axis=1)
    np.testing.assert_allclose(np.einsum("goi,gij,goj->go", flat, products, flat).reshape(-1), want)
    assert loss(weight, np.zeros_like(weight), products) == pytest.approx(want.sum())


@pytest.mark.parametrize("case", WINDOWS)
def test_sums_of_parts_add_up(case):
    """Whatever the origin is, about any mean."""
    rng = np.random.default_rng(5)
    node, _, size = product(case)
    x = rng.normal(3, 1, (10, *size[1:]))
    origin, mean = channel_means(node, x), rng.normal(3, 1, size[2 if case == "dense" else 1])
    parts = [input_sums(node, x[k::4], origin) for k in range(4)]
    whole = reduce(add, parts)
    assert whole.samples == 10
    np.testing.assert_allclose(whole.mean, origin)
    np.testing.assert_allclose((parts[0] + parts[2]).mean, channel_means(node, x[::2]))
    np.testing.assert_allclose(whole.about(mean), moments(node, x, mean), atol=1e-12)
    np.testing.assert_allclose((parts[1] + parts[3]).about(mean), moments(node, x[1::2], mean), atol=1e-12)


def test_no_samples_have_no_products():
    node, _, size = product("plain")
    nothing = input_sums(node, np.zeros((0, *size[1:])), np.ones(3))
    assert nothing.windows == nothing.samples == 0 and not nothing.mean.any()
    assert not nothing.about(np.full(3, 7.0)).any()


@pytest.mark.parametrize("case", ["dense", "plain", "all", "depthwise", "line"])
def test_some_windows_stand_for_all(case):
    """They come from every sample and from every place of a map."""
    rng = np.random.default_rng(6)
    node, _, size = product(case)
    x = rng.normal(0, 1, (120, *size[1:])) + rng.normal(0, 1, (120, *[1] * (len(size) - 1)))
    origin = np.zeros(size[2 if case == "dense" else 1])
    every = input_sums(node, x, origin)
    some = input_sums(node, x, origin, most=every.windows // 4)
    assert every.windows / 4.5 < some.windows < every.windows / 2
    assert some.samples == every.samples
    np.testing.assert_array_equal(some.mean, every.mean)
    size_of = np.abs(every.about(origin)).max()
    np.testing.assert_allclose(some.about(origin), every.about(origin), atol=0.25 * size_of)


def test_every_image_and_every_place_gives_a_window():
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    node = Node("Conv", "n", ("x",), ("y",), {"weight": np.ones((1, 1, 1, 1)), "bias": np.zeros(1), **attrs})
    places = np.arange(1.0, 1 + 6 * 8 * 8).reshape(6, 1, 8, 8)
    seen = np.concatenate(list(input_products._columns(node, places, np.zeros(1), 6 * 64 // 5)), axis=2).ravel()
    image, place = np.divmod(seen.astype(int) - 1, 64)
    assert len(set(seen)) == len(seen) and set(image) == set(range(6))
    assert set(place % 8) == set(range(8)) and set(place // 8) == set(range(8))
    of = [set(place[image == k]) for k in range(5)]  # a step of 5
    assert sum(map(len, of)) == 64 and set.union(*of) == set(range(64)), "other windows than of the images before"
    few = np.concatenate(list(input_products._columns(node, places, np.zeros(1), 1)), axis=2)
    assert few.size == 6, "at least one window of every image"


@pytest.mark.parametrize("value", [0.1, 3.3, -7e-4])
def test_what_is_always_the_same_has_no_products(value):
    """Nor any that rounding leaves, which may be below zero: no matrix of mean squares has such."""
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 3}
    node = Node("Conv", "n", ("x",), ("y",), {"weight": np.ones((3, 1, 3, 3)), "bias": np.zeros(3), **attrs})
    rng = np.random.default_rng(7)
    x = rng.normal(0, 1, (23, 3, 5, 5))
    x[:, 1] = value
    origin = channel_means(node, x) + np.array([0.0, 1e-9 * value, 0.0])
    parts = [input_sums(node, x[k::4], origin) for k in range(4)]
    half = parts[0] + parts[2]
    products = half.about(half.mean)
    assert not products[1].any()
    assert all(np.linalg.eigvalsh(products[group]).min() > 0 for group in (0, 2))
