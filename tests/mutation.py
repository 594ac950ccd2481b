"""Changes of one line that tests must notice: each is made in a copy of the sources, and its tests run there.

The lists are ``mutants/*.toml``, or changes are drawn at random among the lines that changed since a commit;
``docs/testing.md`` says more. Usage: ``python tests/mutation.py --help``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

from support.imports import Sources
from support.nearest_tests import Stage, stages
from support.random_mutants import changed_lines, draw

ROOT = Path(__file__).resolve().parents[1]
LISTS = Path(__file__).with_name("mutants")
#: Folders with packages.
PACKAGES = ("sw", "hw", "constraints", "bench")
#: What a copy needs to run tests.
COPIED = (
    *PACKAGES, "tests", "sim", "docs", "examples", ".ci", ".github", "pyproject.toml", "Makefile", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
)  # fmt: skip
#: Seconds that tests get, and how many times as long as without the change.
_TIMEOUT, _LONGER = 90.0, 10.0
#: Sources that random changes are drawn from unless others are named; most numbers of benches are choices.
DRAWN = ("sw/", "hw/", "constraints/")
#: List of the random changes that have no effect.
RANDOM = "random"


class Outcome(StrEnum):
    """What came of a mutant."""

    NOTICED = "noticed"
    TIMEOUT = "timeout"  # noticed, too: the tests did not end
    SURVIVED = "survived"
    INVALID = "invalid"  # tests could not even be collected, or fail without the change


@dataclass(frozen=True)
class Mutant:
    """A change.

    Parameters
    ----------
    area : str
        Name of the list it is in.
    file : str
        Source file, from the root of the project.
    old, new : str
        Text that occurs once in the file, and what takes its place.
    tests : tuple of str
        Node ids of pytest; at least one of these tests must fail.
    fast : bool
        Whether these tests take a few seconds at most.
    equivalent : str
        Why the change has no effect; such a mutant has no tests and is not run.
    needs : str
        A module that the tests need; where it is not installed, the mutant is not run.
    """

    area: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    fast: bool = False
    equivalent: str = ""
    needs: str = ""

    @property
    def possible(self) -> bool:
        """Whether the tests can run here."""
        return not self.needs or find_spec(self.needs) is not None

    def apply(self, text: str) -> str:
        """The changed text; ``ValueError`` unless ``old`` is in ``text`` exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"old text of a mutant must occur once in {self.file}, not {count} times: {self.old!r}")
        return text.replace(self.old, self.new)

    def line(self, root: Path = ROOT) -> int:
        """Number of the first line that changes."""
        text = (root / self.file).read_text()
        same = next((k for k, (a, b) in enumerate(zip(self.old, self.new, strict=False)) if a != b), 0)
        return text[: text.index(self.old) + same].count("\n") + 1

    def describe(self, root: Path = ROOT) -> str:
        """Place and change on one line."""
        show = [re.sub(r"\s+", " ", part.strip()) for part in (self.old, self.new)]
        return f"{self.file}:{self.line(root)}: {show[0]} -> {show[1] or '(nothing)'}"

    def key(self, root: Path = ROOT) -> str:
        """Hash of the change, the file it is made in and the tests' files."""
        *change, _ = astuple(self)  # what is installed decides nothing
        digest = hashlib.sha256(repr(tuple(change)).encode())
        for name in [self.file, *sorted({test.partition("::")[0] for test in self.tests})]:
            digest.update((root / name).read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Result:
    """Outcome of a mutant, and the seconds it took."""

    mutant: Mutant
    outcome: Outcome
    seconds: float


def load(lists: Path = LISTS) -> list[Mutant]:
    """All mutants, list by list."""
    found = []
    for path in sorted(lists.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            entry["tests"] = tuple(entry.get("tests", ()))
            found.append(Mutant(path.stem, **entry))
    return found


def choose(mutants: list[Mutant], only: str = "", seed: int | None = None, count: int | None = None) -> list[Mutant]:
    """Those of a list or with a text in their path, or a sample of ``count`` of them, in the order of the lists.

    Without those that have no effect, and those whose tests cannot run here.
    """
    named = only in {m.area for m in mutants}
    chosen = [m for m in mutants if not m.equivalent and m.possible and (m.area == only if named else only in m.file)]
    if count is not None and count < len(chosen):
        places = sorted(random.Random(seed).sample(range(len(chosen)), count))
        chosen = [chosen[k] for k in places]
    return chosen


class Copy:
    """A copy of the sources in which tests run.

    Compiled modules are kept from runs without a change only: a changed file never has a time at which one was made.
    """

    def __init__(self, folder: Path, root: Path = ROOT):
        self.folder = folder
        for name in COPIED:
            if (root / name).is_dir():
                skipped = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.egg-info")
                shutil.copytree(root / name, folder / name, ignore=skipped)
            elif (root / name).exists():
                shutil.copy2(root / name, folder / name)
        self._changes = 0
        self._passing: set[str] = set()  # tests that are known to pass without a change

    def compile(self) -> None:
        """Compile all packages, so that runs with a change find them compiled."""
        folders = [str(self.folder / name) for name in (*PACKAGES, "tests/support")]
        there = [folder for folder in folders if Path(folder).is_dir()]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *there], check=True)

    def passes(self, tests: list[str]) -> bool:
        """Whether tests pass without a change."""
        if not self._passing.issuperset(tests) and self.test(tests, 20 * _TIMEOUT, changed=False) == 0:
            self._passing.update(tests)
        return self._passing.issuperset(tests)

    def test(
        self,
        tests: list[str],
        timeout: float,
        *,
        changed: bool,
        computing: float | None = None,
        more: tuple[str, ...] = (),
    ) -> int | None:
        """Exit status of pytest up to the first failure; ``None`` if it did not end in time.

        ``computing`` limits the processor seconds of a process, ``more`` are options of pytest.
        """
        path = os.pathsep.join(str(self.folder / name) for name in PACKAGES)
        own = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        env = {**os.environ, **own, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        env.pop("PYTEST_ADDOPTS", None)
        if changed:
            env["PYTHONDONTWRITEBYTECODE"] = "1"
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        options = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
        with open(self.folder / "log", "w+", encoding="utf-8") as log:
            command = [sys.executable, "-m", "pytest", *options, *more, *tests]
            process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            if computing is not None:
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (int(computing), int(computing) + 1))
            try:
                status = process.wait(timeout)
                return None if status in (-signal.SIGXCPU, -signal.SIGKILL) else status
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()

    def log(self) -> str:
        """What pytest said at last."""
        return (self.folder / "log").read_text()

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """With a change made, which is taken back."""
        path = self.folder / mutant.file
        text, times = path.read_text(), path.stat()
        self._changes += 1
        try:
            path.write_text(mutant.apply(text))
            os.utime(path, (times.st_atime, times.st_mtime + 10 * self._changes))
            yield
        finally:
            path.write_text(text)
            os.utime(path, (times.st_atime, times.st_mtime))

    def run(self, mutant: Mutant, timeout: float) -> Outcome:
        """Make the change, run its tests, and take the change back."""
        with self.changed(mutant):
            status = self.test(list(mutant.tests), timeout, changed=True)
        if status is None:
            return Outcome.TIMEOUT
        return {0: Outcome.SURVIVED, 1: Outcome.NOTICED}.get(status, Outcome.INVALID)

    def run_stages(self, mutant: Mutant, planned: list[Stage]) -> tuple[Outcome, str]:
        """Make the change, run tests in stages until one fails, and take the change back; also what failed.

        A test that fails without the change, too, proves nothing, and neither does a file that cannot be collected.
        """
        sound = False
        for stage in planned:
            left: list[str] = []
            files = list(stage.files)
            while files:
                limit = ("--computing", str(stage.seconds), "-m", stage.marks)
                options = (*limit, *(f"--deselect={name}" for name in left))
                seconds = 3 * stage.seconds + 60
                with self.changed(mutant):
                    status = self.test(files, 20 * seconds, changed=True, computing=seconds, more=options)
                if status in (0, 5):
                    sound = True
                    break
                if status is None:
                    return Outcome.TIMEOUT, ""
                culprits = re.findall(r"^(?:FAILED|ERROR) (\S+)", self.log(), re.M)
                if not culprits:  # such as an error of a plugin
                    collects = self.test(["--collect-only", *files], 20 * _TIMEOUT, changed=False) == 0
                    return Outcome.NOTICED if collects else Outcome.INVALID, ""
                if self.passes(culprits):
                    return Outcome.NOTICED, culprits[0]
                files = [name for name in files if name not in culprits]
                left += culprits
        return Outcome.SURVIVED if sound else Outcome.INVALID, ""


