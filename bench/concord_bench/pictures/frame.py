"""Frames of the host link, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.host.frames import Frame
from concord.spec import docs, link
from concord.spec.fields import Field, Layout
from concord.spec.memmap import RegionId
from concord_bench.pictures.kit import BODY, LEADING, MARGIN, PADDING, SMALL, WIDTH, Line, Picture

#: Height of a field and of a byte, and the space between boxes.
_FIELD, _BYTE, _SPACE = 52, 34, 4
_COLOURS = {"flag": "grey", "seq": "blue", "kind": "green", "status": "green", "length": "amber", "crc": "red"}
_PAYLOAD = "violet"
#: Request of the example: its number, region, first address, and words.
_SEQ, _REGION, _ADDRESS, _COUNT = 1, RegionId.WIDE, link.FLAG, 2


@dataclass(frozen=True)
class Part:
    """A field of a frame: its name, its bytes in words, its colour, and whether it takes the room that is left."""

    name: str
    size: str
    colour: str
    wide: bool = False

    @property
    def lines(self) -> tuple[Line, Line]:
        """Lines in the box of the field."""
        return Line(self.name, BODY, bold=True), Line(self.size, quiet=True)

    @property
    def width(self) -> float:
        """Width that the box of the field needs."""
        return max(line.width for line in self.lines)


def _bytes(count: int) -> str:
    return f"{count} byte{'s' * (count > 1)}"


def _field(field: Field, colour: str) -> Part:
    return Part(field.name, _bytes(field.span // 8), colour)


def frame(second: str) -> list[Part]:
    """A frame whose second field of the header has this name."""
    flag = Part("flag", f"{link.FLAG:02X}", _COLOURS["flag"])
    header = [Field(second if field.name == "kind" else field.name, field.width) for field in link.HEADER.fields]
    return [
        flag,
        *(_field(field, _COLOURS[field.name]) for field in header),
        Part("payload", "as many bytes as length says", _PAYLOAD, wide=True),
        Part("crc", _bytes(link.CRC_BYTES), _COLOURS["crc"]),
        flag,
    ]


def payload(kind: link.Kind) -> list[Part]:
    """The payload of a request, as the comment after its kind says."""
    said = docs.comments(link.Kind)[kind.name].partition(";")[0]
    if said == "empty payload":
        return []
    parts: list[Part] = []
    for name in said.removeprefix("payload ").split(" + "):
        layout = getattr(link, name, None)
        if isinstance(layout, Layout):
            parts += (_field(field, _PAYLOAD) for field in layout.fields)
        else:
            parts.append(Part(name, "as many as there are", _PAYLOAD, wide=True))
    return parts


def example() -> list[tuple[str, str, bytes]]:
    """A request as it is on the line: name, colour and bytes of every field, escaped where it must be."""
    target = link.TARGET.pack(region=_REGION, addr=_ADDRESS).to_bytes(link.TARGET.nbytes, "little")
    content = target + link.COUNT.pack(count=_COUNT).to_bytes(link.COUNT.nbytes, "little")
    body = Frame(_SEQ, link.Kind.READ, content).body()
    layouts = ((link.HEADER, ""), (link.TARGET, _PAYLOAD), (link.COUNT, _PAYLOAD))
    fields = [(f.name, colour or _COLOURS[f.name], f.span // 8) for layout, colour in layouts for f in layout.fields]
    flag, at = bytes([link.FLAG]), 0
    result = [("flag", _COLOURS["flag"], flag)]
    for name, colour, count in (*fields, ("crc", _COLOURS["crc"], link.CRC_BYTES)):
        result.append((name, colour, _escaped(body[at : at + count])))
        at += count
    return [*result, ("flag", _COLOURS["flag"], flag)]


def _escaped(data: bytes) -> bytes:
    special = (link.FLAG, link.ESCAPE)
    return b"".join(bytes([link.ESCAPE, b ^ link.ESCAPE_XOR] if b in special else [b]) for b in data)


def _strip(picture: Picture, x: float, parts: Sequence[Part]) -> None:
    """Fields beside each other from ``x`` on; those that are wide share what is left."""
    room = WIDTH - MARGIN - x - _SPACE * (len(parts) - 1) - sum(part.width for part in parts)
    for part in parts:
        width = part.width + (room / sum(other.wide for other in parts) if part.wide else 0)
        picture.box(x, picture.y, width, _FIELD, part.colour, part.lines)
        x += width + _SPACE
    picture.y += _FIELD + _SPACE


def _heading(picture: Picture, words: str) -> None:
    picture.y += PADDING
    picture.paragraph(Line(words, BODY, bold=True))
    picture.y += _SPACE


def link_frame() -> Picture:
    """Request and reply, payloads of requests, and a request as it is on the line."""
    picture = Picture(
        "A frame on the host link",
        "Fields of requests and replies in the order in which they are sent, with their bytes; and a request as bytes.",
    )
    for title, second in (("Request", "kind"), ("Reply", "status")):
        _heading(picture, title)
        _strip(picture, MARGIN, frame(second))
    _heading(picture, "Payload of a request, by its kind")
    names = [Line(f"{int(kind)} {kind.name}", BODY, bold=True) for kind in link.Kind]
    left = MARGIN + max(name.width for name in names)
    for kind, line in zip(link.Kind, names, strict=True):
        middle = picture.y + (_FIELD - LEADING * BODY) / 2
        picture.text(MARGIN, middle, line)
        if parts := payload(kind):
            _strip(picture, left, parts)
        else:
            picture.text(left, middle, Line("empty", quiet=True))
            picture.y += _FIELD + _SPACE
    _heading(picture, f"READ of {_COUNT} words of {_REGION.name} from address {_ADDRESS:02X} on, byte by byte")
    fields = example()
    width = (WIDTH - 2 * MARGIN + _SPACE) / sum(len(data) for *_, data in fields)
    x: float = MARGIN
    for name, colour, data in fields:
        for byte in data:
            picture.box(x, picture.y, width - _SPACE, _BYTE, colour, [Line(f"{byte:02X}", bold=True)])
            x += width
        picture.text(x - _SPACE / 2 - width * len(data) / 2, picture.y + _BYTE, Line(name, quiet=True), "middle")
    picture.y += _BYTE + LEADING * SMALL + PADDING
    hidden = [f"{b:02X} is sent as {link.ESCAPE:02X} {b ^ link.ESCAPE_XOR:02X}" for b in (link.FLAG, link.ESCAPE)]
    picture.paragraph(Line(f"Numbers are little endian. Between the flags, {', and '.join(hidden)}.", quiet=True))
    return picture
