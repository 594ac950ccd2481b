"""The serial port as a transport, against a model of the device behind a pseudo-terminal."""

import random

import pytest

from concord.host import Link, LinkError, connect
from concord.host.errors import LinkTimeout
from concord.host.serial_port import SerialTransport
from concord.spec.presets import TINY
from support.link_model import DeviceModel, ModelTransport
from support.pty_bridge import bridged


def test_words_there_and_back():
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
        transport = SerialTransport(port, 115_200)
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
        link = Link(SerialTransport(port, 1_000_000), timeout=0.02)
        with pytest.raises(LinkTimeout, match="PING failed 5 times"):
            link.synchronise()
        link.close()
