# amaranth: UnusedElaboratable=no
"""Memories of the compiled RTL without the link: they are those that the link reaches, and a wrong bit is noticed."""

import random

import numpy as np
import pytest

from concord.host.link import Link
from concord.host.rtl import RtlTransport
from concord.image.words import to_bytes
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from concord_rtl.flow import verilate
from support import back_door
from support.back_door import BackDoorDevice, connected
from support.device_runs import check_seeds
from support.memory_top import MemoryTop
from support.program_gen import random_program

pytestmark = pytest.mark.slow

LARGE = (RegionId.PROGRAM, RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE, RegionId.FLAGS)


@pytest.fixture(scope="module")
def library():
    return verilate.build(MemoryTop(TINY), "memory_top")


@pytest.fixture
def device(library):
    with BackDoorDevice(TINY, library) as device:
        yield device


def turned(data, bit=0):
    """Words of which the last one has a wrong bit."""
    wrong = np.array(data)
    wrong[-1, bit // 8] ^= 1 << bit % 8
    return wrong


def test_the_link_and_the_back_door_reach_the_same(device):
    assert set(device.places) == set(LARGE)
    rng = random.Random(1)
    for id in LARGE:
        region = device.regions[id]
        first, count = region.depth // 3, region.depth // 2
        for write, read in ((device._write, device.link.read), (device.link.write, device._read)):
            before = device.link.read(region, 0, region.depth)
            data = to_bytes([rng.getrandbits(region.word.width) for _ in range(count)], region.nbytes).tobytes()
            write(region, first, data)
            begin, end = first * region.nbytes, (first + count) * region.nbytes
            assert read(region, 0, region.depth) == before[:begin] + data + before[end:]


def test_it_takes_no_time(device):
    """But for one word of the flags."""
    for id in LARGE:
        cycles = device.transport.cycles
        words = device.read(id, 0, device.regions[id].depth)
        assert device.transport.cycles == cycles
        device._write(device.regions[id], 0, bytes(len(words) * device.regions[id].nbytes))
        assert (
            (0 < device.transport.cycles - cycles < 500) if id is RegionId.FLAGS else device.transport.cycles == cycles
        )


@pytest.mark.parametrize("id", LARGE, ids=lambda id: id.name)
def test_a_wrong_bit_that_is_poked_is_read_over_the_link(device, id, monkeypatch):
    region, poke = device.regions[id], device.transport.poke
    data = bytes(region.depth * region.nbytes)
    monkeypatch.setattr(device.transport, "poke", lambda bank, first, words: poke(bank, first, turned(words)))
    device._write(region, 0, data)
    assert device.link.read(region, 0, region.depth) != data


@pytest.mark.parametrize("wrong", ["peek", "poke"])
def test_a_program_notices_one_wrong_bit(wrong, monkeypatch):
    with connected(TINY) as device:
        check_seeds(device, lambda rng: random_program(TINY, rng, 8)[1], [0])
        access = getattr(device.transport, wrong)

        def spoiled(bank, first, what):
            if "wide" not in bank.name:
                return access(bank, first, what)
            return turned(access(bank, first, what)) if wrong == "peek" else access(bank, first, turned(what))

        monkeypatch.setattr(device.transport, wrong, spoiled)
        with pytest.raises(AssertionError) as caught:
            check_seeds(device, lambda rng: random_program(TINY, rng, 8)[1], [0])
        assert caught.value.__notes__ == ["seed 0"] and "wrong elements" in str(caught.value)
        if wrong == "peek":
            assert f"1 wrong elements, expected / found: wide[{TINY.wide_depth - 1}, 0]: " in str(caught.value)


def test_copies_must_be_alike():
    with connected(TINY) as device:
        copies = [place.bank for place in device.places[RegionId.TABLE]]
        assert len(copies) == 4
        device.read(RegionId.TABLE, 0, TINY.table_depth)
        words = device.transport.peek(copies[2], 0, copies[2].depth)
        device.transport.poke(copies[2], 0, turned(words))
        with pytest.raises(AssertionError, match="copies of TABLE must be alike"):
            device.read(RegionId.TABLE, 0, TINY.table_depth)


def test_the_pass_over_the_link_notices_one_wrong_bit(library, monkeypatch):
    """What comes back over the link, and what is in the memories then."""
    read, peek = Link.read, RtlTransport.peek

    def spoiled(link, region, addr, count):
        data = bytearray(read(link, region, addr, count))
        data[-1] ^= region.id is RegionId.NARROW
        return bytes(data)

    for owner, name, wrong in ((Link, "read", spoiled), (RtlTransport, "peek", lambda *a: turned(peek(*a), 3))):
        with monkeypatch.context() as patch:
            patch.setattr(back_door, "_FOUND", {})
            patch.setattr(owner, name, wrong)
            with pytest.raises(AssertionError, match=r"NARROW|must be in some memory"):
                BackDoorDevice(TINY, library)


def test_words_must_fit(device):
    bank = next(bank for bank in device.transport.banks.values() if bank.width == 5)
    assert (bank.depth, bank.nbytes) == (TINY.program_depth, 1)
    with pytest.raises(ValueError, match=f"words of {bank.name} must lie in 0..127, not 100..128"):
        device.transport.peek(bank, 100, 29)
    with pytest.raises(ValueError, match=f"words of {bank.name} must lie in 0..127, not 128..128"):
        device.transport.poke(bank, 128, np.zeros((1, 1), np.uint8))
    with pytest.raises(ValueError, match=f"words of {bank.name} must have 5 bits"):
        device.transport.poke(bank, 0, np.full((1, 1), 32, np.uint8))
    with pytest.raises(ValueError, match=r"data must be bytes \[count, 1\], not int64 \[3, 1\]"):
        device.transport.poke(bank, 0, np.zeros((3, 1), int))
