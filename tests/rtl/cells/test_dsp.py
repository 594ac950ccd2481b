# amaranth: UnusedElaboratable=no
"""Multiplier: the plain twin against integers, the instantiated DSP blocks against the twin."""

import random

import pytest
from amaranth.back import verilog

from concord_rtl import families
from concord_rtl.cells.dsp import DualMultiplier, LeftShifter, Multiplier, PairMultiplier
from support.bench import simulate
from support.twins import CELLS, CYCLES, compare, operand

ECP5, UP5K = families.ECP5.target, families.ICE40.target


def follows(dut, draw, latency):
    """Check the results of 200 operands that ``draw`` gives by port, each with its result, ``latency`` cycles later."""

    async def bench(ctx):
        due = []
        for _ in range(200):
            operands, result = draw()
            due.append(result)
            for name, value in operands.items():
                ctx.set(getattr(dut, name), value)
            *_, got = await ctx.tick().sample(dut.o)
            if len(due) > latency:
                assert (list(got) if isinstance(result, list) else got) == due.pop(0)

    simulate(dut, bench)


def corner(rng, width, low=None):
    """A signed number of so many bits, often the least, ``low`` if given, or the greatest."""
    high = (1 << width - 1) - 1
    low = -high - 1 if low is None else low
    return rng.choice([low, high, rng.randint(low, high)])


@pytest.mark.parametrize("widths", [(8, 8), (3, 12), (18, 18), (1, 1)])
def test_product_appears_after_the_latency(widths):
    dut, rng = Multiplier(*widths), random.Random(1)

    def draw():
        a, b = (corner(rng, width) for width in widths)
        return {"a": a, "b": b}, a * b

    follows(dut, draw, dut.LATENCY)


def signed(name, width, at, top):
    """An operand that is a corner every other time: ``at`` is a bit of the noise, ``top`` where its other bits end."""
    corners = f"noise[{at + 1}] ? 1 << {width}-1 : (1 << {width}-1) - 1"
    return operand(name, width, f"noise[{at}] ? noise[{top}:{top + 1}-{width}] : {corners}")


def symmetric(name, width, at, top, first, second):
    """The same for symmetric codes, with two corners of its own; zero instead of the least number."""
    value = f"noise[{at}] ? noise[{top}:{top + 1}-{width}] : noise[{at + 1}] ? {first} : {second}"
    return operand(name, width, f"({value}) == (1 << {width}-1) ? 0 : ({value})")


