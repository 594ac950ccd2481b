"""Blocks of ConvNeXt and of transformers, with inputs of different sizes: as accurate as in double precision."""

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import passes
from concord.graph.execute import run
from concord.graph.ir import Node
from concord.networks.calibrated import calibration_of, emulate
from concord.spec.presets import ECP5_85F
from concord_bench.tasks import TASKS, calibration, load
from support.compiled_nets import graph_of
from support.trained import DATA, needs_data

CHANNELS, SIZE, CLASSES = 16, 8, 10


def conv(rng, name, x, y, shape, group=1):
    weight, kernel = rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape), shape[2]
    geometry = {"strides": (1, 1), "pads": (kernel // 2,) * 4, "dilations": (1, 1), "group": group}
    return Node("Conv", name, (x,), (y,), {"weight": weight, "bias": rng.normal(0, 0.1, shape[0]), **geometry})


def dense(rng, name, x, y, shape):
    weight = rng.normal(0, 1 / np.sqrt(shape[1]), shape)
    return Node("Dense", name, (x,), (y,), {"weight": weight, "bias": rng.normal(0, 0.1, shape[0])})


def norm(rng, name, x, y, axis):
    attrs = {"axes": (axis,), "centred": True, "epsilon": 1e-6, "scale": rng.normal(1, 0.2, CHANNELS)}
    return [
        Node("Normalise", name, (x,), (f"{y}/n",), attrs),
        Node("Add", f"{name}/bias", (f"{y}/n",), (y,), {"constant": rng.normal(0, 0.2, CHANNELS)}),
    ]


def convnext(blocks=2):
    """Depthwise 7 x 7, norm over channels, up, Gelu, down, scale, residual sum; then mean, norm and a product."""
    rng = np.random.default_rng(0)
    nodes = [conv(rng, "stem", "x", "s0", (CHANNELS, 3, 3, 3))]
    for k in range(blocks):
        gamma = {"constant": rng.normal(0.5, 0.1, CHANNELS)}
        nodes += [
            conv(rng, f"depthwise{k}", f"s{k}", f"d{k}", (CHANNELS, 1, 7, 7), CHANNELS),
            Node("Transpose", f"last{k}", (f"d{k}",), (f"t{k}",), {"perm": (0, 2, 3, 1)}),
            *norm(rng, f"norm{k}", f"t{k}", f"n{k}", 3),
            dense(rng, f"up{k}", f"n{k}", f"u{k}", (4 * CHANNELS, CHANNELS)),
            Node("Function", f"gelu{k}", (f"u{k}",), (f"g{k}",), {"functions": (("gelu", {}),)}),
            dense(rng, f"down{k}", f"g{k}", f"o{k}", (CHANNELS, 4 * CHANNELS)),
            Node("Mul", f"scale{k}", (f"o{k}",), (f"m{k}",), gamma),
            Node("Transpose", f"first{k}", (f"m{k}",), (f"b{k}",), {"perm": (0, 3, 1, 2)}),
            Node("Add", f"sum{k}", (f"b{k}", f"s{k}"), (f"s{k + 1}",)),
        ]
    nodes += [
        Node("ReduceMean", "pool", (f"s{blocks}",), ("p",), {"axes": (2, 3), "keepdims": False}),
        *norm(rng, "norm", "p", "f", 1),
        dense(rng, "head", "f", "y", (CLASSES, CHANNELS)),
    ]
    return graph_of(nodes, x=(1, 3, SIZE, SIZE))


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
    features = run(graph, {"x": x}, keep=["f"])["f"].reshape(len(x), -1)
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
