"""The memory map: regions and registers that the host reaches."""

from __future__ import annotations

from math import log2

from concord.spec.memmap import CORE_REGIONS, REGISTERS, Region, RegionId, regions
from concord.spec.presets import ECP5_85F_256
from concord_bench.pictures.kit import BODY, LEADING, MARGIN, PADDING, SMALL, WIDTH, Line, Picture

#: Height of a region and of a register, and the space between boxes.
_REGION, _REGISTER, _SPACE = 32, 30, 6
#: Bytes at the marks of the axis; the first one is where bars begin.
_MARKS = (16, 256, 4096, 65536, 1048576)
_CORE, _FEEDER, _REGS, _LIVE = "blue", "amber", "grey", "green"


def _said(count: int) -> str:
    """A number of bytes, in units of 1024."""
    unit = (count.bit_length() - 1) // 10
    return f"{count >> 10 * unit} {('bytes', 'KiB', 'MiB')[unit]}"


def _access(region: Region) -> str:
    return ", ".join(name for name, can in (("read", region.readable), ("write", region.writable)) if can)


def _size(region: Region) -> str:
    return f"{region.depth:,} × {region.word.width}"


def _draw_regions(picture: Picture, table: dict[RegionId, Region]) -> None:
    """A line per region: number, name, what the host may do, and a bar for its size."""
    names = {key: Line(f"{int(key)} {key.name}", BODY, bold=True) for key in table}
    access = MARGIN + max(name.width for name in names.values())
    live, shown = Line("live"), {key: Line(_access(region), quiet=True) for key, region in table.items()}
    flag = access + max(line.width for line in shown.values())
    left = flag + live.width + PADDING
    sizes = {key: Line(_size(region)) for key, region in table.items()}
    right = WIDTH - MARGIN - max(line.width for line in sizes.values())
    least, most = log2(_MARKS[0]), max(log2(r.depth * r.word.width / 8) for r in table.values())
    scale = (right - left) / (most - least)
    top = picture.y + LEADING * SMALL
    bottom = top + len(table) * _REGION
    for mark in _MARKS:
        if (x := left + (log2(mark) - least) * scale) <= right:
            picture.text(x, picture.y, Line(_said(mark), quiet=True), "middle")
            picture.path((x, top), (x, bottom), faint=True)
    picture.y = top
    for key, region in table.items():
        y = picture.y + (_REGION - LEADING * SMALL) / 2
        picture.text(MARGIN, y - 1, names[key])
        picture.text(access, y, shown[key])
        if region.live:
            picture.box(flag, picture.y + 4, live.width, _REGION - 8, _LIVE, [live])
        length = (log2(region.depth * region.word.width / 8) - least) * scale
        colour = _CORE if key in CORE_REGIONS else _FEEDER
        picture.bar(left, picture.y + 7, length, _REGION - 14, colour)
        picture.text(left + length + PADDING / 2, y, sizes[key])
        picture.y += _REGION


def _draw_registers(picture: Picture) -> None:
    """All registers in the order of their addresses, in as many columns as there is room for."""
    lines = [Line(f"{int(register.reg)} {register.reg.name}") for register in REGISTERS]
    room, least = WIDTH - 2 * MARGIN + _SPACE, max(line.width for line in lines) + _SPACE
    columns = int(room // least)
    for at, (register, line) in enumerate(zip(REGISTERS, lines, strict=True)):
        row, column = divmod(at, columns)
        x, y = MARGIN + column * room / columns, picture.y + row * (_REGISTER + _SPACE)
        colour = _LIVE if register.writable else _REGS
        picture.box(x, y, room / columns - _SPACE, _REGISTER, colour, [line], centred=False)
    picture.y += -(-len(lines) // columns) * (_REGISTER + _SPACE)


def memory() -> Picture:
    """Regions by number, with bars in a logarithmic scale, and the registers."""
    table = regions(ECP5_85F_256)
    picture = Picture(
        f"The memory map of {ECP5_85F_256.name}",
        "Regions by number, what the host may do with them, and their sizes on a logarithmic axis; then the registers.",
    )
    picture.paragraph(Line("Words × bits of every region; a mark is 16 times the last.", BODY, quiet=True))
    picture.y += PADDING
    _draw_regions(picture, table)
    picture.y += PADDING
    note = "Live regions are accessible while a program runs. Amber ones belong to the feeder."
    picture.paragraph(Line(note, quiet=True))
    picture.y += PADDING
    picture.paragraph(Line(f"Registers: the words of {RegionId.REGS.name}", BODY, bold=True))
    picture.y += _SPACE
    _draw_registers(picture)
    written = " and ".join(register.reg.name for register in REGISTERS if register.writable)
    picture.paragraph(Line(f"The host writes {written} alone, the green box.", quiet=True))
    return picture
