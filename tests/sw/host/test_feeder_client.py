"""The host's side of the feeder against a device that counts: what is sent, when, and what is asked for."""

from types import SimpleNamespace

import pytest

from concord.host.errors import BusyError, DeviceError
from concord.host.feeder import FeederClient
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY

CONFIG = TINY.replace(inbox=128)


class Counting:
    """Takes bytes and gives results, sample by sample, each some requests after its last byte.

    Result k of sample n is the byte 16 n + k modulo 251.
    """

    def __init__(self, *, sample, result, work=0, lost=0):
        self.config, self.regions, self.link, self.progress = CONFIG, regions(CONFIG), self, None
        self.sample, self.result, self.work, self.lost = sample, result, work, lost
        self.begin()
        self.written, self.reported = [], 0
        self.refused, self.waits = {"write": 0, "read": 0}, 0

    def begin(self):
        self.came, self.ended, self.left, self.taken = bytearray(), 0, self.work, 0
        self.sent, self.asked = [], []

    # The device ---------------------------------------------------------------------------------

    @property
    def produced(self):
        """Results that fit into the outbox, the first of a sample that does not fit as a whole among them."""
        return min(self.ended * self.result - self.lost, self.taken + CONFIG.inbox // 4)

    def _pass(self):
        while not self._idle():
            self.left -= 1
            if self.left >= 0:
                return
            self.ended, self.left = self.ended + 1, self.work

    def _idle(self):
        return self.ended == len(self.came) // self.sample or self.produced < self.ended * self.result - self.lost

    # What the client calls ----------------------------------------------------------------------

    def write(self, region, addr, data, progress=None):
        if not hasattr(region, "id"):
            self.written.append((region, list(data)))
            if region is RegionId.SCRIPT:
                self.begin()
            return
        self._pass()
        assert region.id is RegionId.INBOX and addr == 0 and data
        if len(data) > CONFIG.inbox - 1 - (len(self.came) - self.ended * self.sample):
            self.refused["write"] += 1
            raise BusyError("no room")
        self.sent.append(len(data))
        self.came += data
        self._pass()

    def read(self, region, addr, count):
        self._pass()
        assert region.id is RegionId.OUTBOX and addr == self.taken % (CONFIG.inbox // 2) and 0 < count <= 16
        if self.taken + count > self.produced:
            self.refused["read"] += 1
            raise BusyError("no results")
        self.asked.append(count)
        found = bytes((16 * (k // self.result) + k % self.result) % 251 for k in range(self.taken, self.taken + count))
        self.taken += count
        return found

    def wait(self, timeout=None):
        self.waits += 1
        while not self._idle():
            self._pass()

    def wait_at_most(self, cycles):
        self._pass()
        return self._idle()

    def report_progress(self, samples):
        self.reported += samples


def stream_of(device, samples, chunk=40, script=(1, 2), codes=()):
    route = SimpleNamespace(chunk=chunk, sample_bytes=device.sample, result_bytes=device.result, script=script)
    data = bytes(k % 251 for k in range(samples * device.sample))
    return SimpleNamespace(route=route, data=data, codes=codes)


def exchange(device, samples, chunk=40):
    """Results of a batch, which must be whole and in order, as must be what was sent."""
    found = stream_of(device, samples, chunk)
    results = FeederClient(device).exchange(found, samples, None)
    assert results == bytes((16 * n + k) % 251 for n in range(samples) for k in range(device.result))
    assert bytes(device.came) == found.data
    assert device.reported == samples
    assert max(device.sent) <= chunk
    return device


@pytest.mark.parametrize("sample", [7, 24, 40, 90])
@pytest.mark.parametrize("result", [1, 4, 11])
def test_a_fast_device_refuses_nothing(sample, result):
    """As many requests as chunks, and results once there are enough of them or the batch is through."""
    device = exchange(Counting(sample=sample, result=result), 12)
    total = 12 * sample
    assert device.sent == [40] * (total // 40) + [total % 40] * (total % 40 > 0)
    assert device.refused == {"write": 0, "read": 0} and device.waits == 0


@pytest.mark.parametrize(("sample", "result", "work"), [(7, 1, 20), (24, 4, 20), (40, 3, 9), (30, 1, 12), (63, 16, 9)])
def test_a_slow_device_refuses_once(sample, result, work):
    """From then on bytes go out when results say that there is room, and not a sample later."""
    device = exchange(Counting(sample=sample, result=result, work=work), 50)
    assert device.refused["write"] == 1 and device.waits == 0


def test_room_for_a_byte_less_than_the_inbox():
    """Four samples of 32 bytes are one byte too many."""
    device = exchange(Counting(sample=32, result=1, work=20), 12, 32)
    assert device.refused["write"] == 1


def test_bytes_go_out_as_soon_as_results_say_that_there_is_room():
    """Of 30 bytes four samples fit into the inbox, beside seven bytes of a fifth one."""
    device = Counting(sample=30, result=1, work=20)
    sent = []
    write = device.write

    def note(region, addr, data, progress=None):
        write(region, addr, data, progress)
        sent.append((len(device.came), device.taken))

    device.write = note
    exchange(device, 8, 30)
    # Before the bytes up to here were sent, the results of the samples in front of the inbox had come.
    assert [(came, taken) for came, taken in sent if came > 120] == [(150, 1), (180, 2), (210, 3), (240, 4)]


def test_a_device_without_results_is_waited_for():
    """Samples larger than the inbox, of which the first one is not there when bytes are refused."""
    device = Counting(sample=90, result=1, work=30)
    device.left = 0
    exchange(device, 3, 90)
    assert device.waits <= 1


def test_results_that_never_come_are_told():
    device = Counting(sample=10, result=4, lost=1)
    with pytest.raises(DeviceError, match="device must have 4 bytes of results after its run, but has less"):
        FeederClient(device).exchange(stream_of(device, 1), 1, None)


def test_script_and_codes_are_written_when_they_change():
    device = Counting(sample=10, result=4)
    client = FeederClient(device)
    for script, codes, want in [
        ((1, 2), (5,), [(RegionId.CODES, [5]), (RegionId.SCRIPT, [1, 2])]),
        ((1, 2), (5,), []),
        ((1, 2), (6,), [(RegionId.CODES, [6])]),
        ((3,), (6,), [(RegionId.SCRIPT, [3])]),
        ((1, 2), (6,), [(RegionId.SCRIPT, [1, 2])]),
    ]:
        device.written.clear()
        found = stream_of(device, 3, script=script, codes=codes)
        client._install(found)
        assert device.written == want
        device.taken, before = device.taken, device.taken
        got = client.exchange(found, 3, None)
        assert len(got) == 12 and device.taken == before + 12
    client.invalidate()
    client._install(stream_of(device, 1, codes=(6,)))
    assert device.written[-2:] == [(RegionId.CODES, [6]), (RegionId.SCRIPT, [1, 2])]


def test_addresses_of_results_go_on_from_batch_to_batch():
    """Until a script is written: the outbox is empty then."""
    device = Counting(sample=10, result=5)
    client = FeederClient(device)
    for script in ((1,), (1,), (2,), (2,)):
        found = stream_of(device, 14, script=script)
        client._install(found)
        assert len(client.exchange(found, 14, None)) == 70
