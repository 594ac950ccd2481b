"""Biases that take over what the rounding of weights changes in the mean."""

import numpy as np
import pytest

from concord.compiler.calibration.calibration import ALL, Follow, product_means
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.image.packing import rounded_depthwise, rounded_matrix
from concord.networks.calibrated import calibration_of, choose_formats
from concord.spec.presets import TINY
from support.product_nets import PRODUCTS, behind, dense, twice, unfolded


@pytest.mark.parametrize("make", [*PRODUCTS.values(), twice], ids=[*PRODUCTS, "twice"])
@pytest.mark.parametrize("mant", [8, 3])
@pytest.mark.parametrize("follow", [ALL & ~Follow.WEIGHTS, ALL], ids=["nearest", "chosen"])
def test_the_mean_of_the_result_is_right(make, mant, follow):
    graph = make()
    rng, shape = np.random.default_rng(12), graph.sample_shape("x")
    alike = rng.normal(2, 1, (64, *[1] * len(shape)))  # only for such inputs are weights worth a choice
    x = {"x": rng.normal(0, 0.3, (64, *shape)) + (alike if Follow.WEIGHTS in follow else 2)}
    calibration = calibration_of(graph, x)
    formats = Formats(mantissas={"last": mant})
    means, images = [], []
    for follows in (Follow.TABLES, follow):
        found = calibration.measure("", TINY, formats, follows)
        error = found.outputs["y"] - calibration.values["y"]
        means.append(np.linalg.norm(error.mean(axis=0)))
        images.append(found.compiled.image)
        assert bool(found.compiled.package.formats.means) == (Follow.BIASES in follows)
    assert bool(found.compiled.package.formats.weights) == (Follow.WEIGHTS in follow and make is not twice)
    # What is left is the rounding of activations and, per position, what differs from the mean over all of them.
    assert means[1] < means[0] / (3 if mant == 3 else 1.5)
    assert images[0].program == images[1].program


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
    assert product_means(graph, values) == {"last": pytest.approx(tuple(values["relu.out"].mean(axis=(0, 1, 3, 4))))}


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
    assert labels.index("dynamic exponents") < labels.index("dynamic exponents, weights and biases as they are")
    assert Formats.from_dict(Formats(means={"a": (1.0, 2.0)}).to_dict()) == Formats(means={"a": (1.0, 2.0)})
