"""Programs with copies from the external memory, on the compiled RTL with a model of the memory at its pins.

Contents of all memories, flags and counters are those of the reference machine, with the cycles of the model of the
controller. ``CONCORD_SEEDS`` is the number of random programs on each configuration.
"""

import os

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import connect
from concord.host.dram import memory_test
from concord.program import trace
from concord.spec.memmap import RegionId
from support.back_door import connected
from support.compiled_nets import perceptron
from support.device_runs import check_seeds
from support.program_gen import random_program
from support.row_tiled_nets import residual
from support.rtl_configs import COPYING, COPYING_ENGINES, COPYING_LANES

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "10"))


CONFIGS = [COPYING, *(pytest.param(config, marks=pytest.mark.deep) for config in (COPYING_ENGINES, COPYING_LANES))]


@pytest.fixture(scope="module", params=CONFIGS, ids=["copying", "engines", "lanes"])
def device(request):
    with connected(request.param) as device:
        yield device


def test_random_programs(device):
    check_seeds(device, lambda rng: random_program(device.config, rng, 12)[1], range(SEEDS))


@pytest.mark.parametrize("link", ["usb", pytest.param("spi", marks=pytest.mark.deep)])
def test_the_memory_beside_other_links(link):
    """The pins of the memory are driven where the link has clocks of its own."""
    image = compile_graph(perceptron(24, 70, 40, 3), COPYING).package.image
    x = {port.name: np.random.default_rng(2).normal(size=(1, *port.shape)) for port in image.inputs}
    with connect("emulator", COPYING) as emulator, connect("rtl", COPYING, link=link) as device:
        for each in (emulator, device):
            each.load(image)
        want, found = emulator.run(x), device.run(x)
        assert all(found[name].tobytes() == values.tobytes() for name, values in want.items())
        assert device.counters()["CYCLES"] == emulator.counters()["CYCLES"]


NETWORKS = {"weights": perceptron(24, 70, 40, 3), "maps": residual(6, 8, 4, 1)}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", [COPYING], ids=["copying"], indirect=True)
def test_a_network_with_more_weights_or_maps_than_the_memories_hold(device, name):
    """Its columns and its program are loaded over the link; results and cycles are those of the emulator."""
    config = device.config
    compiled = compile_graph(NETWORKS[name], config)
    image = compiled.package.image
    runs = [trace(image.program, config, phase.pc) for phase in image.schedule()]
    copies = {"weights": runs[-1].copies, "maps": runs[-1].vector_copies}
    assert [name for name, items in copies.items() if items] == [name]
    x = {port.name: np.random.default_rng(2).normal(size=(2, *port.shape)) for port in image.inputs}
    with connect("emulator", config) as other:
        other.load(image)
        want = other.run(x)
        cycles = other.counters()["CYCLES"]
    device.load(image)
    found = device.run(x)
    assert all(found[name].tobytes() == values.tobytes() for name, values in want.items())
    assert device.counters()["CYCLES"] == cycles


@pytest.mark.parametrize("device", [COPYING], ids=["copying"], indirect=True)
def test_weights_that_are_there_are_not_loaded_again(device, monkeypatch):
    """Until somebody writes to the external memory."""
    image = compile_graph(perceptron(24, 70, 40, 3), device.config).package.image
    x = np.random.default_rng(2).normal(size=(1, *image.inputs[0].shape))
    written, write = [], device._write
    monkeypatch.setattr(device, "_write", lambda region, *words: (written.append(region.id), write(region, *words)))
    device.load(image)
    want = device.run(x)
    for changed in (False, True):
        if changed:
            device.link.write(device.regions[RegionId.DRAM], 3, b"\xcd\xab")
        assert device.dram_state().kept is not changed
        written.clear()
        device.load(image)
        assert (RegionId.DRAM in written) is changed
        assert device.dram_state().kept
        assert device.run(x).tobytes() == want.tobytes()


def test_columns_over_the_link(device):
    """Reads and writes of the host at the ends of the memory, and the state of its clock."""
    columns, size = [0x1234, 0xFFFF, 0, 0x8001], device.config.sdram.columns
    for first in (0, 511, size - len(columns)):
        device.link.write(device.regions[RegionId.DRAM], first, np.array(columns, "<u2").tobytes())
        got = device.link.read(device.regions[RegionId.DRAM], first, len(columns))
        assert np.frombuffer(got, "<u2").tolist() == columns
    state = device.dram_state()
    assert state.works and state.width >= 3
    assert memory_test(device, 256, 1).errors == 0
