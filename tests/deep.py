"""The tests that are marked ``deep``: by shards, within a time, resumed where they were stopped.

Usage: ``python tests/deep.py [--minutes 30] [--shard 2/6] [--since COMMIT] ...``, or ``make test-deep ARGS=...``.
``docs/testing.md`` says what is kept, and what is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from support.deep_chunks import Chunk, Expected, in_chunks, shard_of
from support.deep_processes import Ended, Processes, Run
from support.deep_state import NOTE, Note, Outcome, Repository, State, combined, write_note
from support.families import Budgets, load
from support.imports import ROOT, SCRIPTS, Sources
from support.slowness import NAMED, loop

#: Seconds of a test of which nothing is known, at most.
UNKNOWN = 30.0
#: Of the columns of the table after the first.
WIDTHS = (7, 8, 9, 8, 9, 11, 8)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def file_of(test: str) -> str:
    """The file of a node id."""
    return test.partition("::")[0]


def expectations(tests: Sequence[str], note: Note, budgets: Budgets) -> Expected:
    """Seconds of tests by the last complete run; by the budgets of families for files that it did not have."""
    families = Counter(budgets.of(file_of(test)).name for test in tests)

    def expected(test: str) -> float:
        file = file_of(test)
        if file in note.files:
            count, seconds = note.files[file]
            return seconds / count
        family = budgets.of(file)
        return min(family.seconds["deep"] / families[family.name] or UNKNOWN, UNKNOWN)

    return expected


def reached(root: Path, repository: Repository, since: str) -> dict[str, int] | None:
    """Test files that what has changed since a commit reaches, with distances; ``None`` if that cannot be told."""
    if not since:
        say(f"{NOTE} names no complete run, so no tests can be chosen by what has changed since")
        return {}
    if not repository.has(since):
        say(f"{since} is not in the history that was fetched, so all deep tests are chosen")
        return None
    changed, sources = repository.changed(since), Sources(root)
    files = sources.reached(changed)
    many = len(sources.test_files())
    say(f"{len(changed)} files have changed since {since[:12]}, which reach {len(files)} of {many} test files")
    return files


def choose(processes: Processes, state: State, root: Path, files: Mapping[str, int] | None) -> list[str]:
    """The deep tests of some files, or all; they are collected unless they are known."""
    if files is None and not state.collected:
        state.collected = processes.collect([folder for folder in SCRIPTS if (root / folder).exists()])
    if state.collected or not files:
        return [test for test in state.collected if files is None or file_of(test) in files]
    return processes.collect(list(files))


def in_order(chunks: Iterable[Chunk], state: State, expected: Expected, distances: Mapping[str, int]) -> list[Chunk]:
    """What is to be run of chunks: first what has failed, then what is nearest to the changes, then what is short."""
    left = [chunk.of(state.missing(chunk.tests), expected) for chunk in chunks]

    def place(chunk: Chunk) -> tuple[bool, int, float, tuple[str, ...]]:
        fails = any(test in state.outcomes for test in chunk.tests)
        return not fails, distances.get(chunk.file, 0), chunk.seconds, chunk.tests

    return sorted((chunk for chunk in left if chunk.tests), key=place)


def table(tests: Iterable[str], state: State, expected: Expected, budgets: Budgets, speed: float) -> Iterator[str]:
    """What came of tests, a line for each family; then families above their budgets, what was not run, what failed."""
    families: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        families[budgets.of(file_of(test)).name].append(test)
    heads = zip(("tests", "passed", "skipped", "failed", "not run", "computing", "budget"), WIDTHS, strict=True)
    yield f"{'family':16}" + "".join(f"{head:>{width}}" for head, width in heads)
    above, left_out, failed = [], [], []
    for name, its in sorted(families.items()):
        outcomes = {test: state.outcomes[test] for test in its if test in state.outcomes}
        counts = Counter(outcome.result for outcome in outcomes.values())
        left = [test for test in its if test not in outcomes]
        computing = sum(outcome.computing for outcome in outcomes.values()) / speed
        allowed = budgets.families[name].seconds["deep"]
        numbers = (len(its), counts["passed"], counts["skipped"], counts["failed"], len(left))
        cells = [*map(str, numbers), f"{computing:.0f} s", f"{allowed:.0f} s"]
        yield f"{name:16}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
        if computing > NAMED * allowed:
            above.append(f"above its budget: {name}, with {computing:.0f} s for {allowed:.0f} s")
        if left:
            files = ", ".join(sorted({file_of(test) for test in left}))
            left_out.append(f"not run: {len(left)} of {name}, about {sum(map(expected, left)):.0f} s, in {files}")
        failed += [
            f"failed: {test}{outcome.reason and f', {outcome.reason}'}"
            for test, outcome in outcomes.items()
            if not outcome.good
        ]
    yield from [*above, *left_out, *failed]


@contextmanager
def stopping(processes: Processes) -> Iterator[list[int]]:
    """Interruptions end the processes; yields the list of those that came."""
    came: list[int] = []

    def handle(number, frame):
        came.append(number)
        processes.stopped.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def combine(paths: Sequence[Path], note: Path) -> int:
    """Put together what several machines came to, and note it if it is complete; returns the exit status."""
    state = combined(map(State.read, paths))
    missing = state.missing(state.collected)
    for test in missing:
        say(f"{'failed' if test in state.outcomes else 'not run'}: {test}")
    name, count = state.commit or "sources that are not committed", len(state.collected)
    say(f"{count - len(missing)} of {count} deep tests of {name} have passed or cannot run")
    if state.complete:
        write_note(note, state, datetime.now(UTC).date())
    return 0 if state.complete else 1


class Progress:
    """Keeps what comes of chunks, prints it, and measures how fast the machine is.

    Parameters
    ----------
    state : State
        Kept in ``path``.
    path : Path
        Of the file.
    count : int
        Of all tests that are to run.
    """

    def __init__(self, state: State, path: Path, count: int):
        self._state, self._path, self._count, self._done = state, path, count, 0
        self._loops = [loop()]

    def note(self, chunk: Chunk, outcomes: Mapping[str, Outcome], ended: Ended) -> None:
        """Take in what came of a chunk."""
        self._done += len(outcomes)
        self._loops.append(loop())
        self._state.write(self._path)
        counts = Counter(outcome.result for outcome in outcomes.values())
        words = [f"{count} {result}" for result, count in sorted(counts.items())] or ["stopped"]
        seconds = sum(outcome.seconds for outcome in outcomes.values())
        say(f"[{self._done}/{self._count}] {chunk.file}: {', '.join(words)}, {seconds:.1f} s")
        if counts["failed"]:
            say(ended.log)

    def speed(self, usual: float) -> float:
        """How many times as long as ``usual`` a loop takes."""
        return median(self._loops) / usual


def main(argv: list[str] | None = None, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> int:
    """The command line; returns the exit status: 1 if a test failed, 128 and the number of a signal that stopped it."""
    args = _parser().parse_args(argv)
    if args.combine:
        return combine(args.combine, root / NOTE)
    begin, limit = clock(), 60 * args.minutes
    repository, note, budgets = Repository(root), Note.read(root / NOTE), load(root / "tests" / "budgets.toml")
    families = args.families.split(",") if args.families else list(budgets.families)
    if unknown := sorted(set(families) - set(budgets.families)):
        raise SystemExit(f"--families must be of {', '.join(budgets.families)}, not {', '.join(unknown)}")
    state = State.continued(args.state, repository.key(), repository.commit())
    if args.again:
        state.outcomes.clear()
    since = note.commit if args.since_deep else args.since
    files = None if since is None else reached(root, repository, since)
    with tempfile.TemporaryDirectory(prefix="concord-deep-") as folder:
        processes = Processes(root, Path(folder))
        with stopping(processes) as signals:
            try:
                tests = choose(processes, state, root, files)
            except RuntimeError as error:
                say(str(error))
                return 128 + signals[0] if signals else 1
            tests = [test for test in tests if budgets.of(file_of(test)).name in families]
            usual = expectations(tests, note, budgets)
            chunks = shard_of(in_chunks(tests, usual), *args.shard)

            def expected(test: str) -> float:
                return state.seconds.get(test, usual(test))

            ordered = in_order(chunks, state, expected, files or {})
            mine, count = {test for chunk in chunks for test in chunk.tests}, sum(len(chunk.tests) for chunk in ordered)
            say(f"{len(mine)} deep tests, of which {count} are to run")
            progress = Progress(state, args.state, count)

            def left() -> float:
                return begin + limit - clock()

            run = Run(ordered, processes.run, state, expected, left, progress.note, processes.stopped)
            run.work(args.jobs)
    state.write(args.state)
    say("")
    for line in table([test for test in tests if test in mine], state, expected, budgets, progress.speed(budgets.loop)):
        say(line)
    if state.complete:
        write_note(root / NOTE, state, datetime.now(UTC).date())
        say(f"all deep tests of {state.commit} have run: see {NOTE}")
    failed = any(test in state.outcomes and not state.outcomes[test].good for test in mine)
    return 1 if failed else 128 + signals[0] if signals else 0


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    try:
        shard = int(number), int(count)
        shard_of([], *shard)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be such as 2/6, not {text!r}") from None
    return shard


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the tests that are marked deep.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that would not end by then")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="K/N", help="the K-th of N parts of all tests")
    parser.add_argument("--families", metavar="A,B", help="families of tests/budgets.toml (default: all)")
    parser.add_argument("--since", metavar="COMMIT", help="tests that changes since then reach, the nearest ones first")
    parser.add_argument("--since-deep", action="store_true", help=f"the same since the run that {NOTE} names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per processor)")
    parser.add_argument("--again", action="store_true", help="also what has passed with these sources")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "deep.json", help="what is known of tests")
    parser.add_argument(
        "--combine", type=Path, nargs="+", metavar="STATE", help=f"write {NOTE} from states of all parts"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
