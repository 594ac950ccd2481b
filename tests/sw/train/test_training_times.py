"""What the integer trainer is timed against computes the same network, and takes steps as often."""

import numpy as np
import pytest

from concord.graph import execute
from concord.spec.presets import TINY
from concord_bench import Results
from concord_bench.tasks import TASKS, folder, load
from concord_bench.training import NETWORKS, in_turns, measure_training
from support.frameworks import needs
from support.trained import needs_data


def test_steps_take_turns():
    told = []
    times = in_turns([lambda: told.append("a"), lambda: told.append("b")], 3)
    assert told == ["a", "b"] * (len(told) // 2) and len(told) >= 6 and len(times) == 2


def test_without_data_the_figures_say_so(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    results = Results("")
    measure_training(TINY, results, str)
    assert not results.rows and "CONCORD_DATA" in results.skipped["Training, time of a step"]


@needs("torch")
@needs_data
@pytest.mark.parametrize("name", NETWORKS)
def test_the_float_network_of_torch_is_the_graph(name):
    import torch

    from concord_bench.float_reference import FloatReference

    (task,) = (task for task in TASKS if task.model == name)
    graph, x, _ = load(task, folder())
    x = np.asarray(x[:5], dtype=np.float64)
    with torch.no_grad():
        got = FloatReference(graph)(torch.from_numpy(x.astype(np.float32))).numpy()
    if graph.nodes[-1].op == "Softmax":
        got = np.exp(got - got.max(axis=1, keepdims=True))
        got /= got.sum(axis=1, keepdims=True)
    (want,) = execute.run(graph, {graph.inputs[0]: x}).values()
    assert np.abs(got - want.reshape(got.shape)).max() < 1e-4 * max(1, np.abs(want).max())
