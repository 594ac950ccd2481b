"""Blocks of ConvNeXt and of transformers, with inputs of different sizes: as accurate as in double precision."""

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import passes
from concord.graph.execute import run
from concord.networks.calibrated import calibration_of, emulate
from concord.spec.presets import ECP5_85F
from concord_bench.tasks import TASKS, calibration, load
from support.expressions import network, tensor
from support.trained import DATA, needs_data

CHANNELS, SIZE, CLASSES = 16, 8, 10


def scaled(rng, *shape):
    """Weights of a product, and biases."""
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape), rng.normal(0, 0.1, shape[0])


def norm(rng, x, axis):
    normal = x.then("Normalise", axes=(axis,), centred=True, epsilon=1e-6, scale=rng.normal(1, 0.2, CHANNELS))
    return normal + rng.normal(0, 0.2, CHANNELS)


def convnext(blocks=2):
    """Depthwise 7 x 7, norm over channels, up, Gelu, down, scale, residual sum; then mean, norm and a product."""
    rng = np.random.default_rng(0)
    s = tensor(1, 3, SIZE, SIZE).conv(*scaled(rng, CHANNELS, 3, 3, 3), pads=1)
    for _ in range(blocks):
        deep = s.conv(*scaled(rng, CHANNELS, 1, 7, 7), pads=3, group=CHANNELS)
        up = norm(rng, deep.transpose(0, 2, 3, 1), 3).dense(*scaled(rng, 4 * CHANNELS, CHANNELS))
        down = up.function("gelu").dense(*scaled(rng, CHANNELS, 4 * CHANNELS))
        s = (down * rng.normal(0.5, 0.1, CHANNELS)).transpose(0, 3, 1, 2) + s
    features = norm(rng, s.reduce("Mean", 2, 3, keep=False), 1)
    return network(y=features.dense(*scaled(rng, CLASSES, CHANNELS)), f=features)


def images(count, scale, seed):
    """Noisy versions of ten images, and which one it is."""
    originals = np.random.default_rng(1).normal(0, 1, (CLASSES, 3, 1, 1)) + np.random.default_rng(2).normal(
        0, 0.5, (CLASSES, 3, SIZE, SIZE)
    )
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    return scale * (originals[labels] + rng.normal(0, 0.5, (count, 3, SIZE, SIZE))), labels


def trained(scale):
    """The network with a last product that is fitted to images of this size by least squares."""
    graph = convnext()
    x, labels = images(300, scale, 3)
    features = run(graph, {"x": x})["f"].reshape(len(x), -1)
    graph.outputs, graph.batched = ["y"], {"x", "y"}
    rows = np.column_stack([features, np.ones(len(features))])
    wanted = 10 * (np.eye(CLASSES)[labels] - 1 / CLASSES)
    found = np.linalg.solve(rows.T @ rows + 30 * np.eye(rows.shape[1]), rows.T @ wanted)
    head = graph.nodes[-1].with_attrs(weight=found[:-1].T.copy(), bias=found[-1])
    graph.nodes[-1] = head
    passes.run(graph)
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.1, 100])
def test_a_convnext_is_as_accurate_as_in_double_precision(scale):
    """Within a point with samples, two without, of inputs that are not what is assumed of them."""
    graph = trained(scale)
    x, labels = images(200, scale, 4)
    right = float(np.mean(run(graph, {"x": x})["y"].argmax(axis=1) == labels))
    assert 0.6 < right < 1
    others = calibration_of(graph, {"x": images(24, scale, 5)[0]})
    compiled = compile_graph(graph, ECP5_85F), others.measure("with samples", ECP5_85F, Formats()).compiled
    shares = [float(np.mean(emulate(one, {"x": x})["y"].argmax(axis=1) == labels)) for one in compiled]
    assert shares[0] >= right - 0.02 and shares[1] >= right - 0.01


@pytest.mark.slow
@needs_data
def test_a_transformer_with_large_inputs():
    """The trained one, whose inputs are 500 times as large: with samples it decides as in double precision."""
    (task,) = (task for task in TASKS if task.model == "digits_transformer")
    graph, x, _ = load(task, DATA)
    (name,) = graph.inputs
    given = {name: 500 * x[:100].reshape(-1, *graph.sample_shape(name))}
    want = run(graph, given)["output"]
    samples = {name: 500 * values[:40] for name, values in calibration(task, graph, DATA).items()}
    compiled = calibration_of(graph, samples).measure("with samples", ECP5_85F, Formats()).compiled
    got = emulate(compiled, given)["output"]
    assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)
    assert (got.argmax(axis=1) == want.argmax(axis=1)).mean() >= 0.99
