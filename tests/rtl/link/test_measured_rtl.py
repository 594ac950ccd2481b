"""What a batch takes on the compiled RTL behind every link, beside what is estimated."""

import secrets
from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import Link, LinkedDevice, connect
from concord.host.measured import compared_run
from concord.host.rtl import find_library
from concord.host.spi import POLL_BYTES
from concord.host.timed_line import LineTimes
from concord.host.usb_rtl import RtlLine, UsbRtlTransport
from concord.spec.boards import link_of
from concord.spec.links import Adapter, LinkKind
from support.fed_nets import NETWORKS, batch_of
from support.rtl_configs import FED_AHEAD

pytestmark = pytest.mark.slow

#: As a ULX3S has it.
CONFIG = FED_AHEAD.replace(board="ulx3s-85f", clock_hz=50_000_000)
SAMPLES = 24


@pytest.fixture(scope="module")
def network():
    compiled = compile_graph(NETWORKS["residual"](), CONFIG)
    inputs = compiled.package.arrangement.pack(batch_of(compiled.graph, SAMPLES, "many"))
    with connect("emulator", CONFIG) as emulator:
        emulator.load(compiled.image)
        return compiled.image, inputs, emulator.run(inputs)


@pytest.mark.parametrize("name", [kind.value for kind in LinkKind])
def test_a_batch_takes_as_long_as_estimated(network, name):
    image, inputs, want = network
    with connect("rtl", CONFIG, link=name) as device:
        device.load(image)
        outputs, found = compared_run(device, inputs)
        assert found.simulated and device.link.repeated == 0
    for port, values in want.items():
        np.testing.assert_array_equal(outputs[port], values)
    assert found.differences["batch"] == pytest.approx(0, abs=0.05)
    assert found.differences["alone"] == pytest.approx(0, abs=0.05)
    assert found.differences["sent"] == pytest.approx(0, abs=0.05)
    assert found.estimate.link.name == name


def test_one_look_more(network, monkeypatch):
    """Escaped bytes, which no estimate knows, may push the end of a reply out of a call that looks for it."""
    image, inputs, _ = network
    cycles = []
    for first in (192, 0):  # sequence numbers: without and with such a byte
        monkeypatch.setattr(secrets, "randbelow", lambda _, first=first: first)
        with connect("rtl", CONFIG, link="spi") as device:
            device.load(image)
            _, found = compared_run(device, inputs)
        cycles.append(found.run.line.cycles)
        estimated, link = found.line.cycles, found.estimate.link
    byte = LineTimes.of(link, CONFIG.clock_hz, link.adapter.latency).byte
    assert cycles[0] == pytest.approx(estimated, rel=0.01)
    assert cycles[1] - cycles[0] == pytest.approx(POLL_BYTES * byte, rel=0.01)  # the next look is twice as long


@pytest.mark.deep
def test_more_latency_than_said(network):
    """A line that sees replies 4 ms later than what is estimated with."""
    image, inputs, _ = network
    said = link_of(CONFIG.board, "usb")
    slow = replace(said, adapter=Adapter(name="slow", latency=5e-3, default_latency=5e-3))
    transport = UsbRtlTransport(RtlLine(find_library(CONFIG, link=LinkKind.USB), CONFIG.clock_hz), slow)
    with LinkedDevice(Link(transport), CONFIG, said) as device:
        device.load(image)
        _, found = compared_run(device, inputs)
    assert found.differences["alone"] > 1
    assert "+" in dict(zip(*(list(found.table().columns[k].cells) for k in (0, 3)), strict=True))["ms for a run alone"]
