"""The link client against a model of the device, over lines of every quality."""

import random

import pytest

from concord.host.errors import (
    REFUSALS,
    BadAddressError,
    BadKindError,
    BadLengthError,
    BadRegionError,
    BusyError,
    DamagedError,
    LinkError,
    LinkTimeout,
    SequenceError,
    TooLongError,
)
from concord.host.frames import Frame, FrameReader
from concord.host.link import Identity, Link
from concord.host.linked import identify
from concord.spec.config import SPEC_VERSION
from concord.spec.link import FLAG, Kind, Status
from concord.spec.memmap import Reg, RegionId, regions
from concord.spec.presets import TINY, UP5K
from support.link_model import STATUS_WORD, DeviceModel
from support.noisy_line import Line, flip, lose, once

REGIONS = regions(TINY)
WIDE = REGIONS[RegionId.WIDE]


def linked(**line):
    model = DeviceModel(TINY)
    link = Link(Line(model, **line))
    link.max_payload = TINY.max_payload
    return link, model


def test_who_is_there():
    link, _ = linked()
    assert link.synchronise() == Identity(SPEC_VERSION, TINY.fingerprint)
    assert link.ping() == Identity(SPEC_VERSION, TINY.fingerprint)


def test_synchronise_ends_what_was_on_the_line():
    link, model = linked()
    model.feed(bytes([FLAG, 1, 2, 3]))
    link.transport.pending = b"left over" + bytes([FLAG]) + b"and more"
    assert link.synchronise().fingerprint == TINY.fingerprint
    assert link.repeated == 0


def test_synchronise_forgets_what_was_begun():
    """The beginning of a reply that another request was for, byte by byte."""
    link, _ = linked(piece=1)
    assert not list(link._requests._reader.feed(b"begun"))
    assert link.synchronise().fingerprint == TINY.fingerprint
    assert link.repeated == 0


