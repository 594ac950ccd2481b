"""Frames of :mod:`concord.spec.link` to bytes and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..spec.link import CRC_BYTES, ESCAPE, ESCAPE_XOR, FLAG, HEADER

_FLAG = bytes([FLAG])
_ESCAPE = bytes([ESCAPE])
_ESCAPED_ESCAPE = bytes([ESCAPE, ESCAPE ^ ESCAPE_XOR])
_ESCAPED_FLAG = bytes([ESCAPE, FLAG ^ ESCAPE_XOR])


class FrameError(ValueError):
    """Bytes between two flags that are not a frame."""


@dataclass(frozen=True)
class Frame:
    """A request or a reply.

    Parameters
    ----------
    seq : int
        Sequence number.
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


class FrameReader:
    """Cut a byte stream into the bodies of frames.

    Empty frames leave no trace; an escape sequence cut off by a flag gives ``None``.
    """

    def __init__(self) -> None:
        self._body = bytearray()
        self._escaped = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Take bytes from the line and yield the bodies of the frames that end in them."""
        for byte in data:
            if byte == FLAG:
                if self._escaped:
                    yield None
                elif self._body:
                    yield bytes(self._body)
                self.reset()
            elif byte == ESCAPE and not self._escaped:
                self._escaped = True
            else:
                self._body.append(byte ^ ESCAPE_XOR if self._escaped else byte)
                self._escaped = False

    def reset(self) -> None:
        """Forget what has arrived since the last flag."""
        self._body.clear()
        self._escaped = False
