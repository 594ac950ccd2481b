"""A serial peripheral interface as a transport: the host has the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from concord.host.errors import LinkError
from concord.host.frames import PauseFilter
from concord.spec.link import FLAG
from concord.spec.links import LinkSpec
from concord.utils.extras import install_command

#: Bytes of a call at the most: what the driver of Linux takes unless it is set otherwise.
CALL_BYTES = 4096
#: Bytes of a call that looks for a reply: a call takes about as long as these. Within a reply each call has twice as
#: many as the one before, up to somewhat less than the largest reply: what looks after its end is lost time.
POLL_BYTES, MOST_POLL_BYTES = 256, 1024
#: Bytes of a wire that nobody drives, and more such bytes in a row than a reply has.
_UNDRIVEN, _MOST_EQUAL = (0x00, 0xFF), 2 * CALL_BYTES
#: Share of the time waited so far, and seconds at the most, without a look for a reply.
REST, MOST_REST = 1 / 8, 1e-3
_FLAG = bytes([FLAG])
_FLAGS = re.compile(b"%c+" % FLAG)
#: Names of buses and the chips on them, as Linux has them.
_NAME = re.compile(r"(?:spi:)?/dev/spidev(\d+)\.(\d+)")


class SpiBus(Protocol):
    """Part of ``spidev.SpiDev`` that is used."""

    def xfer2(self, values: Sequence[int], /) -> Sequence[int]:
        """Clock bytes in one transfer, at most :data:`CALL_BYTES`, and return as many."""

    def close(self) -> None:
        """Let go of the bus."""


class SpiTransport:
    """Bytes over a bus on which nothing comes unless something is sent.

    Fills the time without bytes with flags, and leaves out those that the device fills its time with, and its pauses.
    Bytes to send wait until there are enough for a call, or until a reply is wanted. Where nobody is on the bus nothing
    comes but :data:`_MOST_EQUAL` bytes.

    Parameters
    ----------
    bus : SpiBus
        The bus; closed with the transport.
    byte_time : float
        Seconds of a byte, those of calls among them.
    wait_cycles : int or None
        As of :class:`concord.host.transport.Transport`.
    clock, sleep : callable
        Seconds so far, and to let some pass.
    most_rest : float
        Seconds at the most, without a look for a reply.
    """

    controlled = False

    @property
    def cycles(self) -> int | None:
        """See :class:`concord.host.transport.Transport`."""
        return None

    def __init__(
        self,
        bus: SpiBus,
        byte_time: float,
        *,
        wait_cycles: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        most_rest: float = MOST_REST,
    ):
        self.bus, self.byte_time, self.wait_cycles = bus, byte_time, wait_cycles
        self.clock, self._sleep, self._most_rest = clock, sleep, most_rest
        self._waiting = bytearray()  # to be sent
        self._came = bytearray()
        self._pauses = PauseFilter()
        self._last = FLAG  # that came
        self._poll = POLL_BYTES  # bytes of the next look for a reply
        self._equal = 0  # bytes of calls in a row that came as from a wire that nobody drives

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them for the next call."""
        self._waiting += data
        while len(self._waiting) >= CALL_BYTES:
            self._send()

    def read(self, count: int, timeout: float) -> bytes:
        """See :class:`concord.host.transport.Transport`."""
        begun = self.clock()
        while self._waiting:
            self._send()
        while not self._came:
            waited = self.clock() - begun
            if waited >= timeout:
                return b""
            if waited > 0:
                self._sleep(min(REST * waited, self._most_rest))
            self._call(_FLAG * self._poll)
        data = bytes(self._came[:count])
        del self._came[:count]
        return data

    def close(self) -> None:
        """Close the bus."""
        self.bus.close()

    def _send(self) -> None:
        """Make one call with what waits; a short one has time for a reply in it."""
        data = bytes(self._waiting[:CALL_BYTES])
        del self._waiting[:CALL_BYTES]
        self._call(data.ljust(POLL_BYTES, _FLAG))

    def _call(self, data: bytes) -> None:
        try:
            came = bytes(self.bus.xfer2(list(data)))
        except (OSError, OverflowError) as error:
            raise LinkError(f"the SPI bus failed: {error}") from error
        if self._is_undriven(came):
            self._last = FLAG
            return
        came = _FLAGS.sub(_FLAG, self._pauses.feed(came))
        if self._last == FLAG:
            came = came.removeprefix(_FLAG)
        if came:
            self._last = came[-1]
        self._came += came
        self._poll = POLL_BYTES if self._last == FLAG else min(2 * self._poll, MOST_POLL_BYTES)

    def _is_undriven(self, came: bytes) -> bool:
        """True if nobody has sent these bytes, as far as one can say by now."""
        undriven = came[0] in _UNDRIVEN and came.count(came[0]) == len(came)
        self._equal = self._equal + len(came) if undriven else 0
        return self._equal > _MOST_EQUAL


def is_spi(target: str) -> bool:
    """True if a target is the name of a bus and a chip: ``/dev/spidev0.0``, or ``spi:`` in front of it."""
    return _NAME.fullmatch(target) is not None


def open_spi(target: str, link: LinkSpec) -> SpiTransport:
    """A transport on a bus of this computer.

    Parameters
    ----------
    target : str
        As :func:`is_spi` has it.
    link : LinkSpec
        Says the clock.

    Raises
    ------
    LinkError
        If there is no such bus, or the package of the extra ``spi`` is not installed.
    """
    match = _NAME.fullmatch(target)
    if match is None:
        raise ValueError(f"target must be like /dev/spidev0.0, not {target!r}")
    try:
        import spidev
    except ImportError as error:
        raise LinkError(f"SPI needs spidev, not installed; {install_command('spi')}") from error
    bus: Any = spidev.SpiDev()
    try:
        bus.open(int(match[1]), int(match[2]))
        bus.mode = 0
        bus.max_speed_hz = link.clock_hz
    except OSError as error:
        bus.close()
        raise LinkError(f"cannot open {target!r}: {error}") from error
    return SpiTransport(bus, 1 / link.bytes_per_second)
