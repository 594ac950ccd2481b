"""What the pages decide, on the compiled RTL of both kinds of pipe."""

import pytest

from concord.host import TrapError
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY, UP5K
from support.back_door import connected
from support.contract_programs import NOISE, RESULTS, SECOND, STATE, TRAPS, contract_memories, patterns
from support.device_runs import WRITTEN, compare, load

pytestmark = pytest.mark.slow


CONFIGS = {config.name: config for config in (TINY, UP5K)}
NOISY = {name: config for name, config in CONFIGS.items() if config.stochastic}


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=CONFIGS)
def device(request):
    with connected(request.param) as device:
        load(device, contract_memories(request.param, "halt"))
        yield device


def fill(device, program):
    """Weights and tables are those of all programs."""
    memories = contract_memories(device.config, program)
    load(device, memories, (RegionId.PROGRAM, *WRITTEN))
    return memories


def wide(device, address):
    (word,) = device.read(RegionId.WIDE, address)
    return device.config.wide_word.unpack(word)["elem"]


@pytest.mark.parametrize("name", RESULTS)
def test_what_programs_leave(device, name):
    text, want = RESULTS[name]
    memories = fill(device, text)
    device.start(0)
    device.wait()
    assert [wide(device, 8 + k) for k in range(len(want))] == want
    compare(device, memories)


@pytest.mark.parametrize("name", TRAPS)
def test_how_programs_trap(device, name):
    words, trap, pc = TRAPS[name]
    memories = fill(device, words)
    device.start(0)
    with pytest.raises(TrapError) as caught:
        device.wait()
    assert (caught.value.trap, caught.value.pc) == (trap, pc)
    compare(device, memories)


def test_every_start_begins_with_the_initial_state(device):
    fill(device, STATE)
    for pc in (0, SECOND):
        device.start(pc)
        device.wait()
    assert wide(device, 8) == patterns(1, 2, 3, 4)
    rest = device.read(RegionId.WIDE, 9, device.config.wide_depth - 9)
    assert not any(rest) and not any(device.read(RegionId.NARROW, 9, device.config.narrow_depth - 9))


@pytest.mark.parametrize("device", NOISY.values(), ids=NOISY, indirect=True)
def test_every_start_begins_with_the_same_noise(device):
    fill(device, NOISE.format(8, 9) + NOISE.format(10, 11))
    for pc in (0, 6):
        device.start(pc)
        device.wait()
    first, second, again, other = device.read(RegionId.NARROW, 8, 4)
    assert first == again and second == other and first != second


def test_bits_above_a_word_are_ignored(device):
    """The driver never sends any."""
    partial = [id for id in (RegionId.MATRIX, RegionId.FLAGS) if device.regions[id].word.width % 8]
    assert RegionId.FLAGS in partial
    for region in partial:
        found = device.regions[region]
        before = device.read(region, 0)
        device.link.write(found, 0, b"\xff" * found.nbytes)
        assert device.read(region, 0) == [(1 << found.word.width) - 1]
        device.write(region, 0, before)
