"""The serial port as a transport, against a model of the device behind a pseudo-terminal."""

import random

import pytest

from concord.host import Link, LinkError, connect, serial_port
from concord.host.errors import LinkTimeout
from concord.host.serial_port import LatencyWarning, SerialTransport
from concord.spec.links import USB, uart
from concord.spec.presets import TINY
from support.link_model import DeviceModel, ModelTransport
from support.pty_bridge import bridged


def test_words_there_and_back(monkeypatch):
    """The clock stands still, so that a busy machine repeats nothing."""
    monkeypatch.setattr(SerialTransport, "clock", lambda self: 0.0)
    rng = random.Random(1)
    words = [rng.getrandbits(64) for _ in range(64)]
    model = DeviceModel(TINY)
    with bridged(ModelTransport(model)) as port, connect(port, baud=115_200) as device:
        assert device.config == TINY
        device.write("WIDE", 0, words)
        assert device.read("WIDE", 0, 64) == words
        device.start(5)
        device.wait()
        assert device.link.repeated == 0
    assert model.errors == 0


def test_a_port_that_does_not_exist():
    with pytest.raises(LinkError, match="cannot open serial port '/dev/no_such_port'"):
        connect("/dev/no_such_port")


def test_nothing_comes():
    with bridged(ModelTransport(DeviceModel(TINY))) as port:
        transport = SerialTransport(port, uart(115_200))
        assert transport.read(10, 0.01) == b""
        assert transport.byte_time == pytest.approx(10 / 115_200)
        transport.close()


def test_nobody_answers():
    class Mute:
        def write(self, data):
            pass

        def read(self, count, timeout):
            return b""

    with bridged(Mute()) as port:
        link = Link(SerialTransport(port, uart(1_000_000)), timeout=0.02)
        with pytest.raises(LinkTimeout, match="PING failed 5 times"):
            link.synchronise()
        link.close()


class Port:
    """A serial port with a driver that takes the setting, refuses it, or has none."""

    refuses, asked, timeout = None, None, 0

    def __init__(self, port, *_, **__):
        pass

    def set_low_latency_mode(self, wanted):
        if self.refuses:
            raise self.refuses
        type(self).asked = wanted


FTDI_PORT = uart(3_000_000)


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Opens a port of Linux whose latency timer shows so many milliseconds, with a driver as described."""
    monkeypatch.setattr(serial_port, "PORTS", tmp_path)

    def opening(timer, refuses=None, link=FTDI_PORT):
        (tmp_path / "ttyUSB7" / "device").mkdir(parents=True)
        if timer is not None:
            (tmp_path / "ttyUSB7" / "device" / "latency_timer").write_text(f"{timer}\n")
        kind = type("Here", (Port,), {"refuses": refuses})
        monkeypatch.setattr(serial_port.serial, "Serial", kind)
        SerialTransport("/dev/ttyUSB7", link)
        return kind.asked

    return opening


@pytest.mark.parametrize("timer", [1, None])
def test_low_latency_is_set(opened, timer):
    assert opened(timer) is True


def test_a_port_without_a_timer_is_quiet(opened):
    assert opened(None, ValueError("Failed to update ASYNC_LOW_LATENCY flag")) is None


@pytest.mark.parametrize("refuses", [None, ValueError("Failed to update ASYNC_LOW_LATENCY flag")])
def test_replies_that_are_held_back_are_told(opened, tmp_path, refuses):
    remedy = f"wait up to 16 ms each.*What helps: echo 1 . sudo tee {tmp_path}/ttyUSB7/device/latency_timer$"
    with pytest.warns(LatencyWarning, match=remedy):
        opened(16, refuses)


@pytest.mark.parametrize("refuses", [NotImplementedError(), AttributeError()])
def test_a_system_without_the_setting_is_told(opened, refuses):
    with pytest.warns(LatencyWarning, match="latency timer of the port to 1 ms .Windows: Device Manager"):
        opened(None, refuses)


def test_a_link_without_a_timer_is_quiet_on_every_system(opened):
    assert opened(None, NotImplementedError(), USB) is None
