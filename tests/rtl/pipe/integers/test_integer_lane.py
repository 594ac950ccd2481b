# amaranth: UnusedElaboratable=no
"""Elements of integer chains against the formulas of :mod:`concord.golden.integers`."""

import random
from itertools import pairwise

import numpy as np
import pytest

from concord.golden.integers import IntegerRangeError, aligned, fitted, moved, rounded, within
from concord.spec.integers import SUM_BITS, WIDE_BITS
from concord_rtl.families import ECP5
from concord_rtl.pipe.integers.integer_lane import IntegerLane
from concord_rtl.pipe.integers.magnitude_rounder import MagnitudeRounder
from support.bench import shared, simulate
from support.twins import CELLS, CYCLES, compare, operand

#: Controls of a chain that does nothing.
PLAIN = {
    "scale": 0, "factor": 0, "round0": None, "add": 0, "moves": (0, 0), "round1": None, "relu": 0, "mask": 0,
    "written": 1,
}  # fmt: skip
TOP = (1 << SUM_BITS - 1) - 1
WIDE_TOP = (1 << WIDE_BITS - 1) - 1


def corner(rng, bits):
    """A number of so many bits in the symmetric range, often at a power of two, a half, or an end."""
    top = (1 << bits - 1) - 1
    size = rng.randrange(bits)
    magnitude = rng.choice(
        [
            0,
            top,
            1 << size,
            (1 << size) - 1,
            (1 << size) + 1,
            3 << size,
            rng.getrandbits(size + 1),
            rng.getrandbits(bits),
        ]
    )
    return rng.choice((-1, 1)) * min(magnitude, top)


def signed_moved(value, right):
    """A signed number moved to the right, halves away from zero."""
    return (-1 if value < 0 else 1) * moved(abs(value), right)


def expected(chain, value, operand, keep, valid):
    """Result, whether something is out of range, and the magnitude for the peak; None: not defined."""
    if not valid:
        return None, 0, 0
    try:
        x = int(within(value * chain["factor"] if chain["scale"] else value))
        if chain["round0"]:
            x = int(rounded(x, *chain["round0"]))
        if chain["add"]:
            terms = [signed_moved(v, right) for v, right in zip((x, operand), chain["moves"], strict=True)]
            if max(map(abs, terms)) > TOP:
                raise IntegerRangeError
            x = int(within(sum(terms)))
    except IntegerRangeError:
        return None, 1, None
    magnitude = abs(x)
    if chain["round1"]:
        x = int(rounded(x, *chain["round1"]))
    if (chain["relu"] and x < 0) or (chain["mask"] and operand <= 0) or not keep:
        x = 0
    if chain["written"] and abs(x) > WIDE_TOP:
        return None, 1, magnitude
    return x if abs(x) <= WIDE_TOP else None, 0, magnitude


def simulated(chains):
    """Results ``[chain][element]`` of chains ``(controls, elements)``, one after the other: result, over, magnitude."""
    dut, results = shared(IntegerLane), []

    async def bench(ctx):
        for chain, elements in chains:
            ctx.set(dut.written, chain["written"])
            for name in ("scale", "factor", "add", "relu", "mask"):
                ctx.set(getattr(dut, name), chain[name])
            first, second = chain["moves"]
            ctx.set(dut.moves, {"first": first, "second": second})
            for name in ("round0", "round1"):
                right, bits = chain[name] or (13, 5)  # what is there without a rounding makes no difference
                ctx.set(getattr(dut, f"{name}_on"), chain[name] is not None)
                ctx.set(getattr(dut, name), {"right": right, "limit": (1 << bits - 1) - 1})
            cycles = []
            for element in [*elements, *[(0, 0, 0, 0)] * IntegerLane.LATENCY]:
                for port, bits in zip((dut.value, dut.operand, dut.keep, dut.valid), element, strict=True):
                    ctx.set(port, bits)
                cycles.append((ctx.get(dut.o), ctx.get(dut.over), ctx.get(dut.magnitude)))
                await ctx.tick()
            late = cycles[IntegerLane.LATENCY :]
            peaks = cycles[IntegerLane.PEAK_LATENCY :][: len(elements)]
            results.append([(o, over, peak[2]) for (o, over, _), peak in zip(late, peaks, strict=True)])

    simulate(dut, bench, cycles=50_000, compiled=True)
    return results


