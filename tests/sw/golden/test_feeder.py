"""The golden feeder against loops over whole samples: what is laid out, when, and what is let go."""

import random
from dataclasses import replace

import pytest

from concord.golden.feeder import Feeder
from concord.spec.feeder import OUTBOX_ADDRESS
from concord.spec.memmap import RegionId
from support.feeder_cases import CASES, CONFIG, TARGET, Core, script

HALVES = random.Random(2).choices(range(1 << 15), k=4 * 256)


def feeder(core, words):
    made = Feeder(CONFIG, core.read, core.write, core.start)
    install(made, words)
    return made


def install(made, words):
    for addr, word in enumerate(HALVES):
        made.write(RegionId.CODES, addr, word)
    for addr, word in enumerate(words):
        made.write(RegionId.SCRIPT, addr, word)


def sample_of(rng, filled):
    """Bytes of a sample without infinities, and mantissas without the most negative one."""
    return bytes(rng.randrange(112) for _ in range(filled.nbytes(CONFIG.native)))


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_laid_out_as_soon_as_their_bytes_are_there(name):
    """Every vector in its place with its last byte and not before, and results behind the last byte of a sample."""
    filled, lanes = CASES[name]
    rng, core = random.Random(name), Core()
    made, region = feeder(core, script(filled, lanes)), RegionId.WIDE if filled.wide else RegionId.NARROW
    received = b""
    for _ in range(2 + 600 // filled.nbytes(CONFIG.native)):  # beyond the end of the ring of addresses
        sample = sample_of(rng, filled)
        want = [(region, TARGET + k, word) for k, (word, _) in enumerate(filled.vectors(sample, HALVES, CONFIG))]
        needed = [count for _, count in filled.vectors(sample, HALVES, CONFIG)]
        core.writes.clear()
        runs = len(core.starts)
        for k, byte in enumerate(sample, 1):
            assert made.room > 0
            made.write(RegionId.INBOX, 0, byte)
            assert core.writes == want[: sum(count <= k for count in needed)]
            assert len(core.starts) == runs + (k == len(sample))
        while len(made.outbox) > len(received):
            addr = len(received) % (CONFIG.inbox // 2)
            count = min(len(made.outbox) - len(received), rng.randint(1, 9))
            received += bytes(made.read(OUTBOX_ADDRESS.pack(first=addr, kept=addr), count))
        assert received.endswith(core.results(lanes))
        assert made.room == CONFIG.inbox - 1
    assert set(core.starts) == {7}


@pytest.mark.parametrize("name", ["halves", "codes", "blocks"])
def test_windows_of_one_tap_let_go_of_every_byte_that_was_used(name):
    """What is kept is the element that is being received, and where it begins."""
    filled, lanes = CASES[name]
    core, rng = Core(), random.Random(3)
    made = feeder(core, script(filled, lanes))
    for k, byte in enumerate(sample_of(rng, filled)[:-1], 1):
        made.write(RegionId.INBOX, 0, byte)
        assert CONFIG.inbox - 1 - made.room <= (2 if filled.kind != "codes" else 1), k


def test_windows_let_go_of_the_lines_above_them():
    """As far as the first window of a line reaches, which begins a position in front of its line."""
    filled, lanes = CASES["windows"]
    made, pixel, line = feeder(Core(), script(filled, lanes)), 4, 3 * 4
    for k, byte in enumerate(sample_of(random.Random(4), filled)[:-1], 1):
        made.write(RegionId.INBOX, 0, byte)
        # The windows of line y are done with line y + 1; those of the next one begin with line y.
        lines = max(0, k // line - 2)
        assert CONFIG.inbox - 1 - made.room == k - max(0, lines * line - pixel), k


@pytest.mark.parametrize("name", ["windows", "halves"])
def test_the_last_lines_of_windows_let_nothing_go(name):
    """What the line in front of them has let go of is the last."""
    filled, lanes = CASES[name]
    sample, held = sample_of(random.Random(4), filled), filled.windows[0] - 1
    plain, made = (feeder(Core(), script(each, lanes)) for each in (filled, replace(filled, held=held)))
    least = CONFIG.inbox
    for byte in sample[:-1]:
        plain.write(RegionId.INBOX, 0, byte)
        made.write(RegionId.INBOX, 0, byte)
        assert made.room <= plain.room
        least = min(least, made.room)
    line = filled.nbytes(CONFIG.native) // filled.image[0]
    gone = line - filled.size if filled.kernel == (1, 1) else 0  # all but the last element of the first line
    assert made.room == least == CONFIG.inbox - 1 - (len(sample) - 1 - gone)
    made.write(RegionId.INBOX, 0, sample[-1])
    assert made.room == CONFIG.inbox - 1  # all of it is over


def test_the_inbox_holds_a_byte_less_than_its_size():
    """Room is what is left of it, also while the outbox is full and nothing is taken."""
    filled, lanes = CASES["halves to blocks"]
    core = Core()
    made = feeder(core, script(filled, lanes))
    sent = 0
    while made.room:
        made.write(RegionId.INBOX, 0, sent % 100)
        sent += 1
    size = CONFIG.inbox // 4
    assert len(made.outbox) == size
    assert made.read(size, 1) == []
    runs, each = len(core.starts), 2 * 2 * lanes + 1 + lanes
    assert runs == -(-size // each) and sent == runs * filled.nbytes(CONFIG.native) + CONFIG.inbox - 1
    first = made.read(0, size)
    assert len(first) == size and made.read(1, size) == first[1:] and made.read(0, size) == first
    assert made.read(OUTBOX_ADDRESS.pack(first=5, kept=2), 3) == first[5:8]  # what is in front of 2 is let go
    assert len(made.outbox) == size + 2
    assert made.read(OUTBOX_ADDRESS.pack(first=2, kept=2), size) == made.outbox[2:]


def test_a_second_script_begins_with_nothing_of_the_first():
    """The first one is left in the middle of an element, with results that nobody has read."""
    core = Core()
    first, lanes = CASES["halves"]
    made = feeder(core, script(first, lanes))
    rng = random.Random(5)
    for byte in sample_of(rng, first) + sample_of(rng, first)[:7]:
        made.write(RegionId.INBOX, 0, byte)
    assert made.outbox
    for name in ("codes", "windows", "blocks", "halves"):
        filled, lanes = CASES[name]
        install(made, script(filled, lanes))
        assert made.room == CONFIG.inbox - 1 and not made.read(0, 1)
        core.writes.clear()
        sample = sample_of(rng, filled)
        for byte in sample:
            made.write(RegionId.INBOX, 0, byte)
        assert [word for _, _, word in core.writes] == [word for word, _ in filled.vectors(sample, HALVES, CONFIG)]
        assert bytes(made.read(0, len(made.outbox))) == core.results(lanes)


def test_a_script_without_words_does_nothing():
    core = Core()
    made = feeder(core, [0])
    for byte in range(10):
        made.write(RegionId.INBOX, 0, byte)
    assert not core.writes and not core.starts and made.room == CONFIG.inbox - 11


def test_results_can_be_asked_for_again():
    """Bytes stay as long as a read does not say that those in front of another one may go."""
    filled, lanes = CASES["halves"]
    core = Core()
    made = feeder(core, script(filled, lanes))
    for byte in sample_of(random.Random(6), filled):
        made.write(RegionId.INBOX, 0, byte)
    want = list(core.results(lanes))
    assert made.read(0, 5) == made.read(0, 5) == want[:5]
    assert made.read(5, 3) == made.read(5, 3) == want[5:8]
    assert made.read(OUTBOX_ADDRESS.pack(first=8, kept=8), 1000) == want[8:]
