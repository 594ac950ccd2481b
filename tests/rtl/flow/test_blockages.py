"""Rows of logic that stay empty: the right ones, in nextpnr's names, and nextpnr keeps to them."""

import json
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from concord.spec.links import uart
from concord_boards import board_named
from concord_boards.board import Placement
from concord_rtl.build import main
from concord_rtl.families.ecp5 import blockages
from concord_rtl.flow import bitstream, report
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.gates.simulate import NetlistStage, netlist_of
from concord_rtl.flow.plan import Plan
from concord_rtl.netlists.lowering import Lowering
from support.flow_design import Echo, random_store


@pytest.mark.parametrize("device, luts", [("LFE5U-25F", 24_288), ("LFE5U-45F", 43_848), ("LFE5U-85F", 83_640)])
def test_rows_hold_all_luts_of_the_device(device, luts):
    rows = blockages.logic_rows(device)
    assert list(rows) == sorted(rows)
    assert 8 * sum(map(len, rows.values())) == luts


def test_rows_of_block_rams_and_multipliers_are_not_among_them():
    assert not {10, 22, 34, 46, 58, 70, 82} & set(blockages.logic_rows("LFE5U-85F"))


def test_one_of_four_rows_is_blocked():
    sites = blockages.blocked_sites("LFE5U-85F", 4)
    assert len(set(sites)) == len(sites) == 21 * 123 * 8
    assert {int(re.match(r"X\d+/Y(\d+)/SLICE[A-D]\.K[01]$", site)[1]) for site in sites} >= {3, 7, 12}


@pytest.mark.parametrize(
    "device, every, message",
    [
        ("LFE5U-85F", 1, r"every must be at least 2, not 1"),
        ("XC7A35T", 4, r"device must be an ECP5 that nextpnr knows, not 'XC7A35T'"),
    ],
)
def test_refusals(device, every, message):
    with pytest.raises(ValueError, match=message):
        blockages.blocked_sites(device, every)


def test_only_the_configuration_that_fills_the_board_has_blockages(tmp_path):
    quiet = Console(quiet=True)
    full = Plan("ulx3s-85f", "ecp5-85f", None, tmp_path, quiet).flow
    assert full.placement.blocked_rows == 4 and dict(full.placement.router)["estimateWeight"] == "1.0"
    for board, preset in (("ulx3s-85f", "tiny"), ("ulx3s-25f", None)):
        assert Plan(board, preset, None, tmp_path, quiet).flow.placement == Placement()


def test_chains_are_short_where_the_command_asks_for_it(tmp_path):
    quiet = Console(quiet=True)
    placement = Plan("ulx3s-25f", None, None, tmp_path, quiet, short_chains=True).flow.placement
    assert placement == Placement(short_chains=True, fold_carries=True)
    full = Plan("ulx3s-85f", "ecp5-85f-256", None, tmp_path, quiet).flow.placement
    assert full.short_chains and not full.fold_carries
    shorter = Plan("ulx3s-85f", "ecp5-85f-256", None, tmp_path, quiet, short_chains=True).flow.placement
    assert shorter == replace(full, fold_carries=True)
    done = CliRunner().invoke(main, ["bitstream", "--board", "icebreaker", "--short-chains", "--build", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output == "Error: --short-chains must be left out for icebreaker: ice40 has none\n"


def test_carries_are_folded_in_short_chains_alone():
    with pytest.raises(ValueError, match="fold_carries must be False without short_chains, not True"):
        Placement(fold_carries=True)


@pytest.mark.slow
def test_reports_do_not_count_blockages(tmp_path, monkeypatch):
    flow = Flow(board_named("ulx3s-85f"), tmp_path, Console(quiet=True), Placement(blocked_rows=4))
    flow.file("lpf").write_text("")
    flow.file("json").write_text(json.dumps({"modules": {"npu": {"cells": {"a": {"type": "LUT4"}}}}}))

    def route(console, jobs, parallel):
        (job,) = jobs
        cells = json.loads((tmp_path / job.args[job.args.index("--json") + 1]).read_text())["modules"]["npu"]["cells"]
        found = {
            "fmax": {"clk": {"achieved": 60.0}},
            "utilization": {"TRELLIS_COMB": {"used": len(cells), "available": 83_640}},
        }
        for part, text in {"config": "", "routed.json": "", "sdf": "", "json": json.dumps(found)}.items():
            (tmp_path / f"seed1.{part}").write_text(text)

    monkeypatch.setattr(bitstream, "run_jobs", route)
    reports = flow.place([1], Goal(50e6, 50e6))
    assert reports[1]["utilization"]["TRELLIS_COMB"]["used"] == 1
    assert flow.is_routed
    # Without blockages it is another result.
    assert not Flow(flow.board, tmp_path, flow.console).is_routed
    flow.routed.unlink()
    assert not flow.is_routed


@pytest.mark.slow
def test_nothing_is_placed_in_blocked_rows(tmp_path):
    board, every = board_named("ulx3s-25f"), 3
    design = Echo([random_store("wide", 72, 64, "blocked")])
    used = {}
    for rows in (0, every):
        router = (("bbMargin/x", "5"),) if rows else ()
        placement = Placement(blocked_rows=rows, router=router)
        flow = Flow(board, tmp_path / str(rows), Console(quiet=True), placement)
        flow.generate(lambda: BoardTop(design, board, clock_hz=board.oscillator_hz, link=uart()), "blocked")
        flow.synthesize()
        runs = flow.place([1], Goal(board.oscillator_hz, board.oscillator_hz))
        used[rows] = report.utilisation(runs[1], flow.family)["LUT4"]["used"]
        flow.pack(flow.placed, flow.bitstream)
        assert flow.bitstream.stat().st_size
    assert used[0] == pytest.approx(used[every], abs=8)  # pass-through LUTs depend on the placement
    routed = json.loads(flow.routed.read_text())["modules"]["top"]
    assert routed["settings"]["router2/bbMargin/x"] == "5"  # nextpnr has read it
    cells = routed["cells"]
    bound = {cell["attributes"]["NEXTPNR_BEL"]: name for name, cell in cells.items() if cell["type"] == "TRELLIS_COMB"}
    sites = blockages.blocked_sites(board.platform.device, every)
    assert all(blockages.PREFIX in bound[site] for site in sites)
    assert len(bound) > len(sites)
    # LUTs without connections are no matter to the simulation of the netlist.
    netlist = netlist_of(flow, NetlistStage.ROUTED)
    models = flow.family.gates
    Lowering(netlist, models.rules, models.passing, models.constants(netlist), "clk25_0__io")
