"""Cells of the integer engine by unit."""

import json
from types import SimpleNamespace

import pytest
from amaranth.back import rtlil
from click.testing import CliRunner

from concord.spec.presets import preset
from concord_rtl.build import main
from concord_rtl.flow import integer_area
from support.integer_contents import TRAIN_SMALL


def test_units_are_those_of_the_configuration():
    units = list(integer_area.units(TRAIN_SMALL))
    assert (units[0], units[-1]) == (f"lane, one of {TRAIN_SMALL.mfu_lanes}", "integer engine")


def test_the_command_counts_them(monkeypatch, tmp_path):
    made = []

    def unit_cells(unit, name, family, folder, console, *, target):
        folder.mkdir(parents=True, exist_ok=True)
        made.append(unit)
        return {"LUT4": len(made)}

    names = list(integer_area.units(preset("ecp5-85f")))
    makes = {what: lambda what=what: SimpleNamespace(what=what) for what in names}
    monkeypatch.setattr(integer_area, "units", lambda config: makes)
    monkeypatch.setattr(integer_area, "unit_cells", unit_cells)
    found = CliRunner().invoke(main, ["integers", "--board", "ulx3s-85f", "--build", str(tmp_path)])
    assert found.exit_code == 0, found.output
    (path,) = tmp_path.glob("area/*/integers.json")
    summary = json.loads(path.read_text())
    assert summary["of"] == "the integer engine of ecp5-85f on ulx3s-85f"
    assert [(row["what"], row["cells"]["LUT4"]) for row in summary["rows"]] == [(n, k + 1) for k, n in enumerate(names)]
    assert [unit.what for unit in made] == names and "integer engine" in found.output


def test_the_units_are_those_of_a_file(monkeypatch, tmp_path):
    file, made = tmp_path / "half.toml", []
    file.write_text('preset = "ecp5-85f"\nmfu_lanes = 4\n')
    monkeypatch.setattr(integer_area, "units", lambda config: made.append(config) or {})
    monkeypatch.setattr(integer_area, "_table", lambda summary: summary["of"])
    arguments = ["integers", "--board", "ulx3s-85f", "--config", str(file), "--build", str(tmp_path)]
    (tmp_path / "area" / "ulx3s-85f-half-integers").mkdir(parents=True)
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0 and "the integer engine of half" in found.output
    assert made[0].mfu_lanes == 4
    both = CliRunner().invoke(main, [*arguments, "--preset", "ecp5-85f"])
    assert both.exit_code == 1 and "--preset and --config must not be given together" in both.output


@pytest.mark.parametrize("name", ["ecp5-85f-256", "tiny"])
def test_presets_without_integer_chains_are_refused(name, tmp_path):
    found = CliRunner().invoke(main, ["integers", "--board", "ulx3s-85f", "--preset", name, "--build", str(tmp_path)])
    assert found.exit_code == 1 and f"preset must be one with integer_chains, not '{name}'" in found.output


@pytest.mark.slow
def test_each_of_them_is_made():
    for what, make in integer_area.units(TRAIN_SMALL).items():
        assert rtlil.convert(make(), name="unit", emit_src=False).startswith("attribute"), what
