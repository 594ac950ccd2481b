"""The compiled RTL behind a line with the speed of a serial port, in simulated time."""

from __future__ import annotations

from pathlib import Path

from concord.host.rtl import RtlTransport


class PacedTransport(RtlTransport):
    """Counts bytes, and sees to it that the design takes every one.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate``.
    byte_cycles, reply_cycles : int
        As :meth:`RtlTransport.pace`.

    Members
    -------
    sent, received : int
        Bytes so far.
    """

    def __init__(self, library: Path, byte_cycles: int, reply_cycles: int = 0):
        super().__init__(library)
        self.sent = self.received = 0
        self.pace(byte_cycles, reply_cycles)

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        self.sent += len(data)
        super().write(data)

    def read(self, count: int, timeout: float) -> bytes:
        """Simulate until a byte is there."""
        data = super().read(count, timeout)
        self.received += len(data)
        assert not self.dropped
        return data
