"""Bytes, times and rates that are shown: those of the driver on the line, and of the board."""

import re
from dataclasses import replace

import numpy as np
import pytest

import concord.host.serial_port as serial_port
from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.host import Link, LinkedDevice, connect
from concord.host.errors import LinkTimeout
from concord.host.rates import Rates, rates
from concord.host.traffic import traffic
from concord.spec.boards import BOARD_SPECS, baud_of
from concord.spec.link import BAUD, ESCAPE
from concord.spec.presets import ECP5_85F, ECP5_85F_256, TINY, with_accumulator, with_mantissas
from support.commands import run, two_products
from support.compiled_nets import perceptron, residual
from support.link_model import DeviceModel, ModelTransport
from support.row_tiled_nets import separable


class Counting(ModelTransport):
    """Bytes of both directions, without those that escapes add."""

    sent = received = 0

    def write(self, data):
        self.sent += len(data) - data.count(ESCAPE)
        super().write(data)

    def read(self, count, timeout):
        data = super().read(count, timeout)
        self.received += len(data) - data.count(ESCAPE)
        return data


@pytest.mark.parametrize("make", [residual, lambda: perceptron(40, 8, 70), lambda: separable(24)])
def test_bytes_are_those_of_the_driver(make):
    compiled = compile_graph(make(), TINY.replace(matrix_depth=2048))
    image, runs = compiled.image, 3
    transport = Counting(DeviceModel(image.config))
    device = LinkedDevice(Link(transport), image.config)
    device.load(image)
    before = transport.sent, transport.received
    rng = np.random.default_rng(1)
    device.run({port.name: rng.normal(0, 1, (runs, *port.shape)) for port in image.inputs})
    line = traffic(image)
    assert (transport.sent - before[0], transport.received - before[1]) == (runs * line.sent, runs * line.received)
    assert line.requests > 2 and line.sent > 10 * line.requests


def test_rates_of_a_board():
    image = compile_graph(perceptron(40, 8, 16), ECP5_85F_256).image
    image = replace(image, config=ECP5_85F_256.replace(inbox=0))
    one, two = rates(image), rates(image, 2)
    line, board = traffic(image), BOARD_SPECS["ulx3s-85f"]
    assert one.input_route == "laid out by the host: ecp5-85f-256 has no inbox"
    assert (one.sent, one.received, one.clock_hz, one.baud) == (line.sent, line.received, board.clock_hz, board.baud)
    assert one.cycles == count(image.program, ECP5_85F_256).cycles
    assert one.limit == "link" and one.per_second * 2 == pytest.approx(two.per_second)
    slow = rates(replace(image, config=image.config.replace(clock_hz=1000)))
    assert slow.limit == "computation" and slow.per_second < 1000 / one.cycles


def test_times_add_up():
    found = Rates(900, 100, 5, 500_000, 2, 50_000_000, 1_000_000)
    assert found.link_seconds == pytest.approx(5e-3) and found.compute_seconds == pytest.approx(5e-3)
    assert found.per_second == pytest.approx(100) and (found.bytes_in, found.bytes_out) == (450, 50)
    assert found.text == (
        "at 50 MHz and 1 Mbit/s, a sample takes 450 bytes in and 50 out, 5 ms on the link and 5 ms to compute: "
        "100 samples/s, limited by the computation"
    )


def test_bit_rate_of_a_configuration():
    assert BOARD_SPECS["ulx3s-85f"].baud == 3_000_000
    assert baud_of("ecp5-85f") == baud_of(with_mantissas(ECP5_85F, 5).name) == BOARD_SPECS["ulx3s-85f"].baud
    narrow = with_accumulator(with_mantissas(ECP5_85F, 5), 44, weights=(-12, 0))
    assert narrow.name == "ecp5-85f-m5-a44" and baud_of(narrow.name) == baud_of("ecp5-85f")
    assert baud_of("up5k") == BOARD_SPECS["icebreaker"].baud
    assert baud_of("ecp5-85fast") == baud_of("tiny") == BAUD


class Board(ModelTransport):
    """Understands one bit rate only."""

    rate, opened = BAUD, ()

    def __init__(self, port, baud):
        super().__init__(DeviceModel(ECP5_85F))
        type(self).opened += (baud,)
        self.deaf = baud != self.rate

    def write(self, data):
        if not self.deaf:
            super().write(data)


@pytest.mark.parametrize(
    ("rate", "config", "baud", "opened"),
    [
        (3_000_000, ECP5_85F, None, (3_000_000,)),
        (115_200, ECP5_85F, 115_200, (115_200,)),
        (3_000_000, None, None, (3_000_000, 3_000_000)),
        (1_000_000, None, None, (3_000_000, 1_000_000)),
    ],
)
def test_the_bit_rate_is_that_of_the_board(monkeypatch, rate, config, baud, opened):
    monkeypatch.setattr(serial_port, "SerialTransport", type("Here", (Board,), {"rate": rate}))
    with connect("/dev/somewhere", config, baud=baud) as device:
        assert device.config == ECP5_85F and device.link.transport.opened == opened


def test_nobody_answers_at_any_bit_rate(monkeypatch):
    monkeypatch.setattr(serial_port, "SerialTransport", type("Here", (Board,), {"rate": 0}))
    monkeypatch.setattr("concord.host.Link", lambda transport, **_: Link(transport, timeout=0.01))
    with pytest.raises(LinkTimeout, match="PING failed"):
        connect("/dev/somewhere")


def test_compile_and_inspect_show_rates(tmp_path):
    two_products(tmp_path)
    code, output = run("compile", tmp_path / "net.onnx", "--board", "ulx3s-85f", "-o", tmp_path / "net")
    assert code == 0
    clock = f"{BOARD_SPECS['ulx3s-85f'].clock_hz / 1e6:g} MHz"
    (line,) = (line for line in output.splitlines() if f"; at {clock} and 3 Mbit/s, a sample takes " in line)
    found = re.search(r" meanwhile: ([\d,.]+) samples/s, limited by the (\w+); one alone takes ([\d.]+) ms$", line)
    rate, limit, alone = found.groups()
    way = "inputs travel raw: x: "
    assert way in output
    code, output = run("inspect", tmp_path / "net", "--only", "rates")
    assert code == 0 and f"{clock} and 3 Mbit/s" in output and way in output
    *numbers, limited = re.search(r"^ +([\d,.]+ .*)$", output, re.M)[1].split()
    assert limited == limit == "link"
    bytes_in, bytes_out, requests, _, _, latency, shown = (float(text.replace(",", "")) for text in numbers)
    shorter = tuple(int(n) for n in re.search(r"(\d+) bytes in and (\d+) out", line).groups())
    assert (round(bytes_in), round(bytes_out)) == shorter
    assert requests < 1 and round(latency, 3) == float(alone)
    assert abs(shown - float(rate.replace(",", ""))) <= 0.55  # a digit more here
