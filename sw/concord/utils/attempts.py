"""Progress of a search, for somebody who waits for it."""

from __future__ import annotations

from collections.abc import Callable

#: Shows what is tried: its name, its number from 1, and how many there are as far as is known.
Show = Callable[[str, int, int], None]


def show_nothing(name: str, number: int, total: int) -> None:
    """A :data:`Show` for nobody."""


class Attempts:
    """Counts what a search tries.

    What is tried later often depends on what came out before, so the total is only what is expected so far.

    Parameters
    ----------
    show : callable
        Is called at the beginning of every attempt.

    Members
    -------
    begun, expected : int
        Attempts that have begun, and attempts in all as far as is known.
    """

    def __init__(self, show: Show = show_nothing):
        self._show = show
        self.begun = self.expected = 0

    def expect(self, count: int) -> None:
        """Announce ``count`` attempts more; fewer, if it is negative."""
        self.expected = max(self.expected + count, self.begun)

    def begin(self, name: str) -> None:
        """An attempt begins; one that nobody expected counts, too."""
        self.begun += 1
        self.expected = max(self.expected, self.begun)
        self._show(name, self.begun, self.expected)
