"""What a link does on a line that fails: shorter requests, and a next call behind one that was given up."""

import random

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import connect
from concord.host.errors import DeviceError, LinkError, LinkTimeout, MismatchError, RunTimeout, SequenceError
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.host.window import LinkRequest
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.link import Kind
from concord.spec.memmap import Reg, RegionId, regions
from concord.spec.presets import TINY
from support.compiled_nets import perceptron
from support.fed_model import FedModel
from support.link_model import DeviceModel
from support.noisy_line import Line, damage_of, lose
from support.stateful_nets import integrator

FED = TINY.replace(inbox=512)
REGIONS = regions(FED)
WIDE, REGS = REGIONS[RegionId.WIDE], REGIONS[RegionId.REGS]
#: Framing of a request or reply, and what may be escaped of it.
FRAME = 20


def linked(model=None, **options):
    model = model or DeviceModel(TINY)
    link = Link(Line(model), **options)
    link.max_payload = model.config.max_payload
    link.synchronise()
    return link, model


def shorter_than(length):
    """A fault that loses every longer piece."""
    return lambda data: data if len(data) < length else b""


def words(seed, count=64):
    return random.Random(seed).randbytes(count * WIDE.nbytes)


@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("where", ["request", "reply"])
def test_the_next_call_goes_on(where, window):
    """Whether requests or replies were lost, what was given up is there or not, and what follows is right."""
    link, model = linked()
    link.window = window
    link.write(WIDE, 0, words(1))
    setattr(link.transport, where, lose)
    for _ in range(3):
        with pytest.raises(LinkTimeout, match=r"(WRITE|WAIT) failed 5 times, at last: no reply within"):
            link.write(WIDE, 0, words(2))
    setattr(link.transport, where, None)
    held = link.read(WIDE, 0, 64)
    pieces = range(0, len(held), WIDE.nbytes)
    assert all(held[at : at + 8] in (words(1)[at : at + 8], words(2)[at : at + 8]) for at in pieces)
    assert (held == words(1)) == (where == "request")
    link.write(WIDE, 0, words(3))
    assert link.read(WIDE, 0, 64) == words(3)
    starts = len(model.writes)
    link.write(REGS, Reg.CONTROL, b"\1\0\0\0")
    assert len(model.writes) == starts + 1


def test_a_start_that_was_given_up_is_not_repeated():
    link, model = linked()
    link.transport.reply = lose
    with pytest.raises(LinkTimeout):
        link.write(REGS, Reg.CONTROL, b"\1\0\0\0")
    link.transport.reply = None
    link.read(WIDE, 0, 1)
    assert [region for region, *_ in model.writes] == [RegionId.REGS]


def test_a_device_that_was_reset_meanwhile_is_told_until_somebody_connects():
    link, model = linked()
    link.transport.request = lose
    with pytest.raises(LinkTimeout):
        link.write(WIDE, 0, words(1))
    link.transport.request = None
    model.expected = (model.expected + 100) % 256
    for _ in range(2):
        with pytest.raises(SequenceError, match="it was reset, or another host uses it"):
            link.read(WIDE, 0, 1)
    assert not model.writes
    link.synchronise()
    assert link.read(WIDE, 0, 1) == bytes(8)


@pytest.mark.parametrize("ahead", [-1, 0, 1, 2])
def test_numbers_that_the_device_may_expect(ahead):
    """Of one request on the way: its own and the next one."""
    link, model = linked()
    link.transport.request = lose
    with pytest.raises(LinkTimeout):
        link.write(WIDE, 0, bytes(8))
    link.transport.request = None
    model.expected = (model.expected + ahead) % 256
    if 0 <= ahead <= 1:
        assert link.read(WIDE, 0, 1) == bytes(8)
        return
    with pytest.raises(SequenceError):
        link.read(WIDE, 0, 1)


def test_a_connection_that_has_failed_may_go_on_with_any_number():
    model = DeviceModel(TINY)
    model.expected = 77
    link = Link(Line(model, lose))
    with pytest.raises(LinkTimeout):
        link.synchronise()
    link.transport.request = None
    assert link.read(WIDE, 0, 1) == bytes(8)


def test_a_request_that_was_given_up_is_not_waited_for():
    link, _ = linked()
    link.window = 1000
    requests = [link.post(LinkRequest.read(WIDE, n, 1)) for n in range(3)]
    link.transport.pending, link.transport.request = b"", lose
    with pytest.raises(LinkTimeout):
        link.complete(requests[0])
    with pytest.raises(LinkError, match="READ must be posted again: it was given up, or one in front refused"):
        link.complete(requests[2])


