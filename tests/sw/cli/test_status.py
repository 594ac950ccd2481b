"""What is shown while somebody waits: a number and a name on a terminal, nothing elsewhere."""

import io

import pytest
from rich.console import Console

from concord.cli import status


@pytest.mark.parametrize("terminal", [True, False])
def test_counts_on_a_terminal(monkeypatch, terminal):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100, _environ={"TERM": "xterm"})
    monkeypatch.setattr(status, "TerminalConsole", lambda stderr: console)
    with status.counted_status("choosing formats") as show:
        show("dynamic exponents", 7, 40)
        show("a [bold]layer\x1b[31m", 8, 40)
    text = screen.getvalue()
    assert ("choosing formats: candidate 8 of 40, a [bold]layer\\x1b[31m" in text) == terminal
    assert terminal or not text
