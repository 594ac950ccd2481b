"""Place of the kernels that Numba has compiled: the cache of the user, for all checkouts with the same sources.

Numba itself keeps it beside the sources, under their path. There every checkout compiles again, and a kernel outlives
the constants of other modules that are compiled into it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Self

from numba.core.caching import FunctionCache, _CacheLocator

from concord.utils.cache import CacheEntry, CacheError, cache_folder, digest, source_digest


@cache
def _entry(file: Path) -> CacheEntry:
    """The entry of the kernels in a file, which depend on it and on the definitions, and which Numba tells apart."""
    return CacheEntry("kernels", digest(file, source_digest(["concord.spec"]))[:24])


class KernelLocator(_CacheLocator):
    """The folder of the kernels of a file, for Numba; the methods are those that it calls."""

    def __init__(self, function: Any, file: str):
        self._line = function.__code__.co_firstlineno
        self._entry = _entry(Path(file))
        self._folder = self._entry.made(lambda _: None)

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Stamp of the sources of the kernels: the name of the folder."""
        return self._folder.name

    def get_disambiguator(self) -> str:
        """Number of the line, which tells functions of the same name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> Self | None:
        """The place of a function, or None if there is none that can be written to."""
        cache_folder()  # where a name that it had is an error
        try:
            return cls(function, file)
        except (CacheError, OSError):
            return None


#: Class by which Numba's cache looks folders up.
_LOOK_UP: Any = FunctionCache._impl_class


class _Implementation(_LOOK_UP):  # type: ignore[misc]
    """Looks in the folder that ``NUMBA_CACHE_DIR`` names, then here, then in those of Numba."""

    _named, *_others = _LOOK_UP._locator_classes
    _locator_classes = (_named, KernelLocator, *_others)


class _KernelCache(FunctionCache):
    _impl_class = _Implementation


def kept(kernel: Any) -> Any:
    """A function compiled by Numba, whose machine code is kept."""
    kernel._cache = _KernelCache(kernel.py_func)  # type: ignore[no-untyped-call]
    return kernel
