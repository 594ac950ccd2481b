"""The timing model of the feeder takes, keeps and gives as many bytes as the golden feeder, byte by byte."""

import math
import random

import pytest

from concord.compiler.model import compile_graph
from concord.host.emulated import EmulatedDevice
from concord.host.feeder_clock import FETCHING, FILLING, PASSING, RUNNING, FeederClock
from concord.image.code_book import Coding
from concord.image.feeder_scripts import route
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.presets import TINY
from support.fed_nets import NETWORKS

CONFIG = TINY.replace(inbox=256, narrow_depth=512, wide_depth=512, matrix_depth=1024, program_depth=512, max_terms=256)
SAMPLES = 3


def beside(name, kind):
    """A loaded device with a script, its image, and the route; elements have two bytes, or one for the kind "codes"."""
    image = compile_graph(NETWORKS[name](), CONFIG).image
    device = EmulatedDevice(CONFIG)
    device.load(image)
    codings = {port.name: Coding() for port in image.inputs} if kind == "codes" else {}
    found = route(image.feeding, image.schedule(), (image.inputs, image.outputs), codings, CONFIG)
    device.write("SCRIPT", 0, found.script)
    return device, image, found


@pytest.mark.parametrize("kind", ["codes", "many"])
@pytest.mark.parametrize("name", NETWORKS)
def test_bytes_and_results(name, kind):
    """Room is counted by vectors where windows have one tap, and otherwise by lines."""
    device, image, found = beside(name, kind)
    golden, rng = device._feeder, random.Random(name)
    clock = FeederClock(found, image.schedule(), [100] * len(image.schedule()), CONFIG)
    vector = max(2 * CONFIG.native, *(transfer.pixel for transfer in found.input_transfers))
    line = max(0 if transfer.feed.single else transfer.line for transfer in found.input_transfers)
    for k in range(1, SAMPLES * found.sample_bytes + 1):
        device.write("INBOX", 0, [rng.randrange(10)])
        clock.came += 1
        clock.advance(math.inf)
        assert clock.produced == len(golden.outbox)
        assert golden.room - max(vector, line) <= clock.free_bytes <= golden.room + max(line, 2)
        if k % found.sample_bytes == 0:
            assert clock.free_bytes == golden.room == CONFIG.inbox - 1
        if clock.produced - clock.taken > CONFIG.inbox // 8:
            place = clock.produced % (CONFIG.inbox // 2)
            device.read("OUTBOX", OUTBOX_ADDRESS.pack(first=place, kept=place), 0)
            clock.taken = clock.produced
            clock.advance(math.inf)
            assert clock.produced == len(golden.outbox)
    assert clock.produced == SAMPLES * found.result_bytes


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