@pytest.mark.parametrize("window", [0, 600])
@pytest.mark.parametrize("where", ["request", "reply"])
def test_requests_become_shorter_where_long_ones_fail(where, window):
    link, model = linked()
    link.window = window
    setattr(link.transport, where, shorter_than(24 + FRAME))
    link.write(WIDE, 0, words(1))
    assert link.read(WIDE, 0, 64) == words(1)
    assert sorted({at for _, at, _ in model.writes}) == list(range(64))
    setattr(link.transport, where, None)
    link.transport.sent.clear()
    link.write(WIDE, 0, words(2, 8))
    assert max(map(len, link.transport.sent)) < 100
    for _ in range(10):
        link.write(WIDE, 0, words(3))
    link.transport.sent.clear()
    link.write(WIDE, 0, words(4))
    assert len(link.transport.sent) == 5 and max(map(len, link.transport.sent)) > TINY.max_payload
    assert link.read(WIDE, 0, 64) == words(4)


def test_one_failure_shortens_nothing():
    link, _ = linked()
    faults = iter([lose])
    link.transport.request = lambda data: next(faults, bytes)(data)
    link.transport.sent.clear()
    link.write(WIDE, 0, words(1))
    assert len(link.transport.sent) == 6 and link.repeated == 1


def test_halves_do_what_the_whole_does():
    write = LinkRequest.write(WIDE, 5, bytes(range(24)))
    first, rest = write.halve()
    assert first.payload[1:] == b"\5\0\0" + bytes(range(8)) and rest.payload[1:] == b"\6\0\0" + bytes(range(8, 24))
    assert write.carried == 0 and not write.done
    first.answer(b"")
    assert write.carried == 8 and not write.done
    rest.answer(b"")
    assert write.carried == 24 and write.reply == b""
    inbox = LinkRequest.write(REGIONS[RegionId.INBOX], 0, b"abc")
    assert [half.payload[1:] for half in inbox.halve()] == [b"\0\0\0a", b"\0\0\0bc"]
    read = LinkRequest.read(WIDE, 5, 3)
    first, rest = read.halve()
    assert first.payload[1:] == b"\5\0\0\1\0" and rest.payload[1:] == b"\6\0\0\2\0"
    rest.answer(bytes(range(8, 24)))
    assert not read.done
    first.answer(bytes(range(8)))
    assert read.reply == bytes(range(24))
    address = OUTBOX_ADDRESS.pack(first=4095, kept=4090)
    (only,) = LinkRequest.read(REGIONS[RegionId.OUTBOX], address, 5).halve()
    assert only.payload[1:4] == address.to_bytes(3, "little") and only.reply_bytes == 2
    assert LinkRequest.read(WIDE, 0, 0).words == LinkRequest.wait(9).words == LinkRequest(Kind.PING, b"").words == 0


# Devices ------------------------------------------------------------------------------------------


class Busy(FedModel):
    """A device that is busy for as many WAITs."""

    waits = 0

    def _execute(self, frame):
        payload = super()._execute(frame)
        if frame.kind != Kind.WAIT:
            return payload
        self.waits -= 1
        self.busy = self.waits >= 0
        return bytes([self.busy, 0, 0, 0])


@pytest.fixture(scope="module")
def small():
    """A network, a batch, and what the emulator makes of it."""
    compiled = compile_graph(perceptron(8, 8, 4), FED)
    batch = {"x": np.random.default_rng(1).normal(size=(12, 8))}
    with connect("emulator", FED) as device:
        device.load(compiled.image)
        return compiled, batch, compiled.run(device, batch)["fc1.out"]


def device_on(line, **options):
    return LinkedDevice(Link(line, timeout=0.01, **options), FED)


def test_an_image_whose_load_was_given_up_is_loaded_again(small):
    compiled, batch, expected = small
    device = device_on(Line(FedModel(FED)))
    device.link.transport.request = lose
    with pytest.raises(LinkTimeout):
        device.load(compiled.image)
    device.link.transport.request = None
    with pytest.raises(DeviceError, match="an image must be loaded first"):
        compiled.run(device, batch)
    device.load(compiled.image)
    np.testing.assert_array_equal(compiled.run(device, batch)["fc1.out"], expected)


def test_a_run_that_was_given_up_is_waited_for(small):
    compiled, batch, expected = small
    model = Busy(FED)
    device = device_on(Line(model))
    device.load(compiled.image)
    device.link.transport.reply = lose
    with pytest.raises(LinkTimeout):
        compiled.run(device, batch)
    device.link.transport.reply, model.waits, model.busy = None, 4, True
    np.testing.assert_array_equal(compiled.run(device, batch)["fc1.out"], expected)
    assert model.waits < 0


def test_a_run_that_does_not_end_is_told(small, monkeypatch):
    model = Busy(FED)
    device = device_on(Line(model))
    device.link.transport.reply = lose
    with pytest.raises(LinkTimeout):
        device.start()
    monkeypatch.setattr("concord.host.linked._CLEAR_TIMEOUT", 0)
    device.link.transport.reply, model.waits = None, 10**6
    for _ in range(2):
        with pytest.raises(RunTimeout, match="still busy after 0 s"):
            device.read(RegionId.WIDE, 0)
    model.waits = 0
    assert device.read(RegionId.WIDE, 0) == [0]


