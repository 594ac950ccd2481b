"""``concord_spec.h``: link, memory map and formats for the library in C."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from concord.image.columns import DIGEST_BYTES
from concord.spec import formats, link
from concord.spec.config import SPEC_VERSION
from concord.spec.feeder import FEED_LAYOUTS, OUTBOX_ADDRESS, FeedOp
from concord.spec.fields import Layout
from concord.spec.isa import Trap
from concord.spec.memmap import MAGIC, REGISTERS, Reg, RegionId

#: Registers with fields that the library reads or writes.
_REGISTERS = (Reg.CONTROL, Reg.STATUS, Reg.TRAP)


def spec_header() -> str:
    """The text of the header."""
    parts = [
        ("Frames.", _frames()),
        ("Requests, and what replies say of them.", _codes("KIND", link.Kind)),
        ("", _codes("REPLY", link.Status)),
        ("", [_define("UNSOLICITED", link.UNSOLICITED), _texts("REPLY", link.Status)]),
        ("Regions and registers.", _codes("REGION", RegionId)),
        (
            "",
            [*_codes("REGISTER", Reg), _define("REGISTER_BYTES", REGISTERS[0].layout.nbytes), _define("MAGIC", MAGIC)],
        ),
        ("", [line for reg in _REGISTERS for line in _fields(reg.name, REGISTERS[reg].layout)]),
        ("External memory.", [_define("DIGEST_BYTES", DIGEST_BYTES)]),
        ("", [_define("SPEC_VERSION", SPEC_VERSION)]),
        ("Why a program has trapped.", [*_codes("TRAP", Trap), _texts("TRAP", Trap)]),
        ("Flags, as numbers of bits.", [*_codes("FLAG", formats.Flag, "_BIT"), _define("FLAGS", len(formats.Flag))]),
        ("", [_texts("FLAG", formats.Flag)]),
        ("Numbers.", _numbers()),
    ]
    body = "\n".join((f"\n/* {title} */\n" if title else "") + "\n".join(lines) for title, lines in parts)
    return f"{_HEAD}{body}\n\n#endif\n"


_HEAD = """/* Link, memory map and formats of Concord, written by `concord derive` from concord.spec. */

#ifndef CONCORD_SPEC_H
#define CONCORD_SPEC_H
"""


def _define(name: str, value: int) -> str:
    """A constant: hexadecimal where that is easier to read, and signed only if it is negative."""
    if value < 0:
        return f"#define CONCORD_{name} ({value})"
    return f"#define CONCORD_{name} {f'{value:#x}' if value > 0xFFFF else value}U"


def _signed(name: str, value: int) -> str:
    return f"#define CONCORD_{name} {f'({value})' if value < 0 else value}"


def _codes(prefix: str, enum: Iterable[IntEnum], suffix: str = "") -> list[str]:
    return [_define(f"{prefix}_{member.name}{suffix}", member) for member in enum]


def _texts(prefix: str, enum: type[IntEnum]) -> str:
    """The names of an enumeration that counts from 0 on, for an array."""
    if [int(member) for member in enum] != list(range(len(enum))):
        raise ValueError(f"{enum.__name__} must count from 0 on")
    names = ", ".join(f'"{member.name}"' for member in enum)
    return f"#define CONCORD_{prefix}_TEXTS {{{names}}}"


def _fields(prefix: str, layout: Layout) -> list[str]:
    """Place and width of every field in bits."""
    lines = []
    for at, field in layout.placed():
        if field.name != "reserved":
            name = f"{prefix}_{field.name.upper()}"
            lines += [_define(f"{name}_SHIFT", at), _define(f"{name}_BITS", field.span)]
    return lines


def _frames() -> list[str]:
    layouts = {"HEADER": link.HEADER, "TARGET": link.TARGET, "COUNT": link.COUNT, "WAIT": link.WAIT_CYCLES}
    layouts |= {"OUTBOX": OUTBOX_ADDRESS}
    if link.HEADER["seq"].width != 8:
        raise ValueError(f"sequence numbers must have 8 bits in C, not {link.HEADER['seq'].width}")
    sizes = [_define(f"{name}_BYTES", layout.nbytes) for name, layout in layouts.items()]
    return [
        _define("FLAG", link.FLAG),
        _define("ESCAPE", link.ESCAPE),
        _define("ESCAPE_XOR", link.ESCAPE_XOR),
        _define("RESUME", link.RESUME),
        _define("NUMBERS", 1 << link.HEADER["seq"].width),
        _define("CRC_BYTES", link.CRC_BYTES),
        _define("CRC_POLYNOMIAL", link.CRC_POLYNOMIAL),
        _define("CRC_ONES", link.CRC_ONES),
        *sizes,
        *(line for name, layout in layouts.items() for line in _fields(name, layout)),
    ]


def _numbers() -> list[str]:
    return [
        _define("BINARY16_INF", formats.BINARY16_INF),
        _signed("BINARY16_MAX", formats.BINARY16_MAX),
        _signed("BINARY16_EXP_MIN", formats.BINARY16_EXP_MIN),
        _signed("BINARY16_PRECISION", formats.BINARY16_PRECISION),
        _define("LANES_MOST", FEED_LAYOUTS[FeedOp.SEND]["lanes"].high),
    ]
