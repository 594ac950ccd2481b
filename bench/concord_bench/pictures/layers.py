"""The packages of the software and the rooms of the hardware, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from concord_bench.pictures import sources
from concord_bench.pictures.kit import BODY, LEADING, MARGIN, PADDING, WIDTH, Line, Picture

#: Height of a layer, and the space between boxes.
_LAYER, _SPACE = 32, 6
#: Package of the software that hardware may import.
_SHARED = "spec"


def _layer(picture: Picture, x: float, y: float, width: float, boxes: Sequence[tuple[str, str]]) -> None:
    """Boxes beside each other, wider ones for longer names; the name and the colour of each."""
    lines = [Line(name) for name, _ in boxes]
    spare = (width - _SPACE * (len(boxes) - 1) - sum(line.width for line in lines)) / len(boxes)
    for line, (_, colour) in zip(lines, boxes, strict=True):
        picture.box(x, y, line.width + spare, _LAYER, colour, [line])
        x += line.width + spare + _SPACE


def _rows(layer: Sequence[tuple[str, str]], width: float) -> list[Sequence[tuple[str, str]]]:
    """A layer in as few rows as it needs, all of about as many boxes."""
    for count in range(1, len(layer) + 1):
        size = -(-len(layer) // count)
        rows = [layer[k : k + size] for k in range(0, len(layer), size)]
        if all(sum(Line(name).width + _SPACE for name, _ in row) <= width + _SPACE for row in rows):
            break
    return rows


def layers() -> Picture:
    """Software on the left, hardware on the right, the lowest layers at the bottom."""
    width, columns = (WIDTH - 2 * MARGIN - 2 * PADDING) / 2, []
    for title, folder, order, colour in (
        ("Software: sw/concord", sources.SOFTWARE, sources.PACKAGES, "blue"),
        ("Hardware: hw/concord_rtl", sources.HARDWARE, sources.ROOMS, "amber"),
    ):
        names = sources.layers(sources.packages(sources.modules(folder)), order)
        boxes = [[(name, "green" if name == _SHARED else colour) for name in layer] for layer in names]
        columns.append((title, [row for layer in boxes for row in _rows(layer, width)]))
    columns[1][1].insert(0, [(f"concord.{_SHARED}", "green")])
    picture = Picture(
        "Packages and rooms in layers",
        "The packages of the software and the rooms of the hardware in layers; each imports from those below it alone.",
    )
    picture.paragraph(Line("A package imports from layers below its own, and from no others.", BODY, quiet=True))
    picture.y += PADDING
    top = picture.y + LEADING * BODY + _SPACE
    picture.y = top + max(len(rows) for _, rows in columns) * (_LAYER + _SPACE)
    for number, (title, rows) in enumerate(columns):
        x = MARGIN + number * (width + 2 * PADDING)
        y = picture.y
        for row in rows:
            y -= _LAYER + _SPACE
            _layer(picture, x, y, width, row)
        picture.text(x, y - LEADING * BODY - _SPACE, Line(title, BODY, bold=True))
    picture.y += PADDING
    shared = f"concord.{_SHARED} and the cache"
    picture.paragraph(Line(f"Hardware and boards import nothing of the software but {shared}.", quiet=True))
    return picture
