"""Words of memories that are taken and given back."""

import numpy as np
import pytest

from concord.program.allocator import Allocator, CapacityError, MemorySpace
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F


def test_the_first_words_that_are_free_are_taken():
    space = MemorySpace()
    assert [space.take(3), space.take(2), space.take(4)] == [0, 3, 5]
    space.give_back(3)
    assert [space.take(1), space.take(2), space.take(1)] == [3, 9, 4]
    assert (space.used, space.taken) == (11, 11)


def test_neighbours_become_one_part():
    space = MemorySpace()
    firsts = [space.take(2) for _ in range(4)]
    for first in (firsts[0], firsts[2], firsts[1]):
        space.give_back(first)
    assert (space.take(6), space.used) == (0, 8)
    space.give_back(firsts[3])
    assert (space.take(3), space.used) == (6, 9), "the part at the end grows"


def test_what_is_shared_is_free_when_nobody_needs_it():
    space = MemorySpace()
    first = space.share(space.take())
    space.give_back(first)
    assert space.take() == 1
    space.give_back(first)
    assert space.take() == first


@pytest.mark.parametrize("seed", range(8))
def test_no_word_is_taken_twice(seed):
    rng, space, there = np.random.default_rng(seed), MemorySpace(), {}
    for _ in range(300):
        if there and rng.random() < 0.5:
            first = int(rng.choice(list(there)))
            space.give_back(first)
            del there[first]
        else:
            count = int(rng.integers(1, 9))
            there[space.take(count)] = count
        words = [word for first, count in there.items() for word in range(first, first + count)]
        assert len(set(words)) == len(words) == space.taken and max(words, default=0) < max(space.used, 1)


def test_everything_that_is_too_small_is_named():
    allocator = Allocator(ECP5_85F)
    allocator.spaces[RegionId.MATRIX] = MemorySpace(ECP5_85F.steps)
    allocator.check()
    for region, count in (("NARROW", 2049), ("WIDE", 2049), ("MATRIX", 1025), ("TENSORS", 65)):
        allocator.spaces[RegionId[region]].take(count)
    with pytest.raises(CapacityError) as error:
        allocator.check()
    assert str(error.value) == (
        "does not fit into ecp5-85f: matrix memory has 2048 words, but 2050 are needed; narrow memory has 2048 "
        "vectors, but 2049 are needed; wide memory has 2048 vectors, but 2049 are needed; register file has 64 tensor "
        "registers, but 65 are needed"
    )
