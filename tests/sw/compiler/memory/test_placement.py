"""Addresses of tensors: nothing that is in use at the same time overlaps, and nothing leaves the room there is."""

import random
from itertools import pairwise

import pytest

from concord.compiler.ir.layout import Storage
from concord.compiler.memory.copies import Copy, peak, place, place_within
from concord.spec.isa import Mem


def copy(vectors, first_use, last_use, **more):
    return Copy(Storage(f"s{vectors}", 1, 1, vectors, 4), Mem.WIDE, first_use, last_use, **more)


def words(copies):
    """Copies by (layer, word) in use; fails where two have the same."""
    used = {}
    for one in copies:
        for live in one.live_ranges:
            for now in range(live.first_use, live.last_use + 1):
                for word in range(one.addr + live.low, one.addr + live.high):
                    assert used.setdefault((now, word), one) is one, f"two copies in word {word} at layer {now}"
    return used


def some(rng, count=8):
    copies = []
    for _ in range(count):
        first_use = rng.randrange(8)
        copies.append(copy(rng.randint(1, 9), first_use, first_use + rng.randrange(4)))
    return copies


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overlaps(seed):
    rng = random.Random(seed)
    copies = some(rng)
    end = place(copies, 5)
    used = words(copies)
    assert min(word for _, word in used) >= 5 and max(word for _, word in used) == end - 1
    assert end - 5 >= peak(copies) == max(sum(now == at for at, _ in used) for now in range(12))


def test_words_are_used_again_after_the_last_layer_that_reads_them():
    first, second, third = copy(4, 0, 1), copy(4, 1, 2), copy(4, 2, 3)
    assert place([first, second, third], 0) == 8
    assert first.addr == third.addr == 0 and second.addr == 4


def test_a_copy_that_takes_the_place_of_another_has_its_address():
    first = copy(4, 0, 1)
    second = copy(4, 1, 2, over=first)
    other = copy(3, 1, 2)
    assert place([first, second, other], 0) == 7
    assert first.addr == second.addr and other.addr == 4


@pytest.mark.parametrize("seed", range(20))
def test_a_room_is_kept_to_or_refused(seed):
    """The room just large enough is found; with one word less no order does, and that is said."""
    rng = random.Random(seed)
    copies = some(rng)
    end = place(copies, 0)
    assert place_within(copies, end, 1) == 1
    words(copies)
    assert max(one.addr + one.vectors for one in copies) <= end
    assert place_within(copies, peak(copies) - 1, 5) == 6


def test_the_last_copy_counts_too():
    assert place_within([copy(4, 0, 1), copy(3, 0, 1)], 7, 3) == 1
    assert place_within([copy(4, 0, 1), copy(3, 0, 1)], 6, 3) == 4
    copies = [copy(4, 0, 1), copy(3, 0, 1), copy(2, 2, 3)]
    assert place_within(copies, 7, 3) == 1
    words(copies)
    assert all(0 <= one.addr <= 7 - one.vectors for one in copies)


def test_another_order_may_fit_where_the_first_does_not():
    """Buffers that keep their first rows split the memory unless one lies in reverse order."""
    tried = []
    for seed in range(40):
        rng = random.Random(seed)
        kept = [copy(rng.randint(4, 8), 0, 1, kept=rng.randint(1, 3), kept_while=(-1, 3)) for _ in range(2)]
        copies = [*kept, copy(rng.randint(4, 9), 2, 3), copy(rng.randint(1, 4), 1, 2)]
        tries = place_within(copies, peak(copies) + 1, 50)
        tried.append(tries)
        if tries <= 50:
            words(copies)
            assert max(one.addr + one.vectors for one in copies) <= peak(copies) + 1
    assert 1 in tried and any(1 < tries <= 50 for tries in tried)


@pytest.mark.slow
def test_many_copies_in_one_place():
    """A long row of results, each in the place of the one before."""
    made = [copy(2, k, k + 1) for k in range(5000)]
    for before, after in pairwise(made):
        after.over = before
    assert made[-1].group is made[0]
    assert place(made[::-1], 3) == 5 and {one.addr for one in made} == {3}
