"""Adaptive pooling whose sizes do not divide, as exporters write it."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F, ECP5_85F_256
from support.onnx_models import agrees, model, node, onnxruntime_results, ops


def parts(size, count):
    """First elements and ends of the windows of an axis."""
    starts = np.arange(count) * size // count
    return starts, -(-(np.arange(1, count + 1) * size) // count)


def adaptive_average(shape, counts, mean=False, weights=None):
    """What PyTorch writes: all windows as one tensor, those that are shorter with zeros, and the sum of its slices.

    With ``mean`` all have one size, and ReduceMean is at the end; ``weights`` take the place of ones.
    """
    spatial = shape[2:]
    ends = [parts(size, count) for size, count in zip(spatial, counts, strict=True)]
    longest = [int((stops - starts).max()) for starts, stops in ends]
    taps = [starts[:, None] + np.arange(most) for (starts, _), most in zip(ends, longest, strict=True)]
    (rows, columns) = (np.minimum(tap, size - 1) for tap, size in zip(taps, spatial, strict=True))
    indices = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns), axis=-1)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 3, 0, 1]),
        node("GatherND", ["t", "i"], ["g"]),
        node("Transpose", ["g"], ["w"], perm=[4, 5, 0, 1, 2, 3]),
    ]
    if mean:
        return [*nodes, node("ReduceMean", ["w"], ["y"], axes=[3, 5], keepdims=0)], {"i": indices}
    beyond = [tap >= stops[:, None] for tap, (_, stops) in zip(taps, ends, strict=True)]
    constants = {"i": indices, "rows": beyond[0][:, :, None, None], "columns": beyond[1], "zero": np.float32(0)}
    nodes += [node("Where", ["rows", "zero", "w"], ["m"]), node("Where", ["columns", "zero", "m"], ["n"])]
    summands = []
    for y in range(longest[0]):
        constants[f"k{y}"] = np.array(y)
        nodes.append(node("Gather", ["n", f"k{y}"], [f"r{y}"], axis=3))
        for x in range(longest[1]):
            constants[f"k{x}"] = np.array(x)
            summands.append(f"r{y}/{x}")
            nodes.append(node("Gather", [f"r{y}", f"k{x}"], [summands[-1]], axis=4))
    total = summands[0]
    for k, summand in enumerate(summands[1:]):
        nodes.append(node("Add", [total, summand], [total := f"sum{k}"]))
    sizes = np.multiply.outer(*(stops - starts for starts, stops in ends)).astype(np.float32)
    constants["c"] = sizes if weights is None else sizes * weights
    return [*nodes, node("Div", [total, "c"], ["y"])], constants


POOLED = {
    "an odd image": ((1, 3, 11, 13), (4, 3)),
    "most windows in parts": ((1, 3, 10, 10), (7, 7)),
    "more results than elements": ((1, 3, 5, 5), (7, 7)),
    "a single row": ((1, 3, 7, 11), (1, 4)),
}


@pytest.mark.parametrize("name", POOLED)
def test_means_of_windows_are_average_pooling(name):
    shape, counts = POOLED[name]
    nodes, constants = adaptive_average(shape, counts)
    proto = model(nodes, {"x": shape}, constants=constants)
    graph = agrees(proto)
    assert set(ops(graph)) <= {"Slice", "AveragePool", "Concat"}
    assert len(graph.nodes) <= 30


def test_windows_of_one_size_are_one_pooling():
    nodes, constants = adaptive_average((1, 4, 13, 13), (6, 6), mean=True)
    assert ops(agrees(model(nodes, {"x": (1, 4, 13, 13)}, constants=constants))) == ["AveragePool"]


@pytest.mark.parametrize("what", ["another weight", "another element", "a part is a result"])
def test_other_sums_stay(what):
    shape, counts = (1, 2, 3, 5), (2, 3)
    weights = np.float32([[1, 1, 1], [1, 2, 1]]) if what == "another weight" else None
    nodes, constants = adaptive_average(shape, counts, weights=weights)
    outputs = ["y"]
    if what == "another element":
        constants["i"] = constants["i"].copy()
        constants["i"][0, 0, 0, 0] = (2, 4)
    elif what == "a part is a result":
        nodes.append(node("Identity", ["sum0"], ["z"]))
        outputs.append("z")
    assert "AveragePool" not in ops(agrees(model(nodes, {"x": shape}, outputs, constants=constants)))


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLED)
def test_adaptive_pooling_fits(name):
    """In front of it a convolution, after it a product, as in a network for images of any size."""
    shape, counts = POOLED[name]
    rng = np.random.default_rng(3)
    nodes, constants = adaptive_average(shape, counts)
    nodes[0] = node("Transpose", ["f"], ["t"], perm=[2, 3, 0, 1])
    constants |= {"k": rng.normal(size=(shape[1], shape[1], 3, 3)).astype(np.float32)}
    nodes = [node("Conv", ["x", "k"], ["f"], pads=[1, 1, 1, 1]), *nodes]
    proto = model(nodes, {"x": shape}, constants=constants)
    x = rng.normal(size=shape).astype(np.float32)
    compiled = compile_graph(import_model(proto), ECP5_85F)
    (want,), (got,) = onnxruntime_results(proto, {"x": x}), emulate(compiled, {"x": x}).values()
    assert np.linalg.norm(got.reshape(want.shape) - want) < 0.02 * np.linalg.norm(want)
    assert len(compiled.image.program) <= 300


@pytest.mark.slow
def test_an_image_as_large_as_its_input():
    nodes, constants = adaptive_average((1, 4, 37, 53), (5, 3))
    proto = model(nodes, {"x": (1, 4, 37, 53)}, constants=constants)
    x = np.random.default_rng(3).normal(size=(1, 4, 37, 53)).astype(np.float32)
    compiled = compile_graph(import_model(proto), ECP5_85F_256)
    (want,), (got,) = onnxruntime_results(proto, {"x": x}), emulate(compiled, {"x": x}).values()
    assert np.linalg.norm(got.reshape(want.shape) - want) < 0.01 * np.linalg.norm(want)
    assert len(compiled.image.program) <= 64


@pytest.mark.slow
@pytest.mark.parametrize("joined", [True, False])
def test_maxima_of_windows_by_hand(joined):
    """PyTorch exports no adaptive maximum whose sizes do not divide; slices and their maxima are what users write."""
    shape, counts = (1, 4, 17, 23), (5, 3)
    (tops, bottoms), (lefts, rights) = (parts(size, count) for size, count in zip(shape[2:], counts, strict=True))
    nodes, constants, rows = [], {"axes": np.array([2, 3])}, []
    for y, (top, bottom) in enumerate(zip(tops, bottoms, strict=True)):
        columns = []
        for x, (left, right) in enumerate(zip(lefts, rights, strict=True)):
            name = f"p{y}/{x}"
            constants |= {f"{name}/a": np.array([top, left]), f"{name}/b": np.array([bottom, right])}
            nodes += [
                node("Slice", ["x", f"{name}/a", f"{name}/b", "axes"], [name]),
                node("ReduceMax", [name], [f"{name}/max"], axes=[2, 3], keepdims=int(joined)),
            ]
            columns.append(f"{name}/max")
            if not joined:
                nodes.append(node("Unsqueeze", [columns[-1], "axes"], [f"{name}/u"]))
                columns[-1] = f"{name}/u"
        rows.append(f"row{y}")
        nodes.append(node("Concat", columns, [rows[-1]], axis=3))
    proto = model([*nodes, node("Concat", rows, ["y"], axis=2)], {"x": shape}, constants=constants)
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    compiled = compile_graph(import_model(proto), ECP5_85F)
    (want,), (got,) = onnxruntime_results(proto, {"x": x}), emulate(compiled, {"x": x}).values()
    assert np.linalg.norm(got.reshape(want.shape) - want) < 0.01 * np.linalg.norm(want)
