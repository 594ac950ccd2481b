# amaranth: UnusedElaboratable=no
"""The datapath of the lazy update against the golden model."""

import random

import numpy as np
import pytest

from concord.golden.rounding import round_shift
from concord.spec.training import TRAIN_EXP_MAX, AccumulatorFormat, TrainingFormat
from concord_rtl.pipe.integers.lazy.lazy_growth import LazyGrowth
from concord_rtl.pipe.integers.lazy.lazy_update import LazyUpdate
from concord_rtl.pipe.integers.lazy.update_lane import UpdateLane
from concord_rtl.pipe.integers.lazy.widths import LazyWidths
from support.bench import put, simulate
from support.lazy_blocks import WIDTHS, Block, activity, corners, elements, golden, increments, random_block

SOURCE = WIDTHS["8/16/32"]


def beats_of(widths, block, lanes):
    """A block as it enters the first pass."""
    parts = zip(
        elements(block.weight, block.acc, lanes),
        increments(widths, block, lanes),
        activity(block.count, lanes),
        strict=True,
    )
    whole = {"exp": block.exp, "change_exp": block.change_exp, **coarser_of(widths, block)}
    return [whole | {"active": active, "elements": pairs, "increments": updates} for pairs, updates, active in parts]


def coarser_of(widths, block):
    return {"coarser": block.coarser} if widths.coarser_max else {}


def streamed(dut, beats, stalls, read):
    """What leaves a unit, as ``read`` makes it of a payload, and the cycles from the first beat in to the last out."""
    got, begin, end = [], [], []

    async def send(ctx):
        rng = random.Random(1)
        for beat in beats:
            while rng.random() < stalls[0]:
                await ctx.tick()
            await put(ctx, dut.i, beat)

    async def receive(ctx):
        rng, time = random.Random(2), 0
        while len(got) < len(beats):
            ctx.set(dut.o.ready, rng.random() >= stalls[1])
            *_, entered, left, payload = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready, dut.o.payload
            )
            begin.extend([time] if entered else [])
            end.extend([time] if left else [])
            if left:
                got.append(read(payload))
            time += 1

    simulate(dut, send, receive, cycles=200 + 40 * len(beats))
    return got, end[-1] - begin[0] + 1


def pairs(elements):
    return [(int(e.weight), int(e.acc)) for e in elements]


def result(payload):
    return pairs(payload.elements), int(payload.refused), int(payload.vanished), int(payload.need)


