"""Graph networks in float32, in block floating point and for accumulators of few bits, in the bench."""

import numpy as np
import pytest

from concord.graph import execute
from concord.graph.ir import Graph
from concord.spec.presets import TINY
from concord.train.network import TrainableNetwork
from concord_bench import WITHOUT_RTL, Results, graph_training
from support.frameworks import needs
from support.trained import needs_data


def test_nodes_are_squares_of_pixels():
    images = np.arange(64).reshape(1, 8, 8)
    nodes = graph_training.nodes_of(images)
    assert nodes.shape == (1, 16, 4)
    assert nodes[0, 0].tolist() == [0, 1, 8, 9] and nodes[0, 6].tolist() == [20, 21, 28, 29]
    found = graph_training.edges()
    assert len(found) == 24 and [0, 1] in found and [0, 4] in found and [0, 5] not in found and [3, 4] not in found


@needs("torch")
@pytest.mark.slow
@needs_data
def test_a_row_per_way_of_training(monkeypatch):
    monkeypatch.setattr(graph_training, "EPOCHS", 1)
    monkeypatch.setattr(graph_training, "SEEDS", (1,))
    monkeypatch.setattr(graph_training, "WIDTHS", (32, 12))
    monkeypatch.setattr(graph_training, "GRIDS", ("layer",))
    results = Results("")
    WITHOUT_RTL["graph_training"](TINY, results, lambda text: None)
    rows = results.rows[graph_training.GROUP]
    whole = ["float32", "8/16/32", "8/16/32, point 13"]
    assert list(rows) == [*whole, *(f"{m}, grid of the layer" for m in ("plain", "evidence", "bound"))]
    assert len({rows[name]["exact"] for name in whole}) == 3
    assert set(rows["float32"]) == {"exact"} and set(rows["plain, grid of the layer"]) == {"32 bits", "12 bits"}
    assert "%" not in str(rows["bound, grid of the layer"])


def test_without_data_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CONCORD_DATA", str(tmp_path))
    results = Results("")
    WITHOUT_RTL["graph_training"](TINY, results, lambda text: None)
    assert graph_training.GROUP in results.skipped


@needs("torch")
@pytest.mark.slow
def test_the_float_reference_trains_the_same_numbers_and_computes_the_graph():
    """The adjacency is none of them; a step goes against the gradient of the loss."""
    import torch

    from concord.train import Samples
    from concord_bench.evidence.floats import FloatTrainer, initial

    graph = initial(graph_training.network(), 3)
    rng = np.random.default_rng(1)
    samples = Samples(rng.integers(0, 17, (8, 16, 4)), rng.integers(0, 10, 8), 1 / 16)
    reference = FloatTrainer(graph, samples, graph_training.settings_of(3))
    assert {f"{name}.{key}" for name, found in reference.parameters.items() for key in found} == set(
        TrainableNetwork(graph, graph_training.settings_of(3).formats).parameters
    )
    x = samples.inputs(slice(None))
    want = execute.run(graph, {"x": x})[graph.outputs[0]].reshape(8, 10)
    np.testing.assert_allclose(reference.forward(x).detach().numpy(), want, atol=1e-5)
    loss = torch.nn.functional.cross_entropy(reference.forward(x), torch.tensor(samples.y))
    loss.backward()
    name = next(node.name for node in graph.nodes if node.op == "Add")
    found, at = reference.parameters[name]["constant"], 2
    moved = [n.with_attrs(constant=n.attrs["constant"] + 1e-4 * (np.arange(16) == at)) if n.name == name else n
             for n in graph.nodes]  # fmt: skip
    other = execute.run(Graph("g", moved, graph.inputs, graph.outputs, graph.shapes, graph.batched), {"x": x})
    shifted = torch.nn.functional.cross_entropy(
        torch.tensor(other[graph.outputs[0]].reshape(8, 10)), torch.tensor(samples.y)
    )
    before = torch.nn.functional.cross_entropy(torch.tensor(want), torch.tensor(samples.y))
    assert abs(float(shifted - before) / 1e-4 - float(found.grad.reshape(-1)[at])) < 1e-3
