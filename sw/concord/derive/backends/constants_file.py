"""The npz file of constants beside a derived file of Python, which reads no other one.

A file of Python whose constants belong to another network would compute wrong numbers without a word: after a stop
between the writing of both, or after one of them was exchanged. So it has the SHA-256 of its constants.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive.backends.names import free_name
from concord.utils.files import write_bytes, write_text

#: Text of the function that reads the file; it needs ``Path`` and ``np``.
READER = '''
import hashlib
import io

#: SHA-256 of the file of constants that was written together with this one.
CONSTANTS_SHA256 = {digest!r}


def constants_of(file):
    """The constants by name; ``ValueError`` if the file is not the one that was written together with this one."""
    data = Path(file).read_bytes()
    if hashlib.sha256(data).hexdigest() != CONSTANTS_SHA256:
        raise ValueError(f"{{file}} must be the file that was written together with this one: derive both again")
    with np.load(io.BytesIO(data)) as arrays:
        return dict(arrays)
'''


class ConstantArrays:
    """Constants of a file by name; equal ones are there once.

    Members
    -------
    arrays : dict
        In the order in which they were first asked for.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def name_of(self, array: npt.NDArray[Any], name: str) -> str:
        """The name of a constant; a new one has this name, or one with a number."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = free_name(name, set(self.arrays))
            self.arrays[self._known[key]] = array
        return self._known[key]


def archive(constants: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The bytes of the npz file."""
    target = io.BytesIO()
    np.savez(target, allow_pickle=False, **constants)
    return target.getvalue()


def reader(data: bytes) -> str:
    """The text of a function ``constants_of(file)`` that reads these bytes and no others."""
    return READER.format(digest=hashlib.sha256(data).hexdigest()).strip()


def write_both(path: Path, text: str, data: bytes) -> None:
    """Write the constants beside ``path``, then ``path``."""
    write_bytes(path.with_suffix(".npz"), data)
    write_text(path, text)
