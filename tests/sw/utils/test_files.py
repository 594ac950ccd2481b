"""Files are written whole or not at all, whatever happens."""

import errno
import os
import stat
import time

import numpy as np
import pytest

from concord.image.container import FileKind, read_file, write_file
from concord.utils.files import check_place, part_name, replacing, write_bytes, write_text
from support.faults import FAULTS, every

KIND = FileKind("test", "a test", 1, ValueError)


def kept(folder):
    """Names in a folder, without what a process leaves that is killed."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".part"))


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_leaves_the_old_file_or_the_new_one(tmp_path, fault, there):
    path, count = tmp_path / "file", 0

    def reset():
        path.unlink(missing_ok=True)
        if there:
            path.write_bytes(b"old")

    reset()
    for _ in every(lambda: write_bytes(path, b"the new one"), fault):
        assert (path.read_bytes() if path.exists() else None) in (b"the new one", b"old" if there else None)
        assert kept(tmp_path) == (["file"] if path.exists() else [])
        if fault != "killed":
            assert sorted(tmp_path.iterdir()) == ([path] if path.exists() else [])
        reset()
        count += 1
    assert path.read_bytes() == b"the new one" and count >= 5


@pytest.mark.parametrize("fault", FAULTS)
def test_containers_are_whole(tmp_path, fault):
    path = tmp_path / "x.npz"
    for k in range(2):
        arrays = {"a": np.arange(1000) * k, "b": np.ones((3, k + 1))}
        for _ in every(lambda arrays=arrays, k=k: write_file(path, {"k": k}, arrays, KIND), fault):
            assert read_file(path, KIND)[0]["k"] in (0, k) if path.exists() else not k
        assert read_file(path, KIND)[0]["k"] == k


def test_a_full_disk_is_told(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught:
        with replacing(tmp_path / "file"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC and not list(tmp_path.iterdir())


def test_permissions_links_and_devices(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    write_text(path, "one")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o600)
    link.symlink_to(path)
    write_text(link, "two")
    assert link.is_symlink() and path.read_text() == "two" and stat.S_IMODE(path.stat().st_mode) == 0o600
    write_text("/dev/null", "three")
    assert not os.path.isfile("/dev/null")


def test_places_are_checked(tmp_path):
    with pytest.raises(IsADirectoryError, match="must be a file, not a folder"):
        check_place(tmp_path)
    write_bytes(tmp_path / "file", b"")
    for place in (tmp_path / "file" / "x.npz", tmp_path / "file" / "new" / "x.npz"):
        with pytest.raises(NotADirectoryError, match=r"file must be a folder, to write .*x\.npz there"):
            check_place(place)
        with pytest.raises(NotADirectoryError, match="file must be a folder"):
            write_bytes(place, b"")
    check_place(tmp_path / "x.npz")


def test_folders_above_a_file_are_made_when_it_is_written(tmp_path, monkeypatch):
    path = tmp_path / "new" / "newer" / "x.npz"
    check_place(path)
    assert not path.parent.parent.exists()
    write_bytes(path, b"one")
    assert path.read_bytes() == b"one"
    monkeypatch.chdir(tmp_path)
    write_bytes("other/x", b"two")
    assert (tmp_path / "other" / "x").read_bytes() == b"two"


def test_a_folder_that_is_read_only_is_told(tmp_path, monkeypatch):
    """The answer of the system is put in place, as an administrator may write everywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    with pytest.raises(PermissionError, match="must be a place that can be written to"):
        check_place(tmp_path / "x")
    with pytest.raises(PermissionError, match="must be a place that can be written to"):
        check_place(tmp_path / "inner" / "x")
    (tmp_path / "inner").mkdir()
    check_place(tmp_path / "inner" / "x")


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path):
    """Not what another process writes now, and nothing with another name."""
    path = tmp_path / "x.npz"
    names = [part_name(path), part_name(tmp_path / "y.npz"), ".x.npz.part", ".x.npz.abcdefgh.part", part_name(path)]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (0, time.time() - 3700))
    os.utime(tmp_path / names[-1], (0, time.time() - 3500))
    write_bytes(path, b"whole")
    assert {file.name for file in tmp_path.iterdir()} == {"x.npz", *names[1:]}
