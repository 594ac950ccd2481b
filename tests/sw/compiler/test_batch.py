"""Several samples per run: the same values as one by one."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.golden import binary16
from concord.graph.passes.batch import BatchError, with_batch
from concord.host import connect
from concord.networks.folder import load_package, save_package
from concord.spec.presets import TINY
from support.compiled_nets import residual
from support.expressions import network, tensor
from support.onnx_models import model, node


def perceptron(limit=()):
    rng = np.random.default_rng(6)
    hidden = tensor(1, 5).dense(rng.normal(0, 0.4, (6, 5)), rng.normal(0, 1, 6)).relu() * rng.normal(0, 1, limit)
    return network(hidden.dense(rng.normal(0, 0.4, (3, 6)), rng.normal(0, 1, 3)).softmax(1))


def results(package, x):
    with connect("emulator", package.config) as device:
        device.load(package.image)
        return package.run(device, {"x": x})["y"]


@pytest.mark.parametrize("batch", [2, 3, 7])
@pytest.mark.parametrize("constant", [(), (1, 6), (6,)])
def test_every_sample_as_on_its_own(batch, constant):
    graph = perceptron(constant)
    x = np.random.default_rng(1).normal(0, 1, (7, 5))
    alone = results(compile_graph(graph, TINY).package, x)
    together = results(compile_graph(graph, TINY, batch=batch).package, x)
    assert together.shape == (7, 3)
    np.testing.assert_array_equal(together, alone)


def test_ports_can_be_rounded_when_they_are_packed():
    compiled = compile_graph(perceptron(), TINY, batch=2)
    arrangement = replace(compiled.package.arrangement, input_offsets={"x": 0.1})
    x = np.random.default_rng(5).normal(0, 1e-4, (7, 5)) * 10.0 ** np.arange(5)
    (want,), (got,) = arrangement.pack({"x": x}).values(), arrangement.pack({"x": x}, rounded=True).values()
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, binary16.decode(binary16.encode(want)))


def test_batches_survive_the_round_trip(tmp_path, monkeypatch):
    graph = perceptron()
    package = compile_graph(graph, TINY, batch=3).package
    monkeypatch.setattr("concord.networks.folder.import_model", lambda path, **options: graph)
    (tmp_path / "model").write_bytes(model([node("Relu", ["x"], ["y"])], {"x": (1, 5)}).SerializeToString())
    save_package(package, tmp_path / "net", tmp_path / "model")
    x = np.random.default_rng(2).normal(0, 1, (5, 5))
    np.testing.assert_array_equal(results(load_package(tmp_path / "net"), x), results(package, x))


def test_what_has_no_axis_for_them_is_refused():
    with pytest.raises(BatchError, match="batch must be 1 for a network with Conv, MaxPool, ReduceMean, not 2"):
        compile_graph(residual(), TINY, batch=2)
    with pytest.raises(BatchError, match=r"x has the shape \(4, 5\) without an axis for it"):
        with_batch(network(tensor(4, 5).dense(np.ones((2, 5)))), 2)
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        with_batch(residual(), 0)
