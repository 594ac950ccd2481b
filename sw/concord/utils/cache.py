"""The cache of the user: what was compiled or synthesised, under a hash of what it was made from.

Everything that software and RTL keep is in the folder that ``CONCORD_CACHE`` names, or else in that of the platform for
caches. It has a folder for each kind of entry, and in that one for each entry, which is there as a whole or not at all.
Who needs an entry that another process makes waits for it.

When an entry is added and all of them take more than ``LIMIT`` bytes, those that were not used for the longest time
go; none that was used within ``GRACE`` seconds, as somebody may be about to open it, and none that is locked. A library
that a process has loaded may go, except on Windows, where it cannot.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VARIABLE = "CONCORD_CACHE"
#: Earlier name of ``CONCORD_CACHE``.
OLD_VARIABLE = "CONCORD_BUILD"
#: Names a file to which a line is added for everything that is made: what, and the processor seconds it took.
BUILD_LOG = "CONCORD_CACHE_LOG"
#: Bytes.
LIMIT = 4_000_000_000
#: Seconds.
GRACE = 3600.0
#: Files of a package that decide about what is made from it.
SOURCES = {".py", ".cpp", ".h"}
#: Endings of what an entry is before it is whole, when it goes, and of its lock.
_NEW, _OLD, _LOCK = ".new", ".old", ".lock"


class CacheError(RuntimeError):
    """The cache cannot be used."""


def cache_folder() -> Path:
    """The folder of all entries, which need not exist.

    Raises
    ------
    CacheError
        If the environment has the variable that was used before.
    """
    if old := os.environ.get(OLD_VARIABLE):
        raise CacheError(f"{OLD_VARIABLE} must not be set: the folder is named by {VARIABLE} now, not {old!r}")
    if named := os.environ.get(VARIABLE):
        return Path(named).resolve()
    from platformdirs import user_cache_path

    return user_cache_path("concord", appauthor=False)


class _Making(threading.local):
    """State of a thread: ``now`` is True while it makes something."""

    now = False


_MAKING = _Making()


@contextmanager
def logged(what: str) -> Iterator[None]:
    """Add what is made, and the processor seconds it takes, to the file of ``BUILD_LOG``; not what is made for it."""
    name = os.environ.get(BUILD_LOG)
    if name is None or _MAKING.now:
        yield
        return
    begin, _MAKING.now = _computing(), True
    try:
        yield
    finally:
        _MAKING.now = False
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"made": what, "seconds": _computing() - begin}) + "\n")


def digest(*parts: Any) -> str:
    """Hash of files (given as :class:`Path`) and of plain JSON values."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else json.dumps(part, sort_keys=True).encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def source_digest(packages: Iterable[str]) -> str:
    """Hash of the sources of packages, which are found but not imported."""
    parts: list[Any] = []
    for name in packages:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"{name} must be a package that is installed", name=name)
        root = Path(spec.submodule_search_locations[0])
        files = sorted(path for path in root.rglob("*") if path.suffix in SOURCES)
        parts += [part for path in files for part in (path.relative_to(root).as_posix(), path)]
    return digest(*parts)


class CacheEntry:
    """A folder in the cache.

    Parameters
    ----------
    kind : str
        What it holds; entries of a kind are in a folder with that name.
    key : str
        Hash of everything that its contents depend on.
    """

    def __init__(self, kind: str, key: str):
        self.folder = cache_folder() / kind / key

    @contextmanager
    def alone(self, *, wait: bool = True) -> Iterator[bool]:
        """Keep other processes and threads out; whether that is so, if they are not to be waited for."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CacheError(
                f"{self.folder.parent} must be a folder that can be made; {VARIABLE} names another: {error}"
            ) from error
        with _locked(self.folder, wait) as alone:
            yield alone

    def use(self) -> Path | None:
        """The folder, which counts as used now, or None if it is not there; to be called while :meth:`alone`."""
        try:
            os.utime(self.folder)
        except FileNotFoundError:
            return None
        return self.folder

    def find(self) -> Path | None:
        """The folder, which counts as used now, or None if it is not there or somebody is at it."""
        if not self.folder.exists():
            return None
        with self.alone(wait=False) as alone:
            return self.use() if alone else None

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """A new folder that takes the place of the entry when everything went well; only while :meth:`alone`."""
        new = self.folder.with_name(f"{self.folder.name}{_NEW}")
        _discard(new)
        new.mkdir()
        try:
            with logged(f"{self.folder.parent.name}/{self.folder.name}"):
                yield new
            _discard(self.folder)
            new.rename(self.folder)
        finally:
            _discard(new)
        os.utime(self.folder)
        trim(self.folder.parents[1])

    def made(self, make: Callable[[Path], object]) -> Path:
        """The folder, filled by ``make`` first if it is not there."""
        with self.alone():
            if self.use() is None:
                with self.filling() as folder:
                    make(folder)
        return self.folder


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[bool]:
    """Hold the lock of an entry; whether that is so, if it is not waited for."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_name(f"{folder.name}{_LOCK}"))
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _discard(folder: Path) -> None:
    """Remove a folder so that nobody ever sees a part of it under its name."""
    old = folder.with_name(f"{folder.name.removesuffix(_NEW)}{_OLD}")
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)


def _computing() -> float:
    """Processor seconds so far, of this process and those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def trim(folder: Path) -> None:
    """Remove entries that were not used for the longest time until those in a cache folder take ``LIMIT`` bytes."""
    entries = []
    for entry in folder.glob("*/*/"):
        with suppress(FileNotFoundError):
            entries.append((entry.stat().st_mtime, _bytes(entry), entry))
    total, newest = sum(size for _, size, _ in entries), time.time() - GRACE
    for used, size, entry in sorted(entries):
        left = entry.suffix in {_NEW, _OLD}
        if not left and (total <= LIMIT or used > newest):
            continue
        with _locked(entry.with_suffix("") if left else entry, wait=False) as alone:
            # Windows keeps files that a process has open.
            with suppress(FileNotFoundError, PermissionError):
                if alone and (left or entry.stat().st_mtime <= newest):
                    _discard(entry)
                    total -= size
