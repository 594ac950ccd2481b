"""One thread for the BLAS of NumPy."""

from __future__ import annotations

import threading
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS of NumPy; looking for it takes milliseconds."""
    return ThreadpoolController()


class _SingleThreaded:
    """Holds BLAS to one thread while anyone is inside; the setting is one for the whole process."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


#: Context for products of many small matrices: threads that share each of them wait for one another spinning.
SINGLE_THREADED = _SingleThreaded()