def mistakes(chains):
    """Elements whose results are not what the formulas say, and counts of what has been seen."""
    wrong, seen = [], {"results": 0, "over": 0}
    for (chain, elements), got in zip(chains, simulated(chains), strict=True):
        for element, have in zip(elements, got, strict=True):
            want = expected(chain, *element)
            seen["over"] += want[1]
            seen["results"] += want[0] is not None
            if any(w is not None and h != w for h, w in zip(have, want, strict=True)):
                wrong.append((chain, element, have, want))
    return wrong, seen


def random_chain(rng):
    """Controls as tensor registers make them, or at random."""
    scale, add = rng.random() < 0.4, rng.random() < 0.6
    left, right = sorted(rng.choice([(0, 0), (-46, 0), (0, 63), (1, 1), (1, rng.randrange(64)), (-rng.randrange(47), 0),
                                     (-rng.randrange(47), rng.randrange(64))]))  # fmt: skip
    moves = rng.choice([(left, right), (right, left)])
    if rng.random() < 0.5:
        exps, tops = [rng.randrange(-30, 30) for _ in "ab"], [abs(corner(rng, bits)) for bits in (48, 32)]
        grid = aligned(exps[0], tops[0], exps[1], tops[1])
        moves = min(grid.first, 63), min(grid.second, 63)
    roundings = [
        rng.choice([None, (rng.randrange(64), rng.randrange(2, 33)), (rng.randrange(40), 32), (rng.randrange(24), 8)])
        for _ in range(2)
    ]
    return {
        "scale": scale, "factor": rng.choice([corner(rng, 17), -65536]), "round0": roundings[0], "add": add,
        "moves": moves, "round1": roundings[1], "relu": rng.random() < 0.3, "mask": not add and rng.random() < 0.3,
        "written": rng.random() < 0.8,
    }  # fmt: skip


def random_element(rng, chain):
    bits = 32 if chain["scale"] else rng.choice((8, 32, 40, 47, 48))
    value = rng.choice([corner(rng, bits), corner(rng, bits), -1 << 31 if chain["scale"] else -1 << SUM_BITS - 1])
    if chain["round0"] and rng.random() < 0.3:  # a half, or next to it
        right = min(chain["round0"][0], 30)
        value = max(-TOP, min(TOP, (corner(rng, 8) << right) + (1 << right >> 1) + rng.randrange(-1, 2)))
        value = max(-WIDE_TOP, min(WIDE_TOP, value)) if chain["scale"] else value
    return value, corner(rng, rng.choice((8, 32))), rng.random() < 0.9, rng.random() < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_elements_of_random_chains(seed):
    rng = random.Random(seed)
    chains = []
    for _ in range(60):
        chain = random_chain(rng)
        chains.append((chain, [random_element(rng, chain) for _ in range(40)]))
    wrong, seen = mistakes(chains)
    assert not wrong, wrong[0]
    assert seen["over"] > 200 and seen["results"] > 800, seen


def test_halves_go_away_from_zero_in_both_roundings():
    values = [sign * (k << 3) + d for k in range(6) for sign in (-1, 1) for d in (-4, -3, 3, 4)]
    elements = [(value, 0, 1, 1) for value in values]
    chains = [(PLAIN | {name: (3, bits)}, elements) for name in ("round0", "round1") for bits in (2, 3, 8)]
    wrong, seen = mistakes(chains)
    assert not wrong, wrong[0]
    assert seen["results"] == len(chains) * len(elements)


