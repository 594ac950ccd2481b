# amaranth: UnusedElaboratable=no
"""Multiplier: the plain twin against integers, the instantiated DSP blocks against the twin."""

import random
import re
from pathlib import Path

import pytest
from amaranth.back import verilog

from concord_rtl import families
from concord_rtl.dsp import DualMultiplier, LeftShifter, Multiplier, PairMultiplier
from support.bench import simulate
from support.netlist import run_netlist

ECP5, UP5K = families.ECP5.target, families.ICE40.target
CELLS = Path(__file__).parents[2] / "sim" / "cells"

#: Operands from a shift register generator, every other one a corner; counts mismatches and products that change.
BENCH = """
module bench(input clk, output reg [15:0] wrong, noticed, moved);
    initial {{wrong, noticed, moved}} = 0;
    reg [63:0] noise = 64'h9E3779B97F4A7C15;
    wire [63:0] n1 = noise ^ (noise << 13), n2 = n1 ^ (n1 >> 7), n3 = n2 ^ (n2 << 17);
    reg [{a}-1:0] a = 0;
    reg [{b}-1:0] b = 0;
    wire [{a}+{b}-1:0] plain, block, broken;
    twin twin_i (.clk(clk), .rst(1'b0), .a(a), .b(b), .o(plain));
    block block_i (.clk(clk), .rst(1'b0), .a(a), .b(b), .o(block));
    broken broken_i (.clk(clk), .rst(1'b0), .a(a), .b(b), .o(broken));
    reg [{a}+{b}-1:0] before = 0;
    always @(posedge clk) begin
        noise <= n3;
        a <= noise[0] ? noise[63:64-{a}] : noise[1] ? 1 << {a}-1 : (1 << {a}-1) - 1;
        b <= noise[2] ? noise[31:32-{b}] : noise[3] ? 1 << {b}-1 : (1 << {b}-1) - 1;
        before <= plain;
        if (plain != block) wrong <= wrong + 1;
        if (plain != broken) noticed <= noticed + 1;
        if (plain != before) moved <= moved + 1;
    end
endmodule
"""
CYCLES = 1000


@pytest.mark.parametrize("widths", [(8, 8), (3, 12), (18, 18), (1, 1)])
def test_product_appears_after_the_latency(widths):
    dut = Multiplier(*widths)
    rng = random.Random(1)

    def operand(width):
        low, high = -(1 << width - 1), (1 << width - 1) - 1
        return rng.choice([low, high, rng.randint(low, high)])

    async def bench(ctx):
        due = []
        for _ in range(200):
            a, b = operand(widths[0]), operand(widths[1])
            due.append(a * b)
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            *_, got = await ctx.tick().sample(dut.o)
            if len(due) > dut.LATENCY:
                assert got == due.pop(0)

    simulate(dut, bench)


def compare(folder, widths, platform, model, change):
    """Clock the twin, the instance and the instance after ``change`` with the same operands.

    Returns the mismatches of the instance, those of the changed instance, and how often the product changed.
    """
    twin = verilog.convert(Multiplier(*widths), name="twin", emit_src=False)
    block = verilog.convert(Multiplier(*widths), name="block", platform=platform, emit_src=False)
    old, new = change
    assert old in block
    broken = block.replace("module block(", "module broken(").replace(old, new)
    sources = {"twin.v": twin, "block.v": block, "broken.v": broken, "bench.v": BENCH.format(a=widths[0], b=widths[1])}
    sources["cell.v"] = model.read_text()
    return run_netlist(folder, sources, ["wrong", "noticed", "moved"], CYCLES)


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
def test_the_block_equals_the_twin_and_a_wrong_parameter_is_noticed(tmp_path, platform, widths, model, change):
    wrong, noticed, moved = compare(tmp_path, widths, platform, model, change)
    assert wrong == 0
    assert noticed > CYCLES / 8
    assert moved > CYCLES / 2


def test_wide_operands_stay_plain_on_up5k():
    assert "SB_MAC16" not in verilog.convert(Multiplier(17, 8), platform=UP5K)


@pytest.mark.parametrize("widths", [(0, 4), (4, 19), (4, "8")])
def test_rejects_widths(widths):
    with pytest.raises(ValueError, match=r"_width must be in 1\.\.18, not "):
        Multiplier(*widths)


