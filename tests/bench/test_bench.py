"""The figures: what is written, what is shown, and that nothing is dropped silently."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from concord.emulator.fused import installed
from concord.host import connect
from concord.spec.builds import BUILDS
from concord.spec.presets import TINY
from concord_bench import PARTS, RTL_MEASURES, WITHOUT_RTL, Results, Rtl
from concord_bench.__main__ import bench
from concord_bench.programs import elementwise, products
from concord_bench.software import DERIVED, EMULATOR, FAST, emulator_speed, synthesis
from support.commands import run


def test_results_as_json_table_and_page(tmp_path):
    results = Results("Preset tiny")
    results.add("Cycles", "product", 1234567, "cycles")
    results.add("Cycles", "share", 12.3456, "%")
    results.skip("Synthesis", "no report")
    path = tmp_path / "folder" / "bench.json"
    results.save(path)
    content = json.loads(path.read_text())
    assert content["figures"][0] == {"group": "Cycles", "name": "product", "value": 1234567.0, "unit": "cycles"}
    assert content["skipped"] == {"Synthesis": "no report"}
    page = results.markdown()
    assert "| product | 1,234,567 | cycles |" in page and "| share | 12.35 | % |" in page
    assert "Synthesis: not measured, no report" in page
    console = Console(width=100)
    with console.capture() as capture:
        results.show(console)
    shown = capture.get()
    assert "Cycles" in shown and "1,234,567" in shown and "12.35" in shown
    assert "Synthesis: not measured, no report" in shown


@pytest.mark.parametrize(("width", "turned"), [(60, True), (200, False)])
def test_a_table_wider_than_the_terminal_has_its_rows_as_columns(width, turned):
    results = Results("")
    for name in ("first", "second"):
        results.row("Rates", name, {f"column {k}": f"{name}{k:06d}" for k in range(8)})
    console = Console(width=width)
    with console.capture() as capture:
        results.show(console)
    lines = capture.get().splitlines()
    head = next(line for line in lines if "first" in line or "column 0" in line)
    assert head.split() == (["first", "second"] if turned else [w for k in range(8) for w in ("column", str(k))])
    assert all(f"{name}{k:06d}" in capture.get() for name in ("first", "second") for k in range(8))


def test_bitstreams_are_those_of_the_records():
    results = Results("")
    synthesis(results)
    assert {figure.group for figure in results.figures} == {
        f"Place and route: {build.preset} on {build.board}" for build in BUILDS
    }
    clocks = [figure for figure in results.figures if figure.name == "clock"]
    assert [figure.value for figure in clocks] == [build.mhz for build in BUILDS]
    assert clocks[0].unit.startswith(f"MHz (paths allow {BUILDS[0].reached_mhz:.2f})")


@pytest.mark.slow
def test_emulator_speed():
    results = Results("")
    emulator_speed(TINY.replace(matrix_depth=4096, wide_depth=256, narrow_depth=256), results, {16: 2, 1: 2})
    groups = Counter(figure.group for figure in results.figures)
    assert groups[EMULATOR] == 4 and groups[DERIVED] == 2 and groups[FAST] == 4 * installed()
    assert all(figure.value > 0 for figure in results.figures)


def test_programs_count_what_they_say():
    with connect("emulator", TINY) as device:
        image = products(TINY, 8, 12, 5)
        device.load(image)
        device.run([[1.0] * 12])
        assert device.counters()["DENSE_STEPS"] * TINY.macs == image.metadata["macs"] == 5 * 8 * 12
        device.load(elementwise(TINY, 6, 3))
        y = device.run([[1.0] * 24])
        assert device.counters()["VECTORS"] == 18
        assert (y == 0.1875).all()


@pytest.mark.slow
def test_figures_of_the_rtl_are_possible():
    results = Results("")
    with Rtl.open(TINY) as rtl:
        for measure in RTL_MEASURES:
            measure(rtl, results)
    figures = {f"{figure.group}: {figure.name}": figure.value for figure in results.figures}
    assert len(figures) == 5 and all(value > 0 for value in figures.values())
    chains = {figure.name.split()[0]: figure.value for figure in results.figures if figure.group == "Chains"}
    assert chains["gap"] < chains["latency"]
    reads = 4  # of the one port, for a vector with three operands
    assert chains["elements"] == pytest.approx(TINY.native / max(TINY.beats, reads), rel=0.05)
    assert figures["Example programs: softmax"] > 0 and figures["Simulation: Verilator, one core"] > 1000
    assert "tiny: matrix memory has 256 words" in results.skipped["Product 64 x 64"]


def test_what_does_not_fit_is_named():
    results = Results("")
    emulator_speed(TINY, results)
    assert not results.figures and "matrix memory has 256 words" in results.skipped["Emulator, one core"]


def test_only_some_parts(monkeypatch, tmp_path):
    done = []
    monkeypatch.setitem(WITHOUT_RTL, "widths", lambda config, results, say: done.append(config))
    output = tmp_path / "bench.json"
    code, _ = run("--preset", "tiny", "--only", "widths", "--output", output, command=bench)
    assert code == 0 and done == [TINY] and json.loads(output.read_text())["figures"] == []
    assert set(PARTS) >= {"networks", "chains", "link_bytes", "emulator_speed", "synthesis"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "nothing"), "parts must be among matrix_vector_products, chains, "),
        (("--only", "widths", "--docs", "page.md"), "--docs must be given without --only"),
    ],
)
def test_parts_that_are_wrong(options, message):
    code, shown = run(*options, command=bench)
    assert code == 1 and message in shown


def test_measurements_are_not_in_the_wheel():
    """They are installed with the working copy alone."""
    build = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert "bench" in build["dev-mode-dirs"]
    assert {Path(package).name for package in build["targets"]["wheel"]["packages"]} == {
        "concord", "concord_rtl", "concord_boards",
    }  # fmt: skip
