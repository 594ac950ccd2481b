"""The log of releases: what it takes from measured figures, what it keeps, and what the page shows of it."""

import json
from pathlib import Path

import pytest

import concord
from concord_bench import WITHOUT_RTL, Results
from concord_bench.__main__ import bench
from concord_bench.releases import CLOCK, CYCLES, LOGIC, SPEED, Release, draw, log, of_results, read, section
from support.commands import run

DOCS = Path(__file__).parents[2] / "docs"


def measured():
    results = Results("Preset tiny")
    results.add("Place and route: tiny on ulx3s-25f", "clock", 75.0, "MHz (paths allow 76.69)")
    results.add("Place and route: tiny on ulx3s-25f", "logic cells", 15049, "")
    results.add("Place and route: tiny on ulx3s-25f", "flip-flops", 9000, "")
    results.add("Emulator, one core", "perceptron, batch 1", 1061.5, "inferences/s")
    results.add("Derived NumPy file, one core", "perceptron, batch 1", 900, "inferences/s")
    results.add("Simulation", "Verilator, one core", 199_065, "cycles/s")
    results.add("Example programs", "softmax", 312, "cycles")
    results.row("Networks", "digits_mlp", {"float": "0.9833", "cycles": "1,279"})
    return results


def test_what_is_taken():
    release = of_results(measured(), "tiny")
    assert release.version == concord.__version__
    assert release.figures == {
        CLOCK: {"tiny on ulx3s-25f": 75.0},
        LOGIC: {"tiny on ulx3s-25f": 15049.0},
        CYCLES: {"tiny, digits_mlp": 1279.0},
        SPEED: {
            "tiny, emulator: perceptron, batch 1": 1061.5,
            "tiny, derived NumPy file: perceptron, batch 1": 900.0,
            "tiny, simulated RTL: Verilator, one core": 199_065.0,
        },
    }
    assert of_results(Results(""), "tiny").figures == {}


def test_a_version_has_one_line(tmp_path):
    """What is measured again takes the place of the same figure of the same version; everything else stays."""
    path = tmp_path / "data" / "log.jsonl"
    assert read(path) == []
    old = Release("0.1.0", "2026-01-01", {CLOCK: {"a": 70.0, "b": 18.0}})
    log(path, old)
    log(path, Release("0.2.0", "2026-02-01", {CYCLES: {"net": 100.0}, CLOCK: {"a": 71.0}}))
    found = log(path, Release("0.2.0", "2026-03-01", {CLOCK: {"a": 75.0, "b": 20.0}}))
    assert found == read(path) == [
        old, Release("0.2.0", "2026-03-01", {CLOCK: {"a": 75.0, "b": 20.0}, CYCLES: {"net": 100.0}})
    ]  # fmt: skip
    assert [json.loads(line)["version"] for line in path.read_text().splitlines()] == ["0.1.0", "0.2.0"]
    page = section(found, Path("pictures/releases.png"))
    assert "| clock, MHz | 0.1.0 (2026-01-01) | 0.2.0 (2026-03-01) |" in page
    assert "| a | 70 | 75 |" in page and "| net |  | 100 |" in page and "(pictures/releases.png)" in page


@pytest.mark.slow
def test_the_picture(tmp_path):
    releases = [
        Release("0.1.0", "", {CLOCK: {"a": 70.0}}),
        Release("0.2.0", "", {CLOCK: {"b": 1.0}, SPEED: {"c": 2.0}}),
    ]
    draw(releases, tmp_path / "pictures" / "releases.png")
    assert (tmp_path / "pictures" / "releases.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_keeps_the_log(tmp_path, monkeypatch):
    monkeypatch.setitem(
        WITHOUT_RTL, "emulator_speed", lambda config, results, say: results.figures.extend(measured().figures)
    )
    path = tmp_path / "log.jsonl"
    options = ("--preset", "tiny", "--only", "emulator_speed", "--output", tmp_path / "bench.json")
    assert run(*options, "--log", path, command=bench)[0] == 0
    (release,) = read(path)
    assert release.figures[CLOCK] == {"tiny on ulx3s-25f": 75.0}
    code, shown = run(*options, "--picture", tmp_path / "a.png", command=bench)
    assert code == 1 and "--picture must be given with --log" in shown


def test_the_page_shows_the_log():
    known = read(DOCS / "data" / "releases.jsonl")
    assert concord.__version__ in [one.version for one in known]
    assert (DOCS / "bench.md").read_text().endswith("\n" + section(known, Path("pictures/releases.png")))