@pytest.mark.parametrize("piece", [1, 3, 4096])
def test_words_are_split_into_frames(piece):
    link, model = linked(piece=piece)
    link.synchronise()
    data = random.Random(1).randbytes(64 * WIDE.nbytes)
    seen = []
    link.write(WIDE, 0, data, seen.append)
    assert link.read(WIDE, 0, 64) == data
    assert link.read(WIDE, 5, 7) == data[5 * 8 : 12 * 8]
    assert link.read(WIDE, 3, 37) == data[3 * 8 : 40 * 8]  # the last frame is a short one
    assert sum(seen) == len(data)
    assert max(len(frame) for frame in link.transport.sent) <= 2 * (TINY.max_payload + 10)
    assert len(seen) == -(-64 // ((TINY.max_payload - 4) // 8))
    assert len(model.writes) == 64


def test_no_words():
    link, model = linked()
    link.write(WIDE, 0, b"")
    assert link.read(WIDE, 0, 0) == b""
    assert not model.writes


def test_wait():
    link, _ = linked()
    assert link.wait(5) == STATUS_WORD


@pytest.mark.parametrize("change", [flip, lose])
@pytest.mark.parametrize("where", ["request", "reply"])
def test_one_fault_is_survived(change, where):
    fault = once(change)
    link, model = linked(**{where: fault})
    link.synchronise()
    for n in range(20):
        word = n.to_bytes(8, "little")
        fault.armed = True
        link.write(WIDE, n, word)
        fault.armed = True
        assert link.read(WIDE, n, 1) == word
    assert link.repeated >= 40
    assert model.errors > 0 or change is lose


@pytest.mark.parametrize("change", [flip, lose])
@pytest.mark.parametrize("where", ["request", "reply"])
def test_a_run_is_started_exactly_once(change, where):
    fault = once(change)
    link, model = linked(**{where: fault})
    link.synchronise()
    for _ in range(300):  # over the end of the sequence numbers
        fault.armed = True
        link.write(REGIONS[RegionId.REGS], Reg.CONTROL, b"\1\0\0\0")
    assert len(model.writes) == 300


def test_a_bad_line():
    """Bytes of both directions are flipped, lost and inserted at random: slower, but never wrong."""
    rng = random.Random(2)

    def damage(data):
        out = bytearray()
        for byte in data:
            if rng.random() < 0.001:
                byte = rng.choice([byte ^ 1 << rng.randrange(8), FLAG])
            if rng.random() > 0.001:
                out.append(byte)
            if rng.random() < 0.001:
                out += rng.randbytes(2)
        return bytes(out)

    model = DeviceModel(TINY)
    link = Link(Line(model, damage, damage), retries=40)
    link.max_payload = TINY.max_payload
    link.synchronise()
    held = bytearray(64 * 8)
    starts = 0
    for _ in range(150):
        at, count = rng.randrange(60), rng.randint(1, 4)
        data = rng.randbytes(8 * count)
        link.write(WIDE, at, data)
        held[8 * at : 8 * (at + count)] = data
        link.write(REGIONS[RegionId.REGS], Reg.CONTROL, b"\1\0\0\0")
        starts += 1
        assert link.read(WIDE, 0, 64) == bytes(held)
    assert link.repeated > 50
    assert sum(region is RegionId.REGS for region, *_ in model.writes) == starts


def test_late_replies_are_skipped():
    """A reply that comes after its request was repeated does not count for a later request."""
    held = []

    def delay(data):
        held.append(data)
        return b"" if len(held) == 2 else (held[1] + data if len(held) == 5 else data)

    link, model = linked(reply=delay)
    model.memory[RegionId.WIDE] |= {1: 11, 2: 22}
    link.synchronise()
    assert link.read(WIDE, 1, 1) == (11).to_bytes(8, "little")  # its first reply is held back, and comes with the next
    assert len(held) == 4 and link.repeated == 2
    assert link.read(WIDE, 2, 1) == (22).to_bytes(8, "little")
    assert len(held) == 5


@pytest.mark.parametrize("late", [1, 2, 3])
def test_all_replies_are_late(late):
    """Each comes in the time of a repetition: it is taken for its own request, and nothing is done twice."""
    queue = []

    def delay(data):
        queue.append(data)
        return queue.pop(0) if len(queue) > late else b""

    link, model = linked(reply=delay)
    link.ping()
    for n in range(300):  # over the end of the sequence numbers
        link.write(REGIONS[RegionId.REGS], Reg.CONTROL, b"\1\0\0\0")
        link.write(WIDE, n % 60, n.to_bytes(8, "little"))
        assert link.read(WIDE, n % 60, 1) == n.to_bytes(8, "little")
    assert len(model.writes) == 600 and sum(region is RegionId.REGS for region, *_ in model.writes) == 300
    assert link.repeated >= 900


def test_a_late_reply_does_not_answer_a_request_with_a_new_number():
    """What is read again with a number of its own is what is there then."""
    replies = []

    def delay(data):
        replies.append(data)
        model.memory[RegionId.WIDE][1] = 10 + len(replies)
        return {1: b"", 3: replies[0] + data}.get(len(replies), data)

    link, model = linked(reply=delay)
    model.memory[RegionId.WIDE][1] = 10
    assert link.read(WIDE, 1, 1) == (12).to_bytes(8, "little") and len(replies) == 3
    assert link.read(WIDE, 1, 1) == (13).to_bytes(8, "little") and len(replies) == 4


def test_old_replies_do_not_keep_a_request_waiting():
    """Whatever else comes, its time ends."""
    link, _ = linked(request=lose)
    link._requests.retries = 0
    seconds = iter(range(1000))
    link.transport.clock = lambda: 0.3 * next(seconds)
    link.transport.read = lambda count, timeout: Frame(77, Status.OK, b"").encode()
    with pytest.raises(LinkTimeout, match=r"READ failed 1 times, at last: no complete reply within 1\.00 s"):
        link.read(WIDE, 0, 1)
    assert next(seconds) < 10


def test_silence():
    link, _ = linked(request=lose)
    with pytest.raises(LinkTimeout, match=r"PING failed 5 times, at last: no reply within 1\.00 s"):
        link.ping()
    assert len(link.transport.sent) == 5


@pytest.mark.parametrize("where", ["request", "reply"])
def test_a_line_that_always_damages(where):
    link, model = linked(**{where: flip})
    with pytest.raises(DamagedError, match="PING failed 5 times"):
        link.ping()
    assert not model.writes


def test_a_device_that_was_reset():
    link, model = linked()
    link.synchronise()
    model.expected = (model.expected + 100) % 256
    with pytest.raises(SequenceError, match="it was reset, or another host uses it"):
        link.read(WIDE, 0, 1)
    assert link.synchronise().version == SPEC_VERSION
    assert link.read(WIDE, 0, 1) == bytes(8)


def test_a_device_that_is_one_number_ahead():
    """Only a request that was repeated may find its own number used up: no other has been carried out."""
    link, model = linked()
    link.synchronise()
    model.expected = (model.expected + 1) % 256
    with pytest.raises(SequenceError, match="it was reset, or another host uses it"):
        link.write(REGIONS[RegionId.REGS], Reg.CONTROL, b"\1\0\0\0")
    assert not model.writes


def test_another_device():
    link, model = linked()
    model.memory[RegionId.REGS][Reg.MAGIC] = 1
    with pytest.raises(LinkError, match=r"must begin with b'CNCD', not b'\\x01"):
        link.ping()


def test_refusals():
    assert set(REFUSALS) == set(Status) - {Status.OK, Status.BAD_CRC, Status.BAD_SEQ}
    link, model = linked()
    link.synchronise()
    with pytest.raises(BadAddressError, match="READ at WIDE address 60 refused: BAD_ADDR"):
        link.read(WIDE, 60, 5)
    with pytest.raises(BadRegionError, match="READ at SLOTS address 0 refused"):
        link.read(REGIONS[RegionId.SLOTS], 0, 1)
    model.busy = True
    with pytest.raises(BusyError, match="WRITE at PROGRAM address 3 refused: BUSY"):
        link.write(REGIONS[RegionId.PROGRAM], 3, bytes(8))
    with pytest.raises(BadLengthError):
        link._request(Kind.PING, b"x", 16)
    link.max_payload = 4096
    with pytest.raises(TooLongError, match="WRITE at WIDE address 0 refused: TOO_LONG"):
        link.write(WIDE, 0, bytes(8 * 30))
    assert not model.writes
    link.max_payload = TINY.max_payload
    assert link.read(WIDE, 0, 1) == bytes(8)


def test_a_device_that_does_not_know_the_request():
    def answer(data):
        (body,) = FrameReader().feed(data)
        return Frame(Frame.from_body(body).seq, Status.BAD_KIND).encode()

    link, _ = linked(reply=answer)
    with pytest.raises(BadKindError, match=r"PING refused: BAD_KIND\. The device does not know the request\."):
        link.ping()


def test_a_status_nobody_knows():
    def answer(data):
        (body,) = FrameReader().feed(data)
        return Frame(Frame.from_body(body).seq, 77).encode()

    link, _ = linked(reply=answer)
    with pytest.raises(LinkError, match=r"PING: status must be one of .*'BUSY'.*, not 77"):
        link.ping()


def test_what_link_takes():
    line = Line(DeviceModel(TINY))
    with pytest.raises(ValueError, match="timeout must be positive, not 0"):
        Link(line, timeout=0)
    with pytest.raises(ValueError, match="retries must not be negative, not -1"):
        Link(line, retries=-1)
    with pytest.raises(ValueError, match="data must be whole words of 8 bytes, not 9 bytes"):
        Link(line).write(WIDE, 0, bytes(9))
    Link(line).close()
    assert line.closed


def test_identify():
    assert identify(Identity(SPEC_VERSION, UP5K.fingerprint), None) == UP5K
    own = TINY.replace(name="own", wide_depth=72)
    assert identify(Identity(SPEC_VERSION, own.fingerprint), own) == own


def test_identify_refuses():
    own = TINY.replace(name="own", wide_depth=72)
    with pytest.raises(RuntimeError, match="it is a tiny; expected / device: wide_depth: 72 / 64"):
        identify(Identity(SPEC_VERSION, TINY.fingerprint), own)
    with pytest.raises(RuntimeError) as caught:
        identify(Identity(SPEC_VERSION, TINY.fingerprint), own)
    assert "no ready bitstream" not in str(caught.value), "which a configuration of its own never had"
    with pytest.raises(RuntimeError, match=r"no ready bitstream fits tiny with .*: compile the network again$"):
        identify(Identity(SPEC_VERSION, TINY.fingerprint), own.replace(name="tiny"))
    with pytest.raises(RuntimeError, match=r"none of .* has: say which"):
        identify(Identity(SPEC_VERSION, own.fingerprint), None)
    with pytest.raises(RuntimeError, match=f"fingerprint {TINY.fingerprint:#018x}, not {own.fingerprint:#018x}"):
        identify(Identity(SPEC_VERSION, own.fingerprint), TINY)
    with pytest.raises(RuntimeError, match=f"specification version {SPEC_VERSION}, not {SPEC_VERSION + 1}"):
        identify(Identity(SPEC_VERSION + 1, TINY.fingerprint), TINY)
