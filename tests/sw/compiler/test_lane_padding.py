"""Lanes that no element lies in raise no flags, whatever the range of a table."""

import numpy as np
import pytest

from concord.compiler.ir.lane_padding import nearest, pad_lanes
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.host import connect
from concord.spec.presets import ECP5_85F, TINY
from support.onnx_expressions import given, model_of, op


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
    "behind",
    [
        lambda x, a: op.Log(x),
        lambda x, a: op.Reciprocal(a),
        lambda x, a: op.Reciprocal(op.Add(a, np.full(5, 0.5))),
        lambda x, a: op.Reciprocal(op.Sqrt(a)),
    ],
    ids=["input", "product", "constant", "chain"],
)
def test_a_table_that_begins_beyond_zero(behind, config):
    """Compiled for numbers from 8 to 12: the padding lanes of 5 elements would be zeros."""
    x = given(1, 5)
    graph = import_model(model_of(behind(x, op.MatMul(x, np.eye(5) + 0.01))))
    x = np.random.default_rng(1).uniform(9, 10, (20, 5))
    compiled = compile_graph(graph, config, Formats(ranges=dict.fromkeys(graph.shapes, (8.0, 12.0))))
    assert flags(compiled, x) == []
    assert {one.flag for one in flags(compiled, x / 3)} >= {"TABLE_CLAMPED"}


def test_samples_that_fill_the_last_run_of_a_batch():
    """They would be zeros."""
    graph = import_model(model_of(op.Reciprocal(op.MatMul(given(1, 4), np.eye(4)))))
    compiled = compile_graph(graph, TINY, Formats(ranges=dict.fromkeys(graph.shapes, (8.0, 12.0))), batch=4)
    assert flags(compiled, np.full((5, 4), 10.0)) == []


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_softmax_stays_within_its_tables(axis, spread):
    """Its tables cover what can come: equal elements, too, whose sum is the largest one."""
    graph = import_model(model_of(op.MatMul(op.Softmax(given(1, 6, 5), axis=axis), np.eye(5))))
    compiled = compile_graph(graph, TINY)
    assert flags(compiled, np.random.default_rng(2).normal(0, spread, (10, 6, 5))) == []
