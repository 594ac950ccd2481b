"""Cells of what makes codes of accumulators, with and without."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console

from concord.spec.presets import ECP5_85F
from concord_rtl.arith.acc_scale import AccScale
from concord_rtl.build import main
from concord_rtl.families import ECP5
from concord_rtl.flow import area, scaling_area
from support.rtl_configs import FED_SCALING


def test_without_it_everything_else_stays():
    config = scaling_area.without_scaling(ECP5_85F)
    assert config.replace(name="ecp5-85f", code_scaling=True) == ECP5_85F and not config.code_scaling


def counted(monkeypatch, tmp_path, *options):
    """What the command writes where synthesis counts a cell more each time, and every unit reaches 100 MHz."""
    made = []

    def unit_cells(unit, name, family, folder, console, *, target):
        assert target is ECP5.target
        made.append(unit.config.code_scaling)
        return {"LUT4": len(made)}

    def synthesized(config, board, build, console):
        made.append(config.code_scaling)
        return SimpleNamespace(flow=SimpleNamespace(folder=tmp_path, family=ECP5))

    monkeypatch.setattr(scaling_area, "AccScale", lambda config: SimpleNamespace(config=config))
    monkeypatch.setattr(scaling_area, "Mfu", lambda config, unit: SimpleNamespace(config=config))
    monkeypatch.setattr(scaling_area, "unit_cells", unit_cells)
    monkeypatch.setattr(scaling_area, "synthesized", synthesized)
    monkeypatch.setattr(scaling_area, "cells", lambda stat, family: {"LUT4": len(made)})
    monkeypatch.setattr(scaling_area, "clock_of_unit", lambda *_: 100.004)
    found = CliRunner().invoke(main, ["code-scaling", "--board", "ulx3s-85f", "--build", str(tmp_path), *options])
    assert found.exit_code == 0, found.output
    (path,) = tmp_path.glob("area/*/code_scaling.json")
    return json.loads(path.read_text()), made


def test_units_and_whole_designs_are_counted_with_and_without(monkeypatch, tmp_path):
    summary, made = counted(monkeypatch, tmp_path)
    assert summary["of"] == "code_scaling of ecp5-85f on ulx3s-85f"
    assert [(row["what"], row["cells"]["LUT4"]) for row in summary["rows"]] == [
        ("AccScale, a lane", 1), ("first multifunction unit", 2), ("first multifunction unit, without", 3),
        ("whole design", 4), ("whole design, without", 5),
    ]  # fmt: skip
    assert made == [True, True, False, True, False] and not any("mhz" in row for row in summary["rows"])


def test_units_alone_with_their_clock(monkeypatch, tmp_path):
    summary, made = counted(monkeypatch, tmp_path, "--units", "--clock")
    assert [row["mhz"] for row in summary["rows"]] == [100.0] * 3 and made == [True, True, False]


@pytest.mark.parametrize(
    "options, message",
    [
        (("--board", "ulx3s-85f", "--preset", "ecp5-25f"), "preset must be one with code_scaling, not 'ecp5-25f'"),
        (("--board", "icebreaker", "--clock"), "--clock must be left out for icebreaker"),
    ],
)
def test_what_cannot_be_counted_is_refused(options, message, tmp_path):
    found = CliRunner().invoke(main, ["code-scaling", *options, "--build", str(tmp_path)])
    assert found.exit_code == 1 and message in found.output and not list(tmp_path.iterdir())


def test_a_file_has_the_configuration(monkeypatch, tmp_path):
    """The area of a preset without one of its parameters."""
    file, counted = tmp_path / "plain.toml", []
    file.write_text('preset = "ecp5-85f"\nrequest_buffer = 0\n')
    monkeypatch.setattr(area, "engine_cells", lambda config, *_: counted.append(config) or {"LUT4": 1})
    found = CliRunner().invoke(
        main, ["area", "--board", "ulx3s-85f", "--config", file, "--accumulators", "0", "--build", tmp_path]
    )
    assert found.exit_code == 0, found.output
    assert counted == [ECP5_85F.replace(name="plain", request_buffer=0)]
    both = CliRunner().invoke(main, ["area", "--board", "ulx3s-85f", "--config", file, "--preset", "tiny"])
    assert both.exit_code == 1 and "--preset and --config must not be given together" in both.output


@pytest.mark.deep
def test_a_multifunction_unit_takes_more_with_it(tmp_path):
    lane, with_it, without = (
        area.unit_cells(make(), f"unit{k}", ECP5, tmp_path, Console(quiet=True), target=ECP5.target)
        for k, make in enumerate(scaling_area.units(FED_SCALING).values())
    )
    lanes = FED_SCALING.mfu_lanes
    assert with_it["DSP"] - without["DSP"] == lanes * lane["DSP"] == 2 * lanes
    assert with_it["LUT4"] > without["LUT4"] + lanes * lane["LUT4"] / 2
    inferred = area.unit_cells(AccScale(FED_SCALING), "inferred", ECP5, tmp_path, Console(quiet=True))
    assert lane["FF"] < inferred["FF"] and lane["DSP"] == inferred["DSP"]