@pytest.mark.parametrize("bits", [2, 8, 16, 31, 32])
def test_a_magnitude_of_a_power_of_two_saturates(bits):
    top = 1 << bits - 1
    values = [sign * (top * 4 + d) for sign in (-1, 1) for d in (-3, -2, -1, 0, 1)]
    wrong, _ = mistakes([(PLAIN | {"round1": (2, bits)}, [(value, 0, 1, 1) for value in values])])
    assert not wrong, wrong[0]


@pytest.mark.parametrize(
    ("controls", "least", "operand"),
    [
        ({}, WIDE_TOP + 1, 0),
        ({"written": 0}, TOP + 1, 0),
        ({"round1": (47, 8)}, TOP + 1, 0),
        ({"round0": (20, 8)}, TOP + 1, 0),
        ({"add": 1, "round1": (20, 32)}, TOP, 1),
        ({"add": 1, "moves": (-5, 0), "round1": (20, 32)}, (TOP >> 5) + 1, 0),
        ({"add": 1, "moves": (-5, 2), "round1": (20, 32)}, TOP >> 5, 4 * 32 - 2),
        ({"add": 1, "moves": (1, 1), "round1": (20, 32)}, TOP + 1, 0),
    ],
    ids=str,
)
def test_the_first_number_that_is_out_of_range(controls, least, operand):
    """The one before is within, both signs, and elements that do not count are not checked."""
    values = [least - 1, least] if least <= TOP else [least - 1, -least]
    elements = [(sign * v, sign * operand, 1, 1) for v in values for sign in (1, -1) if abs(sign * v) <= TOP]
    elements += [(-least, -operand, 1, 1), (-least, -operand, 1, 0)]
    (got,) = simulated([(PLAIN | controls, elements)])
    chain = PLAIN | controls
    assert [over for _, over, _ in got] == [expected(chain, *element)[1] for element in elements]
    assert [abs(e[0]) >= least and e[3] for e in elements] == [bool(over) for _, over, _ in got]


def test_the_operand_that_moves_left_can_be_out_of_range():
    chain = PLAIN | {"add": 1, "moves": (3, -20), "round1": (20, 32)}
    elements = [(sign * 5, sign * operand, 1, 1) for operand in ((1 << 27) - 1, 1 << 27) for sign in (1, -1)]
    (got,) = simulated([(chain, elements)])
    assert [over for _, over, _ in got] == [0, 0, 1, 1]


def test_products_with_a_factor_at_the_ends():
    ends = [
        (-1 << 31, -1 << 16),
        (-1 << 31, (1 << 16) - 1),
        ((1 << 31) - 1, -1 << 16),
        (-1, 1),
        (1 << 17, 3),
        (-131073, -5),
    ]
    chains = [
        (PLAIN | {"scale": 1, "factor": factor, "round1": (16, 32)}, [(value, 0, 1, 1)]) for value, factor in ends
    ]
    wrong, seen = mistakes(chains)
    assert not wrong, wrong[0]
    assert seen == {"results": len(ends) - 1, "over": 1}, "the product of both least numbers has 49 bits"


def test_zeros_and_the_peak():
    """Elements that become zero are not out of range, and count for the peak."""
    elements = [(v, operand, keep, 1) for v in (-1 << 40, 1 << 40) for operand in (-1, 0, 1) for keep in (0, 1)]
    chains = [(PLAIN | {"relu": relu, "mask": mask}, elements) for relu in (0, 1) for mask in (0, 1)]
    wrong, seen = mistakes(chains)
    assert not wrong, wrong[0]
    assert {peak for result in simulated(chains[:1]) for *_, peak in result} == {1 << 40}
    assert seen["over"] == 6 + 3 + 2 + 1


