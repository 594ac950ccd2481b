"""The files of the project: npz archives of a JSON header and plain arrays, with a version and a SHA-256 over it all.

Images are one kind of them, transfer tables another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from concord.utils.arrays import Array
from concord.utils.files import replacing
from concord.utils.npz import read_npz

Arrays = dict[str, Array]


class ImageError(ValueError):
    """An image that cannot be used, and why."""


@dataclass(frozen=True)
class FileKind:
    """Kind of a file: its name, version and error.

    Parameters
    ----------
    name, phrase : str
        Without and with an article.
    version : int
        Raised whenever the layout of the file changes.
    error : type
        Raised for files that cannot be used.
    """

    name: str
    phrase: str
    version: int
    error: type[ValueError]

    @property
    def format(self) -> str:
        """Name of the format in the header."""
        return f"concord {self.name}"


#: Bytes of the arrays of a file, far more than any NPU or table has.
_MOST = 1 << 30

IMAGE = FileKind("image", "an image", 5, ImageError)


def digest(header: dict[str, Any], arrays: Arrays) -> str:
    """Hash of the header (without its own hash) and of the name, type, shape and bytes of every array."""
    plain = {key: value for key, value in header.items() if key != "sha256"}
    total = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def write_file(path: str | Path, header: dict[str, Any], arrays: Arrays, kind: FileKind = IMAGE) -> None:
    """Write header and arrays, whole or not at all; the same contents give the same bytes."""
    full: dict[str, Any] = {"format": kind.format, "version": kind.version, **header}
    full = json.loads(json.dumps(full))  # the hash is of what a reader will see
    full["sha256"] = digest(full, arrays)
    text = np.frombuffer(json.dumps(full, sort_keys=True).encode(), dtype=np.uint8)
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read_file(path: str | Path, kind: FileKind = IMAGE, data: bytes | None = None) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays; the error of the kind if the file is damaged, of another kind or of another version.

    ``data`` are its contents, if they have been read.
    """
    data = Path(path).read_bytes() if data is None else data
    try:
        arrays = read_npz(Path(path), data, _MOST)
        header = json.loads(arrays.pop("header").tobytes().decode())
    except Exception as error:  # damaged archives make their parsers raise almost anything
        raise kind.error(f"{path} is not {kind.phrase}, or it is damaged: {error}") from error
    if not isinstance(header, dict) or header.get("format") != kind.format:
        raise kind.error(f"{path} is not {kind.phrase}: its header does not say so")
    if header.get("version") != kind.version:
        raise kind.error(f"{path} must have {kind.name} version {kind.version}, not {header.get('version')!r}")
    if header.get("sha256") != digest(header, arrays):
        raise kind.error(f"{path} is damaged: contents and checksum do not agree")
    return header, arrays
