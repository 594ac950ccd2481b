"""The lazy update in hardware: cells and clock by its lanes."""

from __future__ import annotations

import json
from pathlib import Path

from concord_bench.results import Results


def lazy_by_lanes(results: Results, folder: Path = Path("build/area")) -> None:
    """What ``python -m concord_rtl.build lazy`` has counted: one table each."""
    files = sorted(folder.glob("*/lazy.json"))
    if not files:
        results.skip("Lazy update", f"no lazy.json in {folder}/*: python -m concord_rtl.build lazy --clock")
    for path in files:
        summary = json.loads(path.read_text(encoding="utf-8"))
        for row in summary["lanes"]:
            texts = {name: f"{count:,}" for name, count in row["cells"].items()}
            if "mhz" in row:
                texts |= {"MHz": f"{row['mhz']:.2f}", "elements/s": f"{row['lanes'] * row['mhz']:,.0f} M"}
            results.row(summary["of"], f"{row['lanes']} lanes", texts)
