"""The host's side of the feeder against a device that counts: what is sent, when, and what is asked for."""

import random
from types import SimpleNamespace

import pytest

from concord.host.errors import DeviceError
from concord.host.feeder import FeederClient
from concord.host.feeder_exchange import Exchange, _Posted
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.host.window import LinkRequest
from concord.spec.feeder import OUTBOX_ADDRESS, FeedOp, feed_word
from concord.spec.link import Kind
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.link_model import DeviceModel, ModelTransport
from support.noisy_line import damage_of

CONFIG = TINY.replace(inbox=128)
RING = CONFIG.inbox // 4
FIRST_PAUSE = CONFIG.clock_hz // 2000


class Counting(DeviceModel):
    """Takes bytes and gives results, sample by sample, each some requests after its last byte.

    Result k of sample n is the byte 16 n + k modulo 251.
    """

    def __init__(self, *, sample, result, work=0, lost=0):
        super().__init__(CONFIG)
        self.sample, self.result, self.work, self.lost, self.feeder = sample, result, work, lost, self
        self.begin()
        self.refused, self.waits = 0, 0

    def begin(self):
        self.came, self.ended, self.left, self.top, self.taken = bytearray(), 0, self.work, RING, 0
        self.sent, self.asked = [], []

    @property
    def produced(self):
        """Results that fit into the outbox, the first of a sample that does not fit as a whole among them."""
        return min(self.ended * self.result - self.lost, self.top)

    def _pass(self):
        while not self._idle():
            self.left -= 1
            if self.left >= 0:
                return
            self.ended, self.left = self.ended + 1, self.work

    def _idle(self):
        return self.ended == len(self.came) // self.sample or self.produced < self.ended * self.result - self.lost

    def _execute(self, frame):
        self._pass()
        if frame.kind == Kind.WAIT and frame.seq == self.expected:
            self.waits += 1
            for _ in range(-(-int.from_bytes(frame.payload, "little") // FIRST_PAUSE)):
                self._pass()
            return int(not self._idle()).to_bytes(4, "little")
        return super()._execute(frame)

    def _feed(self, kind, region, addr, count, rest):
        if region.id is RegionId.INBOX:
            assert addr == 0 and count
            self.refused += count > self.room
            if count <= self.room:
                self.sent.append((count, self.taken))
        data = super()._feed(kind, region, addr, count, rest)
        self._pass()
        return data

    @property
    def room(self):
        return CONFIG.inbox - 1 - (len(self.came) - self.ended * self.sample)

    def write(self, region, addr, word):
        if region is RegionId.INBOX:
            self.came.append(word)
        elif region is RegionId.SCRIPT:
            self.begin()

    def read(self, addr, count):
        address = OUTBOX_ADDRESS.unpack(addr)
        assert count <= 16
        there = (self.produced - address["first"]) % (2 * RING)
        first = self.produced - there if there <= RING else self.produced + 2 * RING - there
        assert (address["first"] - address["kept"]) % (2 * RING) + count <= RING
        level = (self.produced - address["kept"]) % (2 * RING)
        self.top = max(self.top, self.produced + RING - level)  # an older request may come again
        if first == self.taken:
            self.taken = max(self.taken, min(first + count, self.produced))
        data = bytes((16 * (k // self.result) + k % self.result) % 251 for k in range(first, self.produced))[:count]
        self.asked.append((count, len(data)))
        return data


class InTheMiddle(Counting):
    """Makes the results of a sample of its first bytes, and takes no others before the host has them.

    Result k of sample n is as that of :class:`Counting`.
    """

    FIRST = 10

    def begin(self):
        super().begin()
        self.used = 0  # bytes that were laid out

    @property
    def produced(self):
        begun = (self.used + self.sample - self.FIRST) // self.sample
        return 0 if self.lost else min(begun * self.result, self.top)

    def _pass(self):
        while self.used < len(self.came):
            place, begun = self.used % self.sample, (self.used + self.sample - self.FIRST) // self.sample
            if place == self.FIRST and (self.lost or self.produced < begun * self.result):
                return  # the outbox is full
            self.used += 1

    def _idle(self):
        return True

    @property
    def room(self):
        return CONFIG.inbox - 1 - (len(self.came) - self.used)


class Linked(LinkedDevice):
    """Keeps what is written and reported."""

    def __init__(self, model, window):
        super().__init__(Link(ModelTransport(model), retries=20), CONFIG)
        self.model, self.written, self.reported = model, [], 0
        self.link.window = window

    def write(self, region, addr, words):
        self.written.append((region, list(words)))
        super().write(region, addr, words)

    def report_progress(self, samples):
        self.reported += samples


@pytest.fixture(params=[0, 150, 1000], ids=["one request", "three requests", "many requests"])
def window(request):
    return request.param


def stream_of(model, samples, chunk=40, script=(1, 2), codes=()):
    route = SimpleNamespace(
        chunk=chunk, sample_bytes=model.sample, result_bytes=model.result, script=tuple(map(run_at, script))
    )
    data = bytes(k % 251 for k in range(samples * model.sample))
    return SimpleNamespace(route=route, data=data, codes=codes)


def run_at(pc):
    return feed_word(FeedOp.RUN, pc=pc, adds=0)


def exchange(model, window, samples, chunk=40, timeout=None):
    """Results of a batch, which must be whole and in order, as must be what was sent."""
    stream, device = stream_of(model, samples, chunk), Linked(model, window)
    results = FeederClient(device).exchange(stream, samples, timeout)
    assert results == bytes((16 * n + k) % 251 for n in range(samples) for k in range(model.result))
    assert bytes(model.came) == stream.data
    assert device.reported == samples
    assert max(count for count, _ in model.sent) <= chunk
    return device


@pytest.mark.parametrize("sample", [7, 24, 40, 90])
@pytest.mark.parametrize("result", [1, 4, 11])
def test_a_fast_device_refuses_next_to_nothing(sample, result, window):
    """As many requests as chunks, and results once there are enough of them or the batch is through."""
    model = Counting(sample=sample, result=result)
    exchange(model, window, 12)
    total = 12 * sample
    assert [count for count, _ in model.sent] == [40] * (total // 40) + [total % 40] * (total % 40 > 0)
    assert model.refused <= (window > 0)
    assert sum(count != came for count, came in model.asked) <= len(model.asked) // 2


@pytest.mark.parametrize(("sample", "result", "work"), [(7, 1, 20), (24, 4, 20), (40, 3, 9), (30, 1, 12), (63, 16, 9)])
def test_a_slow_device_refuses_once(sample, result, work, window):
    """From then on bytes go out when results say that there is room, and not a sample later."""
    model = Counting(sample=sample, result=result, work=work)
    exchange(model, window, 50)
    assert model.refused == 1


def test_room_for_a_byte_less_than_the_inbox(window):
    """Four samples of 32 bytes are one byte too many."""
    model = Counting(sample=32, result=1, work=20)
    exchange(model, window, 12, 32)
    assert model.refused == 1


def test_bytes_go_out_as_soon_as_results_say_that_there_is_room(window):
    """Of 30 bytes four samples fit into the inbox, beside seven bytes of a fifth one."""
    model = Counting(sample=30, result=1, work=20)
    exchange(model, window, 8, 30)
    # Before the bytes up to here were sent, the results of the samples in front of the inbox had come.
    assert [(30 * (n + 1), taken) for n, (_, taken) in enumerate(model.sent)][4:] == [
        (150, 1), (180, 2), (210, 3), (240, 4)
    ]  # fmt: skip


def test_a_device_without_results_is_waited_for(window):
    """Samples larger than the inbox, of which the first one is not there when bytes are refused."""
    model = Counting(sample=90, result=1, work=30)
    model.left = 0
    exchange(model, window, 3, 90)


@pytest.mark.parametrize(("sample", "result"), [(300, 50), (1000, 40), (150, 33)])
def test_results_of_a_sample_that_is_not_there_yet_are_read(sample, result, window):
    """The outbox is full of them, and the rest of the sample has no room before they are gone."""
    exchange(InTheMiddle(sample=sample, result=result), window, 5)


def test_an_inbox_that_never_has_room_is_told(window):
    model = InTheMiddle(sample=300, result=50, lost=1)
    with pytest.raises(DeviceError, match="device must take byte 120 of the inputs when it is idle, but refuses it"):
        FeederClient(Linked(model, window)).exchange(stream_of(model, 5), 5, None)


def test_results_that_never_come_are_told(window):
    model = Counting(sample=10, result=4, lost=1)
    with pytest.raises(DeviceError, match="device must have 1 bytes of results after its run, but has less"):
        FeederClient(Linked(model, window)).exchange(stream_of(model, 1), 1, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("sample", "result", "work"), [(7, 1, 20), (24, 4, 0), (63, 16, 9), (10, 50, 3)])
def test_a_bad_line(sample, result, work, seed, window):
    """Whatever is damaged, the inbox has every byte once, and results come whole and in order."""
    rng = random.Random(seed)
    model = Counting(sample=sample, result=result, work=work)
    device = Linked(model, window)
    transport = device.link.transport
    damage, write = damage_of(rng, 0.002), transport.write

    def damaged(data):
        write(damage(data))
        transport.pending = damage(transport.pending)

    transport.write = damaged
    stream = stream_of(model, 60)
    assert FeederClient(device).exchange(stream, 60, None) == bytes(
        (16 * n + k) % 251 for n in range(60) for k in range(result)
    )
    assert bytes(model.came) == stream.data and device.link.repeated > 0


@pytest.mark.parametrize(
    ("kind", "sample", "result", "work"),
    [(Counting, 24, 4, 0), (Counting, 63, 16, 9), (Counting, 10, 16, 3), (InTheMiddle, 150, 33, 0)],
)
def test_shorter_requests(kind, sample, result, work, window):
    """What is in the inbox of a request of which the other half was refused is not sent again."""
    model = kind(sample=sample, result=result, work=work)
    device = Linked(model, window)
    write = device.link.transport.write
    device.link.transport.write = lambda data: write(data if len(data) < 40 else b"")
    stream = stream_of(model, 20)
    assert FeederClient(device).exchange(stream, 20, None) == bytes(
        (16 * n + k) % 251 for n in range(20) for k in range(result)
    )
    assert bytes(model.came) == stream.data and device.link.repeated > 0
    assert max(count for count, _ in model.sent) <= 20


def test_what_was_refused_begins_where_the_inbox_has_no_byte():
    """Behind requests that were carried out while a read in front of them was lost, and the first half of its own."""
    model = Counting(sample=10, result=1)
    device = Linked(model, 1000)
    exchange = Exchange(device, stream_of(model, 20), 20, None, 0)
    inbox, outbox = device.regions[RegionId.INBOX], device.regions[RegionId.OUTBOX]
    writes = [LinkRequest.write(inbox, 0, bytes(40)) for _ in range(4)]
    for request in (*writes[:2], writes[2].halve()[0]):
        request.answer(b"")
    exchange._posted.append(_Posted(LinkRequest.read(outbox, 0, 1), RegionId.OUTBOX, 0, 1))
    exchange._posted += [_Posted(request, RegionId.INBOX, 40 * n, 40) for n, request in enumerate(writes)]
    exchange._go_back()
    assert exchange._sent == 100 and not exchange._posted


@pytest.mark.parametrize("longest", [40, 200])
@pytest.mark.parametrize("seed", range(4))
def test_results_that_make_room_are_waited_for(seed, longest, window):
    """However often their replies are lost, and long requests always."""
    model, rng = InTheMiddle(sample=150, result=33), random.Random(seed)
    device, feed = Linked(model, window), model.feed

    def losing(data):
        frames = feed(data) if len(data) < longest else []
        return [frame for frame in frames if len(frame.payload) < 5 or rng.random() < 0.5]

    model.feed = losing
    stream = stream_of(model, 5)
    assert FeederClient(device).exchange(stream, 5, None) == bytes(
        (16 * n + k) % 251 for n in range(5) for k in range(33)
    )


def test_script_and_codes_are_written_when_they_change(window):
    model = Counting(sample=10, result=4)
    device = Linked(model, window)
    client = FeederClient(device)
    script = {n: [run_at(n) for n in range(1, n + 1)] for n in (1, 2, 3)}
    for length, codes, want in [
        (2, (5,), [(RegionId.CODES, [5]), (RegionId.SCRIPT, script[2])]),
        (2, (5,), []),
        (2, (6,), [(RegionId.CODES, [6])]),
        (3, (6,), [(RegionId.SCRIPT, script[3])]),
        (2, (6,), [(RegionId.SCRIPT, script[2])]),
    ]:
        device.written.clear()
        stream = stream_of(model, 3, script=range(1, length + 1), codes=codes)
        client._install(stream)
        assert device.written == want
        before = model.taken
        assert len(client.exchange(stream, 3, None)) == 12 and model.taken == before + 12
    client.invalidate()
    client._install(stream_of(model, 1, codes=(6,)))
    assert [region for region, _ in device.written[-2:]] == [RegionId.CODES, RegionId.SCRIPT]


def test_addresses_of_results_go_on_from_batch_to_batch(window):
    """Until a script is written: the outbox is empty then."""
    model = Counting(sample=10, result=5)
    client = FeederClient(Linked(model, window))
    for script in ((1,), (1,), (2,), (2,)):
        stream = stream_of(model, 14, script=script)
        client._install(stream)
        assert len(client.exchange(stream, 14, None)) == 70