def _files(mutants: list[Mutant]) -> dict[str, list[str]]:
    """Tests by file."""
    found: dict[str, dict[str, None]] = {}
    for mutant in mutants:
        for test in mutant.tests:
            found.setdefault(test.partition("::")[0], {})[test] = None
    return {file: list(tests) for file, tests in found.items()}


def _known(results: Path | None) -> dict[str, str]:
    """Outcomes by key that earlier runs have left."""
    return json.loads(results.read_text()) if results is not None and results.exists() else {}


def run(mutants: list[Mutant], *, jobs: int = 1, results: Path | None = None, root: Path = ROOT, say=print):
    """Outcomes of mutants.

    Tests run without a change first; those that fail there make their mutants ``INVALID``.

    Parameters
    ----------
    mutants : list of Mutant
        None of them equivalent.
    jobs : int
        Mutants at a time.
    results : Path, optional
        File with what was noticed in earlier runs, which is not run again; what is noticed is added.
    say : callable
        Takes lines of progress.

    Returns
    -------
    list of Result
        One for each.
    """
    known = _known(results)
    keys = {mutant: mutant.key(root) for mutant in mutants}
    texts = {mutant: mutant.describe(root) for mutant in mutants}  # sources may be edited meanwhile
    untried = [mutant for mutant in mutants if keys[mutant] not in known]
    done = [Result(m, Outcome(known[keys[m]]), 0.0) for m in mutants if keys[m] in known]
    if done:
        say(f"{len(done)} of {len(mutants)} were noticed before")
    files = _files(untried)
    number = 0

    def note(text):
        nonlocal number
        number += 1
        say(f"[{number}/{len(files) + len(untried)}] {text}")

    with tempfile.TemporaryDirectory(prefix="concord-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for k in range(min(jobs, max(1, len(untried)))):
            copies.put(Copy(Path(folder) / str(k), root))

        def plain(file):
            copy, start = copies.get(), time.monotonic()
            try:
                status = copy.test(files[file], 20 * _TIMEOUT, changed=False)
                seconds, log = time.monotonic() - start, copy.log()
            finally:
                copies.put(copy)
            note(f"{file} {'passes' if status == 0 else 'fails'} without a change, {seconds:.1f} s")
            if status != 0:
                say(log)
            return seconds if status == 0 else None

        def changed(mutant, taken):
            copy, start = copies.get(), time.monotonic()
            try:
                outcome = Outcome.INVALID
                if None not in taken:
                    outcome = copy.run(mutant, _TIMEOUT + _LONGER * sum(taken))
                if outcome is Outcome.INVALID:
                    say(copy.log())
            finally:
                copies.put(copy)
            seconds = time.monotonic() - start
            note(f"{outcome}, {seconds:.1f} s: {texts[mutant]}")
            return Result(mutant, outcome, seconds)

        seconds = dict(zip(files, pool.map(plain, files), strict=True))
        pending = [pool.submit(changed, mutant, [seconds[file] for file in _files([mutant])]) for mutant in untried]
        for future in pending:
            result = future.result()
            done.append(result)
            if results and result.outcome in (Outcome.NOTICED, Outcome.TIMEOUT):
                known = _known(results) | {keys[result.mutant]: str(result.outcome)}  # others may have written, too
                results.parent.mkdir(parents=True, exist_ok=True)
                results.write_text(json.dumps(known, indent=1))
    return done


def _installed(text: str) -> bool:
    """Whether all that a source imports, in functions, too, is installed."""
    roots = re.findall(r"^ *(?:from|import) ([a-z]\w*)", text, re.M)
    return all(find_spec(name) is not None for name in set(roots))


def random_mutants(since: str, count: int, seed: int, *, only: str = "", root: Path = ROOT) -> list[Mutant]:
    """Random changes of lines that changed since a commit.

    Not of sources that import what is not installed, as their tests are skipped.

    Parameters
    ----------
    since : str
        A commit, branch or tag.
    count : int
        As many, or fewer if there are not as many lines.
    seed : int
        The same sources and seed draw the same changes.
    only : str
        Part of the path of sources.
    """
    lines = changed_lines(since, root, [name for name in PACKAGES if (root / name).is_dir()])
    wanted = {
        file: numbers
        for file, numbers in lines.items()
        if (only in file if only else file.startswith(DRAWN)) and _installed((root / file).read_text())
    }
    return [Mutant(RANDOM, file, old, new) for file, old, new in draw(wanted, root, count, seed)]


def without_effect(mutant: Mutant, listed: list[Mutant], root: Path = ROOT) -> bool:
    """Whether a list says why a change has no effect."""
    text = (root / mutant.file).read_text()
    return any(m.apply(text) == mutant.apply(text) for m in listed if m.file == mutant.file and m.equivalent)


def run_random(mutants: list[Mutant], *, results: Path | None = None, root: Path = ROOT, say=print):
    """Outcomes of random changes, one after the other, as those of :func:`run`; each is noticed by any test."""
    known, done, sources = _known(results), [], Sources(root)
    with tempfile.TemporaryDirectory(prefix="concord-mutants-") as folder:
        copy = Copy(Path(folder) / "0", root)
        copy.compile()
        for number, mutant in enumerate(mutants, 1):
            start, by = time.monotonic(), ""
            planned = stages(mutant.file, sources, root)
            files = dict.fromkeys(name for stage in planned for name in stage.files)
            keys = {name: replace(mutant, tests=(name,)).key(root) for name in files}
            before = [known[key] for key in keys.values() if key in known]
            if before:
                outcome = Outcome(before[0])
            else:
                outcome, by = copy.run_stages(mutant, planned)
                key = keys.get(by.partition("::")[0])
                if results and key and outcome is Outcome.NOTICED:
                    known = _known(results) | {key: str(outcome)}
                    results.parent.mkdir(parents=True, exist_ok=True)
                    results.write_text(json.dumps(known, indent=1))
            seconds = time.monotonic() - start
            say(f"[{number}/{len(mutants)}] {outcome}, {seconds:.1f} s: {mutant.describe(root)}{by and f'  ({by})'}")
            done.append(Result(mutant, outcome, seconds))
    return done


def entry(mutant: Mutant) -> str:
    """A change as an entry of a list, to be completed with why it has no effect."""
    quoted = [json.dumps(text, ensure_ascii=False) for text in (mutant.file, mutant.old, mutant.new)]
    return '[[mutant]]\nfile = {}\nold = {}\nnew = {}\nequivalent = ""\n'.format(*quoted)


def summarise_random(found: list[Result], without: int) -> int:
    """Print counts, ``without`` being of those without effect, and what was not noticed; returns the exit status."""
    left = [result.mutant for result in found if result.outcome in (Outcome.SURVIVED, Outcome.INVALID)]
    if left:
        print(f"\nsurvived; a test is missing, or an entry of tests/mutants/{RANDOM}.toml that says why not:\n")
        print("\n".join(map(entry, left)))
    good, count = len(found) - len(left), len(found) + without
    share = 100 * (good + without) / max(1, count)
    print(f"{good} of {count} noticed, {without} without effect ({share:.0f} %)")
    return 1 if left else 0


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status, 1 unless all were noticed."""
    parser = argparse.ArgumentParser(description="Make changes of one line that tests must notice.")
    parser.add_argument("--only", default="", metavar="TEXT", help="those of the list TEXT, or with TEXT in their path")
    parser.add_argument("--count", type=int, help="a sample of so many")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time (default: 1)")
    parser.add_argument("--again", action="store_true", help="also what was noticed before, with the same files")
    parser.add_argument("--lists", type=Path, default=LISTS, metavar="FOLDER", help="other lists than the project's")
    text = "instead of the lists, random changes of as many lines"
    parser.add_argument("--random", type=int, metavar="COUNT", help=text)
    parser.add_argument("--since", default="HEAD~1", metavar="COMMIT", help="of those changed since (default: HEAD~1)")
    args = parser.parse_args(argv)
    if args.random is not None:
        return _main_random(args)
    mutants = load(args.lists)
    chosen = choose(mutants, args.only, args.seed, args.count)
    asked = [m for m in mutants if m.area == args.only or args.only in m.file]
    if asked and not any(m.possible for m in asked):
        parser.error("; ".join(missing(asked)))
    if not chosen:
        parser.error(f"--only must be one of {sorted({m.area for m in mutants})} or part of a path, not {args.only!r}")
    for line in missing(asked):
        print(line)
    results = None if args.again else ROOT / "build" / "mutants.json"
    start = time.monotonic()
    found = run(chosen, jobs=args.jobs, results=results, say=lambda line: print(line, flush=True))
    return summarise(found, mutants, time.monotonic() - start)


def _main_random(args: argparse.Namespace) -> int:
    say = partial(print, flush=True)
    chosen = random_mutants(args.since, args.random, args.seed, only=args.only)
    listed = load(args.lists)
    effective = [mutant for mutant in chosen if not without_effect(mutant, listed)]
    results = None if args.again else ROOT / "build" / "mutants.json"
    return summarise_random(run_random(effective, results=results, say=say), len(chosen) - len(effective))


def missing(mutants: list[Mutant]) -> list[str]:
    """What is not run for want of a module, a line each."""
    counts = Counter(m.needs for m in mutants if not m.possible)
    return [f"mutants not run, as tests need {name}, which is not installed: {n}" for name, n in sorted(counts.items())]


def summarise(found: list[Result], mutants: list[Mutant], seconds: float) -> int:
    """Print counts by list, and what was not noticed; returns the exit status."""
    print(f"\n{'list':12}{'run':>6}{'noticed':>9}{'survived':>10}{'invalid':>9}{'no effect':>11}")
    for area in sorted({m.area for m in mutants}):
        mine = [r.outcome for r in found if r.mutant.area == area]
        good = mine.count(Outcome.NOTICED) + mine.count(Outcome.TIMEOUT)
        none = sum(bool(m.equivalent) for m in mutants if m.area == area)
        bad = f"{mine.count(Outcome.SURVIVED):10}{mine.count(Outcome.INVALID):9}"
        print(f"{area:12}{len(mine):6}{good:9}{bad}{none:11}")
    left = [r for r in found if r.outcome in (Outcome.SURVIVED, Outcome.INVALID)]
    for result in left:
        print(f"{result.outcome}: {result.mutant.describe()}\n    {' '.join(result.mutant.tests)}")
    print(f"{len(found) - len(left)} of {len(found)} noticed in {seconds:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
