"""Adaptive pooling whose sizes do not divide, as exporters write it."""

from itertools import accumulate

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F, ECP5_85F_256
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, onnxruntime_results, ops


def parts(size, count):
    """First elements and ends of the windows of an axis."""
    starts = np.arange(count) * size // count
    return starts, -(-(np.arange(1, count + 1) * size) // count)


def adaptive_average(x, counts, mean=False, weights=None, swapped=False):
    """What PyTorch writes: all windows as one tensor, those that are shorter with zeros, and the sum of its slices.

    With ``mean`` all have one size, and ReduceMean is at the end; ``weights`` take the place of ones, and one element
    is another one if they are ``swapped``. Returns the result, and the sum of the first two slices.
    """
    spatial = x.shape[2:]
    ends = [parts(size, count) for size, count in zip(spatial, counts, strict=True)]
    longest = [int((stops - starts).max()) for starts, stops in ends]
    taps = [starts[:, None] + np.arange(most) for (starts, _), most in zip(ends, longest, strict=True)]
    (rows, columns) = (np.minimum(tap, size - 1) for tap, size in zip(taps, spatial, strict=True))
    indices = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns), axis=-1)
    if swapped:
        indices[0, 0, 0, 0] = (2, 4)
    windows = op.Transpose(op.GatherND(op.Transpose(x, perm=[2, 3, 0, 1]), indices), perm=[4, 5, 0, 1, 2, 3])
    if mean:
        return op.ReduceMean(windows, axes=[3, 5], keepdims=0), None
    beyond = [tap >= stops[:, None] for tap, (_, stops) in zip(taps, ends, strict=True)]
    inside = op.Where(beyond[1], 0.0, op.Where(beyond[0][:, :, None, None], 0.0, windows))
    rows = [op.Gather(inside, y, axis=3) for y in range(longest[0])]
    slices = [op.Gather(row, x, axis=4) for row in rows for x in range(longest[1])]
    sums = [*accumulate(slices, op.Add)]
    sizes = np.multiply.outer(*(stops - starts for starts, stops in ends)).astype(np.float32)
    return op.Div(sums[-1], sizes if weights is None else sizes * weights), sums[1]


def compiled_within(y, limit, config=ECP5_85F):
    """The compiled model, whose results are near those of ONNX Runtime."""
    proto = model_of(y)
    graph = import_model(proto)
    x = np.random.default_rng(3).normal(size=graph.shapes["x"]).astype(np.float32)
    compiled = compile_graph(graph, config)
    (want,), (got,) = onnxruntime_results(proto, {"x": x}), emulate(compiled, {"x": x}).values()
    assert np.linalg.norm(got.reshape(want.shape) - want) < limit * np.linalg.norm(want)
    return compiled


POOLED = {
    "an odd image": ((1, 3, 11, 13), (4, 3)),
    "most windows in parts": ((1, 3, 10, 10), (7, 7)),
    "more results than elements": ((1, 3, 5, 5), (7, 7)),
    "a single row": ((1, 3, 7, 11), (1, 4)),
}


@pytest.mark.parametrize("name", POOLED)
def test_means_of_windows_are_average_pooling(name):
    shape, counts = POOLED[name]
    graph = agrees(adaptive_average(given(*shape), counts)[0])
    assert set(ops(graph)) <= {"Slice", "AveragePool", "Concat"}
    assert len(graph.nodes) <= 30


def test_windows_of_one_size_are_one_pooling():
    y, _ = adaptive_average(given(1, 4, 13, 13), (6, 6), mean=True)
    assert ops(agrees(y)) == ["AveragePool"]


@pytest.mark.parametrize("what", ["another weight", "another element", "a part is a result"])
def test_other_sums_stay(what):
    weights = np.float32([[1, 1, 1], [1, 2, 1]]) if what == "another weight" else None
    y, first = adaptive_average(given(1, 2, 3, 5), (2, 3), weights=weights, swapped=what == "another element")
    outputs = {"z": op.Identity(first)} if what == "a part is a result" else {}
    assert "AveragePool" not in ops(agrees(model_of(y, **outputs)))


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLED)
def test_adaptive_pooling_fits(name):
    """In front of it a convolution, after it a product, as in a network for images of any size."""
    shape, counts = POOLED[name]
    weight = np.random.default_rng(3).normal(size=(shape[1], shape[1], 3, 3))
    features = op.Conv(given(*shape), weight, pads=[1, 1, 1, 1])
    features.shape = shape
    compiled = compiled_within(adaptive_average(features, counts)[0], 0.02)
    assert len(compiled.image.program) <= 300


@pytest.mark.slow
def test_an_image_as_large_as_its_input():
    compiled = compiled_within(adaptive_average(given(1, 4, 37, 53), (5, 3))[0], 0.01, ECP5_85F_256)
    assert len(compiled.image.program) <= 64


@pytest.mark.slow
@pytest.mark.parametrize("joined", [True, False])
def test_maxima_of_windows_by_hand(joined):
    """PyTorch exports no adaptive maximum whose sizes do not divide; slices and their maxima are what users write."""
    x, counts = given(1, 4, 17, 23), (5, 3)
    rows, columns = (zip(*parts(size, count), strict=True) for size, count in zip(x.shape[2:], counts, strict=True))
    columns, lines = list(columns), []
    for top, bottom in rows:
        maxima = [
            op.ReduceMax(op.Slice(x, [top, left], [bottom, right], [2, 3]), axes=[2, 3], keepdims=int(joined))
            for left, right in columns
        ]
        lines.append(op.Concat(*(one if joined else op.Unsqueeze(one, [2, 3]) for one in maxima), axis=3))
    compiled_within(op.Concat(*lines, axis=2), 0.01)
