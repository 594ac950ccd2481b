"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

#: Seconds for which nobody writes a file or a folder without changing it.
_ABANDONED = 3600.0


class NotWrittenError(OSError):
    """Error for a file that could not be written, with the reason."""

    def __init__(self, path: str | Path, number: int | None, reason: str):
        super().__init__(number, f"{path} cannot be written, and is as it was: {reason}")
        self.reason = reason

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def errors_name(path: str | Path) -> Iterator[None]:
    """Let errors of the system be of ``path``, not of a part of it that nobody knows."""
    try:
        yield
    except NotWrittenError as error:
        raise NotWrittenError(path, error.errno, error.reason) from error
    except OSError as error:
        raise NotWrittenError(path, error.errno, error.strerror or str(error)) from error


def check_place(path: str | Path) -> None:
    """Raise ``OSError`` unless a file can be written there; to be called before the work that leads to it.

    Folders above it need not be there: :func:`replacing` makes them.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file, not a folder")
    above = next((folder for folder in path.absolute().parents if os.path.lexists(folder)), path)
    if not above.is_dir():
        raise NotADirectoryError(f"{above} must be a folder, to write {path} there")
    if not os.access(path if _is_special(path) else above, os.W_OK):
        raise PermissionError(f"{path} must be a place that can be written to")


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` at the end of the block, complete and on the disk.

    Folders above it that are not there are made.

    Whatever happens before that, ``path`` stays what it was. Links are followed, devices and pipes are written to, and
    a file that is there keeps its permissions. What a process that was killed has left beside ``path`` is removed when
    it has not changed for an hour.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    check_place(path)
    path = Path(os.path.realpath(path))
    if _is_special(path):
        with path.open("wb") as file:
            yield file
        return
    for left in leftovers(path):
        with suppress(OSError):
            left.unlink()
    part = path.with_name(part_name(path))
    with errors_name(path):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                yield file
                sync(file)
            with suppress(FileNotFoundError):
                part.chmod(stat.S_IMODE(path.stat().st_mode))
            os.replace(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    sync_folder(path.parent)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes whole or not at all, as :func:`replacing` does."""
    with replacing(path) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Write text whole or not at all, as :func:`replacing` does."""
    write_bytes(path, text.encode("utf-8"))


def part_name(path: Path) -> str:
    """A hidden name beside ``path`` that nobody else has."""
    return f".{path.name[:200]}.{secrets.token_hex(4)}.part"


def leftovers(path: Path) -> list[Path]:
    """Files that processes have left beside ``path`` under names of :func:`part_name`, and not changed for an hour."""
    pattern = re.compile(re.escape(f".{path.name[:200]}.") + r"[0-9a-f]{8}\.part")
    files, latest = [], time.time() - _ABANDONED
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if pattern.fullmatch(entry.name):
                with suppress(OSError):  # another process has removed it
                    files += [Path(entry.path)] if entry.stat(follow_symlinks=False).st_mtime < latest else []
    return files


def sync(file: BinaryIO) -> None:
    """Wait until the contents of a file are on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise


def _is_special(path: Path) -> bool:
    """True if a path is there and neither a file nor a folder: a device, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
