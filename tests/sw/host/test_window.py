"""Requests ahead of their replies, over lines of every quality."""

import random
import time
from itertools import count

import pytest

from concord.host.errors import BadAddressError, BusyError, LinkTimeout, SequenceError
from concord.host.link import Link
from concord.host.window import LinkRequest, RequestWindow
from concord.spec.link import Kind
from concord.spec.memmap import Reg, RegionId, regions
from concord.spec.presets import TINY
from support.link_model import DeviceModel
from support.noisy_line import Line, damage_of, lose

REGIONS = regions(TINY)
WIDE, NARROW, REGS = REGIONS[RegionId.WIDE], REGIONS[RegionId.NARROW], REGIONS[RegionId.REGS]
START = b"\1\0\0\0"


class Buffered(Line):
    """A device that takes what it has been sent only when the host waits for a reply."""

    def __init__(self, model, request=None, reply=None, piece=4096):
        super().__init__(model, request, reply, piece)
        self.waiting, self.most = [], 0

    def write(self, data):
        self.waiting.append(data)
        self.most = max(self.most, len(self.waiting))

    def read(self, count, timeout):
        while self.waiting and not self.pending:
            super().write(self.waiting.pop(0))
        return super().read(count, timeout)


def linked(window, **line):
    model = DeviceModel(TINY)
    link = Link(Buffered(model, **line), retries=40)
    link.max_payload = TINY.max_payload
    link.window = window
    link.synchronise()
    return link, model


def test_several_are_on_the_way():
    link, model = linked(4 * 2 * (TINY.max_payload + 10))
    data = random.Random(1).randbytes(64 * WIDE.nbytes)
    link.write(WIDE, 0, data)
    assert link.read(WIDE, 0, 64) == data
    assert link.transport.most >= 4 and link.repeated == 0
    assert [at for _, at, _ in model.writes] == list(range(64))


@pytest.mark.parametrize("size", [0, 30, 200, 1000])
def test_no_more_bytes_than_there_is_room_for(size):
    link, _ = linked(size)
    line, most = link.transport, 0
    write = line.write

    def counted(data):
        nonlocal most
        write(data)
        most = max(most, sum(len(frame) for frame in line.waiting))

    line.write = counted
    link.write(WIDE, 0, bytes(64 * WIDE.nbytes))
    link.read(WIDE, 0, 64)
    frame = TINY.max_payload + 10 + 2  # with what may be escaped: number and checksum
    assert most <= max(size, frame)
    assert (most > frame) == (size > frame)  # small requests, to read, are in one with a large one


@pytest.mark.slow
@pytest.mark.parametrize("where", ["request", "reply", "both"])
@pytest.mark.parametrize("seed", range(3))
def test_a_bad_line_with_many_on_the_way(seed, where):
    """Every write takes place once and in order, whatever is lost, and reads have what there is."""
    rng = random.Random(seed)
    line = {name: damage_of(rng) for name in ("request", "reply") if where in (name, "both")}
    model = DeviceModel(TINY)
    link = Link(Buffered(model, **line), retries=40)
    link.max_payload, link.window = TINY.max_payload, 600
    model.memory[RegionId.NARROW] |= {n: n * 77 for n in range(64)}
    link.synchronise()
    expected, reads = [], []
    for n in range(700):  # over the end of the sequence numbers
        match rng.randrange(3):
            case 0:
                link.post_write(REGS, Reg.CONTROL, START)
                expected.append((RegionId.REGS, Reg.CONTROL, 1))
            case 1:
                count = rng.randint(1, 6)
                link.post_write(WIDE, n % 50, b"".join((n + k).to_bytes(8, "little") for k in range(count)))
                expected += [(RegionId.WIDE, n % 50 + k, n + k) for k in range(count)]
            case _:
                at, count = rng.randrange(50), rng.randint(1, 10)
                reads.append((link.post(LinkRequest.read(NARROW, at, count)), at, count))
    for request, at, count in reads:
        words = [n * 77 for n in range(at, at + count)]
        assert link.complete(request) == b"".join(word.to_bytes(NARROW.nbytes, "little") for word in words)
    link.quiesce()
    assert model.writes == expected
    assert link.repeated > 20 and link.transport.most >= 4