def by_block(blocks, got, lanes):
    """Results of beats, joined again: elements, refused, vanished and need per block."""
    at = 0
    for block in blocks:
        beats = got[at : (at := at + -(-block.count // lanes))]
        found = [pair for beat in beats for pair in beat[0]][: block.count]
        bits = [[beat[which] >> k & 1 for beat in beats for k in range(lanes)] for which in (1, 2)]
        assert not any(any(flags[block.count :]) for flags in bits), "lanes without an element count for nothing"
        need = 0
        for beat in beats:
            need |= beat[3]
        yield found, bits[0][: block.count], bits[1][: block.count], need


def check(widths, blocks, lanes, stalls):
    """Both passes against the golden model; returns how many elements were refused and vanished, and blocks grew."""
    beats = [beat for block in blocks for beat in beats_of(widths, block, lanes)]
    first, _ = streamed(LazyUpdate(widths, lanes), beats, stalls, result)
    grown, seen = [], {"refused": 0, "vanished": 0, "grown": 0, "ended": 0}
    for n, (block, (found, refused, vanished, need)) in enumerate(
        zip(blocks, by_block(blocks, first, lanes), strict=True)
    ):
        want = golden(widths, block)
        assert refused == want.refused.tolist() and vanished == want.vanished.tolist(), f"block {n}: {block}"
        places = min(need.bit_count(), TRAIN_EXP_MAX - block.exp)
        assert need & need + 1 == 0 and places == want.grown, f"block {n}: {block}"
        exact = list(zip(want.weight.tolist(), want.acc.tolist(), strict=True))
        assert need or found == exact, f"block {n}: {block}"
        if need:
            grown.append(({"places": places, **coarser_of(widths, block)}, found, exact))
        seen["refused"] += sum(refused)
        seen["vanished"] += sum(vanished)
        seen["grown"] += places > 0
        seen["ended"] += need.bit_count() > places
    inputs = [
        places | {"elements": beat} for places, found, _ in grown for beat in elements(*zip(*found, strict=True), lanes)
    ]
    if inputs:
        second, _ = streamed(LazyGrowth(widths, lanes), inputs, stalls, pairs)
    at = 0
    for places, found, exact in grown:
        beats = -(-len(found) // lanes)
        got = [pair for beat in second[at : at + beats] for pair in beat][: len(found)]
        assert got == exact, f"growth by {places}: {found}"
        at += beats
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("lanes, stalls", [(1, (0.0, 0.0)), (4, (0.3, 0.5))], ids=str)
@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS.keys())
def test_both_passes(widths, lanes, stalls):
    rng = np.random.default_rng(lanes)
    blocks = [random_block(rng, widths, int(rng.integers(1, 3 * lanes))) for _ in range(160 // lanes + 20)]
    seen = check(widths, blocks, lanes, stalls)
    assert all(seen.values()), f"a corner was missed: {seen}"


@pytest.mark.slow
def test_weights_that_end_at_the_greatest_exponent_count_as_refused():
    """Nothing is refused of the updates themselves."""
    block = Block([127, -127, 126, 9], [20000, -20000, 20000, 1], TRAIN_EXP_MAX, [0] * 4, TRAIN_EXP_MAX, [0] * 4)
    assert check(SOURCE, [block], 4, (0.0, 0.0)) == {"refused": 2, "vanished": 0, "grown": 0, "ended": 1}


@pytest.mark.parametrize("name", ["4/10/20 point 1", "8/16/32 point 0", "8/16/32 point 12"])
def test_growth_at_its_boundaries(name):
    """The greatest magnitude that is in range after growth by some places, and the next one."""
    widths = WIDTHS[name]
    q_max = widths.accumulator.q_max
    totals = [s * (widths.fitting(k) + d) for k in range(widths.growth_max) for d in (0, 1) for s in (1, -1)]
    blocks = []
    for total in totals:
        weight = max(-widths.weight.q_max, min(widths.weight.q_max, total >> widths.shift))
        acc = total - (weight << widths.shift)
        if abs(acc) <= q_max:
            blocks.append(Block([weight], [acc], 0, [0], 0, [0]))
    check(widths, blocks, 1, (0.0, 0.0))
    assert {int(golden(widths, block).grown) for block in blocks} >= set(range(widths.growth_max))


@pytest.mark.slow
def test_blocks_that_do_not_grow():
    """One simulation, so that it runs on the generated Verilog, too."""
    rng, lanes = np.random.default_rng(5), 2
    blocks = [random_block(rng, SOURCE, int(rng.integers(1, 6)), inner=True) for _ in range(80)]
    beats = [beat for block in blocks for beat in beats_of(SOURCE, block, lanes)]
    first, _ = streamed(LazyUpdate(SOURCE, lanes), beats, (0.3, 0.4), result)
    for block, (found, refused, vanished, need) in zip(blocks, by_block(blocks, first, lanes), strict=True):
        want = golden(SOURCE, block)
        assert found == list(zip(want.weight.tolist(), want.acc.tolist(), strict=True)) and not need
        assert refused == want.refused.tolist() and vanished == want.vanished.tolist()


@pytest.mark.parametrize("name", ["8/16/32", "4/10/20 point 1", "8/16/32 point 0"])
def test_growth(name):
    """Any weight and accumulator by any number of places, and the ends where that is not enough."""
    rng, lanes, widths = np.random.default_rng(6), 2, WIDTHS[name]
    weights = np.array(corners(rng, 160, widths.weight.q_max)).reshape(-1, lanes)
    accs = np.array(corners(rng, 160, widths.accumulator.q_max)).reshape(-1, lanes)
    places = rng.integers(0, widths.growth_max + 1, len(weights))
    total = round_shift((weights << widths.shift) + accs, places[:, None])
    carry = round_shift(total, widths.shift)
    ends = np.abs(carry) > widths.weight.q_max
    want_acc = np.where(ends, 0, total - (carry << widths.shift))
    want = np.stack([np.clip(carry, -widths.weight.q_max, widths.weight.q_max), want_acc], axis=-1)
    beats = [
        {"places": int(k), "elements": elements(w, a, lanes)[0]} for k, w, a in zip(places, weights, accs, strict=True)
    ]
    got, _ = streamed(LazyGrowth(widths, lanes), beats, (0.3, 0.3), pairs)
    assert np.array_equal(got, want) and ends.any() and not ends.all()


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_one_beat_per_cycle(lanes):
    rng = np.random.default_rng(lanes)
    block = random_block(rng, SOURCE, 40 * lanes)
    dut = LazyUpdate(SOURCE, lanes)
    _, cycles = streamed(dut, beats_of(SOURCE, block, lanes), (0.0, 0.0), result)
    assert cycles == 40 + dut.LATENCY
    grower = LazyGrowth(SOURCE, lanes)
    beats = [{"places": 1, "elements": beat} for beat in elements(block.weight, block.acc, lanes)]
    assert streamed(grower, beats, (0.0, 0.0), pairs)[1] == 40 + grower.LATENCY


@pytest.mark.parametrize("field, value", [("weight", -1), ("acc", 1), ("change", 3), ("exp", 1), ("change_exp", -1)])
def test_the_comparison_can_fail(field, value):
    """Another block in the golden model than in the RTL."""
    rng = np.random.default_rng(8)
    blocks = [random_block(rng, SOURCE, 4) for _ in range(20)]

    def other(block):
        old = getattr(block, field)
        if isinstance(old, list):
            new = [x + value if abs(x + value) < 100 else x for x in old]
        else:
            new = old + value if -128 <= old + value < 128 else old
        return block.__class__(**vars(block) | {field: new})

    beats = [beat for block in blocks for beat in beats_of(SOURCE, block, 4)]
    first, _ = streamed(LazyUpdate(SOURCE, 4), beats, (0.0, 0.0), result)
    right = list(by_block(blocks, first, 4))

    def differences(blocks):
        for block, (found, refused, vanished, need) in zip(blocks, right, strict=True):
            want = golden(SOURCE, block)
            exact = list(zip(want.weight.tolist(), want.acc.tolist(), strict=True))
            flags = (want.refused.tolist(), want.vanished.tolist())
            yield (not need and found != exact) or (refused, vanished) != flags or need.bit_count() < want.grown

    assert not any(differences(blocks))
    assert any(differences([other(block) for block in blocks]))


def test_weight_and_accumulator_are_needed_late():
    """The lane takes what is read from a memory ``WAIT`` cycles after the update, and holds nothing back."""
    lane = UpdateLane(SOURCE)
    assert (lane.WAIT, lane.LATENCY, UpdateLane(WIDTHS["8/16/32 point 0"]).LATENCY) == (4, 8, 10)


def test_formats_that_cannot_be():
    with pytest.raises(ValueError, match="at most 46 bits together"):
        LazyWidths(TrainingFormat(16), AccumulatorFormat(32))
    with pytest.raises(ValueError, match="intermediate must have one exponent"):
        LazyWidths(change=TrainingFormat(32, 16))
    with pytest.raises(ValueError, match="accumulator must have growth = True"):
        LazyWidths(accumulator=AccumulatorFormat(growth=False))
    for accumulator, coarser in ((AccumulatorFormat(), 15), (AccumulatorFormat(), -1), (AccumulatorFormat(16, 0), 1)):
        with pytest.raises(ValueError, match=rf"coarser_max must be in 0\.\.-?\d+, and 0 .*, not {coarser}"):
            LazyWidths(accumulator=accumulator, coarser_max=coarser)
    for name in ("weight", "accumulator", "change"):
        with pytest.raises(TypeError, match=f"{name} must be a .*Format, not 8"):
            LazyWidths(**{name: 8})
    for unit in (LazyUpdate, LazyGrowth):
        for lanes in (0, -1, 1.5):
            with pytest.raises(ValueError, match=f"lanes must be a positive integer, not {lanes!r}"):
                unit(SOURCE, lanes)


@pytest.mark.parametrize(
    "name, most", [("8/16/32", 1), ("5/12/24", 1), ("8/16/32 point 12", 1), ("8/16/32 point 0", 9)]
)
def test_growth_that_can_be_needed(name, most):
    """The greatest one, by trying: all weights and accumulators at their ends."""
    widths = WIDTHS[name]
    assert widths.growth_max == most
    end = [widths.weight.q_max], [widths.accumulator.q_max]
    block = random_block(np.random.default_rng(0), widths, 1).__class__(*end, 0, [0], 0, [0])
    assert golden(widths, block).grown == most
