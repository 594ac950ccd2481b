"""Families of tests and what each may compute, from ``tests/budgets.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUDGETS = ROOT / "tests" / "budgets.toml"
DEPTHS = ("check", "test", "deep")


@dataclass(frozen=True)
class Family:
    """Test files that share a budget.

    Parameters
    ----------
    name : str
        Name of the family.
    files : tuple of str
        Globs of paths from the root of the project; ``*`` also stands for slashes.
    seconds : dict of str to float
        Processor seconds that the tests of each depth may take, those of shallower depths not included.
    """

    name: str
    files: tuple[str, ...]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Budgets:
    """All families.

    Parameters
    ----------
    loop : float
        Processor seconds of :func:`support.slowness.loop` on the machine on which the seconds were measured.
    families : dict of str to Family
        By name, in the order of the file: the first one with a glob for a file has it.
    """

    loop: float
    families: dict[str, Family]

    def of(self, path: str) -> Family:
        """The family of a test file; ``ValueError`` if there is none."""
        for family in self.families.values():
            if any(fnmatchcase(path, pattern) for pattern in family.files):
                return family
        raise ValueError(f"{path} must belong to a family of {BUDGETS.name}")


def load(path: Path | None = None) -> Budgets:
    """Read the budgets, those of the project if no file is named; ``ValueError`` where the file is wrong."""
    text = tomllib.loads((path or BUDGETS).read_text(encoding="utf-8"))
    families = {}
    for name, table in text["family"].items():
        files, seconds = tuple(table["files"]), {depth: table.get(depth, 0.0) for depth in DEPTHS}
        if unknown := set(table) - {"files", *DEPTHS}:
            raise ValueError(f"{name} must have files, {', '.join(DEPTHS)}, not {', '.join(sorted(unknown))}")
        families[name] = Family(name, files, seconds)
    return Budgets(text["loop"], families)


def test_files(root: Path = ROOT) -> Iterable[str]:
    """Paths of all files with tests, from the root."""
    for folder in ("tests", "sim"):
        for path in sorted((root / folder).rglob("test_*.py")):
            yield path.relative_to(root).as_posix()
