"""Settings of place and route: who has them, and results that belong to them."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from concord.spec.links import uart
from concord_boards import board_named
from concord_boards.board import Placement
from concord_rtl.build import main
from concord_rtl.flow import bitstream
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.plan import Plan
from support.flow_design import Echo, random_store


def test_only_configurations_that_fill_the_board_have_settings(tmp_path):
    quiet = Console(quiet=True)
    full = Plan.of("ulx3s-85f", "ecp5-85f", None, tmp_path, quiet).flow
    assert full.placement.short_chains and dict(full.placement.router)["estimateWeight"] == "1.0"
    for board, preset in (("ulx3s-85f", "tiny"), ("icebreaker", None)):
        assert Plan.of(board, preset, None, tmp_path, quiet).flow.placement == Placement()


def test_chains_are_short_where_the_command_asks_for_it(tmp_path):
    quiet = Console(quiet=True)
    placement = Plan.of("ulx3s-25f", "tiny", None, tmp_path, quiet, short_chains=True).flow.placement
    assert placement == Placement(short_chains=True, fold_carries=True)
    full = Plan.of("ulx3s-85f", "ecp5-85f-256", None, tmp_path, quiet).flow.placement
    assert full.short_chains and not full.fold_carries
    shorter = Plan.of("ulx3s-85f", "ecp5-85f-256", None, tmp_path, quiet, short_chains=True).flow.placement
    assert shorter == replace(full, fold_carries=True)
    done = CliRunner().invoke(main, ["bitstream", "--board", "icebreaker", "--short-chains", "--build", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output == "Error: --short-chains must be left out for icebreaker: ice40 has none\n"


def test_carries_are_folded_in_short_chains_alone():
    with pytest.raises(ValueError, match="fold_carries must be False without short_chains, not True"):
        Placement(fold_carries=True)


@pytest.mark.slow
def test_another_placement_is_another_result(tmp_path, monkeypatch):
    placement = Placement(router=(("bbMargin/x", "5"),))
    flow = Flow(board_named("ulx3s-85f"), tmp_path, Console(quiet=True), placement)
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
    assert not Flow(flow.board, tmp_path, flow.console).is_routed
    flow.routed.unlink()
    assert not flow.is_routed


@pytest.mark.slow
def test_nextpnr_reads_the_settings_of_its_router(tmp_path):
    board = board_named("ulx3s-25f")
    design = Echo([random_store("wide", 72, 64, "settings")])
    flow = Flow(board, tmp_path, Console(quiet=True), Placement(router=(("bbMargin/x", "5"),)))
    flow.generate(lambda: BoardTop(design, board, clock_hz=board.oscillator_hz, link=uart()), "settings")
    flow.synthesize()
    flow.place([1], Goal(board.oscillator_hz, board.oscillator_hz))
    assert json.loads(flow.routed.read_text())["modules"]["top"]["settings"]["router2/bbMargin/x"] == "5"
