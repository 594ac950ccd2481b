# amaranth: UnusedElaboratable=no
"""FPGA families: what is reached through them, and that one more needs nothing but itself and its entry."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Instance, IOPort
from amaranth.lib.io import SingleEndedPort
from rich.console import Console

import concord_rtl
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from concord_boards import BOARDS, Board
from concord_boards.board import Placement
from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.cells.dsp import Multiplier
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.core.implementation import Contents
from concord_rtl.families import ECP5, FAMILIES, ICE40, family_named, primitives_of
from concord_rtl.families.family import Family, FileOption, Pll, Target, Tuning, nearest
from concord_rtl.families.geometry import Geometry
from concord_rtl.families.primitives import Primitives
from concord_rtl.flow import area, bitstream, contents, report, tools
from concord_rtl.flow.bram import BlockRams
from concord_rtl.flow.clocking import Clocking, clock_of, tunable
from concord_rtl.flow.gates.simulate import models_of
from concord_rtl.memories.matrix_memory import MatrixMemory
from concord_rtl.netlists.netlist import NetlistError


class MadeUpPrimitives(Primitives):
    single_port_rams = 1

    def multiplier(self, m, a, b, o):
        m.submodules.mult = Instance("MADE_UP_MULT", i_A=a, i_B=b, o_P=o)

    def kept_register(self, m, i, o):
        m.submodules.kept = Instance("MADE_UP_FF", i_D=i, o_Q=o)

    def block_ram(self, m, ports):
        m.submodules.ram = Instance("MADE_UP_RAM", i_A=ports.addr, o_D=ports.data, p_DEPTH=ports.depth)

    def single_port_ram(self, m, addr, w_en, w_data, word):
        m.submodules.ram = Instance("MADE_UP_SPRAM", i_A=addr, o_D=word)


@dataclass(frozen=True)
class MadeUpPll(Pll):
    factor: int

    def build(self, m, pin, clk, locked, shifted=None):
        m.submodules.pll = Instance("MADE_UP_PLL", p_FACTOR=self.factor, i_I=pin, o_O=clk, o_LOCK=locked)


class MadeUpTuning(Tuning):
    most_hz = 1e9

    def read(self, text, input_hz):
        return MadeUpPll(input_hz * int(text), int(text))

    def write(self, text, pll, input_hz):
        return str(pll.factor)

    def gate(self, clk, enable, o):
        return Instance("MADE_UP_GATE", i_I=clk, i_EN=enable, o_O=o)


class MadeUp(Family):
    name = "madeup"
    platform_family = "MadeUp"
    target = Target("MadeUp", "MU1")
    tools = {"nextpnr-madeup": ("made-up", "run_nextpnr"), "madeuppack": ("made-up", "run_pack")}  # noqa: RUF012
    place_and_route = "nextpnr-madeup"
    synthesis = "synth_madeup"
    constraints = FileOption("muc", "--muc")
    placed = FileOption("mup", "--mup")
    bitstream = "mub"
    router = ("--fast",)
    resources = {"LUT4": "MADE_UP_LUT"}  # noqa: RUF012
    fullest = 1.0
    cells = {"LUT4": "MADE_UP_LUT", "FF": "MADE_UP_FF*"}  # noqa: RUF012
    geometry = Geometry(r"^ram (?P<name>\d+)\n(?P<bits>[0-9a-f]+\n)", 16, 1, ((16, 16),), lambda width, used: None)
    empty_regions = (RegionId.MATRIX,)
    tuning = MadeUpTuning()

    def primitives(self, device):
        return MadeUpPrimitives()

    def pll(self, input_hz, wanted_hz):
        return nearest([MadeUpPll(k * input_hz, k) for k in range(1, 9) if k * input_hz <= wanted_hz], wanted_hz)

    def packing(self, placed, packed):
        return "madeuppack", [placed.name, packed.name]


class Pins:
    """A platform with a clock."""

    def request(self, name, dir):
        assert (name, dir) == ("clk", "-")
        return SingleEndedPort(IOPort(1, name="clk_pin"), direction="i")


@pytest.fixture
def made_up(monkeypatch):
    family = MadeUp()
    monkeypatch.setitem(FAMILIES, family.name, family)
    return family


@pytest.fixture
def board(made_up):
    return Board(
        name="made-up", platform=type("Platform", (), {"device": "MU1"}), family=made_up.name, preset="tiny",
        oscillator="clk", oscillator_hz=10_000_000, leds=(), place=("--mu1",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "cell"),
    [
        (Multiplier(8, 8), "MADE_UP_MULT"),
        (KeptRegister(3), "MADE_UP_FF"),
        (BlockRam(8, 512), "MADE_UP_RAM"),
        (MatrixMemory(TINY.replace(lanes=4)), "MADE_UP_SPRAM"),
    ],
    ids=["multiplier", "register", "block RAM", "single-port RAM"],
)
def test_components_use_the_cells_of_a_made_up_family(made_up, unit, cell):
    assert cell in rtlil.convert(unit, platform=made_up.target)


def test_a_clock_of_a_made_up_family(board):
    assert clock_of(board, 80_000_000) == (80e6, MadeUpPll(80e6, 8))
    assert tunable(board, 80_000_000) and not tunable(board, board.oscillator_hz)
    with pytest.raises(ValueError, match="clock must be a frequency the PLL can make"):
        clock_of(board, 99_000_000)

    made = rtlil.convert(Clocking(board, 80_000_000), platform=Pins())
    assert "MADE_UP_PLL" in made and "MADE_UP_GATE" in made


def test_the_flow_of_a_made_up_family(board, made_up, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(bitstream, "run_jobs", lambda console, some, parallel=1: jobs.extend(some))
    monkeypatch.setattr(bitstream, "tool_version", lambda tool: "1")
    flow = bitstream.Flow(board, tmp_path, Console(quiet=True))
    for suffix in ("il", "json", "muc"):
        flow.file(suffix).touch()
    flow.file("json").write_text(json.dumps({"modules": {"npu": {"cells": {}}}}))
    (tmp_path / "synthesis.json").touch()
    flow.synthesize()
    assert "synth_madeup  -top npu" in jobs[-1].args[-1]
    _, job = flow._seed(1, 50e6, False, float("inf"))
    assert job.tool == "nextpnr-madeup" and tools.function_of(job.tool) == ("made-up", "run_nextpnr")
    assert job.args[:3] == ["--mu1", "--fast", "--freq"]
    assert job.args[job.args.index("--muc") + 1] == "npu.muc" and job.args[job.args.index("--mup") + 1] == "seed1.mup"
    (tmp_path / "packed").touch()
    flow.pack(flow.placed, flow.bitstream)
    assert (jobs[-1].tool, jobs[-1].args) == ("madeuppack", ["npu.mup", "packed"])
    assert flow.bitstream.name == "npu.mub" and flow.bitstream.exists()
    with pytest.raises(tools.ToolError, match="short_chains must be False on madeup, not True"):
        bitstream.Flow(board, tmp_path, Console(quiet=True), Placement(short_chains=True))._prepare()


def test_reports_and_contents_of_a_made_up_family(made_up):
    run = {"utilization": {"MADE_UP_LUT": {"used": 1, "available": 4}}}
    assert report.utilisation(run, made_up) == {"LUT4": {"used": 1, "available": 4, "percent": 25.0}}
    counts = {"MADE_UP_LUT": 3, "MADE_UP_FF": 1, "MADE_UP_FFE": 2}
    assert area.cells_of(counts, made_up) == {"LUT4": 3, "FF": 3}
    config = TINY.replace(narrow_depth=128)
    assert RegionId.MATRIX not in contents.fillable(config, made_up)
    assert "matrix" not in contents.fixed(config, made_up, Contents())
    assert BlockRams(made_up.geometry, "ram 7\n00ff\n").by_name() == {"7": b"\1" * 8 + b"\0" * 8}
    with pytest.raises(NetlistError, match="netlists of madeup are not simulated"):
        models_of(made_up)


def test_families_by_name():
    assert [family_named(board.family).name for board in BOARDS.values()] == [b.family for b in BOARDS.values()]
    with pytest.raises(ValueError, match=r"family must be one of \['ecp5', 'ice40'\], not 'xc7'"):
        family_named("xc7")


def test_primitives_of_platforms():
    plain = type(primitives_of(None))
    assert plain is Primitives
    assert type(primitives_of(object())) is plain
    assert type(primitives_of(Target("iCE40", "iCE40HX8K"))) is plain  # has no DSP blocks
    cells = {type(primitives_of(family.target)) for family in (ECP5, ICE40)}
    assert plain not in cells and len(cells) == 2


@pytest.mark.slow
def test_no_other_place_asks_for_a_family_by_name():
    root = Path(concord_rtl.__file__).parent
    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "families"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value.lower() not in {"ecp5", "ice40", "up5k"}, (path, node.lineno)
