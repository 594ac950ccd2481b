"""What makes codes of accumulators in hardware: cells and clock with ``code_scaling`` and without."""

from __future__ import annotations

import json
from pathlib import Path

from concord_bench.results import Results

_COMMAND = "python -m concord_rtl.build code-scaling --board ulx3s-85f --clock"
_NOTE = (
    "After synthesis; the whole design with the links of its board. Units by themselves, and what they reach placed "
    f"and routed alone, as `{_COMMAND}` has counted them."
)


def code_scaling_cells(results: Results, folder: Path = Path("build/area")) -> None:
    """What ``python -m concord_rtl.build code-scaling`` has counted: one table each."""
    files = sorted(folder.glob("*/code_scaling.json"))
    if not files:
        results.skip("Cells of code_scaling", f"no code_scaling.json in {folder}/*: {_COMMAND}")
    for path in files:
        summary = json.loads(path.read_text(encoding="utf-8"))
        group = f"Cells of {summary['of']}"
        results.notes[group] = _NOTE
        for row in summary["rows"]:
            texts = {name: f"{count:,}" for name, count in row["cells"].items()}
            texts["MHz"] = f"{row['mhz']:.2f}" if "mhz" in row else ""
            results.row(group, row["what"], texts)
