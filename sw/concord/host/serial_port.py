"""A serial port as a transport."""

from __future__ import annotations

import serial

from concord.host.errors import LinkError
from concord.spec.link import BYTE_BITS


class SerialTransport:
    """Bytes over a serial port: 8 data bits, no parity, 1 stop bit, no flow control.

    Parameters
    ----------
    port : str
        Name of the port, for instance ``/dev/ttyUSB0`` or ``COM3``.
    baud : int
        Bits per second, as built into the board's design.
    """

    wait_cycles: int | None = None

    def __init__(self, port: str, baud: int):
        self.byte_time = BYTE_BITS / baud
        try:
            self._serial = serial.Serial(port, baud, timeout=0, exclusive=True)
        except (serial.SerialException, ValueError) as error:
            raise LinkError(f"cannot open serial port {port!r}: {error}") from error

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._serial.write(data)
        except serial.SerialException as error:
            raise LinkError(f"serial port {self._serial.port!r} failed: {error}") from error

    def read(self, count: int, timeout: float) -> bytes:
        """See :class:`concord.host.transport.Transport`."""
        try:
            if self._serial.timeout != timeout:
                self._serial.timeout = timeout
            first: bytes = self._serial.read(1)
            more = min(count - 1, self._serial.in_waiting) if first else 0
            return first + (self._serial.read(more) if more else b"")
        except (serial.SerialException, OSError) as error:
            raise LinkError(f"serial port {self._serial.port!r} failed: {error}") from error

    def close(self) -> None:
        """Close the port."""
        self._serial.close()
