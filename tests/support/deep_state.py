"""What deep tests came to: kept between runs, put together from several machines, and noted in ``tests/deep.toml``."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from importlib import metadata
from pathlib import Path

from concord.utils.files import write_text
from support.imports import NOWHERE

#: Where the last complete run is noted.
NOTE = "tests/deep.toml"


@dataclass(frozen=True)
class Outcome:
    """What came of a test.

    Parameters
    ----------
    result : str
        ``passed``, ``failed`` or ``skipped``.
    seconds, computing : float
        On the clock, and of processors.
    reason : str
        Why it failed, where the test itself does not say so.
    """

    result: str
    seconds: float = 0.0
    computing: float = 0.0
    reason: str = ""

    @property
    def good(self) -> bool:
        """Whether there is nothing to run again."""
        return self.result != "failed"


@dataclass
class State:
    """Outcomes for one state of the sources.

    Parameters
    ----------
    key : str
        Of the sources and of what is installed.
    commit : str
        Which these sources are; empty if they are none.
    collected : list of str
        All deep tests; empty as long as they are not known.
    outcomes : dict of str to Outcome
        By test.
    seconds : dict of str to float
        What tests last took, also with other sources.
    """

    key: str
    commit: str
    collected: list[str] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> State:
        """The state that :meth:`write` wrote."""
        facts = json.loads(path.read_text(encoding="utf-8"))
        outcomes = {test: Outcome(**record) for test, record in facts.pop("outcomes").items()}
        return cls(outcomes=outcomes, **facts)

    @classmethod
    def continued(cls, path: Path, key: str, commit: str) -> State:
        """What is known of the sources as they are; of other sources, what their tests took."""
        if not path.exists():
            return cls(key, commit)
        state = cls.read(path)
        return replace(state, commit=commit) if state.key == key else cls(key, commit, seconds=state.seconds)

    def write(self, path: Path) -> None:
        """Keep it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asdict(self)))

    def add(self, outcomes: Mapping[str, Outcome]) -> None:
        """Note what came of tests."""
        self.outcomes |= outcomes
        self.seconds |= {test: outcome.seconds for test, outcome in outcomes.items() if outcome.result == "passed"}

    def missing(self, tests: Iterable[str]) -> list[str]:
        """Tests that have to run: they failed, or were not run."""
        return [test for test in tests if test not in self.outcomes or not self.outcomes[test].good]

    @property
    def complete(self) -> bool:
        """Whether all deep tests of a commit have passed, or cannot run."""
        return bool(self.commit and self.collected) and not self.missing(self.collected)


def combined(states: Iterable[State]) -> State:
    """What several machines came to; ``ValueError`` unless they had the same commit and the same tests."""
    first, *others = states
    whole = State(first.key, first.commit, first.collected, dict(first.outcomes))
    for state in others:
        if state.commit != whole.commit:
            raise ValueError(f"commit must be {whole.commit or 'none'} in all files, not {state.commit or 'none'}")
        if state.collected != whole.collected:
            raise ValueError(f"files must have the same tests, not {len(whole.collected)} and {len(state.collected)}")
        for test, outcome in state.outcomes.items():
            if test not in whole.outcomes or whole.outcomes[test].good:
                whole.outcomes[test] = outcome
    return whole


@dataclass(frozen=True)
class Note:
    """The last complete run.

    Parameters
    ----------
    commit : str
        What ran; empty if nothing did.
    files : dict of str to tuple of int and float
        By file with deep tests, their number and their seconds on the clock.
    """

    commit: str = ""
    files: dict[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Note:
        """The note in a file, or one of nothing."""
        if not path.exists():
            return cls()
        text = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(text["commit"], {file: (count, seconds) for file, (count, seconds) in text["files"].items()})


def write_note(path: Path, state: State, today: date) -> None:
    """Note a complete run."""
    files: dict[str, list[Outcome]] = {}
    for test in state.collected:
        files.setdefault(test.partition("::")[0], []).append(state.outcomes[test])
    everything = [outcome for outcomes in files.values() for outcome in outcomes]
    lines = [
        "# The last complete run of the deep tests; written by `make test-deep` (docs/testing.md).",
        f'commit = "{state.commit}"',
        f"date = {today.isoformat()}",
        f"passed = {sum(outcome.result == 'passed' for outcome in everything)}",
        f"skipped = {sum(outcome.result == 'skipped' for outcome in everything)}",
        f"computing = {sum(outcome.computing for outcome in everything):.0f}",
        "",
        "# Number of tests, and seconds on the clock.",
        "[files]",
    ]
    for file, outcomes in sorted(files.items()):
        lines.append(f'"{file}" = [{len(outcomes)}, {sum(outcome.seconds for outcome in outcomes):.1f}]')
    write_text(path, "\n".join(lines) + "\n")


class Repository:
    """What git says of the project.

    Parameters
    ----------
    root : Path
        Of the project.
    """

    def __init__(self, root: Path):
        self._root = root

    def _git(self, *words: str, check: bool = True) -> str:
        command = ["git", *words]
        return subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=check).stdout

    def _paths(self, *words: str) -> list[str]:
        return [path for path in self._git(words[0], "-z", *words[1:]).split("\0") if path]

    def commit(self) -> str:
        """The commit that the sources are; empty if something is not committed, but where runs are noted."""
        changed = self._git("status", "--porcelain", "--", ".", f":(exclude){NOTE}")
        return "" if changed else self._git("rev-parse", "HEAD").strip()

    def has(self, commit: str) -> bool:
        """Whether a commit is in what was fetched of the history."""
        return self._git("cat-file", "-t", commit, check=False).strip() == "commit"

    def changed(self, commit: str) -> list[str]:
        """Files that differ from those of a commit."""
        others = self._paths("ls-files", "--others", "--exclude-standard")
        return sorted({*self._paths("diff", "--name-only", "--no-renames", commit, "--"), *others})

    def key(self) -> str:
        """Of all that tests depend on: the files, Python, and the packages that are installed."""
        digest = hashlib.sha256(sys.version.encode())
        digest.update(repr(sorted({(each.name, each.version) for each in metadata.distributions()})).encode())
        for name in sorted(self._paths("ls-files", "--cached", "--others", "--exclude-standard")):
            path = self._root / name
            if name not in NOWHERE and path.is_file():
                digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()
