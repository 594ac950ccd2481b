"""Random networks of many operators with several outputs, against onnxruntime: import and all passes together."""

import pytest

from concord.frontend import import_model
from concord.graph.passes import AFTER_IMPORT, Rewriting
from support.onnx_models import agrees
from support.random_models import network


@pytest.mark.parametrize("seed", range(60))
def test_network(seed):
    agrees(network(seed), tolerance=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_a_second_time_nothing_changes(seed):
    graph = import_model(network(seed))
    before = [(n.op, n.name, n.inputs, n.outputs) for n in graph.nodes]
    for rewrite in AFTER_IMPORT:
        assert rewrite.run(Rewriting(graph)).graph is graph
        graph.check()
    assert [(n.op, n.name, n.inputs, n.outputs) for n in graph.nodes] == before