def given_up(device):
    device.link.transport.request = lose
    with pytest.raises(LinkTimeout):
        device.counters()
    device.link.transport.request = None


def test_another_program_is_told(small):
    compiled, batch, _ = small
    model = FedModel(FED)
    device = device_on(Line(model))
    device.load(compiled.image)
    given_up(device)
    model.device.write(RegionId.PROGRAM, 1, [0])
    with pytest.raises(DeviceError, match="device must have the program of its image, not another one: load the image"):
        compiled.run(device, batch)
    with pytest.raises(DeviceError, match="an image must be loaded first"):
        compiled.run(device, batch)


def test_another_configuration_is_told(small):
    device = device_on(Line(FedModel(FED)))
    given_up(device)
    other = DeviceModel(TINY)
    device.link.transport.model, other.expected = other, device.link.transport.model.expected
    with pytest.raises(MismatchError, match="device must have fingerprint"):
        device.read(RegionId.WIDE, 0)


def test_states_are_set_again_by_whoever_knows_them():
    """A run that was given up may have changed them or not."""
    compiled = compile_graph(integrator(), FED)
    x = {"x": np.ones((2, 6))}
    device = device_on(Line(FedModel(FED)))
    device.load(compiled.image)
    expected = compiled.run(device, x)["y"]
    given_up(device)
    assert not np.array_equal(compiled.run(device, x)["y"], expected)  # the sequence goes on behind another call
    device.reset_states()
    np.testing.assert_array_equal(compiled.run(device, x)["y"], expected)
    device.link.transport.reply = lose
    with pytest.raises(LinkTimeout):
        device.run(compiled.package.pack(x))
    device.link.transport.reply = None
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"states \['sum'\] must be set again, as a run was given up: call reset"):
            device.run(compiled.package.pack(x))
    device.reset_states()
    np.testing.assert_array_equal(compiled.run(device, x)["y"], expected)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0005, 0.001, 0.01, 0.03, 0.1, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_a_line_that_damages(small, rate, seed):
    """No wrong result at any rate, and the first call on a good line is right."""
    compiled, batch, expected = small
    rng = random.Random(seed)
    line, damage = Line(FedModel(FED)), damage_of(rng, rate)
    device = device_on(line)
    device.load(compiled.image)
    right = lost = 0
    for _ in range(12):
        line.request = line.reply = damage
        try:
            if rng.random() < 0.3:
                device.load(compiled.image)
            np.testing.assert_array_equal(compiled.run(device, batch)["fc1.out"], expected)
            right += 1
        except LinkError:
            lost += 1
        line.request = line.reply = None
        if device.image is None:
            device.load(compiled.image)
        np.testing.assert_array_equal(compiled.run(device, batch)["fc1.out"], expected)
    assert right + lost == 12
    assert right == 12 or rate > 0.003
    assert lost == 12 or rate < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 600])
@pytest.mark.parametrize("rate", [0.0005, 0.002, 0.03, 0.1])
def test_what_is_written_over_a_line_that_damages(rate, window):
    """A word that was given up is the old one or the new one, and every other is right."""
    rng = random.Random(rate)
    link, _ = linked(timeout=0.01, retries=8)
    link.window, damage = window, damage_of(rng, rate)
    held, lost = [{bytes(8)} for _ in range(64)], 0
    for _ in range(150):
        link.transport.request = link.transport.reply = damage if rng.random() < 0.8 else None
        at, count = rng.randrange(60), rng.randint(1, 4) if rng.random() < 0.5 else 64
        count = min(count, 64 - at)
        try:
            if rng.random() < 0.5:
                found = link.read(WIDE, at, count)
                for n in range(count):
                    assert found[8 * n : 8 * n + 8] in held[at + n]
                    held[at + n] = {found[8 * n : 8 * n + 8]}
                continue
            data = rng.randbytes(8 * count)
            new = [{data[8 * n : 8 * n + 8]} for n in range(count)]
            held[at : at + count] = [old | word for old, word in zip(held[at : at + count], new, strict=True)]
            link.write(WIDE, at, data)
            held[at : at + count] = new
        except SequenceError:
            raise
        except LinkError:
            lost += 1
            assert link.transport.request is not None
    assert (lost > 0) == (rate > 0.01)


@pytest.mark.parametrize("where", ["request", "reply"])
def test_inputs_and_results_in_short_requests(small, where):
    compiled, batch, expected = small
    device = device_on(Line(FedModel(FED)), retries=6)
    device.load(compiled.image)
    setattr(device.link.transport, where, shorter_than(16 + FRAME))
    np.testing.assert_array_equal(compiled.run(device, batch)["fc1.out"], expected)
    assert device.input_route.startswith("raw") and device.link.repeated > 0
