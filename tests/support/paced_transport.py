"""The compiled RTL behind a line with the speed of a serial port, in simulated time."""

from __future__ import annotations

from pathlib import Path

from concord.host.rtl import RtlTransport

#: More than ever come.
_MOST = 1 << 30


class PacedTransport(RtlTransport):
    """Every byte takes its time, in both directions, while the design goes on.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate``.
    byte_cycles : int
        Clock cycles of a byte on the line.
    reply_cycles : int
        Clock cycles that every reply waits besides, in the drivers of the host.

    Members
    -------
    sent, received : int
        Bytes so far.
    """

    def __init__(self, library: Path, byte_cycles: int, reply_cycles: int = 0):
        super().__init__(library)
        self.byte_cycles, self.reply_cycles = byte_cycles, reply_cycles
        self.sent = self.received = 0
        self._came = bytearray()
        self._asked = False  # and nothing of the reply has been read

    def _pass(self, cycles: int) -> None:
        end = self.cycles + cycles
        while self.cycles < end:
            if self._lib.concord_run(self._open(), end - self.cycles, _MOST):
                self._came += super().read(_MOST, 0.0)

    def write(self, data: bytes) -> None:
        """Send bytes, one after the other."""
        self._asked = True
        self.sent += len(data)
        for byte in data:
            super().write(bytes([byte]))
            self._pass(self.byte_cycles)

    def read(self, count: int, timeout: float) -> bytes:
        """Simulate until a reply is there and has come over the line."""
        if not self._came:
            self._came += super().read(count, timeout)
        data = bytes(self._came[:count])
        del self._came[:count]
        self.received += len(data)
        self._pass(len(data) * self.byte_cycles + (self.reply_cycles if data and self._asked else 0))
        self._asked = self._asked and not data
        return data
