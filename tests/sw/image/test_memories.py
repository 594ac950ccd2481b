"""Words of the memories as the link sees them."""

import random

import numpy as np
import pytest

from concord.image import Memories
from concord.spec.memmap import CORE_REGIONS, RegionId
from concord.spec.presets import TINY
from support.program_gen import random_memories


@pytest.mark.parametrize("region", [r for r in CORE_REGIONS if r is not RegionId.REGS], ids=lambda r: r.name.lower())
def test_words_of_every_region_survive(region):
    config = TINY.replace(engines=2, matrix_depth=512)
    full = random_memories(config, random.Random(4))
    full.program[:] = np.arange(config.program_depth)
    full.flags[:] = np.arange(config.program_depth) % 16
    depth = full.region(region).depth
    copy = Memories(config)
    words = full.read(region, 0, depth)
    copy.write(region, 0, words[:3])
    copy.write(region, 3, words[3:])
    assert copy.read(region, 0, depth) == words
    found = {text.partition("[")[0] for text in copy.differences(full)}
    assert not [name for name in found if name.startswith(region.name.lower())]
    assert found


@pytest.mark.parametrize("region", [r for r in CORE_REGIONS if r is not RegionId.REGS], ids=lambda r: r.name.lower())
def test_no_words_at_all_change_nothing(region):
    memories = random_memories(TINY, random.Random(4))
    before = memories.read(region, 0, 2)
    memories.write(region, 1, [])
    assert memories.read(region, 1, 0) == [] and memories.read(region, 0, 2) == before


def test_words_must_lie_in_their_region():
    memories = Memories(TINY)
    with pytest.raises(ValueError, match=r"words must lie in the 64 of wide, not at 63\.\.64"):
        memories.write(RegionId.WIDE, 63, [0, 0])
    with pytest.raises(ValueError, match="region must be a memory, not REGS"):
        memories.read(RegionId.REGS, 0, 1)
    with pytest.raises(ValueError, match="region must be a memory, not REGS"):
        memories.write(RegionId.REGS, 0, [1])
    with pytest.raises(ValueError, match="words must be integers of 8 bytes, not 18446744073709551616"):
        memories.write(RegionId.PROGRAM, 0, [1 << 64])
