"""The ``concord`` command, also as ``python -m concord``; this module imports nothing that takes time."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 128 + signal.SIGINT
_MESSAGE = "interrupted\n"
_SHOW_CURSOR = "\x1b[?25h"


class Interruption(BaseException):
    """Ctrl-C: no error, and no ``KeyboardInterrupt``, of which other modules make messages of their own."""


def main() -> None:
    """Run the command; Ctrl-C ends it with one line and status 130 at any time, also while modules are imported."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in jobs that go on in the background
            signal.signal(signal.SIGINT, _interrupt)
        from concord.cli.main import main as command

        command(prog_name="concord")
    except (Interruption, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write(_MESSAGE)
        sys.exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Let the command clean up; at once in an import, where compiled modules abort when something is raised."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, ((_SHOW_CURSOR if os.isatty(2) else "") + _MESSAGE).encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise Interruption


if __name__ == "__main__":
    main()
