"""npz files that are larger than memory: arrays are read and written along their first axis, some rows at a time.

What is written has the bytes that :func:`numpy.savez` writes for the same arrays.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from concord.utils.foreign import kind_of

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

_END = ".npy"
#: Bytes that are copied at a time.
_COPIED = 1 << 16
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class NpzReader:
    """The arrays of an npz file, none of them in memory; to be used in a ``with`` statement.

    Parameters
    ----------
    path : Path
    scratch : Path
        A folder for copies of arrays that cannot be read in the order of their rows.

    Attributes
    ----------
    members : dict of str to Member

    Raises
    ------
    ValueError
        If it is no npz file of arrays, or damaged. Checksums are compared while arrays are read: whoever has read
        an array to its end knows that it is what was written.
    """

    def __init__(self, path: Path, scratch: Path):
        if not zipfile.is_zipfile(path):
            raise ValueError(f"{path} must be an npz file, not {kind_of(path)}")
        self.path, self.scratch = path, scratch
        with self.errors_name_file():
            self._zip = zipfile.ZipFile(path)
        try:
            with self.errors_name_file():
                found = [Member(self, info) for info in self._zip.infolist()]
        except BaseException:
            self._zip.close()
            raise
        self.members = {member.name: member for member in found}

    def __enter__(self) -> NpzReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def open(self, info: zipfile.ZipInfo) -> IO[bytes]:
        """The bytes of a member."""
        with self.errors_name_file():
            return self._zip.open(info)

    @contextmanager
    def errors_name_file(self) -> Iterator[None]:
        """Let errors of damaged files say which file it is."""
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
            raise ValueError(f"{self.path} must be an npz file of arrays of numbers: {error}") from error


class Member:
    """An array of a file that is open.

    Parameters
    ----------
    reader : NpzReader
    info : zipfile.ZipInfo
        Where it is.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : numpy.dtype
    """

    def __init__(self, reader: NpzReader, info: zipfile.ZipInfo):
        self.name = info.filename.removesuffix(_END)
        self._reader, self._info = reader, info
        with reader.open(info) as file:
            self.shape, self._fortran, self.dtype = self._header(file)
            if info.file_size != file.tell() + prod(self.shape) * self.dtype.itemsize:
                raise ValueError(f"{info.filename} is shorter or longer than an array {self.shape} of {self.dtype}")

    def _header(self, file: IO[bytes]) -> tuple[Shape, bool, np.dtype[Any]]:
        """Skip the header, and say what it says."""
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{self._info.filename} must have version 1.0 or 2.0 of the format npy, not {version}")
        shape, fortran, dtype = _HEADERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"{self._info.filename} must hold numbers or texts, not Python's objects")
        return shape, fortran and len(shape) > 1, dtype

    def batches(self, rows: int) -> Iterator[Array]:
        """Parts of ``rows`` along the first axis, the last one shorter.

        Raises
        ------
        ValueError
            If the file is damaged, with the last part at the latest.
        """
        with self._reader.open(self._info) if not self._fortran else self._spooled() as file:
            with self._reader.errors_name_file():
                self._header(file)
            if self._fortran:
                mapped = np.memmap(file, self.dtype, "r", file.tell(), self.shape, "F")
                yield from (np.array(mapped[k : k + rows]) for k in range(0, len(mapped), rows))
                return
            for first in range(0, self.shape[0], rows):
                shape: Shape = (min(rows, self.shape[0] - first), *self.shape[1:])
                with self._reader.errors_name_file():  # the last byte of a member has its checksum compared
                    part = np.frombuffer(file.read(prod(shape) * self.dtype.itemsize), self.dtype).reshape(shape)
                yield part

    @contextmanager
    def _spooled(self) -> Iterator[IO[bytes]]:
        with tempfile.TemporaryFile(dir=self._reader.scratch) as spool:
            self.copy(spool)
            spool.seek(0)
            yield spool

    def whole(self) -> Array:
        """The array, in memory."""
        with self._reader.open(self._info) as file, self._reader.errors_name_file():
            return np.asarray(npy.read_array(file))

    def copy(self, target: IO[bytes]) -> None:
        """Write it to a file as it is, header included."""
        with self._reader.open(self._info) as file, self._reader.errors_name_file():
            shutil.copyfileobj(file, target, _COPIED)


class Rows:
    """An array that grows along its first axis, kept in a file without a name; to be used in a ``with`` statement.

    Parameters
    ----------
    scratch : Path
        The folder of that file.

    Attributes
    ----------
    shape : tuple of int
    size : int
    """

    def __init__(self, scratch: Path):
        self._file = tempfile.TemporaryFile(dir=scratch)
        self._like: Array | None = None
        self.shape: Shape = (0,)

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        """Elements there are."""
        return prod(self.shape)

    def append(self, values: Array) -> None:
        """Add rows ``[rows, ...]``."""
        self._like = values[:0] if self._like is None else self._like
        self.shape = (self.shape[0] + len(values), *values.shape[1:])
        self._file.write(np.ascontiguousarray(values).data)

    def copy(self, target: IO[bytes]) -> None:
        """Write it to a file, header included."""
        like = np.empty(0) if self._like is None else self._like
        facts = npy.header_data_from_array_1_0(like) | {"shape": self.shape, "fortran_order": False}
        npy.write_array_header_1_0(target, facts)
        self._file.seek(0)
        shutil.copyfileobj(self._file, target, _COPIED)


def write_npz(file: IO[bytes], arrays: Mapping[str, Array | Member | Rows]) -> None:
    """Write an npz file, not compressed."""
    with zipfile.ZipFile(file, "w") as target:
        for name, values in arrays.items():
            with target.open(name + _END, "w", force_zip64=True) as member:
                if isinstance(values, np.ndarray):
                    npy.write_array(member, values, allow_pickle=False)
                else:
                    values.copy(member)
