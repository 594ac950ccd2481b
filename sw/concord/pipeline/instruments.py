"""Instruments of pipelines: times in a table, readable files, checks between passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from concord.display.tables import text_table
from concord.display.terminal import counted
from concord.pipeline.manager import Instrument, PassRun


class PassError(RuntimeError):
    """A pass has made something inconsistent: an error of this project, not of the network."""


class Checks(Instrument):
    """Checks what every pass makes, and stops at the first pass that breaks an invariant.

    Members
    -------
    passes : int
        Passes that have run and broken none.
    """

    def __init__(self) -> None:
        self.passes = 0

    def ran(self, run: PassRun) -> None:
        """Check what a pass has made.

        Raises
        ------
        PassError
            With the pass, the value and every invariant that does not hold.
        """
        for name, value, level in run.made():
            if problems := list(level.problems(value, run.state)):
                raise PassError(f"pass {run.done.name} must make a consistent {name}: " + "; ".join(problems))
        self.passes += 1


@dataclass(frozen=True)
class Row:
    """A line of the table: sizes as text, ``error`` if the pass was refused."""

    pipeline: str
    name: str
    seconds: float
    before: str
    after: str
    error: str = ""


@dataclass
class Timings(Instrument):
    """Times of all passes, with sizes before and after."""

    rows: list[Row] = field(default_factory=list)

    def ran(self, run: PassRun) -> None:
        """Note a pass."""
        self.rows.append(Row(run.pipeline, run.done.name, run.seconds, _size(run.before), _size(run.after)))

    def refused(self, run: PassRun, error: Exception) -> None:
        """Note a pass that was refused."""
        self.rows.append(Row(run.pipeline, run.done.name, run.seconds, _size(run.before), "refused", str(error)))

    def table(self) -> Table:
        """All passes, for a terminal; a title per pipeline."""
        right = ("ms", "before", "after")
        shown = text_table("Passes", ("pass", *right), right=right)
        last = ""
        for row in self.rows:
            if row.pipeline != last:
                shown.add_row(f"{row.pipeline}:", "", "", "")
                last = row.pipeline
            shown.add_row(f"  {row.name}", f"{1e3 * row.seconds:.1f}", row.before, row.after)
        total = sum(row.seconds for row in self.rows)
        shown.add_row("all", f"{1e3 * total:.1f}", "", "")
        return shown


class Dump(Instrument):
    """Writes what every pass makes to numbered text files in a folder; files of an earlier dump there are removed.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """

    estimates = True

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("[0-9][0-9][0-9]-*.txt"):
            old.unlink()
        (folder / "remarks.txt").unlink(missing_ok=True)
        self.folder, self.count, self._remarks = folder, 0, list[str]()
        self._last: dict[str, tuple[str, str]] = {}

    def ran(self, run: PassRun) -> None:
        """Write what a pass has made; a value that is the same as in an earlier file only names that file."""
        parts = []
        for name, value, level in run.made():
            text = "".join(f"{line}\n" for line in level.text(value))
            size = f"{name}, {level.size(value)} {level.unit}"
            known, file = self._last.get(name, ("", ""))
            if text == known:
                parts.append(f"# {size}: the same as in {file}\n")
            else:
                parts.append(f"# {size}\n{text}")
                self._last[name] = text, self._name(run)
        self._write(run, parts)

    def refused(self, run: PassRun, error: Exception) -> None:
        """Write why a pass was refused."""
        self._write(run, [f"# refused: {error}\n"])

    def remarked(self, remark: object) -> None:
        """Write all remarks so far to a file of their own."""
        self._remarks.append(f"{remark}\n")
        (self.folder / "remarks.txt").write_text("".join(self._remarks), encoding="utf-8")

    def _name(self, run: PassRun) -> str:
        return f"{self.count:03}-{run.done.name.replace(' ', '-')}.txt"

    def _write(self, run: PassRun, parts: list[str]) -> None:
        head = f"# {run.pipeline}: {run.done.name}\n" + (f"# {run.done.does}\n" if run.done.does else "")
        (self.folder / self._name(run)).write_text(head + "\n" + "\n".join(parts), encoding="utf-8")
        self.count += 1


def _size(size: tuple[str, int] | None) -> str:
    """A size in words."""
    if size is None:
        return ""
    unit, count = size
    return counted(count, unit)
