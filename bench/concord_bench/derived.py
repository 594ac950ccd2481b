"""Derived NumPy files of compiled networks against the emulator: bits and time.

``python -m concord_bench.derived FOLDER...`` derives each network, runs it on random samples, and prints a table; it
ends with status 1 if a bit differs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from concord.derive.backends.python_file import write_numpy
from concord.derive.facts import summary
from concord.derive.model import derive_package
from concord.derive.modules import module_of
from concord.host import connect
from concord.networks.folder import load_package

SAMPLES = 64
_REPEATS = 3


def measure(folder: Path, samples: int = SAMPLES) -> tuple[str, bool]:
    """A row of the table, and whether all bits are the same."""
    package = load_package(folder)
    start = time.perf_counter()
    model = derive_package(package)
    took = time.perf_counter() - start
    rng, arrangement = np.random.default_rng(0), package.arrangement
    x = {name: rng.normal(size=(samples, *arrangement.shapes[name])) for name in arrangement.inputs}
    with tempfile.TemporaryDirectory() as place, connect("emulator", package.config) as device:
        file = Path(place) / "model.py"
        write_numpy(model, file)
        lines = len(file.read_text(encoding="utf-8").splitlines())
        module = module_of(file)
        device.load(package.image)
        want, emulator = _best(lambda: package.run(device, x))
        outputs, derived = _best(lambda: module.run(x))
    same = all(np.array_equal(outputs[name].view(np.int64), want[name].view(np.int64)) for name in want)
    per_sample = f"{1e3 * emulator / samples:.2f} | {1e3 * derived / samples:.2f} | {derived / emulator:.2f}"
    row = f"| {folder.name} | {summary(model)} | {lines} | {took:.1f} | {per_sample} | {'yes' if same else 'NO'} |"
    return row, same


def _best(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result of a call, and the least of its times in seconds."""
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return result, min(times)


def main(folders: list[str]) -> int:
    """Print the table; exit status."""
    print("| network | model | lines | s to derive | ms, emulator | ms, NumPy file | ratio | same bits |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    differ = False
    for folder in folders:
        row, same = measure(Path(folder))
        print(row, flush=True)
        differ |= not same
    return int(differ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
