"""A USB host at full speed, packet by packet, for the simulation: [USB 2.0, chapters 8 and 9] and the class CDC-ACM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from concord.host.errors import LinkError

#: Bits of the line in a second, seconds of a frame, and bytes of a packet at the most.
BIT_HZ, FRAME, PACKET_BYTES = 12e6, 1e-3, 64
#: Bytes of the buffer that a driver gives the host at a time: it comes back full, or with the first packet that is not.
TRANSFER_BYTES = 4096
#: Bits in which the answer to a packet must begin.
ANSWER_BITS = 18
#: Bits that a transaction takes at the most: three packets, every sixth bit stuffed, and what is between them.
TRANSACTION_BITS = 35 + (16 + 8 * (PACKET_BYTES + 2)) * 7 / 6 + 20 + 2 * ANSWER_BITS
#: Seconds of a bus reset and of a resume. Hosts take 10 ms and more; the device of luna sees a reset within 25 us.
RESET, RESUME = 50e-6, 20e-6
#: Number of times that a device may say that it is not ready for the next packet of a control transfer.
PATIENCE = 1000
#: Code of the language of strings.
ENGLISH = 0x0409


class Pid(IntEnum):
    """Identifier of a packet: its kind."""

    OUT, IN, SOF, SETUP = 0x1, 0x9, 0x5, 0xD
    DATA0, DATA1 = 0x3, 0xB
    ACK, NAK, STALL = 0x2, 0xA, 0xE


class UsbRequest(IntEnum):
    """Requests of the standard, and those of the class."""

    CLEAR_FEATURE, SET_ADDRESS, GET_DESCRIPTOR = 1, 5, 6
    GET_CONFIGURATION, SET_CONFIGURATION = 8, 9
    SET_LINE_CODING, GET_LINE_CODING, SET_CONTROL_LINE_STATE = 0x20, 0x21, 0x22


class DescriptorType(IntEnum):
    """Descriptors."""

    DEVICE, CONFIGURATION, STRING, INTERFACE, ENDPOINT, QUALIFIER = 1, 2, 3, 4, 5, 6


class Stalled(LinkError):
    """The device refuses a request, or an endpoint is halted."""


class Line(Protocol):
    """The line to a device.

    Members
    -------
    time : float
        Seconds of simulated time.
    """

    @property
    def time(self) -> float: ...

    def send(self, packet: bytes) -> None:
        """Send a packet from its PID on."""

    def listen(self, bits: float) -> bytes:
        """The packet that begins within so many bits; nothing if none does."""

    def hold(self, state: int, seconds: float) -> None:
        """Hold the line in SE0 (0), J (1) or K (2), or leave it alone (3)."""


def crc5(value: int) -> int:
    """Checksum of the 11 bits of a token, as it is sent: the first bit is the lowest."""
    return _crc([value >> k & 1 for k in range(11)], 0x14, 5)


def crc16(data: bytes) -> int:
    """Checksum of the bytes of a data packet, in the order in which its bits are sent."""
    return _crc([byte >> k & 1 for byte in data for k in range(8)], 0xA001, 16)


def _crc(bits: list[int], polynomial: int, width: int) -> int:
    remainder = ones = (1 << width) - 1
    for bit in bits:
        remainder = remainder >> 1 ^ (polynomial if (remainder ^ bit) & 1 else 0)
    return remainder ^ ones


def packet(pid: Pid, content: bytes = b"") -> bytes:
    """A packet with its PID in front."""
    return bytes([pid | (~pid & 15) << 4]) + content


def token(pid: Pid, value: int) -> bytes:
    """A token: 7 bits of address and 4 of endpoint, or the 11 bits of the number of a frame."""
    return packet(pid, (value | crc5(value) << 11).to_bytes(2, "little"))


def data_packet(toggle: int, data: bytes) -> bytes:
    """DATA0 or DATA1 with its checksum."""
    return packet(Pid.DATA1 if toggle else Pid.DATA0, data + crc16(data).to_bytes(2, "little"))


@dataclass(frozen=True)
class SerialDevice:
    """Descriptors of a device, as far as the driver of a serial port needs them.

    Parameters
    ----------
    vendor, product : int
        Numbers of vendor and product, 16 bits each.
    strings : tuple of str
        Manufacturer and product.
    interrupt, input, output : int
        Numbers of the endpoints for events, to the host and from the host.
    """

    vendor: int
    product: int
    strings: tuple[str, ...]
    interrupt: int
    input: int
    output: int


class UsbHost:
    """The only host at a line with one device.

    Frames begin with SOF every millisecond, and no transaction reaches from one into the next. What is lost or damaged
    is sent again with the same toggle, and what comes twice is dropped. Anything of the device that is not as the
    standard says is an error.

    Parameters
    ----------
    line : Line
        The line.
    attempts : int
        How often a transaction is tried that gets no answer, or a damaged one.
    """

    def __init__(self, line: Line, *, attempts: int = 3):
        self.line = line
        self.attempts = attempts
        self.address = 0
        self.frame = 0
        self._frame_at = line.time
        self._toggles: dict[tuple[int, bool], int] = {}

    # State of the bus ----------------------------------------------------------------------------

    def reset(self) -> None:
        """Reset the bus: the device has no address afterwards."""
        self.line.hold(0, RESET)
        self.line.hold(3, RESET)
        self.address = 0
        self._toggles.clear()
        self._frame_at = self.line.time

    def suspend(self, seconds: float) -> None:
        """Leave the bus alone, without frames, and resume it; after 3 ms a device sleeps."""
        self.line.hold(3, seconds)
        self.line.hold(2, RESUME)
        self.line.hold(0, 16 / BIT_HZ)  # a low-speed end of packet
        self.line.hold(3, RESET)
        self._frame_at = self.line.time

    # Transactions --------------------------------------------------------------------------------

    def transmit(self, endpoint: int, data: bytes) -> bool:
        """Send a packet to an endpoint; whether the device took it (else NAK).

        Raises
        ------
        Stalled
            If the endpoint is halted.
        LinkError
            If there is no answer, several times.
        """
        return self._sent(Pid.OUT, endpoint, data)

    def receive(self, endpoint: int) -> bytes | None:
        """The next packet of an endpoint, ``None`` if there is none (NAK); errors as :meth:`transmit`."""
        key = endpoint, True
        for _ in range(self.attempts):
            answer = self._ask(token(Pid.IN, self.address | endpoint << 7))
            if not answer or not _whole(answer):
                continue
            if (pid := answer[0] & 15) == Pid.NAK:
                return None
            if pid == Pid.STALL:
                raise Stalled(f"endpoint {endpoint} to the host is halted")
            if pid not in (Pid.DATA0, Pid.DATA1) or len(answer) > PACKET_BYTES + 3:
                raise LinkError(f"answer to IN must be a packet of data, not {answer.hex()}")
            self.line.send(packet(Pid.ACK))
            if (pid == Pid.DATA1) == self._toggles.setdefault(key, 0):
                self._toggles[key] ^= 1
                return answer[1:-2]
        raise LinkError(f"endpoint {endpoint} must answer IN, and has not in {self.attempts} attempts")

    def _sent(self, pid: Pid, endpoint: int, data: bytes) -> bool:
        toggle = self._toggles.setdefault((endpoint, False), 0)
        for _ in range(self.attempts):
            answer = self._ask(token(pid, self.address | endpoint << 7), data_packet(toggle, data))
            if not answer:
                continue
            if answer == packet(Pid.ACK):
                self._toggles[endpoint, False] ^= 1
                return True
            if answer == packet(Pid.NAK) and pid is not Pid.SETUP:
                return False
            if answer == packet(Pid.STALL) and pid is not Pid.SETUP:
                raise Stalled(f"endpoint {endpoint} from the host is halted")
            raise LinkError(f"answer to {pid.name} must be a handshake, not {answer.hex()}")
        raise LinkError(f"endpoint {endpoint} must answer {pid.name}, and has not in {self.attempts} attempts")

    def _ask(self, *packets: bytes) -> bytes:
        """Answer of the device to packets that belong together."""
        self._begin()
        for item in packets:
            self.line.send(item)
        return self.line.listen(ANSWER_BITS)

    def _begin(self) -> None:
        """Wait until there is a transaction's time in a frame."""
        while True:
            if (now := self.line.time) >= self._frame_at:
                self.line.send(token(Pid.SOF, self.frame))
                self.frame = (self.frame + 1) % 2048
                self._frame_at += FRAME
            elif now + TRANSACTION_BITS / BIT_HZ > self._frame_at:
                self.line.hold(3, self._frame_at - now)
            else:
                return

    # Control transfers ---------------------------------------------------------------------------

    def control_in(self, kind: int, request: int, value: int, index: int, length: int) -> bytes:
        """A control transfer that reads; :class:`Stalled` if the device has no such thing."""
        self._setup(kind | 0x80, request, value, index, length)
        data = b""
        while len(data) < length:
            piece = self._wait_in()
            data += piece
            if len(piece) < PACKET_BYTES:
                break
        if len(data) > length:
            raise LinkError(f"answer must have at most {length} bytes, not {len(data)}")
        self._toggles[0, False] = 1
        self._wait_out(b"")
        return data

    def control_out(self, kind: int, request: int, value: int, index: int, data: bytes = b"") -> None:
        """Control transfer that writes."""
        self._setup(kind, request, value, index, len(data))
        for at in range(0, len(data), PACKET_BYTES):
            self._wait_out(data[at : at + PACKET_BYTES])
        self._toggles[0, True] = 1
        if self._wait_in():
            raise LinkError("status of a control transfer must be empty")

    def _setup(self, kind: int, request: int, value: int, index: int, length: int) -> None:
        self._toggles[0, False] = 0
        words = [value.to_bytes(2, "little"), index.to_bytes(2, "little"), length.to_bytes(2, "little")]
        self._sent(Pid.SETUP, 0, bytes([kind, request]) + b"".join(words))
        self._toggles[0, False] = self._toggles[0, True] = 1

    def _wait_in(self) -> bytes:
        for _ in range(PATIENCE):
            if (data := self.receive(0)) is not None:
                return data
        raise LinkError(f"a control transfer must be answered, not {PATIENCE} times with NAK")

    def _wait_out(self, data: bytes) -> None:
        for _ in range(PATIENCE):
            if self.transmit(0, data):
                return
        raise LinkError(f"a control transfer must be taken, not {PATIENCE} times with NAK")

    # Enumeration ---------------------------------------------------------------------------------

    def descriptor(self, kind: DescriptorType, index: int = 0, *, language: int = 0, most: int = 0xFFFF) -> bytes:
        """A descriptor of the device; of a configuration all that belongs to it, with the length that it says."""
        data = self.control_in(0, UsbRequest.GET_DESCRIPTOR, kind << 8 | index, language, most)
        length = data[2] | data[3] << 8 if kind is DescriptorType.CONFIGURATION and len(data) > 3 else data[0]
        if data[1] != kind or len(data) != min(length, most):
            raise LinkError(f"descriptor must be of kind {kind} and have its length, not {data.hex()}")
        return data

    def enumerate(self, address: int = 5) -> SerialDevice:
        """Reset the bus, give the device an address and configure it, as hosts do.

        Raises
        ------
        LinkError
            If the device is no serial port, or does something that it must not.
        """
        self.reset()
        if self.descriptor(DescriptorType.DEVICE, most=8)[7] != PACKET_BYTES:
            raise LinkError(f"control packets must have {PACKET_BYTES} bytes")
        self.control_out(0, UsbRequest.SET_ADDRESS, address, 0)
        self.address = address
        device = self.descriptor(DescriptorType.DEVICE)
        self.descriptor(DescriptorType.CONFIGURATION, most=9)
        configuration = self.descriptor(DescriptorType.CONFIGURATION)
        strings = tuple(self.string(index) for index in device[14:16])
        endpoints = _endpoints(configuration)
        self.control_out(0, UsbRequest.SET_CONFIGURATION, configuration[5], 0)
        self._toggles.clear()
        if self.control_in(0, UsbRequest.GET_CONFIGURATION, 0, 0, 1) != configuration[5:6]:
            raise LinkError("the device must have the configuration that it was asked for")
        number = int.from_bytes(device[8:10], "little"), int.from_bytes(device[10:12], "little")
        return SerialDevice(*number, strings, *endpoints)

    def string(self, index: int) -> str:
        """A string of the device."""
        languages = self.descriptor(DescriptorType.STRING)
        if int.from_bytes(languages[2:4], "little") != ENGLISH:
            raise LinkError(f"strings must be in English, not {languages.hex()}")
        return self.descriptor(DescriptorType.STRING, index, language=ENGLISH)[2:].decode("utf-16-le")

    def open_port(self, bit_rate: int = 115_200) -> None:
        """Requests of drivers of serial ports when one is opened; all but the coding of the line may be refused."""
        self.control_out(0x21, UsbRequest.SET_LINE_CODING, 0, 0, bit_rate.to_bytes(4, "little") + bytes([0, 0, 8]))
        for value in (0, 3):
            try:
                self.control_out(0x21, UsbRequest.SET_CONTROL_LINE_STATE, value, 0)
            except Stalled:
                pass


