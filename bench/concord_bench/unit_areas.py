"""Cells of units, of those that make codes of accumulators and of those of the integer engine."""

from __future__ import annotations

import json
from pathlib import Path

from concord_bench.results import Results

_CODES = "python -m concord_rtl.build code-scaling --board ulx3s-85f --clock"
_CODES_NOTE = (
    "After synthesis; the whole design with the links of its board. Units by themselves, and what they reach placed "
    f"and routed alone, as `{_CODES}` has counted them."
)
_INTEGERS = "python -m concord_rtl.build integers --board ulx3s-85f"
_INTEGERS_NOTE = (
    f"After synthesis, each by itself, as `{_INTEGERS}` has counted them; what is constant in the engine is not known "
    "then, so that the units together are more."
)


def code_scaling_cells(results: Results, folder: Path = Path("build/area")) -> None:
    """Add the tables that ``python -m concord_rtl.build code-scaling`` has counted."""
    _tables(results, folder, "code_scaling", _CODES, _CODES_NOTE)


def integer_cells(results: Results, folder: Path = Path("build/area")) -> None:
    """Add the tables that ``python -m concord_rtl.build integers`` has counted."""
    _tables(results, folder, "integers", _INTEGERS, _INTEGERS_NOTE)


def _tables(results: Results, folder: Path, name: str, command: str, note: str) -> None:
    files = sorted(folder.glob(f"*/{name}.json"))
    if not files:
        results.skip(f"Cells of {name}", f"no {name}.json in {folder}/*: {command}")
    for path in files:
        summary = json.loads(path.read_text(encoding="utf-8"))
        group = f"Cells of {summary['of']}"
        results.notes[group] = note
        clock = any("mhz" in row for row in summary["rows"])
        for row in summary["rows"]:
            texts = {kind: f"{count:,}" for kind, count in row["cells"].items()}
            if clock:
                texts["MHz"] = f"{row['mhz']:.2f}" if "mhz" in row else ""
            results.row(group, row["what"], texts)
