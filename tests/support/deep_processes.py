"""Processes of pytest that run chunks of deep tests, one after the other in each of some threads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from support.deep_chunks import Chunk, Expected
from support.deep_state import Outcome, State

#: Seconds that a process has to end when it is asked to.
GRACE = 20.0


@dataclass(frozen=True)
class Ended:
    """A process of tests that has ended.

    Parameters
    ----------
    status : int, optional
        Its exit status; ``None`` if it was stopped.
    records : list of dict
        What it has noted, see :class:`support.chosen_tests.OutcomeLog`.
    log : str
        What it has printed.
    """

    status: int | None
    records: list[dict]
    log: str


def settled(chunk: Chunk, ended: Ended) -> tuple[dict[str, Outcome], list[str]]:
    """What came of tests, and which are to run in another process, as this one ended before them.

    A test in which the process ended has failed, and so have all if it ended before the first one.
    """
    records = [dict(record) for record in ended.records]
    pairs = [(record.pop("test"), record) for record in records]
    outcomes = {test: Outcome(**record) for test, record in pairs if record}
    if ended.status is None:
        return outcomes, []
    crash = Outcome("failed", reason=f"the process ended with the status {ended.status}")
    outcomes |= {test: crash for test, _ in pairs if test not in outcomes}
    left = [test for test in chunk.tests if test not in outcomes]
    return (outcomes, left) if outcomes else (dict.fromkeys(left, crash), [])


class Processes:
    """Processes of pytest in a project, which can be stopped.

    Parameters
    ----------
    root : Path
        Of the project.
    folder : Path
        For what they are told and tell.
    """

    def __init__(self, root: Path, folder: Path):
        self._root, self._folder = root, folder
        self._lock, self._count = threading.Lock(), 0
        #: Set, all processes are asked to end, and none begins.
        self.stopped = threading.Event()

    def _number(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def _run(self, log: Path, words: Sequence[str], seconds: float) -> int | None:
        """The exit status of pytest, ``None`` if it was stopped."""
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--depth", "deep", *words]
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                command, cwd=self._root, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        end = time.monotonic() + seconds
        while not self.stopped.is_set() and time.monotonic() < end:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(min(0.2, max(0.0, end - time.monotonic())))
        process.send_signal(signal.SIGINT)  # to itself alone: what it has started is ended as the test ends
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None

    def collect(self, files: Sequence[str]) -> list[str]:
        """Deep tests in files and folders; ``RuntimeError`` if they cannot be collected."""
        ids, log = self._folder / "ids", self._folder / "collected"
        status = self._run(log, ["--collect-only", "--ids-to", str(ids), *files], float("inf"))
        if status not in (0, 5):  # 5: there are none
            raise RuntimeError("stopped" if status is None else log.read_text(encoding="utf-8"))
        return json.loads(ids.read_text(encoding="utf-8"))

    def run(self, chunk: Chunk, seconds: float) -> Ended:
        """Run the tests of a chunk, for so many seconds at most."""
        number = self._number()
        ids, outcomes, log = (self._folder / f"{name}-{number}" for name in ("ids", "outcomes", "log"))
        ids.write_text(json.dumps(chunk.tests), encoding="utf-8")
        words = ["--tb=short", "--ids-from", str(ids), "--outcomes", str(outcomes), chunk.file]
        status = self._run(log, words, seconds)
        lines = outcomes.read_text(encoding="utf-8").splitlines() if outcomes.exists() else []
        return Ended(status, [json.loads(line) for line in lines], log.read_text(encoding="utf-8"))


class Run:
    """Chunks, one after the other in each of some threads.

    Parameters
    ----------
    chunks : list of Chunk
        In the order in which they run.
    execute : callable
        Runs a chunk for some seconds at most.
    state : State
        Where outcomes are noted.
    expected : callable
        Seconds that a test is expected to take.
    left : callable
        Seconds that are left; infinity without a limit.
    note : callable
        Called after each chunk with it, what came of its tests, and how it ended; from one thread at a time.
    stopped : Event
        Whether to begin nothing new.
    """

    def __init__(
        self,
        chunks: Iterable[Chunk],
        execute: Callable[[Chunk, float], Ended],
        state: State,
        expected: Expected,
        left: Callable[[], float],
        note: Callable[[Chunk, dict[str, Outcome], Ended], None],
        stopped: threading.Event,
    ):
        self._pending = list(chunks)
        self._execute, self._state, self._expected, self._left, self._note = execute, state, expected, left, note
        self._stopped, self._lock = stopped, threading.Lock()

    def _take(self) -> Chunk | None:
        """The next chunk of which something ends in time."""
        for place, chunk in enumerate(self._pending):
            if (part := chunk.fitting(self._left(), self._expected)).tests:
                del self._pending[place]
                if rest := chunk.tests[len(part.tests) :]:
                    self._pending.insert(place, chunk.of(rest, self._expected))
                return part
        return None

    def work(self, jobs: int) -> None:
        """Run all, so many at a time."""
        threads = [threading.Thread(target=self._work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # signals are handled between two of these
                thread.join(0.2)

    def _work(self) -> None:
        """Run chunks until there are none, or none that end in time."""
        while not self._stopped.is_set():
            with self._lock:
                chunk, left = self._take(), self._left()
            if chunk is None:
                return
            ended = self._execute(chunk, left)
            outcomes, again = settled(chunk, ended)
            with self._lock:
                self._state.add(outcomes)
                if again:
                    self._pending.insert(0, chunk.of(again, self._expected))
                self._note(chunk, outcomes, ended)
