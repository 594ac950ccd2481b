"""Random damage to everything that is read: the only ends are a result, or a message that a person can read.

``docs/testing.md`` says what is changed. Usage: ``python tests/fuzzing.py --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Seconds without an answer after which a worker is ended; it has its own limit of computing.
_SILENCE = 120.0


@dataclass(frozen=True)
class Finding:
    """A case that ended in another way: its numbers, and what happened."""

    target: str
    seed: int
    number: int
    text: str

    def __str__(self) -> str:
        again = f'make fuzz ARGS="--target {self.target} --seed {self.seed} --first {self.number} --cases 1"'
        return f"{self.target} {self.number}: {self.text.rstrip()}\n  again: {again}"


@dataclass
class Tally:
    """What came of the cases of a target."""

    cases: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


class Worker:
    """A process that runs cases; one that ends is replaced."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._root = ""

    def run(self, target: str, seed: int, number: int, seconds: float, keep: str) -> tuple[str, str]:
        """Kind and text of the end of a case."""
        if self._process is None:
            self._root = tempfile.mkdtemp(prefix="concord-fuzz-")
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--worker", self._root], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env=os.environ | threads, cwd=ROOT,
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        words = {"target": target, "seed": seed, "number": number, "seconds": seconds, "keep": keep}
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _SILENCE)
        if ready and (line := process.stdout.readline()):
            answer = json.loads(line)
            return answer["kind"], answer["text"]
        if not ready:
            process.kill()
        status = process.wait()
        self.close()
        return "finding", f"no answer within {_SILENCE:g} s" if not ready else f"the process ended with status {status}"

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None
            shutil.rmtree(self._root, ignore_errors=True)


def fuzz(
    targets: Sequence[str],
    seed: int,
    *,
    cases: int | None = None,
    seconds: float | None = None,
    first: int = 0,
    limit: float = 10.0,
    keep: Path | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Tally], list[Finding]]:
    """Run cases of the targets in turn, so many of each, or for so long.

    Parameters
    ----------
    targets : sequence of str
        Names of :data:`fuzz.worker.TARGETS`.
    seed, first : int
        Each case depends on the seed and its number alone; numbers begin with ``first``.
    cases, seconds : int, float
        When to stop, whichever comes first.
    limit : float
        Seconds of computing for a case.
    keep : path
        Folder for the files of findings.
    show : callable
        Gets a line about how far it is.
    """
    tallies = {target: Tally() for target in targets}
    findings: list[Finding] = []
    worker, begin, number, shown = Worker(), time.monotonic(), first, 0.0
    try:
        while cases is None or number < first + cases:
            for target in targets:
                start = time.monotonic()
                if seconds is not None and start - begin > seconds:
                    return tallies, findings
                place = "" if keep is None else str((keep / f"{target}-{seed}-{number}").absolute())
                kind, text = worker.run(target, seed, number, limit, place)
                tally = tallies[target]
                tally.cases += 1
                tally.ends[kind] += 1
                tally.slowest = max(tally.slowest, time.monotonic() - start)
                if kind == "finding":
                    findings.append(Finding(target, seed, number, text))
                    show(str(findings[-1]))
                if time.monotonic() - shown > 5:
                    shown = time.monotonic()
                    done = sum(tally.cases for tally in tallies.values())
                    show(f"[{shown - begin:4.0f} s] {done} cases, {len(findings)} findings")
            number += 1
    finally:
        worker.close()
    return tallies, findings


def table(tallies: dict[str, Tally]) -> str:
    """A line for every target, and one for all."""
    lines = [f"{'target':12}{'cases':>8}{'results':>9}{'messages':>10}{'findings':>10}{'slowest':>9}"]
    for name, tally in tallies.items():
        ends = "".join(
            f"{tally.ends[kind]:>{width}}" for kind, width in (("result", 9), ("message", 10), ("finding", 10))
        )
        lines.append(f"{name:12}{tally.cases:>8}{ends}{tally.slowest:>7.1f} s")
    return "\n".join([*lines, f"{'all':12}{sum(tally.cases for tally in tallies.values()):>8}"])


def main() -> int:
    """Exit status 1 if there are findings."""
    if sys.argv[1:2] == ["--worker"]:
        from support.fuzz.worker import work

        work(Path(sys.argv[2]))
        return 0
    from support.fuzz.worker import GENERATED, PLANTED, TARGETS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--target", action="append", choices=[*TARGETS, GENERATED, PLANTED], help="repeatable; default: all"
    )
    parser.add_argument("--seconds", type=float, help="when to stop; default: 60, unless --cases is given")
    parser.add_argument("--cases", type=int, help="cases of each target")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    if GENERATED in (options.target or ()) and find_spec("nnsmith") is None:
        parser.error("nnsmith is not installed; pip install nnsmith and the extra torch")
    keep = ROOT / "build" / "fuzz"
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    seconds = options.seconds if options.seconds or options.cases else 60.0
    tallies, findings = fuzz(
        options.target or list(TARGETS), options.seed, cases=options.cases, seconds=seconds, first=options.first,
        keep=keep, show=lambda line: print(line, flush=True),
    )  # fmt: skip
    print(table(tallies))
    if findings:
        print(f"\n{len(findings)} findings, their files are in {keep}")
        print("\n\n".join(map(str, findings)))
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
