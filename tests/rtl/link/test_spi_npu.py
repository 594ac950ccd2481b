"""The NPU as the slave of a host, edge by edge: the same results as the emulator, whatever happens on the wires."""

import random
from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import Link, LinkedDevice, connect
from concord.host.measured import compared_run
from concord.host.rtl import find_library
from concord.host.spi_rtl import RtlSpi, SpiRtlTransport
from concord.spec.boards import link_of
from concord.spec.link import FLAG
from concord.spec.links import LinkKind
from concord.spec.presets import TINY
from support.fed_nets import NETWORKS, batch_of
from support.host_samples import INPUTS, layer_image
from support.rtl_configs import FED_AHEAD

pytestmark = pytest.mark.slow

SPI = link_of("ulx3s-85f", "spi")
#: Without the time of a call, which makes simulations long.
QUICK = replace(SPI, adapter=replace(SPI.adapter, latency=0.0))


@pytest.fixture(scope="module", params=["residual", "gru"])
def network(request):
    """A network whose inputs the device lays out, a batch, and what comes of it."""
    compiled = compile_graph(NETWORKS[request.param](), FED_AHEAD)
    inputs = compiled.package.arrangement.pack(batch_of(compiled.graph, 9, "many"))
    with connect("emulator", FED_AHEAD) as emulator:
        emulator.load(compiled.image)
        return compiled.image, inputs, emulator.run(inputs)


def check(device, network):
    _, inputs, want = network
    outputs = device.run(inputs)
    for name, values in want.items():
        np.testing.assert_array_equal(outputs[name], values)


def test_connect_simulates_every_edge():
    image = layer_image(TINY)
    x = np.random.default_rng(3).normal(size=(2, INPUTS))
    with connect("emulator", TINY) as emulator, connect("rtl", TINY, link="spi") as device:
        for each in (emulator, device):
            each.load(image)
        np.testing.assert_array_equal(device.run({"x": x})["y"], emulator.run({"x": x})["y"])
        assert device.link.repeated == device.link.transport.rtl.dropped == 0


@pytest.mark.parametrize("clock_hz", [24_000_000, 48_000_000, 82_000_000])
def test_the_same_bits_at_the_speed_of_the_bus(network, clock_hz):
    """Without a gap between bytes, and with the times of a call; no byte is dropped, though nothing holds the host."""
    for link in (replace(QUICK, bytes_per_second=QUICK.clock_hz / 8), SPI):
        bus = RtlSpi(find_library(FED_AHEAD, link=LinkKind.SPI))
        with LinkedDevice(Link(SpiRtlTransport(bus, clock_hz, link)), FED_AHEAD) as device:
            device.load(network[0])
            check(device, network)
            assert device.link.repeated == bus.dropped == 0


class Damaging(RtlSpi):
    """A bus that damages bits of both directions, and loses the end of a transfer, as soon as it is told to."""

    def __init__(self, library, seed, rate):
        super().__init__(library)
        self.rng, self.rate, self.on = random.Random(seed), rate, False

    def xfer2(self, values):
        came = super().xfer2(self.damaged(values))
        return list(self.damaged(came))

    def damaged(self, values):
        if not self.on:
            return values
        values = [value ^ (self.rng.random() < self.rate) << self.rng.randrange(8) for value in values]
        if self.rng.random() < 10 * self.rate:
            kept = self.rng.randrange(len(values))
            values[kept:] = [FLAG] * (len(values) - kept)
        return values


@pytest.mark.parametrize("seed", range(3))
def test_damage_and_loss_with_many_on_the_way(network, seed):
    bus = Damaging(find_library(FED_AHEAD, link=LinkKind.SPI), seed, 0.002)
    transport = SpiRtlTransport(bus, FED_AHEAD.clock_hz, QUICK)
    with LinkedDevice(Link(transport, retries=400, timeout=0.02), FED_AHEAD) as device:
        device.load(network[0])
        bus.on = True
        check(device, network)
        assert device.link.repeated > 0


def test_a_host_that_sends_too_much_is_answered_once_it_does_not():
    """Bytes beyond the buffer are dropped, and the requests that they belonged to are sent again."""
    bus = RtlSpi(find_library(TINY, link=LinkKind.SPI))
    words = [random.Random(1).getrandbits(64) for _ in range(64)]
    with LinkedDevice(Link(SpiRtlTransport(bus, TINY.clock_hz, QUICK), retries=50), TINY) as device:
        device.link.window = 1000  # though the device has no buffer
        device.write("WIDE", 0, words)
        assert bus.dropped > 0 and device.link.repeated > 0
        device.link.window = 0
        assert device.read("WIDE", 0, 64) == words


@pytest.mark.parametrize(("name", "samples", "within"), [("perceptron", 400, 0.05), ("residual", 100, 0.1)])
def test_rates_are_those_of_the_bus(name, samples, within):
    """Samples per second in a batch, as estimated."""
    compiled = compile_graph(NETWORKS[name](), FED_AHEAD)
    inputs = compiled.package.arrangement.pack(batch_of(compiled.graph, samples, "many"))
    with connect("rtl", FED_AHEAD, link="spi") as device:
        device.load(compiled.image)
        _, found = compared_run(device, inputs)
        assert device.link.repeated == 0
    assert found.differences["batch"] == pytest.approx(0, abs=within)
