"""Everything that can be compared: networks, examples, random programs, operations; a table by pair of implementations.

Usage: ``python tests/prove_everything.py [--jobs 2] [--only operations] [--rtl 1] [--programs 60]``, or ``make prove``.
Exit status 1 if anything differs, if random programs leave something out, or if fewer values were compared than are
promised.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from concord.display.tables import text_table
from concord.host.errors import DeviceError
from concord.host.rtl import find_library
from concord.prove.machines import MACHINES
from concord_bench import tasks
from support import prove_parts as parts
from support.derive_runners import OPERATIONS
from support.small_examples import SMALL

#: Values that a whole run compares, at least.
PROMISED = 10**8
KINDS = ("networks", "examples", "random programs", "operations")
#: Random programs of a part.
_TOGETHER = 10


def everything(args, console):
    """Parts, the longest first, as functions and their arguments; says what cannot be done."""
    found = []
    if "networks" in args.only:
        if tasks.folder() is None:
            console.print("networks: not run, CONCORD_DATA does not name a folder with trained networks")
        else:
            found += [(parts.network, task.model, args.rtl) for task in reversed(tasks.TASKS)]
    backends = [name for name in OPERATIONS if name != "torch" or "torch" in parts.there()]
    if "operations" in args.only:
        found += [(parts.operation, backend, name) for backend in backends for name in OPERATIONS[backend]]
    if "random programs" in args.only:
        for name in parts.CONFIGS:
            found += [(parts.programs, name, k, k + _TOGETHER) for k in range(0, args.programs, _TOGETHER)]
    if "examples" in args.only:
        found += [(parts.example, name) for name in SMALL]
    return found


def simulations(args, console):
    """Build the simulations that parts need, one after the other; say if there is no compiler."""
    wanted = [parts.CONFIGS[name] for name in parts.ON_RTL] if "random programs" in args.only else []
    wanted += [parts.TINY] if "examples" in args.only else []
    wanted += [parts.ECP5_85F] if "networks" in args.only and args.rtl and tasks.folder() is not None else []
    for config in wanted:
        try:
            find_library(config)
        except DeviceError as error:
            console.print(f"RTL: not run, {error}")
            MACHINES.pop("rtl")
            return


def run(waiting, jobs, console):
    """Results of all parts."""
    found = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("parts", total=len(waiting))
        for future in as_completed([pool.submit(parts.timed, *part) for part in waiting]):
            one = future.result()
            found.append(one)
            progress.advance(bar)
            if not console.is_terminal and len(found) % _TOGETHER == 0:
                console.print(f"{len(found)} of {len(waiting)} parts")
            for text in one.differences:
                progress.console.print(text)
    return found


def table_of(found, console):
    """Values by pair and kind; returns how many there are, and how many differ."""
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in found)]
    pairs = sorted({pair for one in found for pair in one.counts})
    right = (*kinds, "all", "different")
    table = text_table("Values compared", ("pair", *right), right=right, whole=("pair",))
    total = wrong = 0
    for pair in pairs:
        by_kind = {kind: sum(one.counts.get(pair, (0, 0))[0] for one in found if one.kind == kind) for kind in kinds}
        different = sum(one.counts.get(pair, (0, 0))[1] for one in found)
        table.add_row(pair, *(f"{by_kind[kind]:,}" for kind in kinds), f"{sum(by_kind.values()):,}", f"{different:,}")
        total, wrong = total + sum(by_kind.values()), wrong + different
    console.print(table)
    return total, wrong


def coverage_of(found, console):
    """What random programs have covered, by configuration; whether nothing is missing."""
    complete = True
    for name in parts.CONFIGS:
        mine = sum((one.coverage for one in found if one.kind == "random programs" and one.name == name), Counter())
        if not mine:
            continue
        wanted, missing = parts.required(parts.CONFIGS[name]), parts.missing(mine, name)
        console.print(f"random programs for {name}: {len(wanted) - len(missing)} of {len(wanted)} items covered, "
                      f"the rarest {min(mine[item] for item in wanted - set(missing))} times")  # fmt: skip
        for item in missing:
            console.print(f"  not covered: {', '.join(item)}")
        complete &= not missing
    return complete


def main(argv=None):
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per processor)")
    parser.add_argument("--only", action="append", choices=KINDS, help="these alone; may be repeated")
    parser.add_argument("--rtl", type=int, default=1, help="samples of a network on the RTL (default: 1)")
    parser.add_argument("--programs", type=int, default=60, help="random programs by configuration (default: 60)")
    args = parser.parse_args(argv)
    whole = args.only is None
    args.only = args.only or list(KINDS)
    console, begin = Console(width=140, markup=False, highlight=False), time.monotonic()
    simulations(args, console)
    found = run(everything(args, console), args.jobs, console)
    total, wrong = table_of(found, console)
    complete = coverage_of(found, console)
    reasons = Counter(text.partition(": ")[2] for one in found for text in one.left_out)
    for text, count in sorted(reasons.items()):
        console.print(f"left out {count} times: {text}")
    if "torch" not in parts.there():
        console.print("PyTorch: not run, torch is not installed; try: make torch")
    for one in found:
        for text in one.differences:
            console.print(text)
    console.print(f"{total:,} values compared, {wrong:,} different, {time.monotonic() - begin:.0f} s")
    if whole and tasks.folder() is not None and total < PROMISED:
        console.print(f"fewer values than the {PROMISED:,} that are promised")
        return 1
    return int(wrong > 0 or not complete)


if __name__ == "__main__":
    sys.exit(main())
