"""Calls from a package to a later one, as they happen: callbacks, and methods of what was handed down."""

import gc
import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import concord
from concord_bench.pictures.sources import PACKAGES

_ROOT = f"{Path(concord.__file__).parent}/"
_ORDER = {name: place for place, name in enumerate(PACKAGES)}


def _package(code: CodeType) -> str | None:
    """The package that code belongs to; ``None`` for that of others."""
    path = code.co_filename
    name = path.removeprefix(_ROOT).partition("/")[0].removesuffix(".py")
    return name if path.startswith(_ROOT) and name in _ORDER else None


def _caller(frame: FrameType) -> CodeType | None:
    """The function of Concord that called one, perhaps by way of libraries."""
    above = frame.f_back
    while above is not None and _package(above.f_code) is None:
        above = above.f_back
    return None if above is None else above.f_code


def _place(code: CodeType) -> str:
    name = code.co_filename.removeprefix(_ROOT).removesuffix(".py").replace("/", ".")
    return f"{name}.{code.co_name}"


@contextmanager
def upward_calls() -> Iterator[dict[tuple[str, str], set[str]]]:
    """By function and later package that it calls while this is open: the functions that are called there.

    Generators are left out: whoever closes one, and be it the garbage collector, seems to call it.
    """
    found: dict[tuple[str, str], set[str]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_flags & inspect.CO_GENERATOR:
            return
        called = _package(frame.f_code)
        if called is None or (caller := _caller(frame)) is None:
            return
        if _ORDER[called] > _ORDER[str(_package(caller))]:
            found.setdefault((_place(caller), called), set()).add(_place(frame.f_code))

    before = sys.getprofile()
    gc.collect()
    gc.disable()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
        gc.enable()
