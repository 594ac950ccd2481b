"""The interface of transports, which carry the bytes of the link."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Transport(Protocol):
    """Bytes to and from a device, in order.

    Members
    -------
    byte_time : float
        Seconds a byte spends on the line, for the choice of timeouts.
    wait_cycles : int or None
        Device cycles that one WAIT may take; ``None`` if that depends on the clock of the device.
    controlled : bool
        Whether bytes wait on the way while the device takes none; else the device drops what it has no room for.
    """

    byte_time: float
    wait_cycles: int | None
    controlled: bool

    @property
    def cycles(self) -> int | None:
        """Clock cycles of a simulated device so far; ``None`` of a real one."""

    def clock(self) -> float:
        """Seconds so far, of which timeouts and ``byte_time`` are some: of the machine, or simulated."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def read(self, count: int, timeout: float) -> bytes:
        """Return between 1 and ``count`` bytes, or none if none came within ``timeout`` seconds."""

    def close(self) -> None:
        """Let go of the device."""


@runtime_checkable
class ColumnStore(Protocol):
    """A simulation whose external memory is beside the design."""

    def store_columns(self, first: int, data: bytes) -> bool:
        """Put columns into it in no time; ``False`` if they are to go over the link."""
