"""The NPU behind its USB port, bit by bit: the same results as the emulator, whatever happens on the line."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import Link, LinkedDevice, connect
from concord.host.rtl import find_library
from concord.host.usb_host import Pid, UsbHost
from concord.host.usb_rtl import RtlLine, UsbRtlTransport
from concord.spec.boards import link_of
from concord.spec.links import LinkKind
from concord.spec.presets import TINY
from support.fed_nets import NETWORKS, batch_of
from support.host_samples import INPUTS, layer_image
from support.rtl_configs import FED_AHEAD
from support.usb_echo import FaultyLine

pytestmark = pytest.mark.slow

USB = link_of("", "usb")


@pytest.fixture(scope="module")
def network():
    """A network whose inputs the device lays out, a batch, and what comes of it."""
    compiled = compile_graph(NETWORKS["residual"](), FED_AHEAD)
    inputs = compiled.package.arrangement.pack(batch_of(compiled.graph, 9, "many"))
    with connect("emulator", FED_AHEAD) as emulator:
        emulator.load(compiled.image)
        return compiled.image, inputs, emulator.run(inputs)


class Interrupted(UsbRtlTransport):
    """A transport on which something happens after some packets, once."""

    def __init__(self, line, event, polls, **options):
        super().__init__(line, USB, **options)
        self.event, self.polls, self.left = event, polls, None

    def poll(self):
        super().poll()
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.event(self)

    def begin(self):
        """From now on packets count."""
        self.left = self.polls


def check(device, network):
    _, inputs, want = network
    outputs = device.run(inputs)
    for name, values in want.items():
        np.testing.assert_array_equal(outputs[name], values)


def test_connect_simulates_the_line_to_the_bit():
    image = layer_image(TINY)
    x = np.random.default_rng(3).normal(size=(2, INPUTS))
    with connect("emulator", TINY) as emulator, connect("rtl", TINY, link="usb") as device:
        for each in (emulator, device):
            each.load(image)
        np.testing.assert_array_equal(device.run({"x": x})["y"], emulator.run({"x": x})["y"])
        assert device.link.transport.device.strings[1] == "Concord NPU"
        assert device.link.window > 0 == TINY.request_buffer  # the line holds bytes back
        assert device.link.repeated == 0


def test_a_batch_over_a_line_that_loses_and_damages_packets(network):
    faults = {
        "damaged": dict.fromkeys((Pid.DATA0, Pid.DATA1, Pid.OUT, Pid.IN), 0.05),
        "lost": {Pid.ACK: 0.1},
        "unheard": dict.fromkeys((Pid.ACK, Pid.NAK, Pid.DATA0, Pid.DATA1), 0.05),
    }
    line = FaultyLine(RtlLine(find_library(FED_AHEAD, link=LinkKind.USB), FED_AHEAD.clock_hz), 1, **faults)
    transport = UsbRtlTransport(line, USB, host=UsbHost(line, attempts=20))
    line.active = True
    with LinkedDevice(Link(transport), FED_AHEAD) as device:
        device.load(network[0])
        check(device, network)
        assert line.faults > 20 and device.link.repeated == 0


EVENTS = {
    "reset": (lambda transport: transport.attach(), True),
    "suspend": (lambda transport: transport.host.suspend(4e-3), False),
}


@pytest.mark.parametrize(("event", "loses"), EVENTS.values(), ids=list(EVENTS))
@pytest.mark.parametrize("polls", [3, 10])
def test_a_batch_goes_on_behind_what_happens_to_the_bus(network, event, loses, polls):
    line = RtlLine(find_library(FED_AHEAD, link=LinkKind.USB), FED_AHEAD.clock_hz)
    transport = Interrupted(line, event, polls)
    with LinkedDevice(Link(transport, timeout=0.05), FED_AHEAD) as device:
        device.load(network[0])
        transport.begin()
        check(device, network)
        assert transport.left <= 0
        assert bool(device.link.repeated) == loses
