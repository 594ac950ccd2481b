"""Sliding depthwise products on the RTL: bits and all counters of random programs and of compiled networks."""

import random

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.emulator import ReferenceMachine
from concord.host import connect
from concord.program import trace
from concord.spec import multipliers
from concord.spec.memmap import Reg
from concord.spec.presets import TINY
from support.back_door import connected
from support.core_bench import execute
from support.device_runs import check_seeds
from support.expressions import network, tensor
from support.program_gen import random_program
from support.row_tiled_nets import conv
from support.rtl_configs import SLIDING

pytestmark = pytest.mark.slow

#: Pairs of lanes with one place and with two.
PAIRS = TINY.replace(native=8, lanes=8, mfu_lanes=4, window_taps=6, matrix_depth=64)


@pytest.fixture(scope="module")
def device():
    with connected(SLIDING) as device:
        yield device


def test_random_programs(device):
    check_seeds(device, lambda rng: random_program(SLIDING, rng, 8)[1], range(40))


@pytest.mark.parametrize("seed", [pytest.param(10, marks=pytest.mark.deep), 13])
def test_rows_that_share_their_multipliers(seed, monkeypatch):
    monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    assert multipliers.paired(PAIRS)
    _, memories = random_program(PAIRS, random.Random(seed), 8)
    assert any(chain.sliding for chain in trace(memories.program.tolist(), PAIRS).chains)
    registers, after = execute(memories)
    want = memories.copy()
    run = ReferenceMachine(want).run()
    assert want.differences(after) == []
    assert registers[Reg.CYCLES] == run.cycles


def between_products(kernel, strides, pads):
    """A depthwise convolution between two products, of twelve channels: three native vectors."""
    rng = np.random.default_rng(3)
    first = conv(rng, tensor(1, 3, 6, 8), 12, (1, 1)).relu()
    deep = conv(rng, first, 12, kernel, 12, strides=strides, pads=pads).relu()
    return network(conv(rng, deep, 4, (1, 1)))


@pytest.mark.parametrize(
    ("kernel", "strides", "pads"),
    [((2, 2), (1, 1), (1, 1, 0, 0)), ((1, 4), (1, 2), (0, 1, 0, 2)), ((1, 3), (2, 1), (0, 1, 0, 1))],
)
def test_networks(device, kernel, strides, pads):
    """The bits and counters of the emulator, and the bits of a plain depthwise product."""
    graph = between_products(kernel, strides, pads)
    compiled = compile_graph(graph, SLIDING)
    assert sum(chain.sliding for chain in trace(list(compiled.image.program), SLIDING).chains) == 3
    plain = SLIDING.replace(window_taps=0)
    x = {"x": np.random.default_rng(5).normal(0, 1, (2, 3, 6, 8))}
    results, counters = [], []
    for config in (plain, SLIDING):
        with connect("emulator", config) as emulated:
            made = compile_graph(graph, config)
            emulated.load(made.image)
            results.append(made.run(emulated, x)["y"])
            counters.append(emulated.counters())
    device.load(compiled.image)
    results.append(compiled.run(device, x)["y"])
    assert device.counters() == counters[1]
    for found in results[1:]:
        np.testing.assert_array_equal(found, results[0])
