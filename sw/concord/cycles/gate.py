"""The hazard gate of source reads."""

from __future__ import annotations


class Gate:
    """Times at which requests pass the registers of a hazard gate and the register slice after it, one after the other.

    Attributes
    ----------
    out : int
        Cycle in which the latest request left the slice.
    second : int
        Cycle in which it left the second register.
    stalls : list of (int, int)
        Gets from when to when a request waits for a write.
    """

    TIMES = 5

    def __init__(self, stalls: list[tuple[int, int]]):
        self.stalls = stalls
        self.out = -1
        self._first = self.second = self._third = -1  # when it left the first register, and entered the slice
        self._before = -1  # when the one before the latest left the slice

    @property
    def total(self) -> int:
        """Sum of the ``TIMES`` times that decide about the next request."""
        return self._first + self.second + self._third + self._before + self.out

    def enter(self, ready: int, written: int) -> tuple[int, int]:
        """Cycles in which a request that comes at ``ready`` enters the gate and the slice.

        The request waits for a write that ends at ``written``.
        """
        entered = max(ready, self._first)
        self._first = max(entered + 1, self.second)
        self.second = max(self._first + 1, self._third)
        if written > self.second:
            self.stalls.append((self.second + 1, written))
        self._third = max(self.second, written, self._before) + 1
        return entered, self._third

    def leave(self, time: int) -> None:
        """The request leaves the slice."""
        self._before, self.out = self.out, time

    def shift(self, count: int) -> None:
        """``count`` more requests follow the latest one, a cycle apart, and none of them waits."""
        self._first += count
        self.second += count
        self._third += count
        self._before, self.out = self.out + count - 1, self.out + count
