"""Frames of :mod:`concord.spec.link` to bytes and back."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from concord.spec.link import CRC_BYTES, ESCAPE, ESCAPE_XOR, FLAG, HEADER, RESUME

_FLAG = bytes([FLAG])
_ESCAPE = bytes([ESCAPE])
_ESCAPED_ESCAPE = bytes([ESCAPE, ESCAPE ^ ESCAPE_XOR])
_ESCAPED_FLAG = bytes([ESCAPE, FLAG ^ ESCAPE_XOR])
#: A pause that ends with RESUME, or an escape and perhaps a pause after it.
_PAUSE = re.compile(b"%c+(%c?)" % (ESCAPE, RESUME))


def line_bytes(payload: int) -> int:
    """Bytes on the line of a frame with so many bytes of payload; each byte that must be escaped adds one."""
    return len(_FLAG) + HEADER.nbytes + payload + CRC_BYTES + len(_FLAG)


class FrameError(ValueError):
    """Bytes between two flags that are not a frame."""


@dataclass(frozen=True)
class Frame:
    """A request or a reply.

    Parameters
    ----------
    seq : int
        Sequence number, modulo 256.
    kind : int
        Kind of a request, status of a reply.
    payload : bytes
        Payload.
    """

    seq: int
    kind: int
    payload: bytes = b""

    def body(self) -> bytes:
        """The bytes between the flags, before escaping: header, payload and checksum."""
        head = HEADER.pack(seq=self.seq, kind=self.kind, length=len(self.payload))
        data = head.to_bytes(HEADER.nbytes, "little") + self.payload
        return data + zlib.crc32(data).to_bytes(CRC_BYTES, "little")

    def encode(self) -> bytes:
        """The bytes on the line, flags included."""
        return enclose(self.body())

    @classmethod
    def from_body(cls, body: bytes) -> Frame:
        """Inverse of :meth:`body`; :class:`FrameError` if length or checksum do not agree with what is there."""
        if len(body) < HEADER.nbytes + CRC_BYTES:
            raise FrameError(f"frame must have at least {HEADER.nbytes + CRC_BYTES} bytes, not {len(body)}")
        data, crc = body[:-CRC_BYTES], int.from_bytes(body[-CRC_BYTES:], "little")
        if crc != zlib.crc32(data):
            raise FrameError(f"checksum must be {zlib.crc32(data):#010x}, not {crc:#010x}")
        head = HEADER.unpack(int.from_bytes(data[: HEADER.nbytes], "little"))
        payload = data[HEADER.nbytes :]
        if head["length"] != len(payload):
            raise FrameError(f"payload must have {head['length']} bytes, not {len(payload)}")
        return cls(head["seq"], head["kind"], payload)


def enclose(body: bytes) -> bytes:
    """Escape ``body`` and put flags around it."""
    return _FLAG + body.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_FLAG, _ESCAPED_FLAG) + _FLAG


def _unescape(raw: bytes) -> bytes | None:
    """Undo the escaping; ``None`` if the last sequence is cut off."""
    body = bytearray()
    at = 0
    while (escape := raw.find(ESCAPE, at)) >= 0:
        if escape + 1 == len(raw):
            return None
        body += raw[at:escape]
        body.append(raw[escape + 1] ^ ESCAPE_XOR)
        at = escape + 2
    return bytes(body + raw[at:])


class FrameReader:
    """Cut a byte stream into the bodies of frames.

    Empty frames leave no trace; a frame that ends inside an escape sequence gives ``None``.
    """

    def __init__(self) -> None:
        self._raw = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Take bytes from the line and yield the bodies of the frames that end in them."""
        *ended, rest = data.split(_FLAG)
        for part in ended:
            raw = bytes(self._raw + part)
            self._raw.clear()
            if raw:
                yield _unescape(raw)
        self._raw += rest

    def reset(self) -> None:
        """Forget what has arrived since the last flag."""
        self._raw.clear()


class PauseFilter:
    """Takes the pauses of a device that its line did not wait for out of its bytes (``concord.spec.link.RESUME``)."""

    def __init__(self) -> None:
        self._held = b""  # an escape whose meaning comes with the bytes after it

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the line and return those of frames, and flags; an escape is kept back for what follows."""
        data = self._held + data
        whole = data.rstrip(_ESCAPE)
        self._held = _ESCAPE if len(whole) < len(data) else b""
        return _PAUSE.sub(lambda match: b"" if match[1] else _ESCAPE, whole)
