"""npz files that are larger than memory: arrays are read and written along their first axis, some rows at a time.

What is written has the bytes that :func:`numpy.savez` writes for the same arrays.
"""

from __future__ import annotations

import io
import os
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
from numpy.lib import format as npy

from concord.utils.arrays import Array
from concord.utils.foreign import kind_of

Shape = tuple[int, ...]

_END = ".npy"
#: Bytes that a compressed byte can become, at most (RFC 1951: 258 bytes of two bits).
_EXPANSION = 1032
#: Bytes that are copied at a time.
_COPIED = 1 << 16
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class NpzReader:
    """The arrays of an npz file, none of them in memory; to be used in a ``with`` statement.

    Parameters
    ----------
    path : Path
    scratch : Path, optional
        A folder for copies of arrays that cannot be read in the order of their rows; by default that of the system.
    data : bytes, optional
        The contents of the file, if they have been read.

    Attributes
    ----------
    members : dict of str to Member
        Their sizes have been held against the bytes that there are, so that a short file asks for no large memory.

    Raises
    ------
    ValueError
        If it is no npz file of arrays, or damaged. Checksums are compared while arrays are read: whoever has read
        an array to its end knows that it is what was written.
    """

    def __init__(self, path: Path, scratch: Path | None = None, data: bytes | None = None):
        if not zipfile.is_zipfile(path if data is None else io.BytesIO(data)):
            raise ValueError(f"{path} must be an npz file of arrays, not {kind_of(path)}")
        self.path, self.scratch = path, scratch
        with self.errors_name_file():
            self._zip = zipfile.ZipFile(path if data is None else io.BytesIO(data))
        try:
            with self.errors_name_file():
                members = [Member(self, info) for info in self._zip.infolist()]
        except BaseException:
            self._zip.close()
            raise
        self.members = {member.name: member for member in members}

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

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory."""
        return sum(member.nbytes for member in self.members.values())

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
        most = info.compress_size * (_EXPANSION if info.compress_type == zipfile.ZIP_DEFLATED else 1)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.file_size > most:
            raise ValueError(f"{info.filename} is not what NumPy writes: its {most} bytes are no {info.file_size}")
        with reader.open(info) as file:
            self.shape, self._fortran, self.dtype = _header(file, self._info.filename)
            if info.file_size != file.tell() + self.nbytes:
                raise ValueError(f"{info.filename} is shorter or longer than an array {self.shape} of {self.dtype}")

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return prod(self.shape) * self.dtype.itemsize

    def batches(self, rows: int) -> Iterator[Array]:
        """Parts of ``rows`` along the first axis, the last one shorter.

        Raises
        ------
        ValueError
            If the file is damaged, with the last part at the latest.
        """
        with self._reader.open(self._info) if not self._fortran else self._spooled() as file:
            with self._reader.errors_name_file():
                _header(file, self._info.filename)
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


def read_npz(path: Path, data: bytes | None = None, most: int | None = None) -> dict[str, Array]:
    """All arrays of an npz file, or of its contents if they have been read, by name.

    Raises
    ------
    ValueError
        As :class:`NpzReader` does, and if the arrays have more than ``most`` bytes.
    """
    with NpzReader(path, data=data) as reader:
        if most is not None and reader.nbytes > most:
            raise ValueError(f"{path} must have at most {most:,} bytes of arrays, not {reader.nbytes:,}")
        return {name: member.whole() for name, member in reader.members.items()}


def read_npy(path: Path) -> Array:
    """The array of an npy file; ``ValueError`` if it is none of numbers or texts, or shorter or longer than it says."""
    try:
        with path.open("rb") as file:
            shape, _, dtype = _header(file, path.name)
            if os.fstat(file.fileno()).st_size != file.tell() + prod(shape) * dtype.itemsize:
                raise ValueError(f"{path.name} is shorter or longer than an array {shape} of {dtype}")
            file.seek(0)
            return np.asarray(npy.read_array(file))
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path} must be an npy file of an array of numbers: {error}") from error


def _header(file: IO[bytes], name: str) -> tuple[Shape, bool, np.dtype[Any]]:
    """Skip the header of an array, and say what it says."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{name} must have version 1.0 or 2.0 of the format npy, not {version}")
    shape, fortran, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} must hold numbers or texts, not Python's objects")
    return shape, fortran and len(shape) > 1, dtype


class GrowingArray:
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

    def __enter__(self) -> GrowingArray:
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


def write_npz(file: IO[bytes], arrays: Mapping[str, Array | Member | GrowingArray]) -> None:
    """Write an npz file, not compressed."""
    with zipfile.ZipFile(file, "w") as target:
        for name, values in arrays.items():
            with target.open(name + _END, "w", force_zip64=True) as member:
                if isinstance(values, np.ndarray):
                    npy.write_array(member, values, allow_pickle=False)
                else:
                    values.copy(member)
