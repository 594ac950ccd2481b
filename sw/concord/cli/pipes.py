"""The end of a command whose output nobody reads any more, as in ``concord inspect net | head``."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

#: Exit status then, as shells have it of a program that the signal SIGPIPE (13) has ended.
CLOSED_PIPE = 128 + 13


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """A command inside ends without a word, with status 141, when the reader of its output or its messages has gone.

    What it has written is flushed at its end. A pipe to anything else that breaks is an error like others.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        gone = [number for number in (1, 2) if _is_unread(number)]
        if not gone:
            raise click.ClickException(str(error) or "a pipe has broken") from error
        for number in gone:
            _discard(number)
        raise click.exceptions.Exit(CLOSED_PIPE) from None


def _discard(number: int) -> None:
    """Discards what is still buffered for an open file."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _is_unread(number: int) -> bool:
    """True if an open file is a pipe without a reader."""
    if not hasattr(select, "poll"):  # Windows: nothing else tells
        return True
    poll = select.poll()
    poll.register(number, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
