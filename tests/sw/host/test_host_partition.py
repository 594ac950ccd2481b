"""What the host computes behind the NPU has the same bits for every size of the batch and every layout in memory."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.emission.package import Package
from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.model import compile_graph
from concord.host import connect
from concord.networks.calibrated import emulate
from concord.spec.presets import TINY
from support.expressions import network, tensor


def package(shape, axis, functions=("tanh",)):
    """A softmax, and functions of what it gives, on the host."""
    p = tensor(1, *shape).softmax(axis)
    more = p.then("Function", functions=tuple((name, {}) for name in functions))
    graph = network(p=p, y=more, z=p * np.full((1,), 1 / 3))
    return Package(None, Arrangement({}, {}, {"x": shape}), graph)


@pytest.mark.parametrize("shape", [(10,), (100,), (1000,), (3, 37), (7, 4, 5), (64, 9, 1)], ids=str)
@pytest.mark.parametrize("order", ["C", "F", "picked"])
def test_every_batch_has_the_same_bits(shape, order):
    rng = np.random.default_rng(len(shape) * 100 + shape[0])
    x = rng.normal(0, 3, (33, *shape))
    if order == "F":
        x = np.asfortranarray(x)
    if order == "picked":  # as the outputs of the NPU are
        x = x.reshape(33, -1)[:, np.arange(x[0].size).reshape(shape)]
    for axis in range(1, len(shape) + 1):
        host = package(shape, axis, ["exp", "tanh"])
        single = [host.host_outputs({}, {"x": np.ascontiguousarray(x[k : k + 1])}) for k in range(33)]
        for size in (1, 2, 3, 8, 33):
            for first in range(0, 33, size):
                part = host.host_outputs({}, {"x": x[first : first + size]})
                for name, values in part.items():
                    for k, value in enumerate(values):
                        assert value.tobytes() == single[first + k][name][0].tobytes(), (name, axis, size, first + k)


def test_a_compiled_network_row_for_row():
    rng = np.random.default_rng(4)
    a = tensor(1, 6).dense(rng.normal(0, 0.5, (11, 6)), rng.normal(0, 1, 11))
    compiled = compile_graph(network(a.softmax(1).function("log")), TINY)
    x = rng.normal(0, 1, (9, 6))
    with connect("emulator", TINY) as device:
        device.load(compiled.image)
        runs = [
            np.concatenate([compiled.package.run(device, {"x": x[k : k + size]})["y"] for k in range(0, 9, size)])
            for size in (1, 2, 4, 9)
        ]
    assert {run.tobytes() for run in runs} == {runs[0].tobytes()}


def test_no_samples():
    outputs = package((3,), 1).host_outputs({}, {"x": np.zeros((0, 3))})
    assert {name: values.shape for name, values in outputs.items()} == dict.fromkeys("pyz", (0, 3))


def test_outputs_that_the_host_does_not_read_are_there():
    """Two heads, of which one ends in a softmax; and an input that is an output, as it is given."""
    rng = np.random.default_rng(6)
    given = tensor(1, 6)
    heads = [given.dense(rng.normal(0, 0.5, (5, 6)), rng.normal(0, 1, 5)) for _ in range(2)]
    names, x = ["a0", "a1", "p", "x"], rng.normal(0, 1, (3, 6))
    graph = network(a0=heads[0], a1=heads[1], p=heads[0].softmax(1))
    graph = replace(graph, outputs=names, batched={*names})
    both, alone = (emulate(compile_graph(one, TINY), {"x": x}) for one in (graph, network(a1=heads[1])))
    assert set(both) == set(names) and both["x"].tobytes() == x.tobytes()
    assert both["a1"].tobytes() == alone["a1"].tobytes()
