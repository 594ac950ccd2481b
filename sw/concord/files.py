"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def check_place(path: str | Path) -> None:
    """Raise ``OSError`` unless a file can be written there; to be called before the work that leads to it."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file, not a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} must be a folder that exists, to write {path.name} there")
    if not os.access(path if _is_special(path) else path.parent, os.W_OK):
        raise PermissionError(f"{path} must be a place that can be written to")


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` at the end of the block, complete and on the disk.

    Whatever happens before that, ``path`` stays what it was. Links are followed, devices and pipes are written to, and
    a file that is there keeps its permissions.

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
    part = path.with_name(part_name(path))
    try:
        with part.open("xb") as file:
            yield file
            settle(file)
        with suppress(FileNotFoundError):
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    settle_folder(path.parent)


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


def settle(file: BinaryIO) -> None:
    """Wait until the contents of a file are on the disk."""
    file.flush()
    os.fsync(file.fileno())


def settle_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_special(path: Path) -> bool:
    """Whether it is there and neither a file nor a folder: a device, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