def _whole(answer: bytes) -> bool:
    """True if the PID of a packet, and its checksum if it has data, are right."""
    if answer[0] & 15 != ~answer[0] >> 4 & 15:
        return False
    return len(answer) == 1 or (len(answer) > 2 and answer[-2:] == crc16(answer[1:-2]).to_bytes(2, "little"))


def _parts(configuration: bytes) -> Iterator[bytes]:
    """Descriptors after that of the configuration."""
    at = configuration[0]
    while at < len(configuration):
        if not 2 <= configuration[at] <= len(configuration) - at:
            raise LinkError(f"descriptors must fill a configuration, not {configuration.hex()}")
        yield configuration[at : at + configuration[at]]
        at += configuration[at]


def _endpoints(configuration: bytes) -> tuple[int, int, int]:
    """Endpoints of a serial port: for events, to the host, from the host."""
    parts = list(_parts(configuration))
    classes = [(part[2], part[5]) for part in parts if part[1] == DescriptorType.INTERFACE]
    if classes != [(0, 2), (1, 10)] or configuration[4] != len(classes):
        raise LinkError(f"interfaces must be those of a serial port, not {classes}")
    endpoints = {}
    for part in parts:
        if part[1] == DescriptorType.ENDPOINT:
            address, kind, size = part[2], part[3] & 3, part[4] | part[5] << 8
            if size > PACKET_BYTES or (kind, address >> 7) in endpoints:
                raise LinkError(f"endpoint must have packets of at most {PACKET_BYTES} bytes, not {part.hex()}")
            endpoints[kind, address >> 7] = address & 15
    if set(endpoints) != {(3, 1), (2, 1), (2, 0)}:
        raise LinkError(f"endpoints must be those of a serial port, not {endpoints}")
    return endpoints[3, 1], endpoints[2, 1], endpoints[2, 0]
