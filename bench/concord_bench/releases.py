"""Figures of every version: a log with a line for each, which ``python -m concord_bench --log`` keeps, and its picture.

A line is a JSON object with ``version``, ``date`` of the commit that was measured (empty if it is not known) and
``figures``, by kind and name. What was not measured is not there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import concord
from concord.display.pictures import BLUE, INK, MUTED, drawing, png
from concord.utils.files import write_bytes, write_text
from concord_bench.networks import NETWORKS
from concord_bench.results import Results
from concord_bench.software import DERIVED, EMULATOR, FAST, PLACED

#: Kinds of figures, as tables and pictures call them.
CLOCK, LOGIC, CYCLES, SPEED = "clock, MHz", "logic cells", "cycles", "speed, per second"
KINDS = (CLOCK, LOGIC, CYCLES, SPEED)
#: Groups of figures that are speeds, and how tables call them.
_SPEEDS = {
    EMULATOR: "emulator",
    FAST: "emulator, compiled kernels",
    DERIVED: "derived NumPy file",
    "Simulation": "simulated RTL",
}


@dataclass(frozen=True)
class Release:
    """Measurements of a version.

    Parameters
    ----------
    version, date : str
        The version, and the day of its commit, ``YYYY-MM-DD``, or nothing.
    figures : dict
        By kind, one of ``KINDS``, and by name.
    """

    version: str
    date: str
    figures: dict[str, dict[str, float]]


def of_results(results: Results, preset: str) -> Release:
    """The figures of this version, from those measured on a preset."""
    figures: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for figure in results.figures:
        group, _, place = figure.group.partition(": ")
        if group == PLACED and figure.name == "clock":
            figures[CLOCK][place] = figure.value
        elif group == PLACED and figure.name == LOGIC:
            figures[LOGIC][place] = figure.value
        elif figure.group in _SPEEDS:
            figures[SPEED][f"{preset}, {_SPEEDS[figure.group]}: {figure.name}"] = figure.value
    for name, row in results.rows.get(NETWORKS, {}).items():
        figures[CYCLES][f"{preset}, {name}"] = float(row["cycles"].replace(",", ""))
    return Release(concord.__version__, _today(), {kind: values for kind, values in figures.items() if values})


def _today() -> str:
    """Day of the commit that this is, if it is in a repository."""
    command = ["git", "log", "-1", "--format=%cs"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def read(path: Path) -> list[Release]:
    """The releases of a log, in its order; none if there is no file."""
    if not path.exists():
        return []
    return [Release(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def log(path: Path, release: Release) -> list[Release]:
    """Put a release into a log, and return all that are in it.

    Figures take the place of those of the same version and name; others of this version stay, as not every machine
    can measure everything.
    """
    releases = {entry.version: entry for entry in read(path)}
    before = releases.get(release.version, release).figures
    kinds = [kind for kind in KINDS if kind in before or kind in release.figures]
    figures = {kind: before.get(kind, {}) | release.figures.get(kind, {}) for kind in kinds}
    releases[release.version] = Release(release.version, release.date, figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(asdict(entry)) + "\n" for entry in releases.values()))
    return list(releases.values())


def _rows(releases: Sequence[Release], kind: str) -> dict[str, list[float | None]]:
    """Figures of every release, by name."""
    names = dict.fromkeys(name for release in releases for name in release.figures.get(kind, {}))
    return {name: [release.figures.get(kind, {}).get(name) for release in releases] for name in names}


def section(releases: Sequence[Release], picture: Path | None = None) -> str:
    """The part of the page about all releases; ``picture`` is the path of their picture from the page."""
    heads = [f"{release.version} ({release.date})" if release.date else release.version for release in releases]
    lines = ["## Releases", "", "By version, with the day of the commit. What was not measured is left empty."]
    if picture is not None:
        lines += ["", f"![Clock, logic, cycles and speed of every release]({picture.as_posix()})"]
    for kind in KINDS:
        lines += ["", f"| {kind} | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
        for name, values in _rows(releases, kind).items():
            texts = ["" if value is None else f"{value:,.2f}".removesuffix(".00") for value in values]
            lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def draw(releases: Sequence[Release], path: Path) -> None:
    """Write a picture: a panel for each kind, a line for each figure, a dot for every release, the last one blue."""
    rows_of = {kind: _rows(releases, kind) for kind in KINDS}
    with drawing() as plt:
        heights = [len(rows_of[kind]) + 2 for kind in KINDS]
        figure, panels = plt.subplots(
            len(KINDS), figsize=(9, 0.26 * sum(heights)), height_ratios=heights, layout="constrained"
        )
        for panel, (kind, rows) in zip(panels, rows_of.items(), strict=True):
            _panel(panel, rows)
            panel.set_title(kind)
        figure.suptitle(f"Concord {', '.join(release.version for release in releases)}", x=0.01, ha="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, png(figure, 90))


def _panel(panel: Any, rows: dict[str, list[float | None]]) -> None:
    """A line for each figure on a logarithmic scale, with its last value in numbers."""
    for at, values in enumerate(rows.values()):
        known = [value for value in values if value is not None]
        panel.plot(known, [at] * len(known), "o-", color=MUTED, alpha=0.5, ms=4)
        panel.plot(known[-1:], [at], "o", color=BLUE, ms=6)
        place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        panel.annotate(f"{known[-1]:,.10g}", (known[-1], at), color=INK, fontsize=8, **place)
    panel.set_yticks(range(len(rows)), list(rows), fontsize=8)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_xscale("log")
    panel.margins(x=0.12)
    panel.tick_params(axis="x", which="both", labelbottom=False, bottom=False)
    panel.grid(axis="x")
