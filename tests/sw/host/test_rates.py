"""Bytes, times and rates that are shown: those of the driver on the line, and of the board."""

import re
from dataclasses import replace

import numpy as np
import pytest

import concord.host.serial_port as serial_port
from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.examples import softmax
from concord.host import Link, LinkedDevice, connect
from concord.host.errors import LinkTimeout
from concord.host.rates import Rates, rates
from concord.host.timed_line import LineTimes
from concord.host.traffic import fed_batch, fed_traffic, few_samples, traffic
from concord.image.feeder_scripts import route
from concord.spec import boards, builds
from concord.spec.boards import BOARD_SPECS, link_of
from concord.spec.builds import in_brackets
from concord.spec.config import NpuConfig
from concord.spec.link import BAUD, ESCAPE
from concord.spec.links import CONTROLLED_WINDOW, FTDI, uart, window_of
from concord.spec.presets import ECP5_25F, ECP5_85F, ECP5_85F_256, TINY, note_of, with_accumulator, with_mantissas
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
    assert (one.sent, one.received, one.clock_hz, one.link) == (line.sent, line.received, board.clock_hz, board.link())
    assert one.cycles == count(image.program, ECP5_85F_256).cycles
    assert one.limit == "link" and one.per_second * 2 == pytest.approx(two.per_second)
    slow = rates(replace(image, config=image.config.replace(clock_hz=50_000)))
    assert slow.per_second < 50_000 / one.cycles
    assert replace(slow, cycles=round(0.6 * slow.period)).limit == "computation"


def test_times_add_up():
    """Times in cycles of 50 MHz: 10 ms on the line, 10 ms to compute, and the rest."""
    found = Rates(
        900,
        100,
        5,
        500_000,
        1_250_000,
        1_250_000,
        2,
        50_000_000,
        uart(1_000_000),
        reply_seconds=1e-3,
        call_seconds=4e-3,
    )
    assert (found.wire_seconds, found.wait_seconds) == pytest.approx((5e-3, 2.5e-3))
    assert found.compute_seconds == found.device_seconds == pytest.approx(5e-3)
    assert found.per_second == pytest.approx(80) and (found.bytes_in, found.bytes_out) == (450, 50)
    assert found.latency_seconds == pytest.approx(25e-3) and found.single_per_second == pytest.approx(1000 / 29)
    slow = replace(found, reply_seconds=16e-3, period=5_000_000, latency=5_000_000)
    assert slow.per_second == pytest.approx(20) and found.limit == slow.limit == "link"
    assert replace(found, at_default=slow).text == (
        "80.0 samples/s in a batch, limited by the link; 34.5 one at a time (serial driver as installed, 16 ms a "
        "reply: 20.0 and 9.6); at 50 MHz and 1 Mbit/s, a sample takes 450 bytes in and 50 out, 5 ms on the line and "
        "2.5 ms for replies to 2.5 requests, and 5 ms to compute"
    )
    ahead = replace(found, window=4096, layout=50_000, period=550_000)  # bytes there and back at once
    assert (ahead.wire_seconds, ahead.device_seconds, ahead.wait_seconds) == pytest.approx((4.5e-3, 5.5e-3, 0))
    assert ahead.limit == "computation" and ahead.text.endswith("4.5 ms on the line, and 5 ms to compute meanwhile")
    assert replace(ahead, period=580_000).limit == "link"


