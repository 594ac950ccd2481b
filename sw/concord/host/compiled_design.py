"""A compiled simulation: what the libraries of all links have."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from concord.host.errors import DeviceError

#: Types of arguments and results of the C functions.
HANDLE, SIZE, UINT64, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_char_p
#: A C function: its name after ``concord_``, the type of its result, and those of its arguments after the handle.
Function = tuple[str, Any, Sequence[Any]]
_COMMON: tuple[Function, ...] = (
    ("destroy", None, ()),
    ("cycles", UINT64, ()),
    ("sdram_faults", UINT64, ()),
    ("trace", ctypes.c_int, (TEXT,)),
)


class CompiledDesign:
    """A simulation that is there until it is closed.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate``.
    functions : sequence of Function
        What it has beside what every library has.
    trace : Path or None
        VCD file for the waveforms; :class:`ValueError` if the library was not built for it.
    """

    def __init__(self, library: Path, functions: Sequence[Function], trace: Path | None):
        self._lib = ctypes.CDLL(str(library))
        self._lib.concord_create.restype = HANDLE
        for name, result, arguments in (*_COMMON, *functions):
            function = getattr(self._lib, f"concord_{name}")
            function.restype, function.argtypes = result, [HANDLE, *arguments]
        self._handle: int | None = self._lib.concord_create()
        if trace is not None and self.call("trace", str(trace).encode()):
            raise ValueError(f"library must have been built for waveforms, not {library}")

    @property
    def cycles(self) -> int:
        """Clock cycles of the NPU simulated so far."""
        return int(self.call("cycles"))

    def call(self, name: str, *arguments: Any) -> Any:
        """Result of a C function; :class:`DeviceError` if the simulation was closed."""
        if self._handle is None:
            raise DeviceError("the simulation was closed")
        return getattr(self._lib, f"concord_{name}")(self._handle, *arguments)

    def check_memory(self) -> None:
        """:class:`DeviceError` if the external memory of the design saw a violation of its times."""
        if faults := self.call("sdram_faults"):
            raise DeviceError(f"the external memory saw {faults} violations of its times; its messages are above")

    def close(self) -> None:
        """End the simulation."""
        if self._handle is not None:
            self.call("destroy")
            self._handle = None
