"""The timing model of the feeder takes, keeps and gives as many bytes as the golden feeder, byte by byte."""

import math
import random

import pytest

from concord.compiler.model import compile_graph
from concord.golden.feeder import Feeder
from concord.host.emulated import EmulatedDevice
from concord.host.feeder_clock import FETCHING, FILLING, PASSING, RUNNING, FeederClock
from concord.image.code_book import Coding
from concord.image.feeder_layout import Feed, Feeding
from concord.image.feeder_scripts import route
from concord.image.phases import Phase, PortRange
from concord.image.ports import Port
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.fed_nets import NETWORKS
from support.row_tiled_nets import separable

CONFIG = TINY.replace(inbox=256, narrow_depth=512, wide_depth=512, matrix_depth=1024, program_depth=512, max_terms=256)
#: For a network whose row tiles overlap.
TILED = TINY.replace(inbox=512, max_payload=512, code_pages=1, narrow_depth=80, wide_depth=96, program_depth=1024)
SAMPLES = 3


def beside(name, kind):
    """A loaded device with a script, its image, and the route; elements have two bytes, or one for the kind "codes"."""
    config, graph = (TILED, separable(24)) if name == "row tiles" else (CONFIG, NETWORKS[name]())
    image = compile_graph(graph, config).image
    device = EmulatedDevice(config)
    device.load(image)
    codings = {port.name: Coding() for port in image.inputs} if kind == "codes" else {}
    found = route(image.feeding, image.schedule(), (image.inputs, image.outputs), codings, config)
    device.write("SCRIPT", 0, found.script)
    return device, image, found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["codes", "many"])
@pytest.mark.parametrize("name", [*NETWORKS, "row tiles"])
def test_bytes_and_results(name, kind):
    """Room is counted by vectors where windows have one tap, and otherwise by lines."""
    device, image, found = beside(name, kind)
    golden, rng, config = device._feeder, random.Random(name), device.config
    clock = FeederClock(found, image.schedule(), [100] * len(image.schedule()), config)
    vector = max(2 * config.native, *(transfer.pixel for transfer in found.input_transfers))
    line = max(0 if transfer.feed.single else transfer.line for transfer in found.input_transfers)
    for k in range(1, SAMPLES * found.sample_bytes + 1):
        device.write("INBOX", 0, [rng.randrange(10)])
        clock.came += 1
        clock.advance(math.inf)
        assert clock.produced == len(golden.outbox)
        assert golden.room - max(vector, line) <= clock.free_bytes <= golden.room + max(line, 2)
        if k % found.sample_bytes == 0:
            assert clock.free_bytes == golden.room == config.inbox - 1
        if clock.produced - clock.taken > config.inbox // 8:
            place = clock.produced % (config.inbox // 2)
            device.read("OUTBOX", OUTBOX_ADDRESS.pack(first=place, kept=place), 0)
            clock.taken = clock.produced
            clock.advance(math.inf)
            assert clock.produced == len(golden.outbox)
    assert clock.produced == SAMPLES * found.result_bytes


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_part_that_is_sent_always_finds_room(kernel):
    """As far as the device goes with all bytes in front of it, however many lines it keeps for the next part."""
    config = TINY.replace(inbox=256, max_payload=256)
    feed = Feed("x", (12, 3, 4), (kernel, 1), windows=(13 - kernel, 3))
    vectors = len(feed.order(config.native)) // feed.windows[0]
    spans = [(0, 6), (2, 7), (4, 13 - kernel - 4)]
    parts = [PortRange("x", first * vectors, count * vectors, 0) for first, count in spans]
    port = Port("x", RegionId.WIDE, 0, (len(feed.order(config.native)), config.native))
    phases = [Phase(0, (part,), ()) for part in parts]
    chosen = route(Feeding((feed,)), phases, ([port], []), {}, config)
    wrote = []
    golden = Feeder(config, lambda *_: 0, lambda *access: wrote.append(access), lambda *_: True)
    clock = FeederClock(chosen, phases, [0] * len(phases), config)
    for addr, word in enumerate(chosen.script):
        golden.write(RegionId.SCRIPT, addr, word)
    for k in range(2 * chosen.sample_bytes):
        if k % chosen.chunk == 0:
            assert golden.room >= min(chosen.chunk, 2 * chosen.sample_bytes - k), k
        golden.write(RegionId.INBOX, 0, k % 7)
        clock.came += 1
        clock.advance(math.inf)
        assert abs(clock.free_bytes - golden.room) <= max(3 * 4, 3 * 2 * 4), k
    assert len(wrote) == 2 * sum(part.count for part in parts)


def test_a_full_outbox_holds_up_the_next_samples():
    """Results that nobody takes: as many are made as in the golden feeder, and bytes are kept."""
    device, image, found = beside("perceptron", "codes")
    golden = device._feeder
    clock = FeederClock(found, image.schedule(), [100], CONFIG)
    while golden.room:
        device.write("INBOX", 0, [1])
        clock.came += 1
        clock.advance(math.inf)
    size = CONFIG.outbox_depth
    whole = found.output_transfers[0][0].size
    assert len(golden.outbox) == size and clock.produced == size // whole * whole
    assert abs(clock.free_bytes - golden.room) <= found.sample_bytes


def test_time_passes_with_bytes_runs_and_results():
    """From the last byte of a sample on: its last vector, the run, and the way of its results."""
    _, image, found = beside("perceptron", "many")
    (phase,) = found.output_transfers
    ends = []
    for cycles in (100, 350):
        clock = FeederClock(found, image.schedule(), [cycles], CONFIG)
        assert clock.advance(10.0) == 0.0  # it waits from the start on
        clock.came = found.sample_bytes
        assert clock.advance(11.0) is None
        end = clock.advance(1e6)
        assert clock.advance(2e6) == 1e6  # and from then on, as nothing has come meanwhile
        ends.append(end)
        results = sum(output.count * (FETCHING + output.size + PASSING * output.lanes) for output in phase)
        spent = sum(spent for _, _, steps in clock._rows for _, spent, _ in steps)
        assert end == 10 + FILLING + spent + RUNNING + cycles + results
    assert ends[1] - ends[0] == 250
