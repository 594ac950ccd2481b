"""Networks through the feeder of the Verilated design: the same bits as the emulator, and fewer bytes."""

import numpy as np
import pytest

from banded_nets import separable
from compiled_nets import gru, perceptron, residual
from concord.bench.hardware import CountingTransport
from concord.compiler.model import compile_graph
from concord.host import Link, LinkedDevice, TrapError, connect
from concord.host.rtl import find_library
from concord.spec.presets import TINY

pytestmark = pytest.mark.slow

CONFIG = TINY.replace(
    name="tiny-fed",
    inbox=1024,
    max_payload=512,
    narrow_depth=2048,
    wide_depth=2048,
    matrix_depth=8192,
    program_depth=512,
)

NETWORKS = {"residual": residual, "gru": gru, "perceptron": lambda: perceptron(8, 8, 4), "bands": lambda: separable(24)}


@pytest.fixture(scope="module")
def device():
    with LinkedDevice(Link(CountingTransport(find_library(CONFIG))), CONFIG) as device:
        yield device


def batch_of(graph, samples, kind):
    rng = np.random.default_rng(3)
    shape = {name: (samples, *graph.sample_shape(name)) for name in graph.inputs}
    if kind == "codes":
        return {name: (rng.integers(0, 200, size) - 100) / 37 for name, size in shape.items()}
    return {name: rng.normal(0, 1, size) for name, size in shape.items()}


@pytest.mark.parametrize("kind", ["codes", "many"])
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_the_same_bits(device, make, kind):
    graph = make()
    compiled = compile_graph(graph, CONFIG)
    given = batch_of(graph, 7, kind)
    with connect("emulator", CONFIG) as emulator:
        emulator.load(compiled.image)
        want = compiled.run(emulator, given)
    device.load(compiled.image)
    for _ in range(2):  # with the script to be written, and without
        got = compiled.run(device, given)
        for name, values in want.items():
            np.testing.assert_array_equal(got[name], values)


def test_a_trap_is_told_and_the_next_batch_runs(device):
    compiled = compile_graph(NETWORKS["perceptron"](), CONFIG)
    given = batch_of(compiled.graph, 3, "codes")
    device.load(compiled.image)
    want = compiled.run(device, given)
    device.write("PROGRAM", 1, [0])
    with pytest.raises(TrapError, match="at address 1"):
        compiled.run(device, given)
    device.write("PROGRAM", 1, [compiled.image.program[1]])
    got = compiled.run(device, given)
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values)
