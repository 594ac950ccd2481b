"""Proofs about the RTL and about rewrite rules of graphs: statements for all inputs, checked by a solver.

``docs/formal.md`` says what is proven and how far. Usage: ``python tests/proving.py --help``.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from support.formal.catalogue import PROOFS
from support.formal.proof import Outcome, Proof, Result

_COLUMNS = (32, 94, 24, 11)


@dataclass(frozen=True)
class Line:
    """A proof, or one of its changes that must be noticed, and what came of it."""

    index: int
    change: int | None
    outcome: Outcome
    computing: float  # seconds of the tools

    @property
    def good(self) -> bool:
        return self.outcome.good if self.change is None else self.outcome.result is Result.FAILED

    def __str__(self) -> str:
        proof = PROOFS[self.index]
        if self.change is None:
            words = (proof.unit, proof.text, self.outcome.method, self.outcome.result)
        else:
            result = "noticed" if self.good else "NOT NOTICED"
            words = ("", f"  after {proof.changes[self.change]}", "", result)
        cut = (
            word if len(word) <= width else word[: width - 1] + "…" for word, width in zip(words, _COLUMNS, strict=True)
        )
        line = "".join(f"{word:<{width}}" for word, width in zip(cut, (w + 2 for w in _COLUMNS), strict=True))
        return f"{line}{self.computing:>7.1f} s"


def attempt(index: int, change: int | None, depth: int | None, seconds: float | None) -> Line:
    """Try one proof of the catalogue, or the same on a unit with one of its changes."""
    proof: Proof = PROOFS[index]
    before = _computing()
    outcome = proof.run(depth=depth, seconds=seconds, change=None if change is None else proof.changes[change])
    return Line(index, change, outcome, _computing() - before)


def _computing() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def choose(only: str = "", *, fast: bool = False) -> list[int]:
    """Proofs with ``only`` in what they are about, or those of every run of the tests."""
    return [
        k
        for k, proof in enumerate(PROOFS)
        if only.lower() in f"{proof.unit} {proof.text}".lower() and (proof.fast or not fast)
    ]


def prove(
    chosen: Sequence[int],
    *,
    depth: int | None = None,
    seconds: float | None = None,
    changes: bool = True,
    jobs: int = 2,
    say: Callable[[str], None] = print,
) -> list[Line]:
    """Try proofs and, after each that holds, its changes. Every line is told as soon as those before it are known."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        tasks = [
            pool.submit(attempt, index, change, depth, seconds)
            for index in chosen
            for change in (None, *(range(len(PROOFS[index].changes)) if changes else ()))
        ]
        lines = []
        for task in tasks:
            lines.append(task.result())
            say(str(lines[-1]))
            if lines[-1].change is None and not lines[-1].good:
                say(lines[-1].outcome.text.rstrip())
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Prove properties of the RTL and of rewrite rules for all inputs (docs/formal.md)."
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="proofs with this in unit or property")
    parser.add_argument("--depth", type=int, metavar="CYCLES", help="cycles from reset, in place of those listed")
    parser.add_argument("--seconds", type=float, metavar="N", help="end a question to the solver after this time")
    parser.add_argument("--fast", action="store_true", help="only those that are part of every run of the tests")
    parser.add_argument("--no-changes", action="store_true", help="leave out the changes that must be noticed")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="proofs at a time (2)")
    given = parser.parse_args(words)
    for name in ("depth", "seconds", "jobs"):
        value = getattr(given, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} must be greater than 0, not {value}")
    chosen = choose(given.only, fast=given.fast)
    if not chosen:
        parser.error(f"--only must be part of the unit or the property of a proof, not {given.only!r}")
    begin = time.monotonic()
    lines = prove(
        chosen, depth=given.depth, seconds=given.seconds, changes=not given.no_changes, jobs=given.jobs,
        say=lambda text: print(text, flush=True),
    )  # fmt: skip
    proofs = [line for line in lines if line.change is None]
    good = sum(line.good for line in proofs)
    noticed = sum(line.good for line in lines) - good
    print(
        f"\n{good} of {len(proofs)} properties hold, {noticed} of {len(lines) - len(proofs)} changes are noticed; "
        f"{sum(line.computing for line in lines):.0f} s of computing in {time.monotonic() - begin:.0f} s"
    )
    return 0 if all(line.good for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
