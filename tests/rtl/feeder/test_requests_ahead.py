"""Requests ahead of their replies on the compiled RTL: a line without flow control, latency, damage and loss."""

import random
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import Link, LinkedDevice, connect
from concord.host.frames import line_bytes
from concord.host.rates import rates
from concord.host.rtl import RtlTransport, find_library
from concord.image.feeder_layout import Feeding
from concord.spec.boards import link_of
from concord.spec.links import FTDI
from concord.spec.memmap import RegionId
from support.fed_nets import NETWORKS, batch_of
from support.noisy_line import damage_of
from support.paced_transport import PacedTransport
from support.rtl_configs import FED_AHEAD

pytestmark = pytest.mark.slow

#: The same hardware with a slow clock, so that milliseconds are few cycles.
SLOW = FED_AHEAD.replace(clock_hz=4_000_000)
BYTE_CYCLES = int(SLOW.clock_hz / link_of(SLOW.board).bytes_per_second)


def samples_of(compiled, size, scale=1.0):
    values = batch_of(compiled.graph, size, "many")
    return compiled.package.arrangement.pack({name: scale * value for name, value in values.items()})


def expected(image, inputs):
    with connect("emulator", image.config) as emulator:
        emulator.load(image)
        return emulator.run(inputs)


def assert_equal(got, want):
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values)


@pytest.mark.parametrize("fed", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_at_the_speed_of_a_line(name, fed):
    """No byte is dropped, though nothing holds the host back: so many fit into the buffer."""
    compiled = compile_graph(NETWORKS[name](), SLOW)
    image = compiled.image if fed else replace(compiled.image, feeding=Feeding())
    inputs = samples_of(compiled, 9)
    with LinkedDevice(Link(PacedTransport(find_library(SLOW), BYTE_CYCLES, 4000)), SLOW) as device:
        device.load(image)
        for _ in range(2):
            assert_equal(device.run(inputs), expected(image, inputs))
        assert device.link.repeated == 0


class Damaging(RtlTransport):
    """A line that damages and loses bytes in both directions, as soon as it is told to."""

    def __init__(self, library, seed, rate):
        super().__init__(library)
        self.damage = damage_of(random.Random(seed), rate)
        self.on = False

    def write(self, data):
        super().write(self.damage(data) if self.on else data)

    def read(self, count, timeout):
        data = super().read(count, timeout)
        return self.damage(data) if self.on else data


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "fed"), [("residual", True), ("gru", True), ("perceptron", True), ("gru", False)])
def test_damage_and_loss_with_many_on_the_way(name, fed, seed):
    """Results are those of the emulator; had the inbox a byte twice or a run been started twice, they would not be."""
    compiled = compile_graph(NETWORKS[name](), SLOW)
    image = compiled.image if fed else replace(compiled.image, feeding=Feeding())
    inputs = samples_of(compiled, 24)
    line = Damaging(find_library(SLOW), seed, 0.001)
    with LinkedDevice(Link(line, retries=400, timeout=0.02), SLOW) as device:
        device.load(image)
        line.pace(BYTE_CYCLES, 2000)
        line.on = True
        assert_equal(device.run(inputs), expected(image, inputs))
        assert device.link.repeated > 0


@pytest.mark.parametrize("latency", [FTDI.latency, pytest.param(FTDI.default_latency, marks=pytest.mark.deep)])
def test_writes_are_as_fast_as_the_line(latency):
    """Within 3 % of the time of the bytes, whatever the latency, as the buffer holds more than travels meanwhile."""
    line = PacedTransport(find_library(SLOW), BYTE_CYCLES, round(latency * SLOW.clock_hz))
    with LinkedDevice(Link(line), SLOW) as device:
        wide = device.regions[RegionId.WIDE]
        rng = random.Random(1)
        data = rng.randbytes(wide.depth * wide.nbytes)

        def cycles(times):
            before = line.cycles, line.sent
            for _ in range(times):
                device.link.post_write(wide, 0, data)
            device.link.ping()
            return line.cycles - before[0], line.sent - before[1]

        (one, few), (two, more) = cycles(1), cycles(2)
        assert (two - one) / ((more - few) * BYTE_CYCLES) < 1.03
        assert device.link.read(wide, 0, wide.depth) == data
        assert few > len(data) + line_bytes(0)


@pytest.mark.parametrize("latency", [FTDI.latency, pytest.param(FTDI.default_latency, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("name", "fed", "within"), [("perceptron", True, 0.05), ("residual", True, 0.2), ("residual", False, 0.05)]
)
def test_rates_are_those_of_the_line(name, fed, within, latency):
    """Samples per second in a batch, and one at a time, as estimated.

    The layout of the second one takes as long as its bytes on the line, so neither hides what delays the other.
    """
    compiled = compile_graph(NETWORKS[name](), SLOW)
    image = compiled.image if fed else replace(compiled.image, feeding=Feeding())
    estimate = rates(image)
    if latency != FTDI.latency:
        estimate = estimate.at_default or estimate
    line, scales = PacedTransport(find_library(SLOW), 0), count(1)
    with LinkedDevice(Link(line), SLOW) as device:
        device.load(image)

        def seconds(size):
            """Of a call with other samples than before."""
            inputs = samples_of(compiled, size, next(scales))
            before = line.cycles
            device.run(inputs)
            return (line.cycles - before) / SLOW.clock_hz

        few = 4 if not fed else 16 * SLOW.max_payload // round(estimate.bytes_in)
        seconds(few)  # writes the script
        line.pace(BYTE_CYCLES, round(latency * SLOW.clock_hz))
        each = (seconds(2 * few) - seconds(few)) / few
        assert 1 / estimate.per_second == pytest.approx(each, rel=within)
        seconds(1)
        assert estimate.latency_seconds == pytest.approx(seconds(1), rel=0.05)