def test_nothing_behind_a_refused_request_is_carried_out():
    link, model = linked(1000, piece=8)
    link._requests.retries = 0  # replies to what was refused are no failure of what has the numbers next
    link.post_write(WIDE, 1, bytes(8))
    refused = link.post_write(WIDE, 64, bytes(8))[0]
    link.post_write(WIDE, 2, bytes(8))
    behind = link.post(LinkRequest.read(WIDE, 1, 1))
    with pytest.raises(BadAddressError, match="WRITE at WIDE address 64 refused: BAD_ADDR"):
        link.complete(behind)
    assert not refused.done and not behind.done
    assert [at for _, at, _ in model.writes] == [1]
    for at in (3, 4, 5):  # what was refused behind it has their numbers
        link.post_write(WIDE, at, bytes(8))
    assert link.read(WIDE, 3, 1) == bytes(8)
    assert [at for _, at, _ in model.writes] == [1, 3, 4, 5] and link.repeated == 0


def test_a_refusal_is_raised_where_the_next_request_is_posted():
    link, model = linked(40)
    model.busy = True
    link.post_write(REGIONS[RegionId.PROGRAM], 3, bytes(8))
    with pytest.raises(BusyError, match="WRITE at PROGRAM address 3 refused: BUSY"):
        for _ in range(3):
            link.post_write(WIDE, 0, bytes(8))
    assert not model.writes


def test_a_reply_that_is_lost_is_asked_for_again_behind_the_others():
    replies = []

    def lose_third(data):
        replies.append(data)
        return b"" if len(replies) == 3 else data

    link, model = linked(1000, reply=lose_third)
    model.memory[RegionId.NARROW] |= {n: 100 + n for n in range(4)}
    reads = [link.post(LinkRequest.read(NARROW, n, 1)) for n in range(4)]
    assert [link.complete(request)[0] for request in reads] == [100, 101, 102, 103]
    assert link.repeated == 1 and len(replies) == 6


def test_a_reply_that_is_always_lost():
    def only_short(data):
        return data if len(data) < 12 else b""

    link, _ = linked(1000)
    link.transport.reply = only_short
    with pytest.raises(LinkTimeout, match="READ failed 41 times, at last: "):
        link.read(WIDE, 0, 16)


@pytest.mark.parametrize("late", [0, 1])
def test_a_reply_that_is_lost_once_too_often_ends_the_call(late):
    """Also when that is noticed while replies are awaited in front of a repetition."""
    replies = []

    def losing(data):
        replies.append(data)
        return b"" if len(replies) in (2, 3, 4 + late) else data

    link, _ = linked(1000, reply=losing)
    link._requests.retries = 0
    reads = [link.post(LinkRequest.read(NARROW, n, 1)) for n in range(4)]
    with pytest.raises(LinkTimeout, match="READ failed 1 times, at last: "):
        for request in reads:
            link.complete(request)
    link.transport.reply = None
    assert link.read(NARROW, 0, 1) == bytes(NARROW.nbytes)


def test_a_device_that_is_reset_in_the_middle():
    link, model = linked(1000)
    for n in range(3):
        link.post_write(WIDE, n, bytes(8))
    model.expected = (model.expected + 100) % 256
    with pytest.raises(SequenceError, match="it was reset, or another host uses it"):
        link.read(WIDE, 0, 1)
    assert not model.writes
    link.synchronise()
    assert link.read(WIDE, 0, 1) == bytes(8)


def test_silence_with_several_on_the_way():
    link, _ = linked(1000)
    link.transport.request = lose
    for n in range(3):
        link.post_write(WIDE, n, bytes(8))
    with pytest.raises(LinkTimeout, match="WRITE failed 41 times, at last: no reply within"):
        link.read(WIDE, 0, 1)
    link.quiesce()  # nothing is left


@pytest.mark.parametrize(("simulated", "machine"), [(0.0, 3600.0), (0.3, 0.0)])
def test_the_clock_of_the_line_decides(monkeypatch, simulated, machine):
    """However long a machine takes to simulate a line, its time is what the line says."""
    link, _ = linked(1000, piece=1)
    link._requests.retries = 0
    wall = count()
    monkeypatch.setattr(time, "monotonic", lambda: machine * next(wall))
    read = link.transport.read

    def later(count, timeout):
        link.transport.time += simulated
        return read(count, timeout)

    link.transport.read = later
    if not simulated:
        assert link.read(WIDE, 0, 16) == bytes(16 * WIDE.nbytes)
        assert link.repeated == 0
        return
    with pytest.raises(LinkTimeout, match=r"READ failed 1 times, at last: no complete reply within 1\.00 s"):
        link.read(WIDE, 0, 16)


def test_a_window_of_one_request():
    model = DeviceModel(TINY)
    requests = RequestWindow(Buffered(model), timeout=1.0, retries=1)
    first = requests.post(LinkRequest(Kind.PING, b"", 16))
    requests.post(LinkRequest(Kind.PING, b"", 16))
    assert first.done and requests.transport.most == 1