@pytest.mark.parametrize("inbox", [0, ECP5_85F_256.inbox])
@pytest.mark.parametrize("buffer", [0, 8192])
def test_replies_are_held_back(monkeypatch, inbox, buffer):
    """Each that is waited for: with the feeder and requests ahead of replies none, as soon as enough are on the way."""
    image = compile_graph(perceptron(40, 8, 2), ECP5_85F_256).image
    image = replace(image, config=ECP5_85F_256.replace(inbox=inbox, request_buffer=buffer))

    def of(**changes):
        board = replace(BOARD_SPECS["ulx3s-85f"], links=(uart(3_000_000, replace(FTDI, **changes)),))
        monkeypatch.setitem(boards.BOARD_SPECS, "ulx3s-85f", board)
        return rates(image)

    none, some = of(latency=0.0), of(latency=4e-3)
    more = 1 / some.per_second - 1 / none.per_second
    waited = {
        (0, 0): some.requests,  # inputs, start, wait, and results
        (0, 8192): 2,  # for the end of the run, and for the results
        (2048, 0): some.requests,
        (2048, 8192): 0,
    }[inbox, buffer]
    assert more == pytest.approx(waited * 4e-3, abs=1e-5 if waited else 1e-3 / some.per_second)
    assert some.wait_seconds == pytest.approx(none.wait_seconds + more, abs=1e-5)
    assert 1 / some.single_per_second - 1 / none.single_per_second > 3 * 4e-3
    if waited:
        assert some.at_default.reply_seconds == FTDI.default_latency and some.at_default.at_default is None
    assert of(latency=16e-3).at_default is None  # nothing is gained by setting it


@pytest.mark.slow
@pytest.mark.parametrize("latency", [FTDI.latency, FTDI.default_latency])
@pytest.mark.parametrize("features, cycles", [(64, 500), (96, 500), (461, 18_605)])
def test_a_stream_is_what_a_long_batch_is(features, cycles, latency):
    """How long the last replies take says nothing of the samples before, and a full outbox holds up those behind."""
    image = compile_graph(perceptron(features, 8, 12), ECP5_85F_256).image
    found = route(image.feeding, image.schedule(), (image.inputs, image.outputs), {}, image.config)
    times = LineTimes.of(link_of(image.config.board), image.config.clock_hz, latency)
    stream = fed_traffic(image, found, [cycles], times)
    count = 8 * few_samples(image, found)
    one, two = (fed_batch(image, found, [cycles], times, size) for size in (count, 2 * count))
    assert stream.cycles * count == pytest.approx(two.cycles - one.cycles, rel=0.04)
    assert stream.sent * count == pytest.approx(two.sent - one.sent, rel=0.01)


@pytest.mark.slow
def test_bit_rate_of_a_configuration():
    assert BOARD_SPECS["ulx3s-85f"].link().baud == 3_000_000
    for config in (
        with_accumulator(with_mantissas(ECP5_85F, 5), 44, weights=(-12, 0)),
        ECP5_85F.replace(name="mine", narrow_depth=512),  # whatever it is called
        NpuConfig.from_dict({k: v for k, v in with_mantissas(ECP5_85F, 5).to_dict().items() if k != "board"}),
    ):
        assert link_of(config.board) == BOARD_SPECS["ulx3s-85f"].link()
        assert rates(compile_graph(perceptron(40, 8, 16), config).image).link == BOARD_SPECS["ulx3s-85f"].link()
    assert link_of("icebreaker") == BOARD_SPECS["icebreaker"].link()
    assert link_of("no such").baud == link_of(TINY.board).baud == BAUD


class Board(ModelTransport):
    """Understands one bit rate only."""

    rate, opened = BAUD, ()

    def __init__(self, port, link):
        super().__init__(DeviceModel(ECP5_85F))
        type(self).opened += (link.baud,)
        self.deaf = link.baud != self.rate

    def write(self, data):
        if not self.deaf:
            super().write(data)


