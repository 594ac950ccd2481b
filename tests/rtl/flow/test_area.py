"""Cells by width of the accumulator."""

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from concord.spec.operations import Op
from concord.spec.presets import ECP5_85F, TINY
from concord_boards import board_named
from concord_rtl.build import main
from concord_rtl.families import ECP5, ICE40
from concord_rtl.flow import area
from concord_rtl.mvm.row import Row
from support.integer_contents import EVERYTHING_85F


def test_configurations_by_width():
    (full, preset), (bits, narrow), (small, least) = area.narrowed(ECP5_85F, [0, 50, 24])
    assert (full, preset) == (68, ECP5_85F)
    assert (bits, narrow.acc_register, narrow.acc_width, narrow.name) == (50, 50, 48, "ecp5-85f-a50")
    assert (small, least.acc_register, least.acc_width) == (24, 24, 24)
    assert least.acc_frac == ECP5_85F.acc_frac
    assert list(area.narrowed(TINY, [99])) == [(62, TINY)]


def test_narrower_registers_have_no_integer_chains():
    ((_, narrow),) = area.narrowed(EVERYTHING_85F, [50])
    assert narrow.acc_register == 50 and not narrow.has(Op.I_RUN) and narrow.has(Op.M_WR) and narrow.has(Op.VV_SCALE)


@pytest.mark.parametrize("width", [15, -44])
def test_too_few_bits_are_refused_before_anything_is_built(width, tmp_path):
    found = CliRunner().invoke(
        main, ["area", "--board", "ulx3s-25f", "--accumulators", f"0,{width}", "--build", tmp_path]
    )
    assert found.exit_code == 1 and f"accumulator must have 0 (all) or at least 16 bits, not {width}" in found.output
    assert not list(tmp_path.iterdir())


def test_cells_have_the_names_that_people_use(tmp_path):
    counts = {"LUT4": 5, "CCU2C": 2, "TRELLIS_FF": 7, "MULT18X18D": 1, "PFUMX": 9}
    stat = tmp_path / "stat.json"
    stat.write_text(json.dumps({"design": {"num_cells_by_type": counts}}))
    assert area.cells(stat, ECP5) == {"LUT4": 5, "carry": 2, "LUT RAM": 0, "FF": 7, "DSP": 1}
    assert area.cells_of({"SB_LUT4": 3, "SB_DFFE": 2, "SB_DFFSR": 4}, ICE40)["FF"] == 6


def test_a_serial_configuration_has_no_other():
    result = CliRunner().invoke(main, ["area", "--board", "icebreaker"])
    assert result.exit_code == 1 and "accumulator of up5k must be the full one: it is element-serial" in result.output


def test_the_clock_is_that_of_the_slowest_unit(monkeypatch, tmp_path):
    reached = {"row": 120.5, "queue": 99.0, "convert": 130.0}
    monkeypatch.setattr(area, "engine_units", lambda config: {name: (name, 1) for name in reached})
    monkeypatch.setattr(area, "clock_of_unit", lambda unit, board, seeds, folder, console: reached[unit])
    found = area.engine_clock(TINY, board_named("ulx3s-25f"), tmp_path, Console(quiet=True))
    assert found == (99.0, "queue")


def test_a_clock_of_units_needs_a_flow_without_pins(tmp_path):
    arguments = ["area", "--board", "icebreaker", "--preset", "tiny", "--clock", "--build", tmp_path]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 1 and "--clock must be with --whole for icebreaker" in found.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_narrow_row_takes_less(tmp_path):
    full, narrow = (
        area.unit_cells(Row(config), "row", ECP5, tmp_path / str(bits), Console(quiet=True))
        for bits, config in area.narrowed(TINY, [0, 24])
    )
    assert all(narrow[name] < full[name] for name in ("LUT4", "carry", "FF")) and narrow["DSP"] == full["DSP"]
