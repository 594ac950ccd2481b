"""The compiled RTL behind its USB port as a transport."""

from __future__ import annotations

import ctypes
from collections import deque
from pathlib import Path

from concord.host.compiled_design import SIZE, TEXT, UINT64, CompiledDesign, Function
from concord.host.errors import LinkError
from concord.host.rtl import CYCLES_PER_SECOND
from concord.host.usb_host import PACKET_BYTES, TRANSFER_BYTES, UsbHost
from concord.spec.links import LinkSpec

#: Bytes of a packet at the most, PID and checksum included, and somewhat more.
_ROOM = 2048
#: Faults of a packet of the device (``verilate_usb.cpp``).
_TROUBLES = {
    -2: "bits must keep the clock",
    -3: "a packet must begin with SYNC",
    -4: "seven equal bits must not follow each other",
    -5: "a packet must end with two bits of SE0",
    -6: "a packet must have whole bytes",
}


_NUMBER = ctypes.c_double
_FUNCTIONS: tuple[Function, ...] = (
    ("reset", None, (_NUMBER,)),
    ("line_time", _NUMBER, ()),
    ("line_offset", None, (_NUMBER,)),
    ("line_attached", ctypes.c_int, ()),
    ("line_send", None, (TEXT, SIZE)),
    ("line_listen", ctypes.c_int, (_NUMBER, TEXT, SIZE)),
    ("line_hold", None, (ctypes.c_int, _NUMBER)),
    ("line_slowest", _NUMBER, ()),
    ("line_collisions", UINT64, ()),
)


class RtlLine(CompiledDesign):
    """The line to the simulation; see :class:`concord.host.usb_host.Line`.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate`` with the link ``usb``.
    clock_hz : float
        Clock of the NPU.
    ppm : float
        How much too fast the host's clock is, in parts per million.
    trace : Path or None
        VCD file for the waveforms; the library must have been built for it.
    """

    def __init__(self, library: Path, clock_hz: float, *, ppm: float = 0.0, trace: Path | None = None):
        super().__init__(library, _FUNCTIONS, trace)
        self.clock_hz = clock_hz
        self.call("line_offset", ppm)
        self.call("reset", clock_hz)
        self._room = ctypes.create_string_buffer(_ROOM)

    @property
    def time(self) -> float:
        """Seconds simulated so far."""
        return float(self.call("line_time"))

    @property
    def attached(self) -> bool:
        """True if the device has pulled D+ up."""
        return bool(self.call("line_attached"))

    @property
    def slowest(self) -> float:
        """Bits that the device has taken for an answer at the most."""
        return float(self.call("line_slowest"))

    def send(self, packet: bytes) -> None:
        """Send a packet, three bits after the last one."""
        self.call("line_send", packet, len(packet))

    def listen(self, bits: float) -> bytes:
        """The packet that begins within so many bits; nothing if none does."""
        count = self.call("line_listen", bits, self._room, _ROOM)
        self.check_memory()
        if count in _TROUBLES:
            raise LinkError(f"{_TROUBLES[count]} at {self.time * 1e6:.3f} us")
        if self.call("line_collisions"):
            raise LinkError(f"the device must be silent while the host sends, before {self.time * 1e6:.3f} us")
        return self._room.raw[: max(0, count)]

    def hold(self, state: int, seconds: float) -> None:
        """Hold the line in SE0 (0), J (1) or K (2), or leave it alone (3)."""
        self.call("line_hold", state, seconds)


class UsbRtlTransport:
    """Bytes over the simulated USB port, once the host has enumerated the device.

    Runs as long as someone reads, as :class:`concord.host.rtl.RtlTransport` does. Packets to the device take turns with
    questions for packets from it.

    Parameters
    ----------
    line : RtlLine
        The line; closed with the transport.
    link : LinkSpec
        Says how long it takes, in simulated time, until the host's program sees what has come.
    host : UsbHost or None
        The host at the line, for tests.
    """

    wait_cycles: int | None = CYCLES_PER_SECOND // 4
    controlled = True

    def __init__(self, line: RtlLine, link: LinkSpec, *, host: UsbHost | None = None):
        self.line, self.latency = line, link.adapter.latency
        self.byte_time = line.clock_hz / link.bytes_per_second / CYCLES_PER_SECOND
        self.host = host or UsbHost(line)
        self._waiting = bytearray()  # to be sent
        self._partial = bytearray()  # of a transfer that goes on
        self._seen: deque[tuple[float, bytes]] = deque()  # received, and when it is seen
        self.attach()

    def attach(self) -> None:
        """Enumerate the device, as after a reset of the bus; forget what is on the way."""
        self.device = self.host.enumerate()
        self.host.open_port()
        self._waiting.clear()
        self._partial.clear()
        self._seen.clear()

    @property
    def cycles(self) -> int:
        """Clock cycles simulated so far."""
        return self.line.cycles

    def clock(self) -> float:
        """Simulated time; see :class:`concord.host.transport.Transport`."""
        return self.cycles / CYCLES_PER_SECOND

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        self._waiting += data

    def read(self, count: int, timeout: float) -> bytes:
        """Simulate until something is there; see :class:`concord.host.transport.Transport`."""
        end = self.cycles + max(1, int(timeout * CYCLES_PER_SECOND))
        while not (self._seen and self._seen[0][0] <= self.line.time):
            if self.cycles >= end:
                return b""
            self.poll()
        seen, data = self._seen.popleft()
        if len(data) > count:
            self._seen.appendleft((seen, data[count:]))
        return data[:count]

    def poll(self) -> None:
        """Send one packet to the device, if there is something to send, and take one from it."""
        if self._waiting and self.host.transmit(self.device.output, bytes(self._waiting[:PACKET_BYTES])):
            del self._waiting[:PACKET_BYTES]
        data = self.host.receive(self.device.input)
        if data is None:
            return
        self._partial += data
        if len(data) < PACKET_BYTES or len(self._partial) >= TRANSFER_BYTES:
            if self._partial:
                self._seen.append((self.line.time + self.latency, bytes(self._partial)))
            self._partial.clear()

    def close(self) -> None:
        """End the simulation."""
        self.line.close()
