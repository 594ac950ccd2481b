"""A property of a unit, how it is proven, and changes of the unit for which the proof must fail."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from .bench import Bench
from .mutant import Change, changed
from .tools import TACTIC, Answer, check_model, refute, translate

#: Names of units are looked up while a design is made, so only one is made at a time.
_MAKING = threading.Lock()


class Result(StrEnum):
    """What came of a proof. Only the first two are good."""

    PROVEN = "proven"  # for runs of any length, and all inputs
    BOUNDED = "bounded"  # for all runs up to a length
    FAILED = "failed"
    EMPTY = "empty"  # what should be reachable is not: the environment allows nothing
    OPEN = "no answer"  # not within the time


@dataclass(frozen=True)
class Outcome:
    """Result of one proof: how far it went, what it took, and what the tools said if it did not end well."""

    result: Result
    method: str
    seconds: float
    text: str = ""

    @property
    def good(self) -> bool:
        return self.result in (Result.PROVEN, Result.BOUNDED)


class Proof(Protocol):
    """What all proofs have in common."""

    unit: str
    text: str
    fast: bool
    changes: tuple[Change, ...]

    def run(self, *, depth: int | None = None, seconds: float | None = None, change: Change | None = None) -> Outcome:
        """Try it, on the unit as it is or after a change."""
        ...


@dataclass(frozen=True)
class Sequential:
    """Assertions about a unit with state.

    Parameters
    ----------
    unit, text : str
        What it is about, and what must hold, for people.
    build : callable
        Makes the bench.
    depth : int
        Cycles from reset in which nothing may fail.
    steps : int
        Try induction with up to this many cycles before; 0: do not.
    reach : int
        Cycles within which everything that should be reachable is reached.
    fast : bool
        Part of every run of the tests.
    changes : tuple of Change
        Slips that the assertions must notice.
    """

    unit: str
    text: str
    build: Callable[[], Bench]
    depth: int
    steps: int = 0
    reach: int = 0
    fast: bool = False
    changes: tuple[Change, ...] = ()

    def run(self, *, depth: int | None = None, seconds: float | None = None, change: Change | None = None) -> Outcome:
        begin = time.monotonic()
        depth = max(depth or self.depth, self.steps)
        with tempfile.TemporaryDirectory(prefix="concord-formal-") as name:
            folder = Path(name)
            with _MAKING, changed(change):
                bench = self.build()
                rtlil = bench.rtlil()
            smt2 = translate("bench", rtlil, folder)
            result, method, text = self._check(smt2, bench.reached, depth, seconds, change)
        return Outcome(result, method, time.monotonic() - begin, text)

    def _check(
        self, smt2: Path, reached: int, depth: int, seconds: float | None, change: Change | None
    ) -> tuple[Result, str, str]:
        bounded = f"{depth} cycles"
        base = check_model(smt2, ["-t", str(depth)], seconds)
        if not base.holds:
            return _bad(base), bounded, base.text
        if not reached:
            raise ValueError(f"the bench of {self.unit} must have something to reach")
        if not change:
            cover = check_model(smt2, ["-c", "-t", str(self.reach or depth)], seconds)
            if not cover.holds:
                return Result.EMPTY if cover.holds is False else Result.OPEN, bounded, cover.text
        if not self.steps:
            return Result.BOUNDED, bounded, ""
        step = check_model(smt2, ["-i", "-t", str(self.steps)], seconds)
        if not step.holds:
            return (Result.FAILED if step.holds is False else Result.OPEN), f"induction, {self.steps} cycles", step.text
        used = self.steps - min(int(found) for found in re.findall(r"induction in step (\d+)", step.text))
        return Result.PROVEN, f"induction, {used}; {bounded}", ""


def _bad(answer: Answer) -> Result:
    return Result.OPEN if answer.holds is None else Result.FAILED


@dataclass(frozen=True)
class Function:
    """A pipeline without state of its own against a definition of its result.

    Parameters
    ----------
    unit, text : str
        What it is about, and what must hold, for people.
    rtlil : callable
        The unit for Yosys, as module ``top``.
    latency : int
        Cycles from inputs to outputs. What comes before and after is free.
    definition : str
        SMT-LIB commands that assert that something is wrong, in terms of ``(in name)`` and ``(out name)``.
    cases : tuple of str
        Conditions that divide the inputs; that they leave none out is checked, too.
    held : tuple of str
        Inputs that keep their values until the result is there.
    fast, changes
        As in :class:`Sequential`.
    """

    unit: str
    text: str
    rtlil: Callable[[], str]
    latency: int
    definition: str
    cases: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    fast: bool = False
    changes: tuple[Change, ...] = ()

    def run(self, *, depth: int | None = None, seconds: float | None = None, change: Change | None = None) -> Outcome:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="concord-formal-") as name:
            folder = Path(name)
            with _MAKING, changed(change):
                rtlil = self.rtlil()
            model = translate("unit", rtlil, folder, bits=True).read_text()
            answer = refute(self._script(model), folder, seconds)
        method = f"all inputs, {len(self.cases)} cases" if self.cases else "all inputs"
        return Outcome(Result.PROVEN if answer.holds else _bad(answer), method, time.monotonic() - begin, answer.text)

    def _script(self, model: str) -> str:
        """Asks once, or once for each case and once whether any input belongs to none."""
        states = "".join(f"(declare-fun s{k} () |top_s|)\n" for k in range(self.latency + 1))
        moves = "".join(f"(assert (|top_t| s{k} s{k + 1}))\n" for k in range(self.latency))
        keeps = "".join(
            f"(assert (= (|top_n {name}| s{k}) (|top_n {name}| s{k + 1})))\n"
            for name in self.held
            for k in range(self.latency)
        )
        common = model.split("; end of yosys output")[0] + states + moves + keeps
        check = f"(check-sat-using {TACTIC})\n"
        if not self.cases:
            return common + self._terms(self.definition) + check
        none = "(and " + " ".join(f"(not {case})" for case in self.cases) + ")"
        asked = "".join(f"(push)\n(assert {self._terms(case)})\n{check}(pop)\n" for case in (*self.cases, none))
        return common + self._terms(self.definition) + asked

    def _terms(self, text: str) -> str:
        text = re.sub(r"\(in (\w+)\)", r"(|top_n \1| s0)", text)
        return re.sub(r"\(out (\w+)\)", rf"(|top_n \1| s{self.latency})", text) + "\n"
