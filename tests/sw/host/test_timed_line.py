"""A line that knows the time: what it answers is what a device answers."""

import pytest

from concord.host.errors import BusyError
from concord.host.frames import Frame
from concord.host.link import Link
from concord.host.timed_line import REQUEST_CYCLES, FedCore, LineTimes, TimedLine
from concord.spec.link import COUNT, TARGET, Kind
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY

CONFIG = TINY.replace(inbox=256, request_buffer=2048)
INBOX = regions(CONFIG)[RegionId.INBOX]


class Clock:
    """A feeder that takes ``each`` bytes at once as soon as there are so many, ``work`` cycles after a look."""

    def __init__(self, each, work):
        self.each, self.work = each, work
        self.came = self.released = self.produced = self.taken = 0
        self.since = None

    @property
    def free_bytes(self):
        return CONFIG.inbox - 1 - (self.came - self.released)

    def advance(self, until, *, passes=True):
        if self.came - self.released < self.each:
            return until
        if self.since is None:
            self.since = until
        if until - self.since < self.work:
            return None
        self.released, self.since = self.released + self.each, None
        return self.advance(until)


def linked(clock):
    link = Link(TimedLine(CONFIG, FedCore(clock, CONFIG), LineTimes(1.0)))
    link.max_payload, link.window = CONFIG.max_payload, CONFIG.request_buffer
    link.synchronise()
    return link


def test_what_follows_a_refused_write_is_refused():
    """A device that never makes room takes two pieces, and not a small one behind the third."""
    clock = Clock(1000, 0)
    link = linked(clock)
    with pytest.raises(BusyError, match="WRITE at INBOX"):
        for size in (100, 100, 100, 20):
            link.post_write(INBOX, 0, bytes(size))
        link.wait(1)
    assert clock.came == 200
    link.write(INBOX, 0, bytes(55))
    assert clock.came == 255


def test_a_write_takes_the_room_that_is_made_last():
    """The feeder rests from the look on at which it has made room: the bytes are taken none the less."""
    clock = Clock(200, 500)
    link = linked(clock)
    for _ in range(3):
        link.post_write(INBOX, 0, bytes(100))
    link.wait(1)
    assert (clock.came, clock.released) == (300, 200)


def test_a_request_begins_when_the_reply_before_it_has_left():
    """Though it came while that reply, of many words, was on the line."""
    begun = []

    class Watched(FedCore):
        def pass_to(self, now):
            begun.append(now)
            super().pass_to(now)

    line = TimedLine(CONFIG, Watched(Clock(1000, 0), CONFIG), LineTimes(1.0))
    words = TARGET.pack(region=RegionId.WIDE, addr=0) | COUNT.pack(count=30) << TARGET.width
    read = Frame(0, Kind.READ, words.to_bytes(TARGET.nbytes + COUNT.nbytes, "little"))
    line.write(read.encode() + Frame(1, Kind.PING).encode())
    line.read(1, 0.0)  # the host goes on at the end of the first reply
    assert line.now > line.sent, "the second request has come by then"
    assert begun[1] == line.now + REQUEST_CYCLES
