"""The bus as a transport: with a model of the device on it, and with the compiled RTL."""

import random
import sys

import pytest

import concord.host.spi as spi
from concord.host import Link, LinkedDevice, LinkError, connect
from concord.host.errors import LinkTimeout
from concord.host.rtl import find_library
from concord.host.spi import CALL_BYTES, SpiTransport
from concord.spec.link import FLAG
from concord.spec.links import LinkKind
from concord.spec.presets import ECP5_85F, TINY
from support.link_model import DeviceModel
from support.simulated_time import SimulatedTime
from support.spi_bus import ModelBus, spidev_of

#: Seconds of a byte.
BYTE = 1e-6


def transport_of(bus):
    time = SimulatedTime(step=1e-3)
    return SpiTransport(bus, BYTE, clock=time, sleep=time.sleep), time


@pytest.mark.parametrize("seed", range(3))
def test_words_there_and_back(seed):
    rng = random.Random(seed)
    words = [rng.getrandbits(64) for _ in range(64)]
    model = DeviceModel(TINY)
    bus = ModelBus(model, seed)
    transport, _ = transport_of(bus)
    with LinkedDevice(Link(transport), TINY) as device:
        device.write("WIDE", 0, words)
        assert device.read("WIDE", 0, 64) == words
        assert device.link.repeated == 0
    assert model.errors == 0 and bus.closed
    assert transport.byte_time == BYTE and not transport.controlled


def test_requests_share_calls():
    """As many as there are for, and a reply that is long needs few more."""
    bus = ModelBus(DeviceModel(ECP5_85F))
    transport, _ = transport_of(bus)
    with LinkedDevice(Link(transport), ECP5_85F) as device:
        bus.calls.clear()
        device.write("WIDE", 0, [1] * 256)
        assert max(bus.calls) > 0.9 * ECP5_85F.request_buffer and sum(bus.calls) < 1.1 * 256 * 32
        bus.calls.clear()
        device.read("WIDE", 0, 32)
        assert bus.calls in ([256, 512, 1024], [256, 512, 1024, 1024])


def test_a_call_has_so_many_bytes_at_the_most():
    bus = ModelBus(DeviceModel(TINY))
    transport, _ = transport_of(bus)
    transport.write(bytes([FLAG]) * (2 * CALL_BYTES + 1))
    assert bus.calls == [CALL_BYTES] * 2
    assert transport.read(1, 0.1) == b"" and bus.calls[2] == spi.POLL_BYTES


def test_nothing_comes():
    class Mute:
        calls = 0

        def xfer2(self, values):
            Mute.calls += 1
            return [FLAG] * len(values)

    transport, time = transport_of(Mute())
    assert transport.read(10, 0.1) == b""
    assert Mute.calls == len(time.slept) > 10
    assert max(time.slept) == spi.MOST_REST and time.slept == sorted(time.slept)
    with pytest.raises(LinkTimeout, match="PING failed 5 times"):
        Link(transport, timeout=0.02).synchronise()


@pytest.mark.parametrize("level", [0x00, 0xFF])
@pytest.mark.parametrize("calls", [0, 20])
def test_a_wire_that_nobody_drives(level, calls):
    """From the start, and from within a reply on: the host gives up."""

    class Unplugged(ModelBus):
        def xfer2(self, values):
            came = super().xfer2(values)
            good = len(came) if len(self.calls) <= calls else 8 if len(self.calls) == calls + 1 else 0
            return came[:good] + [level] * (len(came) - good)

    transport, _ = transport_of(Unplugged(DeviceModel(ECP5_85F)))
    with pytest.raises(LinkTimeout, match=r"(PING|READ) failed 5 times"):
        device = LinkedDevice(Link(transport, timeout=0.02), ECP5_85F)
        while True:
            device.read("WIDE", 0, 256)


@pytest.mark.parametrize("value", [0, (1 << 256) - 1])
def test_a_reply_of_many_equal_bytes_is_none(value):
    transport, _ = transport_of(ModelBus(DeviceModel(ECP5_85F), pauses=False))
    with LinkedDevice(Link(transport, timeout=0.02), ECP5_85F) as device:
        device.write("WIDE", 0, [value] * 256)
        assert device.read("WIDE", 0, 256) == [value] * 256
        assert device.link.repeated == 0


def test_a_bus_that_fails():
    class Broken:
        def xfer2(self, values):
            raise OSError(121, "Remote I/O error")

    transport, _ = transport_of(Broken())
    with pytest.raises(LinkError, match=r"the SPI bus failed: .*Remote I/O error"):
        transport.read(1, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/dev/spidev0.1", "spi:/dev/spidev0.1"])
def test_connect_to_the_rtl_on_a_bus(monkeypatch, target):
    """Every edge between the driver and the pins of the NPU."""
    module = spidev_of(find_library(TINY, link=LinkKind.SPI))
    monkeypatch.setitem(sys.modules, "spidev", module)
    words = [random.Random(1).getrandbits(64) for _ in range(64)]
    with connect(target, TINY) as device:
        (bus,) = module.opened
        assert (bus.mode, bus.max_speed_hz) == (0, 25_000_000)
        device.write("WIDE", 0, words)
        assert device.read("WIDE", 0, 64) == words
        assert device.link.repeated == bus.dropped == 0


def test_a_bus_that_is_not_there(monkeypatch):
    class SpiDev:
        def open(self, bus, chip):
            raise FileNotFoundError(2, "No such file or directory")

        def close(self):
            pass

    module = type(sys)("spidev")
    module.SpiDev = SpiDev
    monkeypatch.setitem(sys.modules, "spidev", module)
    with pytest.raises(LinkError, match=r"cannot open '/dev/spidev7.0': .*No such file or directory"):
        connect("/dev/spidev7.0")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "spidev", None)
    with pytest.raises(LinkError, match=r"^SPI needs spidev, not installed; pip install -e '.*\[spi\]'$"):
        connect("/dev/spidev0.0", TINY)


@pytest.mark.parametrize(
    ("target", "link"), [("/dev/spidev0.0", "uart"), ("spi:/dev/spidev0.0", "usb"), ("COM3", "spi")]
)
def test_a_link_that_cannot_be_there(target, link):
    with pytest.raises(ValueError, match=f"^link must be one that can be behind {target}, not '{link}'$"):
        connect(target, TINY, link=link)


@pytest.mark.parametrize("target", ["/dev/spidev0", "spi:/dev/ttyUSB0", "/dev/spidev0.0x", "spidev0.0"])
def test_names_of_buses(target):
    assert spi.is_spi("spi:/dev/spidev10.2") and not spi.is_spi(target)
    with pytest.raises(ValueError, match=f"target must be like /dev/spidev0.0, not '{target}'"):
        spi.open_spi(target, None)
