"""A component of plain logic and the same one with the cells of a family, clocked with the same operands."""

from __future__ import annotations

import re
from pathlib import Path

from amaranth.back import verilog

from support.netlist import run_netlist

#: Models of the cells.
CELLS = Path(__file__).parents[2] / "sim" / "cells"

#: Counts mismatches between a twin, the instance and the instance with a mistake, and results that change.
BENCH = """
module bench(input clk, output reg [15:0] wrong, noticed, moved);
    initial {{wrong, noticed, moved}} = 0;
    reg [63:0] noise = 64'h9E3779B97F4A7C15;
    wire [63:0] n1 = noise ^ (noise << 13), n2 = n1 ^ (n1 >> 7), n3 = n2 ^ (n2 << 17);
    {registers}
    wire [{width}-1:0] plain, block, broken;
    twin twin_i (.clk(clk), .rst(1'b0), {pins}, .o(plain));
    block block_i (.clk(clk), .rst(1'b0), {pins}, .o(block));
    broken broken_i (.clk(clk), .rst(1'b0), {pins}, .o(broken));
    reg [{width}-1:0] earlier = 0;
    always @(posedge clk) begin
        noise <= n3;
        {steps}
        earlier <= plain;
        if (plain != block) wrong <= wrong + 1;
        if (plain != broken) noticed <= noticed + 1;
        if (plain != earlier) moved <= moved + 1;
    end
endmodule
"""
CYCLES = 1000


def operand(name, width, value):
    """Name, width and next value of an operand, an expression of ``noise``."""
    return name, width, value


def compare(make, platform, cells, operands, output, change, pins=None):
    """Clock the twin, the instance and the instance after ``change`` with the same operands.

    Returns the mismatches of the instance, those of the changed instance, how often the result changed, and the Verilog
    of the instance. ``make`` takes whether it is for the twin; ``pins`` are left out if operands have their names.
    """
    twin = verilog.convert(make(True), name="twin", emit_src=False)
    block = verilog.convert(make(False), name="block", platform=platform, emit_src=False)
    old, new = change
    assert old in block
    bench = BENCH.format(
        registers="\n    ".join(f"reg [{width}-1:0] {name} = 0;" for name, width, _ in operands),
        steps="\n        ".join(f"{name} <= {value};" for name, _, value in operands),
        pins=pins or ", ".join(f".{name}({name})" for name, *_ in operands),
        width=output,
    )
    broken = re.sub(r"\bblock\b", "broken", block).replace(old, new)
    texts = [twin, block, broken, bench, *(cell.read_text() for cell in cells)]
    return *run_netlist(texts, ["wrong", "noticed", "moved"], CYCLES), block