@pytest.mark.parametrize(
    ("rate", "config", "baud", "opened"),
    [
        (3_000_000, ECP5_85F, None, (3_000_000,)),
        (115_200, ECP5_85F, 115_200, (115_200,)),
        (3_000_000, None, None, (6_000_000, 3_000_000, 3_000_000)),
        (115_200, None, None, (6_000_000, 3_000_000, 1_000_000, 115_200)),
        (6_000_000, None, None, (6_000_000, 6_000_000)),
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


@pytest.mark.slow
def test_compile_and_inspect_show_rates(tmp_path):
    two_products(tmp_path)
    code, output = run("compile", tmp_path / "net.onnx", "--preset", "ecp5-85f-256", "-o", tmp_path / "net")
    assert code == 0
    clock = f"{BOARD_SPECS['ulx3s-85f'].clock_hz / 1e6:g} MHz{in_brackets(note_of(ECP5_85F_256))}"
    speeds, line = (line for line in output.splitlines() if re.search("^on the board: |a sample takes", line))
    assert f" cycles per run; at {clock} and 3 Mbit/s, a sample takes " in line
    rate, limit, single = re.fullmatch(
        r"on the board: ([\d,.]+) samples/s in a batch, limited by the (\w+); ([\d,.]+) one at a time "
        r"\(serial driver as installed, 16 ms a reply: [\d,.]+ and [\d,.]+\)",
        speeds,
    ).groups()
    way = "inputs travel raw: x: "
    assert way in output
    code, output = run("inspect", tmp_path / "net", "--only", "rates")
    assert code == 0 and f"Rates at {clock}" in output and way in output
    assert re.search("link +uart +uart as installed +usb +spi", output)
    rows = dict(re.findall(r"^ +(\S.*?\S)  +(\S+ +\S+ +\S+ +\S+) *$", output, re.M))
    assert rows["ms that a reply waits"].split()[:2] == ["1", "16"]
    low, installed = ({name: row.split()[k].replace(",", "") for name, row in rows.items()} for k in (0, 1))
    shown = [low[name] for name in ("samples/s in a batch", "samples/s one at a time", "limited by")]
    assert shown == [rate.replace(",", ""), single.replace(",", ""), limit]
    assert limit == installed["limited by"] == "link"
    shorter = tuple(int(n) for n in re.search(r"(\d+) bytes in and (\d+) out", line).groups())
    assert (float(low["bytes in"]), float(low["bytes out"])) == pytest.approx(shorter, abs=0.51)
    (on_line,) = re.findall(r"([\d.]+) ms on the line", line)  # in three digits, in the table in four
    assert float(on_line) == pytest.approx(float(low["ms on the line"]), rel=6e-3)
    assert float(low["requests"]) < 1
    assert float(low["ms for replies"]) < 0.1  # of 1 ms each: requests are ahead of replies
    assert float(installed["samples/s one at a time"]) < float(single) / 4


def test_links_of_boards():
    assert link_of("ulx3s-85f", "uart") is BOARD_SPECS["ulx3s-85f"].link()
    with pytest.raises(ValueError, match=r"link must be one of uart.*, not 'serial'"):
        link_of("ulx3s-85f", "serial")
    assert uart(115_200).bytes_per_second == 11_520 and uart(115_200).name == "uart"


def test_a_line_that_holds_bytes_back_needs_no_buffer():
    assert [window_of(controlled, size) for controlled in (False, True) for size in (0, 20_000)] == [
        0, 20_000, CONTROLLED_WINDOW, 20_000
    ]  # fmt: skip
    config = ECP5_85F.replace(request_buffer=0)
    image = compile_graph(perceptron(40, 8, 16), config).image
    times = [LineTimes(10.0, 5_000.0, controlled) for controlled in (False, True)]
    waiting, running = (traffic(image, (1_000,), each).cycles for each in times)
    assert running < waiting


def test_a_line_for_both_directions():
    image = compile_graph(perceptron(40, 8, 16), ECP5_85F).image
    apart = rates(image)
    shared = replace(apart, link=replace(apart.link, shared=True))
    assert shared.wire_seconds == pytest.approx((apart.sent + apart.received) / apart.link.bytes_per_second)


def test_a_clock_that_no_bitstream_of_today_has_is_noted(monkeypatch):
    record = builds.build_of("ulx3s-25f", "ecp5-25f")
    image = softmax(ECP5_25F).image()
    for stale, note in ((False, ""), (True, " (of an older netlist)")):
        monkeypatch.setattr(builds, "BUILDS", (replace(record, stale=stale),))
        assert rates(image).at == f"at {ECP5_25F.clock_hz / 1e6:g} MHz{note} and 3 Mbit/s"
    elsewhere = softmax(ECP5_25F.replace(board="icepi-zero")).image()
    assert " MHz (not routed here) and 3 Mbit/s" in rates(elsewhere).times
    assert "(" not in rates(softmax(ECP5_25F.replace(name="mine")).image()).at