@pytest.fixture(autouse=True)
def builtin_yosys(monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")


MULT = CELLS / "mult18x18d.v"
MAC = CELLS / "sb_mac16.v"


@pytest.mark.slow
@pytest.mark.parametrize(
    "platform, widths, model, change",
    [
        (ECP5, (8, 8), MULT, ('.REG_OUTPUT_CLK("CLK0")', '.REG_OUTPUT_CLK("NONE")')),
        (ECP5, (18, 18), MULT, (".SIGNEDB(1'h1)", ".SIGNEDB(1'h0)")),
        (UP5K, (8, 12), MAC, (".B_REG(1'h1)", ".B_REG(1'h0)")),
    ],
    ids=["ecp5-8x8", "ecp5-18x18", "up5k-8x12"],
)
def test_the_block_equals_the_twin_and_a_wrong_parameter_is_noticed(platform, widths, model, change):
    a, b = widths
    operands = signed("a", a, 0, 63), signed("b", b, 2, 31)
    wrong, noticed, moved, _ = compare(lambda _: Multiplier(a, b), platform, [model], operands, a + b, change)
    assert wrong == 0
    assert noticed > CYCLES / 8
    assert moved > CYCLES / 2


@pytest.mark.slow
def test_wide_operands_stay_plain_on_up5k():
    assert "SB_MAC16" not in verilog.convert(Multiplier(17, 8), platform=UP5K)


@pytest.mark.parametrize("widths", [(0, 4), (4, 19), (4, "8")])
def test_rejects_widths(widths):
    with pytest.raises(ValueError, match=r"_width must be in 1\.\.18, not "):
        Multiplier(*widths)


@pytest.mark.parametrize("widths", [(8, 8), (12, 5), (2, 2)])
def test_both_products_appear_after_the_latency(widths):
    dut, rng = PairMultiplier(*widths), random.Random(2)

    def draw():
        a, *b = (rng.choice([0, corner(rng, width, 1 - (1 << width - 1))]) for width in (widths[0], *[widths[1]] * 2))
        return {"a": a, "b": b}, [a * factor for factor in b]

    follows(dut, draw, dut.LATENCY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("widths", "in_logic", "change"),
    [
        ((8, 8), False, ("INIT0(16'h6565)", "INIT0(16'h9a9a)")),
        ((8, 6), False, (".SIGNEDB(1'h1)", ".SIGNEDB(1'h0)")),
        ((8, 8), True, ("INIT0(16'h7888)", "INIT0(16'h7880)")),
        ((8, 5), True, ("INIT0(16'h7888)", "INIT0(16'h7880)")),
    ],
    ids=["shared-8x8", "shared-8x6", "logic-8x8", "logic-8x5"],
)
def test_pairs_of_ecp5_equal_the_twin_and_a_wrong_parameter_is_noticed(widths, in_logic, change):
    a, b = widths
    operands = (
        symmetric("a", a, 0, 63, "1", f"(1 << {a}-1) - 1"),
        symmetric("b0", b, 2, 31, "-1", f"(1 << {b}-1) - 1"),
        symmetric("b1", b, 4, 47, "-1", f"1 - (1 << {b}-1)"),
    )
    cells = CELLS / "mult18x18d.v", CELLS / "ccu2c.v"
    wrong, noticed, moved, block = compare(
        lambda twin: PairMultiplier(a, b, in_logic=in_logic and not twin), ECP5, cells, operands,
        2 * (a + b - 1), change, ".a(a), .b({b1, b0})",
    )  # fmt: skip
    assert ("MULT18X18D" in block) is not in_logic and "CCU2C" in block
    assert wrong == 0
    assert noticed > CYCLES / 32
    assert moved > CYCLES / 2


@pytest.mark.parametrize("widths", [(1, 4), (4, 9), (13, 8), (4, "8")])
def test_rejects_widths_of_pairs(widths):
    with pytest.raises(ValueError, match=r"widths must be in 2\.\.12 and 2\.\.8, not "):
        PairMultiplier(*widths)


@pytest.mark.parametrize("widths", [(8, 7), (12, 5), (18, 18)])
def test_both_products_are_exact_and_as_late_as_one(widths):
    dut, rng = DualMultiplier(*widths), random.Random(3)

    def draw():
        a, b = ([corner(rng, width) for _ in "01"] for width in widths)
        return {"a": a, "b": b}, [x * y for x, y in zip(a, b, strict=True)]

    follows(dut, draw, Multiplier.LATENCY)


def test_values_are_shifted_to_the_left():
    dut, rng = LeftShifter(9), random.Random(4)

    def draw():
        value, shift = rng.randint(-256, 255), rng.randrange(16)
        return {"i": value, "shift": shift}, value << shift

    follows(dut, draw, dut.LATENCY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "names", "widths", "change"),
    [
        (
            lambda _: DualMultiplier(8, 8),
            "ab",
            (16, 16, 32),
            (".BOT_8x8_MULT_REG(1'h1)", ".BOT_8x8_MULT_REG(1'h0)"),
        ),
        (lambda _: LeftShifter(16), ("i", "shift"), (16, 4, 31), (".B_SIGNED(1'h0)", ".B_SIGNED(1'h1)")),
    ],
    ids=["dual", "shift"],
)
def test_units_of_up5k_equal_their_twins_and_a_wrong_parameter_is_noticed(make, names, widths, change):
    *inputs, output = widths
    operands = signed(names[0], inputs[0], 0, 63), operand(names[1], inputs[1], f"noise[47:48-{inputs[1]}]")
    wrong, noticed, moved, block = compare(make, UP5K, [MAC], operands, output, change)
    assert block.count("SB_MAC16 #(") == 1
    assert wrong == 0
    assert noticed > CYCLES / 32
    assert moved > CYCLES / 2


@pytest.mark.slow
def test_wide_operands_do_not_share_a_block_on_up5k():
    assert verilog.convert(DualMultiplier(9, 8), platform=UP5K).count("SB_MAC16 #(") == 2
    assert "SB_MAC16" not in verilog.convert(LeftShifter(17), platform=UP5K)


def test_rejects_widths_of_both():
    with pytest.raises(ValueError, match=r"b_width must be in 1\.\.18, not 19"):
        DualMultiplier(8, 19)
    with pytest.raises(ValueError, match="width must be an integer of at least 1, not 0"):
        LeftShifter(0)
