"""The report of place and route, as JSON and as text."""

from __future__ import annotations

import re
from typing import Any

from rich.table import Table

from concord_rtl.families import Family
from concord_rtl.flow import paths

MHZ = 1e6


def of_link(name: str) -> bool:
    """True if a clock of nextpnr's report belongs to the link, which has a target of its own.

    The clock of the design, which is called ``clk`` everywhere, may have the name that it has there.
    """
    parts = name.removeprefix("$glbnet$").split(".")
    return parts[0] == "port" and parts[-1] != "clk"


def clocks(report: dict[str, Any], wanted_hz: float) -> list[dict[str, Any]]:
    """Frequency of every clock of nextpnr's report against the one wanted."""
    clocks = []
    for name, entry in sorted(report["fmax"].items()):
        mhz = entry["achieved"]
        target = round(entry["constraint"], 2) if of_link(name) else wanted_hz / MHZ
        clock = name.removeprefix("$glbnet$")
        clocks.append({"clock": clock, "mhz": round(mhz, 2), "target_mhz": target, "met": mhz >= target})
    return clocks


def score(report: dict[str, Any]) -> float:
    """Frequency of the slowest clock but those of the link."""
    return float(min(entry["achieved"] for name, entry in report["fmax"].items() if not of_link(name)))


def utilisation(report: dict[str, Any], family: Family) -> dict[str, dict[str, float]]:
    """Used and available resources."""
    resources = {}
    for name, key in family.resources.items():
        entry = report["utilization"][key]
        share = round(100 * entry["used"] / entry["available"], 1)
        resources[name] = {"used": entry["used"], "available": entry["available"], "percent": share}
    return resources


def packed(log: str, family: Family) -> dict[str, tuple[int, int]]:
    """Used and available resources from nextpnr's log; empty before it has packed the design."""
    counts = {name: (int(used), int(of)) for name, used, of in re.findall(r"\t *(\w+): *(\d+)/ *(\d+) ", log)}
    return {name: counts[key] for name, key in family.resources.items() if key in counts}


def fullness(used: int, available: int, family: Family, smaller: str) -> str:
    """A warning that a design fills a device more than any that was routed; empty if it does not.

    Parameters
    ----------
    used, available : int
        Number of logic cells.
    family : Family
        Of the device.
    smaller : str
        What makes the design smaller.
    """
    if used <= family.fullest * available:
        return ""
    what = "they do not fit"
    if used <= available:
        what = f"no more than {family.fullest:.0%} were ever routed, so this may take hours and end without a bitstream"
    return f"{used:,} of {available:,} logic cells are in use, {used / available:.1%}; {what}. Smaller: {smaller}"


def render(summary: dict[str, Any]) -> list[Table]:
    """Readable tables of a summary."""
    title = f"{summary['board']}, preset {summary['preset']}, best of seeds {', '.join(map(str, summary['seeds']))}"
    timing = Table("clock", "MHz possible", "MHz", "met", title=title, title_justify="left")
    for clock in summary["clocks"]:
        row = (clock["clock"], f"{clock['mhz']:.2f}", f"{clock['target_mhz']:.2f}")
        timing.add_row(*row, "yes" if clock["met"] else "[red]no")
    area = Table("resource", "used", "available", "%")
    for name, entry in summary["utilisation"].items():
        area.add_row(name, f"{entry['used']:,}", f"{entry['available']:,}", f"{entry['percent']:.1f}")
    runs = Table("seed", "target", "MHz", "seconds")
    for seed, run in summary["seeds"].items():
        best = " (best)" if int(seed) == summary["seed"] else ""
        runs.add_row(f"{seed}{best}", f"{run['aim_mhz']:g}", f"{run['mhz']:.2f}", f"{run['seconds']:.0f}")
    missing = [paths.not_counted_table(summary["not_counted"])] if summary["not_counted"] else []
    slow = [paths.table(summary["slow_paths"])] if summary["slow_paths"] else []
    return [timing, *missing, area, runs, *slow]
