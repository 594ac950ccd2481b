"""The framed host link, independent of what carries its bytes.

Octets are framed as in HDLC-like framing (RFC 1662, section 4): every frame begins and ends with ``FLAG``; inside,
``FLAG`` and ``ESCAPE`` are sent as ``ESCAPE, octet ^ ESCAPE_XOR``. Empty frames (two flags in a row) are ignored, so
a sender may begin with a flag to end whatever was on the line.

Request::  seq u8 | kind u8 | length u16 | payload (length octets) | crc u32
Reply::    seq u8 | status u8 | length u16 | payload | crc u32

Integers are little endian. The CRC is CRC-32 (IEEE 802.3, as ``zlib.crc32``) of everything before it.

The device counts sequence numbers from 0 at reset, modulo 256. A request with another number than the expected one is
answered with ``BAD_SEQ`` and changes nothing; ``PING`` is accepted with any number and sets the count, so a host
synchronises with it. Replies repeat the number of the request; an error reply to a frame whose header cannot be trusted
carries the expected number, with :data:`UNSOLICITED` added to its status. A request that fails leaves memories,
registers and the expected number unchanged.
"""

from __future__ import annotations

from enum import IntEnum

from concord.spec.fields import Field, Layout

FLAG = 0x7E
ESCAPE = 0x7D
ESCAPE_XOR = 0x20
#: End of a pause. On a line whose clock does not wait a device that has no byte for the middle of a frame sends
#: ``ESCAPE`` until it has one, and then this byte; where its last byte was ``ESCAPE`` anyway, this byte is left out.
RESUME = 0x7F

#: seq, kind (status in a reply), length of the payload
HEADER = Layout((Field("seq", 8), Field("kind", 8), Field("length", 16)))
CRC_BYTES = 4
#: The polynomial of CRC-32 without its highest power, x**0 in the highest bit, as bytes are sent low bit first.
CRC_POLYNOMIAL = 0xEDB88320
#: Start of the register of the checksum, and number to which the checksum is added at the end.
CRC_ONES = (1 << 8 * CRC_BYTES) - 1


class Kind(IntEnum):
    """Requests."""

    PING = 0  #: empty payload; reply: REGS words MAGIC, VERSION, FINGERPRINT, FINGERPRINT_HIGH (16 bytes)
    READ = 1  #: payload TARGET + COUNT; reply: that many words
    WRITE = 2  #: payload TARGET + words; reply: empty
    WAIT = 3  #: payload WAIT_CYCLES; replies with the STATUS register (4 bytes) when not busy or after that many cycles


#: Bits per second of serial ports, unless told otherwise.
BAUD = 1_000_000
#: Bits of a byte on a serial line: start bit, eight bits, stop bit.
BYTE_BITS = 10
#: First bytes of the payload of READ and WRITE.
TARGET = Layout((Field("region", 8), Field("addr", 24)))
#: Rest of the payload of READ: words to read.
COUNT = Layout((Field("count", 16),))
#: Payload of WAIT.
WAIT_CYCLES = Layout((Field("cycles", 32),))


class Status(IntEnum):
    """First octet after the number in a reply: 0 is success, everything else changed nothing."""

    OK = 0
    BAD_CRC = 1  #: damaged or truncated: checksum or length do not agree with what arrived
    TOO_LONG = 2  #: payload longer than max_payload
    BAD_SEQ = 3  #: out of order; reply payload: the expected number (1 byte)
    BAD_KIND = 4  #: unknown request
    BAD_LENGTH = 5  #: payload length does not fit the request, or is not a whole number of words
    BAD_REGION = 6  #: no such region, or it cannot be read or written
    BAD_ADDR = 7  #: reaches beyond the end of the region
    BUSY = 8  #: the region is not accessible while a program runs, or the inbox has no room


#: Cycles that a device with a feeder lets a write to the inbox wait for room, as long as it can make some.
ROOM_CYCLES = 1 << 18

#: Added to the status when the number in the reply is the expected one because the request's could not be trusted.
UNSOLICITED = 0x80
