"""Networks through the feeder of the Verilated design: the same bits as the emulator, and fewer bytes."""

from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pytest

from concord import cycles
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.host import Link, LinkedDevice, TrapError, connect
from concord.host.rates import rates
from concord.host.rtl import find_library
from concord.host.timed_line import LineTimes
from concord.host.traffic import fed_traffic
from concord.image.code_book import Coding
from concord.image.feeder_layout import Feeding
from concord.image.feeder_scripts import route
from concord.spec.boards import link_of
from concord.spec.links import FTDI
from concord_bench.hardware import CountingTransport
from support.fed_nets import NETWORKS, batch_of
from support.paced_transport import PacedTransport
from support.row_tiled_nets import separable
from support.rtl_configs import EIGHT, FED

pytestmark = pytest.mark.slow

#: Clock cycles of a byte at 3 Mbit/s and 50 MHz.
BYTE_CYCLES = 167
#: Full requests of a batch by which rates are measured.
REQUESTS = 4


@pytest.fixture(scope="module")
def device():
    with LinkedDevice(Link(CountingTransport(find_library(FED))), FED) as device:
        yield device


@pytest.mark.parametrize("kind", ["codes", "many"])
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_the_same_bits(device, make, kind):
    graph = make()
    compiled = compile_graph(graph, FED)
    given = batch_of(graph, 7, kind)
    with connect("emulator", FED) as emulator:
        emulator.load(compiled.image)
        want = compiled.run(emulator, given)
    device.load(compiled.image)
    for _ in range(2):  # with the script to be written, and without
        got = compiled.run(device, given)
        for name, values in want.items():
            np.testing.assert_array_equal(got[name], values)


@pytest.mark.parametrize("samples", [1, 3])
def test_row_tiles_that_overlap(samples):
    """Lines that two row tiles read travel once, also those of a sample alone; counters are those of all phases."""
    graph = separable(24)
    compiled = compile_graph(graph, EIGHT)
    parts = [part for phase in compiled.image.schedule() for part in phase.inputs]
    assert any(part.first + part.count > after.first for part, after in pairwise(parts))
    given = batch_of(graph, samples, "many")
    with connect("emulator", EIGHT) as emulator:
        emulator.load(compiled.image)
        want, counters = compiled.run(emulator, given), emulator.counters()
    with LinkedDevice(Link(CountingTransport(find_library(EIGHT))), EIGHT) as device:
        device.load(compiled.image)
        for _ in range(2):
            got = compiled.run(device, given)
            assert device.input_route.startswith("raw: ") and device.counters() == counters
            for name, values in want.items():
                np.testing.assert_array_equal(got[name], values)


@pytest.mark.parametrize("name", ["residual", "gru"])
def test_narrow_results(device, name):
    graph = NETWORKS[name]()
    compiled = compile_graph(graph, FED, Formats(narrow=tuple(graph.outputs)))
    given = batch_of(graph, 7, "many")
    with connect("emulator", FED) as emulator:
        emulator.load(compiled.image)
        want = compiled.run(emulator, given)
    device.load(compiled.image)
    got = compiled.run(device, given)
    assert device.input_route.startswith("raw: ")
    for output, values in want.items():
        np.testing.assert_array_equal(got[output], values)


def test_a_trap_is_told_and_the_next_batch_runs(device):
    compiled = compile_graph(NETWORKS["perceptron"](), FED)
    given = batch_of(compiled.graph, 3, "codes")
    device.load(compiled.image)
    want = compiled.run(device, given)
    device.write("PROGRAM", 1, [0])
    with pytest.raises(TrapError, match="at address 1"):
        compiled.run(device, given)
    device.write("PROGRAM", 1, [compiled.image.program[1]])
    got = compiled.run(device, given)
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values)


@pytest.fixture
def paced():
    """A device on a line at 3 Mbit/s beside a clock of 50 MHz."""
    transport = PacedTransport(find_library(FED), BYTE_CYCLES)
    with LinkedDevice(Link(transport), FED) as device:
        yield device


