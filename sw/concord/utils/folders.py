"""Folders whose files belong together: written whole or not at all, each file bound to the others by its hash.

A folder is written beside the place it is for, with a manifest of the hashes of its files, and then takes that place in
one step. A reader finds all of the old folder or all of the new one; whatever else it finds does not go with the
manifest and is refused.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from concord.utils.files import errors_name, leftovers, part_name, sync, sync_folder

MANIFEST = "manifest.json"
#: Layout of the manifest.
_VERSION = 1
#: ``renameat2`` of Linux: paths are relative to the current folder, and both exchange their places.
_HERE, _EXCHANGE = -100, 2
#: Number of times that others may come first.
_TRIES = 20


@dataclass(frozen=True)
class FolderForm:
    """Files that belong together in a folder, and the name of these in its manifest."""

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class FolderKind:
    """Kind of a folder: its name and the files that belong together.

    Parameters
    ----------
    name, phrase : str
        Without and with an article.
    files : tuple of str
        Names of the files that belong together.
    beside : tuple of str
        Names of files that commands write there later; they go with the folder when it is replaced.
    remedy : str
        What to do about one that cannot be used.
    error : type
        Raised for folders that cannot be used.
    others : tuple of FolderForm
        Other files that a folder of the kind may have instead, such as those of before.
    """

    name: str
    phrase: str
    files: tuple[str, ...]
    beside: tuple[str, ...]
    remedy: str
    error: type[ValueError]
    others: tuple[FolderForm, ...] = ()

    @property
    def forms(self) -> tuple[FolderForm, ...]:
        """All forms of a folder, the usual one first."""
        return FolderForm(self.name, self.files), *self.others

    def form_of(self, folder: Path, manifest: bytes | None = None) -> FolderForm:
        """Form of a folder: that of its manifest or, if this names none, the one of which it has the most files."""
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            contents = json.loads(manifest or b"")
            named = contents["format"], set(contents["files"])
            for form in self.forms:
                if (f"concord {form.name}", set(form.files)) == named:
                    return form
        return max(self.forms, key=lambda form: _share(folder, form))

    def check_place(self, folder: str | Path) -> None:
        """Raise the error of the kind unless a folder can be written there: nothing that is another's is replaced."""
        folder = Path(folder)
        if not os.path.lexists(folder):
            return
        if not folder.is_dir():
            raise self.error(f"{folder} must be a folder, or not there, to write {self.phrase}")
        names = sorted(os.listdir(folder))
        foreign = [name for name in names if not self._is_own(name)]
        whole = not names or MANIFEST in names or any(set(form.files) <= set(names) for form in self.forms)
        if foreign or not whole:
            there = foreign[0] if foreign else names[0]
            raise self.error(f"{folder} must be {self.phrase} or empty to be replaced, but {there} is there")

    def _is_own(self, name: str) -> bool:
        parts = (*(file for form in self.forms for file in form.files), *self.beside)
        left = name.endswith(".part") and any(name.startswith(f".{part}.") for part in parts)
        return name in (MANIFEST, *parts) or left

    @contextmanager
    def replacing(self, folder: str | Path) -> Iterator[Path]:
        """An empty folder for the files of the kind, which takes the place of ``folder`` at the end of the block.

        Raises
        ------
        ValueError
            The error of the kind, if something else is there.
        OSError
            If it cannot be written; what was there is unchanged.
        """
        target = Path(os.path.realpath(folder))
        self.check_place(folder)
        for left in leftovers(target):
            self._remove(left)
        part = target.with_name(part_name(target))
        with errors_name(folder):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                part.mkdir()
                yield part
                self.seal(part)
                self._take_place(part, target)
            finally:
                self._remove(part)
        sync_folder(target.parent)

    def seal(self, folder: Path) -> None:
        """Write the manifest of a folder, and wait until everything is on the disk."""
        form = self.form_of(folder)
        hashes = {name: _hash((folder / name).read_bytes()) for name in form.files}
        with (folder / MANIFEST).open("wb") as file:
            file.write(_manifest(form, hashes))
            sync(file)
        sync_folder(folder)

    def _take_place(self, part: Path, target: Path) -> None:
        """Let ``part`` be ``target``; what was there is to be removed as ``part`` then."""
        for _ in range(_TRIES):
            self.check_place(target)
            if not target.exists():
                with _others_first():
                    os.rename(part, target)
                    return
            elif exchange(part, target) or self._moved_aside(part, target):
                return
        raise OSError(errno.EBUSY, "it is replaced by others all the time")

    def _moved_aside(self, part: Path, target: Path) -> bool:
        """Without an exchange there is no folder for a moment, but never half of one; whether ``part`` came there."""
        aside = target.with_name(part_name(target))
        with _others_first():
            os.rename(target, aside)
            try:
                with _others_first():
                    os.rename(part, target)
                    return True
            finally:
                if not target.exists():
                    os.rename(aside, target)
                self._remove(aside)
        return False

    def _remove(self, part: Path) -> None:
        """Remove a folder with what belongs to the kind, and nothing else."""
        with suppress(OSError):
            for name in os.listdir(part):
                if self._is_own(name):
                    (part / name).unlink()
            part.rmdir()

    def read(self, folder: str | Path) -> dict[str, bytes]:
        """Contents of the files by name; the error of the kind if they are missing, damaged or not of one folder.

        A folder that is replaced while it is read is read once more.
        """
        folder = Path(folder)
        for _ in range(_TRIES):
            before = _identity(folder)
            try:
                return self._read(folder)
            except self.error:
                if _identity(folder) == before:
                    raise
        raise self.error(f"{folder} must be left alone while it is read; try again")

    def _read(self, folder: Path) -> dict[str, bytes]:
        form = self.form_of(folder, self._contents(folder / MANIFEST))
        names = (MANIFEST, *form.files)
        files = {name: data for name in names if (data := self._contents(folder / name)) is not None}
        missing = [name for name in (*form.files, MANIFEST) if name not in files]
        if missing:
            raise self.error(f"{folder} must be {self.phrase}: {', '.join(missing)} is missing; {self.remedy}")
        manifest = files.pop(MANIFEST)
        try:
            contents = json.loads(manifest)
            kind, version, hashes = contents["format"], contents["version"], contents["files"]
            whole = kind == f"concord {form.name}" and manifest == _manifest(form, hashes) and set(hashes) == set(files)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            version, whole = _VERSION, False
        if version != _VERSION:
            raise self.error(f"{folder} must have version {_VERSION} of {MANIFEST}, not {version!r}; {self.remedy}")
        if not whole:
            raise self.error(f"{folder / MANIFEST} is damaged; {self.remedy}")
        for name, data in files.items():
            if hashes[name] != _hash(data):
                raise self.error(f"{folder / name} is damaged or from elsewhere: {MANIFEST} has another; {self.remedy}")
        return files

    def _contents(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.error(f"{path} cannot be read: {error.strerror}; {self.remedy}") from error


def _manifest(form: FolderForm, hashes: Mapping[str, str]) -> bytes:
    """The text that binds files with these hashes; there is no other one for them."""
    contents = {"format": f"concord {form.name}", "version": _VERSION, "files": dict(sorted(hashes.items()))}
    contents["sha256"] = _hash(json.dumps(contents).encode())
    return (json.dumps(contents, indent=1) + "\n").encode()


def _share(folder: Path, form: FolderForm) -> tuple[float, int]:
    """Share of the files of a form that are in a folder, and their number."""
    there = sum((folder / name).exists() for name in form.files)
    return there / len(form.files), there


def exchange(first: Path, second: Path) -> bool:
    """Let two folders exchange their places in one step; whether the system can do that and both are there."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0)


@contextmanager
def _others_first() -> Iterator[None]:
    """Go on where another process has been there a moment before."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            raise


def _identity(folder: Path) -> tuple[int, ...]:
    try:
        status = folder.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
