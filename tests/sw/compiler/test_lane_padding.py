"""Lanes that no element lies in raise no flags, whatever the range of a table."""

import numpy as np
import pytest

from concord.compiler.ir.lane_padding import nearest, pad_lanes
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.host import connect
from concord.spec.presets import ECP5_85F, TINY
from support.onnx_models import model, node


def graph_of(tmp_path, nodes, shape, **constants):
    proto = model(nodes, {"x": shape}, constants=constants)
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    return import_model(tmp_path / "net.onnx")


def flags(compiled, x):
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        compiled.run(device, {"x": x})
        return compiled.package.flags(device.flags())


def test_the_nearest_place():
    used = np.array([[0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], dtype=bool)
    assert nearest(used).tolist() == [[2, 2, 2, 2, 4, 4], [0, 1, 2, 3, 4, 5]]
    assert pad_lanes(np.array([[np.nan, 3.0, np.nan], [np.nan] * 3])).tolist() == [[3, 3, 3], [0, 0, 0]]


@pytest.mark.parametrize("config", [TINY, ECP5_85F], ids=lambda config: config.name)
@pytest.mark.parametrize(
    "nodes",
    [
        [node("Log", ["x"], ["y"])],
        [node("MatMul", ["x", "w"], ["a"]), node("Reciprocal", ["a"], ["y"])],
        [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["c"]), node("Reciprocal", ["c"], ["y"])],
        [node("MatMul", ["x", "w"], ["a"]), node("Sqrt", ["a"], ["c"]), node("Reciprocal", ["c"], ["y"])],
    ],
    ids=["input", "product", "constant", "chain"],
)
def test_a_table_that_begins_beyond_zero(tmp_path, nodes, config):
    """Compiled for numbers from 8 to 12: the padding lanes of 5 elements would be zeros."""
    w = np.eye(5, dtype=np.float32) + 0.01
    graph = graph_of(tmp_path, nodes, (1, 5), w=w, b=np.full(5, 0.5, dtype=np.float32))
    x = np.random.default_rng(1).uniform(9, 10, (20, 5))
    compiled = compile_graph(graph, config, Formats(ranges=dict.fromkeys(graph.shapes, (8.0, 12.0))))
    assert flags(compiled, x) == []
    assert {one.flag for one in flags(compiled, x / 3)} >= {"TABLE_CLAMPED"}


def test_samples_that_fill_the_last_run_of_a_batch(tmp_path):
    """They would be zeros."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Reciprocal", ["a"], ["y"])]
    graph = graph_of(tmp_path, nodes, (1, 4), w=np.eye(4, dtype=np.float32))
    compiled = compile_graph(graph, TINY, Formats(ranges=dict.fromkeys(graph.shapes, (8.0, 12.0))), batch=4)
    assert flags(compiled, np.full((5, 4), 10.0)) == []


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_softmax_stays_within_its_tables(tmp_path, axis, spread):
    """Its tables cover what can come: equal elements, too, whose sum is the largest one."""
    graph = graph_of(
        tmp_path, [node("Softmax", ["x"], ["a"], axis=axis), node("MatMul", ["a", "w"], ["y"])], (1, 6, 5),
        w=np.eye(5, dtype=np.float32),
    )  # fmt: skip
    compiled = compile_graph(graph, TINY)
    assert flags(compiled, np.random.default_rng(2).normal(0, spread, (10, 6, 5))) == []