def run_paced(device, compiled, graph, kind, samples):
    """Results, cycles, and bytes on the line of a batch, the script being there."""
    given = batch_of(graph, samples, kind)
    line = device.link.transport
    before = line.cycles, line.sent + line.received
    results = compiled.run(device, given)
    return given, results, line.cycles - before[0], line.sent + line.received - before[1]


@pytest.mark.parametrize(("name", "kind", "least"), [("perceptron", "codes", 0.95), ("residual", "many", 0.95)])
def test_the_rate_is_what_the_bytes_allow(paced, name, kind, least):
    """Transfers go on while the device computes: the link alone limits, as the estimate says."""
    graph = NETWORKS[name]()
    compiled = compile_graph(graph, FED)
    line = paced.link.transport
    line.pace(0)
    paced.load(compiled.image)
    image = compiled.image
    codings = dict.fromkeys(graph.inputs, Coding()) if kind == "codes" else {}
    found = route(image.feeding, image.schedule(), (image.inputs, image.outputs), codings, FED)
    count = REQUESTS * found.chunk // found.sample_bytes
    run_paced(paced, compiled, graph, kind, count)  # with the code book of all numbers
    line.pace(BYTE_CYCLES)
    one = run_paced(paced, compiled, graph, kind, count)
    two = run_paced(paced, compiled, graph, kind, 2 * count)
    with connect("emulator", FED) as emulator:
        emulator.load(compiled.image)
        for given, results, _, _ in (one, two):
            for output, values in compiled.run(emulator, given).items():
                np.testing.assert_array_equal(results[output], values)
    taken, sent = (two[k] - one[k] for k in (2, 3))
    assert sent * BYTE_CYCLES >= least * taken
    found = fed_traffic(image, found, [cycles.count(image.program, FED).cycles], LineTimes(BYTE_CYCLES))
    assert found.cycles * count == pytest.approx(taken, rel=0.05)
    assert (found.sent + found.received) * count == pytest.approx(sent, rel=0.05)


#: The same hardware with a slow clock, so that milliseconds are few cycles.
SLOW = FED.replace(clock_hz=4_000_000)


@pytest.mark.parametrize(
    ("name", "fed", "latency"),
    [
        ("perceptron", True, FTDI.latency),
        pytest.param("perceptron", True, FTDI.default_latency, marks=pytest.mark.deep),
        ("residual", True, FTDI.latency),
        ("residual", False, FTDI.latency),
        ("residual", False, FTDI.default_latency),
    ],
)
def test_rates_have_the_waits_for_replies(name, fed, latency):
    """Samples per second in a batch and one at a time are those of a line on which every reply is held back."""
    compiled = compile_graph(NETWORKS[name](), SLOW)
    image = compiled.image if fed else replace(compiled.image, feeding=Feeding())
    found = rates(image)
    if latency != FTDI.latency:
        found = found.at_default
    transport, scales = PacedTransport(find_library(SLOW), 0), count(1)
    with LinkedDevice(Link(transport), SLOW) as device:
        device.load(image)

        def seconds(call, samples):
            """Of a call with so many samples, other ones than before."""
            values = batch_of(compiled.graph, samples, "many")
            given = compiled.package.arrangement.pack({key: next(scales) * value for key, value in values.items()})
            before = transport.cycles
            call(given)
            return (transport.cycles - before) / SLOW.clock_hz

        def with_flags(given):
            device.clear_flags()
            device.run(given)
            device.flags()

        few = 2 if not fed else 4 * REQUESTS * SLOW.max_payload // round(found.bytes_in)
        seconds(device.run, few)  # writes the script
        transport.pace(int(SLOW.clock_hz / link_of(SLOW.board).bytes_per_second), round(latency * SLOW.clock_hz))
        each = (seconds(device.run, 2 * few) - seconds(device.run, few)) / few
        assert device.input_route == found.input_route
        assert 1 / found.per_second == pytest.approx(each, rel=0.05)
        seconds(device.run, 1)  # writes another one, as so few numbers are coded
        assert found.latency_seconds == pytest.approx(seconds(device.run, 1), rel=0.05)
        assert 1 / found.single_per_second == pytest.approx(seconds(with_flags, 1), rel=0.05)