#: As ``BENCH`` for two products of symmetric codes with one shared operand.
PAIR_BENCH = """
module bench(input clk, output reg [15:0] wrong, noticed, moved);
    initial {{wrong, noticed, moved}} = 0;
    reg [63:0] noise = 64'h9E3779B97F4A7C15;
    wire [63:0] n1 = noise ^ (noise << 13), n2 = n1 ^ (n1 >> 7), n3 = n2 ^ (n2 << 17);
    reg [{a}-1:0] a = 0;
    reg [{b}-1:0] b0 = 0, b1 = 0;
    wire [{a}-1:0] next_a = noise[0] ? noise[63:64-{a}] : noise[1] ? 1 : (1 << {a}-1) - 1;
    wire [{b}-1:0] next_0 = noise[2] ? noise[31:32-{b}] : noise[3] ? -1 : (1 << {b}-1) - 1;
    wire [{b}-1:0] next_1 = noise[4] ? noise[47:48-{b}] : noise[5] ? -1 : 1 - (1 << {b}-1);
    wire [2*({a}+{b}-1)-1:0] plain, block, broken;
    twin twin_i (.clk(clk), .rst(1'b0), .a(a), .b({{b1, b0}}), .o(plain));
    block block_i (.clk(clk), .rst(1'b0), .a(a), .b({{b1, b0}}), .o(block));
    broken broken_i (.clk(clk), .rst(1'b0), .a(a), .b({{b1, b0}}), .o(broken));
    reg [2*({a}+{b}-1)-1:0] before = 0;
    always @(posedge clk) begin
        noise <= n3;
        a <= next_a == 1 << {a}-1 ? 0 : next_a;
        b0 <= next_0 == 1 << {b}-1 ? 0 : next_0;
        b1 <= next_1 == 1 << {b}-1 ? 0 : next_1;
        before <= plain;
        if (plain != block) wrong <= wrong + 1;
        if (plain != broken) noticed <= noticed + 1;
        if (plain != before) moved <= moved + 1;
    end
endmodule
"""


@pytest.mark.parametrize("widths", [(8, 8), (12, 5), (2, 2)])
def test_both_products_appear_after_the_latency(widths):
    dut = PairMultiplier(*widths)
    rng = random.Random(2)

    def operand(width):
        most = (1 << width - 1) - 1
        return rng.choice([-most, 0, most, rng.randint(-most, most)])

    async def bench(ctx):
        due = []
        for _ in range(200):
            a, b = operand(widths[0]), [operand(widths[1]) for _ in range(2)]
            due.append([a * factor for factor in b])
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            *_, got = await ctx.tick().sample(dut.o)
            if len(due) > dut.LATENCY:
                assert list(got) == due.pop(0)

    simulate(dut, bench)


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
def test_pairs_of_ecp5_equal_the_twin_and_a_wrong_parameter_is_noticed(tmp_path, widths, in_logic, change):
    twin = verilog.convert(PairMultiplier(*widths), name="twin", emit_src=False)
    made = PairMultiplier(*widths, in_logic=in_logic)
    block = verilog.convert(made, name="block", platform=ECP5, emit_src=False)
    assert ("MULT18X18D" in block) is not in_logic and "CCU2C" in block
    old, new = change
    assert old in block
    broken = re.sub(r"\bblock\b", "broken", block).replace(old, new)
    cells = "".join((CELLS / f"{name}.v").read_text() for name in ("mult18x18d", "ccu2c"))
    bench = PAIR_BENCH.format(a=widths[0], b=widths[1])
    sources = {"twin.v": twin, "block.v": block, "broken.v": broken, "bench.v": bench, "cells.v": cells}
    wrong, noticed, moved = run_netlist(tmp_path, sources, ["wrong", "noticed", "moved"], CYCLES)
    assert wrong == 0
    assert noticed > CYCLES / 32
    assert moved > CYCLES / 2


@pytest.mark.parametrize("widths", [(1, 4), (4, 9), (13, 8), (4, "8")])
def test_rejects_widths_of_pairs(widths):
    with pytest.raises(ValueError, match=r"widths must be in 2\.\.12 and 2\.\.8, not "):
        PairMultiplier(*widths)


