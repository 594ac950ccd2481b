"""Progress of a command on a terminal, for somebody who waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from concord.cli.common import TerminalConsole
from concord.display.terminal import printable
from concord.utils.attempts import Show


@contextmanager
def counted_status(text: str) -> Iterator[Show]:
    """A line with what goes on, and the number and the name of what is tried; nothing where there is no terminal.

    Parameters
    ----------
    text : str
        What goes on.
    """
    console = TerminalConsole(stderr=True)
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=None)

        def show(name: str, number: int, total: int) -> None:
            progress.update(task, description=f"{text}: candidate {number} of {total}, {printable(name)}")

        yield show
