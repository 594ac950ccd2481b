"""Threads that share the lanes of a batch, each with a BLAS of one thread.

NumPy and BLAS let go of the interpreter lock, so whole chunks of a batch run side by side. The matrices of a chunk are
far too small for a BLAS that divides each of them among threads of its own, and those wait for one another spinning.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from concord.utils.blas import SINGLE_THREADED

#: Lanes that could be worked on in the time that the calls of a chunk take by themselves.
_CALL_LANES = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def available() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chunk(batch: int, most: int, workers: int) -> int:
    """Lanes to work on together: of a few sizes that of which the workers need the least time.

    A call costs what some more lanes would. Sizes are 4, 5, 6 or 7 times a power of two, so that few plans are made.
    """
    sizes = {min(most, max(1, quarters << k >> 2)) for quarters in (4, 5, 6, 7) for k in range(batch.bit_length() + 1)}
    return min(sorted(sizes, reverse=True), key=lambda size: -(-batch // size // workers) * (size + _CALL_LANES))


def share(work: Callable[[int, Iterator[Item]], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """Call ``work(worker, items)`` in as many threads as are useful; an item goes to the first worker that is free.

    The first error of a worker is raised again when all have ended.
    """
    workers = min(workers, len(items))
    queue = _Queue(items)
    with SINGLE_THREADED:
        if workers == 1:
            return [work(0, queue)]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(work, worker, queue) for worker in range(workers)]
        return [future.result() for future in futures]


class _Queue(Iterator[Item]):
    """Items handed out once each, to several threads."""

    def __init__(self, items: Sequence[Item]):
        self._items, self._lock = iter(items), threading.Lock()

    def __next__(self) -> Item:
        with self._lock:
            return next(self._items)
