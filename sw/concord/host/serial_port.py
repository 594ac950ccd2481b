"""A serial port as a transport."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import serial

from concord.host.errors import LinkError
from concord.spec.links import FTDI, LinkSpec

#: Folder of Linux with one for every serial port, with the latency timer of those of FTDI, in milliseconds.
PORTS = Path("/sys/class/tty")
_MOST_MS = round(1e3 * FTDI.latency)


class LatencyWarning(UserWarning):
    """Replies on a serial port are held back, and small requests take many times as long as they need."""


class SerialTransport:
    """Bytes over a serial port: 8 data bits, no parity, 1 stop bit, no flow control.

    The driver is set to low latency where the system has a call for it; where replies are held back none the less, a
    :class:`LatencyWarning` says what helps.

    Parameters
    ----------
    port : str
        Name of the port, for instance ``/dev/ttyUSB0`` or ``COM3``.
    link : LinkSpec
        What is in the board's design behind the port, with its bit rate if it has one.
    """

    wait_cycles: int | None = None
    cycles: int | None = None

    def __init__(self, port: str, link: LinkSpec):
        self.byte_time = 1 / link.bytes_per_second
        self.controlled = link.controlled
        rate = {} if link.baud is None else {"baudrate": link.baud}
        try:
            self._serial = serial.Serial(port, timeout=0, exclusive=True, **rate)
        except (serial.SerialException, ValueError) as error:
            raise LinkError(f"cannot open serial port {port!r}: {error}") from error
        timer = link.adapter.default_latency > link.adapter.latency  # which holds back short replies
        if timer and (advice := _set_low_latency(self._serial, port)):
            warnings.warn(advice, LatencyWarning, stacklevel=1)  # one place: shown once a port

    def clock(self) -> float:
        """See :class:`concord.host.transport.Transport`."""
        return time.monotonic()

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


def _set_low_latency(opened: serial.Serial, port: str) -> str:
    """Ask the driver not to hold back short replies; what is wrong and what helps, or nothing."""
    slow = f"replies on {port} wait up to {{}} ms each, so rates are lower than those with low latency"
    try:
        opened.set_low_latency_mode(True)
    except (AttributeError, NotImplementedError):  # Windows; macOS and BSD
        return (
            slow.format(f"{1e3 * FTDI.default_latency:g}") + " unless the driver is set otherwise: this system has no "
            f"call for it. Set the latency timer of the port to {_MOST_MS} ms (Windows: Device Manager, port, Port "
            "Settings, Advanced; macOS: LatencyTimer in the settings of the FTDI driver)"
        )
    except ValueError:  # no adapter that has it, or no right to set it: the timer says which
        pass
    name = Path(port).resolve().name
    try:
        timer = int((PORTS / name / "device" / "latency_timer").read_text())
    except (OSError, ValueError):  # no adapter with a timer
        return ""
    if timer <= _MOST_MS:
        return ""
    return slow.format(timer) + f". What helps: echo {_MOST_MS} | sudo tee {PORTS}/{name}/device/latency_timer"
