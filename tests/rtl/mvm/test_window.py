# amaranth: UnusedElaboratable=no
"""Windows: every element that counts is multiplied once, with its exponent, whatever stalls."""

import random
from collections import Counter

import pytest

from concord.spec import multipliers
from concord.spec.presets import TINY
from concord.spec.windows import lane_of, place_of
from concord_rtl.mvm.window import WindowUnit
from concord_rtl.mvm.window_registers import WindowRegisters
from support.bench import simulate

FOUR = TINY.replace(name="four", lanes=4, window_taps=4)
THREE = TINY.replace(name="three", lanes=4, window_taps=3)
NINE = TINY.replace(name="nine", native=16, lanes=16, mfu_lanes=8, window_taps=9)


class Window:
    """A window of some taps as it is read: those that its predecessor had not, and all of them.

    ``places``: how many places had come in since the row began, and how many count at most.
    """

    def __init__(self, new, taps, places=(0, 99)):
        self.new, self.taps, self.places = new, taps, places


def windows_of(rng, config, count, exponents):
    """Rows of windows of changing shapes, the first ones not all whole: elements are (number, exponent, outside).

    Every other row begins with windows that take all places.
    """
    found = []
    number = 0
    whole = True
    while len(found) < count:
        kh = rng.randint(1, min(3, config.window_taps))
        kw = rng.randint(1, config.window_taps // kh)
        if whole:
            kh = 3 if config.window_taps % 3 == 0 else 1
            kw = config.window_taps // kh
        fresh, there = rng.randint(1, kw), kw if whole else rng.randint(1, kw)
        whole = not whole
        before, total = [], 0
        for k in range(rng.randint(1, 6)):
            new = []
            for _ in range(kh * (fresh if k else there)):
                number += 1
                new.append((number % 100, rng.choice(exponents), int(rng.random() < 0.2)))
            before = [*before, *new][-kh * kw :]
            found.append(Window(new, before, (total, kh * kw)))
            total += len(new)
    return found


def drive(config, windows, *, gap=0.0, seed=0):
    """Feed windows; returns by window what was multiplied in every pass, as (exponent, elements), and the cycles."""
    dut = WindowUnit(config)
    items = []
    for window in windows:
        for k, (number, exp, outside) in enumerate(window.new):
            place, most = window.places[0] + k, window.places[1]
            marks = {"clears": place == 0, "grows": place < most, "last": k == len(window.new) - 1}
            mant = [number] + [0] * (config.native - 1)
            items.append({**marks, "outside": outside, "exp": exp, "mant": mant})
    passes, cycles = [], 0

    async def bench(ctx):
        nonlocal cycles
        rng, waiting, held = random.Random(seed), list(reversed(items)), 0
        places, copied, current = [None] * config.window_taps, [], None
        while len(passes) < len(windows):
            there = bool(waiting) and held < dut.DEPTH and rng.random() >= gap
            ctx.set(dut.valid, there)
            if there:
                ctx.set(dut.i, waiting.pop())
            *_, taken, push, mant, copy, step = await ctx.tick().sample(
                dut.taken, dut.push, dut.mant[0], dut.copy, dut.o
            )
            held += there - taken
            cycles += 1
            if step.valid:
                if step.first:
                    current = []
                current.append((step.exp, [copied[k] for k in range(config.window_taps) if step.take >> k & 1]))
                if step.last:
                    passes.append(current)
            else:
                assert not (step.first or step.last or step.take)
            if copy:
                copied = list(places)
            if push:
                places = [mant, *places[:-1]]

    simulate(dut, bench, cycles=20_000)
    return passes, cycles


def fewest(config, window):
    """Passes that a window needs: one per exponent, two where both elements of a pair of lanes have it."""
    half = config.lanes // 2 if multipliers.paired(config) else config.lanes
    found = set()
    for tap, (_, exp, outside) in enumerate(reversed(window.taps)):
        if not outside:
            partner = window.taps[::-1][tap - half] if tap >= half else (None, None, 1)
            found.add((exp, not partner[2] and partner[1] == exp))
    return max(1, len(found))


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True], ids=["rows", "pairs"])
@pytest.mark.parametrize("config", [FOUR, THREE, NINE], ids=lambda config: config.name)
@pytest.mark.parametrize("gap", [0.0, 0.5])
def test_every_element_is_multiplied_once(config, pairs, gap, monkeypatch):
    monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0 if pairs else 10**6)
    assert multipliers.paired(config) == pairs
    for exponents in ([3], [3, 4], [0, 1, 2, 3, 9]):
        windows = windows_of(random.Random(7), config, 20, exponents)
        passes, cycles = drive(config, windows, gap=gap, seed=5)
        for window, found in zip(windows, passes, strict=True):
            want = Counter((exp, number) for number, exp, outside in window.taps if not outside)
            assert Counter((exp, number) for exp, numbers in found for number in numbers) == want
            assert len(found) == fewest(config, window)
        if not gap:
            longest = sum(max(len(window.new), fewest(config, window)) for window in windows)
            assert cycles <= longest + 12


def test_no_pair_of_lanes_is_taken_twice_in_a_pass(monkeypatch):
    monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    taps = [(k, 5, 0) for k in range(9)]
    (found,), _ = drive(NINE, [Window(taps, taps)])
    assert found == [(5, [8, 7, 6, 5, 4, 3, 2, 1]), (5, [0])]


def test_a_window_outside_the_image_takes_one_step():
    taps = [(k, 5, 1) for k in range(4)]
    (found,), _ = drive(FOUR, [Window(taps, taps)])
    assert [numbers for _, numbers in found] == [[]]


def test_latency_is_as_stated():
    taps = [(1, 5, 0)]
    _, cycles = drive(FOUR, [Window(taps, taps)])
    assert cycles == 1 + WindowUnit.LATENCY


def test_registers_keep_a_copy():
    dut = WindowRegisters(THREE)

    async def bench(ctx):
        for value in (1, 2, 3, 4):
            ctx.set(dut.i, value)
            ctx.set(dut.push, 1)
            ctx.set(dut.copy, value == 4)
            await ctx.tick()
        ctx.set(dut.copy, 0)
        await ctx.tick()
        assert [ctx.get(dut.o[k]) for k in range(3)] == [3, 2, 1]

    simulate(dut, bench)


def test_lanes_of_places():
    """Places of the first half are in the even lanes: of 3 x 3 taps the last one, bottom right, is in lane 0."""
    assert [lane_of(k, 16) for k in range(10)] == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3]
    assert sorted(lane_of(k, 8) for k in range(8)) == list(range(8))
    assert lane_of(0, 1) == 0
    assert [[place_of((y, x), (2, 3)) for x in range(3)] for y in range(2)] == [[5, 3, 1], [4, 2, 0]]