#: As ``BENCH`` for units of two inputs with names of their own.
OTHER_BENCH = """
module bench(input clk, output reg [15:0] wrong, noticed, moved);
    initial {{wrong, noticed, moved}} = 0;
    reg [63:0] noise = 64'h9E3779B97F4A7C15;
    wire [63:0] n1 = noise ^ (noise << 13), n2 = n1 ^ (n1 >> 7), n3 = n2 ^ (n2 << 17);
    reg [{a}-1:0] a = 0;
    reg [{b}-1:0] b = 0;
    wire [{o}-1:0] plain, block, broken;
    twin twin_i (.clk(clk), .rst(1'b0), .{a_name}(a), .{b_name}(b), .o(plain));
    block block_i (.clk(clk), .rst(1'b0), .{a_name}(a), .{b_name}(b), .o(block));
    broken broken_i (.clk(clk), .rst(1'b0), .{a_name}(a), .{b_name}(b), .o(broken));
    reg [{o}-1:0] before = 0;
    always @(posedge clk) begin
        noise <= n3;
        a <= noise[0] ? noise[63:64-{a}] : noise[1] ? 1 << {a}-1 : (1 << {a}-1) - 1;
        b <= noise[47:48-{b}];
        before <= plain;
        if (plain != block) wrong <= wrong + 1;
        if (plain != broken) noticed <= noticed + 1;
        if (plain != before) moved <= moved + 1;
    end
endmodule
"""


@pytest.mark.parametrize("widths", [(8, 7), (12, 5), (18, 18)])
def test_both_products_are_exact_and_as_late_as_one(widths):
    dut, rng = DualMultiplier(*widths), random.Random(3)

    async def bench(ctx):
        due = []
        for _ in range(200):
            a, b = ([rng.choice([low := -(1 << w - 1), ~low, rng.randint(low, ~low)]) for _ in "01"] for w in widths)
            due.append([x * y for x, y in zip(a, b, strict=True)])
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            *_, got = await ctx.tick().sample(dut.o)
            if len(due) > Multiplier.LATENCY:
                assert list(got) == due.pop(0)

    simulate(dut, bench)


def test_values_are_shifted_to_the_left():
    dut, rng = LeftShifter(9), random.Random(4)

    async def bench(ctx):
        due = []
        for _ in range(200):
            value, shift = rng.randint(-256, 255), rng.randrange(16)
            due.append(value << shift)
            ctx.set(dut.i, value)
            ctx.set(dut.shift, shift)
            *_, got = await ctx.tick().sample(dut.o)
            if len(due) > dut.LATENCY:
                assert got == due.pop(0)

    simulate(dut, bench)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "bench", "change"),
    [
        (
            lambda: DualMultiplier(8, 8),
            {"a": 16, "b": 16, "o": 32, "a_name": "a", "b_name": "b"},
            (".BOT_8x8_MULT_REG(1'h1)", ".BOT_8x8_MULT_REG(1'h0)"),
        ),
        (
            lambda: LeftShifter(16),
            {"a": 16, "b": 4, "o": 31, "a_name": "i", "b_name": "shift"},
            (".B_SIGNED(1'h0)", ".B_SIGNED(1'h1)"),
        ),
    ],
    ids=["dual", "shift"],
)
def test_units_of_up5k_equal_their_twins_and_a_wrong_parameter_is_noticed(tmp_path, make, bench, change):
    twin = verilog.convert(make(), name="twin", emit_src=False)
    block = verilog.convert(make(), name="block", platform=UP5K, emit_src=False)
    old, new = change
    assert block.count("SB_MAC16 #(") == 1 and old in block
    broken = re.sub(r"\bblock\b", "broken", block).replace(old, new)
    sources = {"twin.v": twin, "block.v": block, "broken.v": broken, "bench.v": OTHER_BENCH.format(**bench)}
    wrong, noticed, moved = run_netlist(
        tmp_path, sources | {"cell.v": MAC.read_text()}, ["wrong", "noticed", "moved"], CYCLES
    )
    assert wrong == 0
    assert noticed > CYCLES / 32
    assert moved > CYCLES / 2


def test_wide_operands_do_not_share_a_block_on_up5k():
    assert verilog.convert(DualMultiplier(9, 8), platform=UP5K).count("SB_MAC16 #(") == 2
    assert "SB_MAC16" not in verilog.convert(LeftShifter(17), platform=UP5K)


def test_rejects_widths_of_both():
    with pytest.raises(ValueError, match=r"b_width must be in 1\.\.18, not 19"):
        DualMultiplier(8, 19)
    with pytest.raises(ValueError, match="width must be an integer of at least 1, not 0"):
        LeftShifter(0)