def test_a_tensor_that_is_fitted_has_the_greatest_magnitude_of_its_elements():
    rng = random.Random(4)
    chains, tops = [], []
    for _ in range(40):
        top = abs(corner(rng, SUM_BITS))
        bits = rng.choice((2, 8, 16, 32))
        got = fitted(0, top, bits)
        tops.append(got.top)
        chains.append((PLAIN | {"round1": (got.right, bits)}, [(top, 0, 1, 1), (-top, 0, 1, 1)]))
    for top, result in zip(tops, simulated(chains), strict=True):
        assert [o for o, *_ in result] == [top, -top] and not any(over for _, over, _ in result)


@pytest.mark.parametrize("bits", [31, 47, 48])
def test_magnitudes_are_rounded(bits):
    rng = np.random.default_rng(bits)
    dut = MagnitudeRounder(bits)

    async def bench(ctx):
        for _ in range(150):
            right, size = int(rng.integers(64)), int(rng.integers(1, bits + 1))
            limit = (1 << size) - 1
            ctx.set(dut.right, right)
            ctx.set(dut.limit, limit)
            value = min((limit << min(right, 50)) + (1 << right >> 1) + int(rng.integers(-2, 3)), (1 << bits) - 1)
            value = int(rng.choice([value, int(rng.integers(1 << bits)) >> int(rng.integers(bits))]))
            ctx.set(dut.i, max(value, 0))
            await ctx.tick().repeat(MagnitudeRounder.LATENCY)
            exact = moved(max(value, 0), right)
            assert (ctx.get(dut.o), ctx.get(dut.limited)) == (min(exact, limit), exact > limit), (value, right, limit)

    simulate(dut, bench)


def test_latencies_follow_each_other():
    parts = [
        0,
        IntegerLane.SCALED,
        IntegerLane.ROUNDED,
        IntegerLane.MOVED,
        IntegerLane.PEAK_LATENCY,
        IntegerLane.LATENCY,
    ]
    assert all(a < b for a, b in pairwise(parts))


#: Of the bits of a noise, those of the inputs of a lane: width, and what is taken.
NOISE = {
    "value": (48, "noise[0] ? noise[63:16] : {{40{noise[1]}}, noise[9:2]}"),
    "operand": (32, "noise[10] ? noise[45:14] : {{24{noise[11]}}, noise[19:12]}"),
    "keep": (1, "noise[20] | noise[21]"),
    "valid": (1, "noise[22] | noise[23]"),
    "scale": (1, "chain[0]"),
    "factor": (17, "chain[17:1]"),
    "round0_on": (1, "chain[18]"),
    "round0": (37, "{32'h7fff >> chain[22:19], chain[23] ? 6'd0 : {2'd0, chain[27:24]}}"),
    "add": (1, "chain[28]"),
    "moves": (16, "chain[29] ? {8'd1, {3'd0, chain[34:30]}} : {{3'd0, chain[34:30]}, {4'hf, chain[38:35]}}"),
    "round1_on": (1, "chain[39]"),
    "round1": (37, "{32'h7fffffff >> chain[43:40], {2'd0, chain[47:44]}}"),
    "relu": (1, "chain[48] & chain[49]"),
    "mask": (1, "chain[50] & chain[51]"),
    "written": (1, "1'b1"),
}


@pytest.mark.slow
def test_the_lane_of_ecp5_equals_the_twin_and_a_wrong_carry_is_noticed(monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    # Controls that stay for the elements of a chain.
    controls = [operand("count", 6, "count + 1"), operand("chain", 64, "count == 0 ? noise : chain")]
    operands = [*controls, *(operand(name, width, value) for name, (width, value) in NOISE.items())]
    pins = ", ".join(f".{name}({name})" for name in NOISE)
    cells = [CELLS / "mult18x18d.v", CELLS / "ccu2c.v"]
    change = ("INIT0(16'h0a0a)", "INIT0(16'h0000)")
    wrong, noticed, moved, block = compare(
        lambda _: IntegerLane(), ECP5.target, cells, operands, WIDE_BITS, change, pins
    )
    assert block.count("CCU2C") > 150
    assert wrong == 0
    assert noticed > CYCLES / 32
    assert moved > CYCLES / 4
