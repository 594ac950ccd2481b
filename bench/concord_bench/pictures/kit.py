"""Parts of pictures: boxes, bars, lines and texts whose widths are estimated, written as one SVG.

Lengths are units of the picture, which is :data:`WIDTH` wide: pixels where a page shows it in full width. A picture has
a ground of its own and follows the reader's choice of light or dark, so it is legible on any page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

#: Of every picture, and between its edge and what is drawn.
WIDTH, MARGIN = 800, 24
#: Sizes of letters: of the title, of what is named, of what is said about it.
HEAD, BODY, SMALL = 21, 17, 15
#: Space between a text and the edges of its box, left and right together.
PADDING = 12
#: From the top of a line of text to the next one, and to its base line, per size.
LEADING, BASELINE = 1.45, 1.05
SVG = "http://www.w3.org/2000/svg"

#: Widths of characters per size in wide fonts (DejaVu Sans, Verdana); :data:`_WIDTH` for all others.
_WIDTHS = {
    **dict.fromkeys("ijl.,:;'|!()[] fIrt-/", 0.47),
    **dict.fromkeys("mwMW%@→×+=<>~—", 1.02),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&#", 0.8),
}
_WIDTH, _BOLD = 0.66, 1.13

#: Colours by role: in front, behind. First of light pages, then of dark ones.
LIGHT = {
    "panel": ("#d0d7de", "#ffffff"), "ink": ("#1f2328", ""), "quiet": ("#59636e", ""), "grey": ("#818b98", "#f3f5f8"),
    "blue": ("#0969da", "#ddf4ff"), "green": ("#1a7f37", "#dafbe1"), "amber": ("#9a6700", "#fff4c2"),
    "violet": ("#8250df", "#f6ebff"), "red": ("#cf222e", "#ffebe9"),
}  # fmt: skip
DARK = {
    "panel": ("#3d444d", "#0d1117"), "ink": ("#f0f6fc", ""), "quiet": ("#a7aeb7", ""), "grey": ("#747c87", "#1c222b"),
    "blue": ("#4493f8", "#12284a"), "green": ("#3fb950", "#12361f"), "amber": ("#d29922", "#3a2d0c"),
    "violet": ("#ab7df8", "#2c1f4a"), "red": ("#f85149", "#451a1c"),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of text: its words, the size of its letters, and whether they are bold, or quieter than others."""

    words: str
    size: float = SMALL
    bold: bool = False
    quiet: bool = False

    @property
    def width(self) -> float:
        """Estimate of the greatest width, with the space beside the line in a box."""
        return text_width(self.words, self.size, self.bold) + PADDING


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Estimate how wide a text is at most, in any font of a system."""
    return sum(_WIDTHS.get(letter, _WIDTH) for letter in text) * size * (_BOLD if bold else 1)


def wrapped(text: str, width: float, size: float, bold: bool = False) -> list[str]:
    """Lines of a text that are at most so wide; a longer word has a line of its own."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size, bold) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _rules(colours: dict[str, tuple[str, str]]) -> str:
    inks = [f"text.{role}{{fill:{front}}}" for role, (front, ground) in colours.items() if not ground]
    grounds = {role: both for role, both in colours.items() if both[1]}
    boxes = [f"rect.{role}{{fill:{ground};stroke:{front}}}" for role, (front, ground) in grounds.items()]
    bars = [f"rect.{role}.full{{fill:{front}}}" for role, (front, _) in grounds.items()]
    lines = f"path{{stroke:{colours['grey'][0]}}}.tip{{fill:{colours['grey'][0]}}}"
    return "".join((*inks, *boxes, *bars, lines))


class Picture:
    """A picture, drawn from the top down.

    Parameters
    ----------
    title : str
        Its first line.
    about : str
        What it shows, for readers who do not see it.

    Members
    -------
    y : float
        Top of what comes next.
    """

    def __init__(self, title: str, about: str):
        self._root = ElementTree.Element("svg", {"xmlns": SVG, "role": "img"})
        for tag, words in (("title", title), ("desc", about)):
            ElementTree.SubElement(self._root, tag).text = words
        style = ElementTree.SubElement(self._root, "style")
        style.text = (
            "text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif}.bold{font-weight:600}"
            "path{fill:none;stroke-width:1.5}path.tip{stroke:none}path.faint{stroke-dasharray:2 4;stroke-opacity:.6}"
            f"{_rules(LIGHT)}@media(prefers-color-scheme:dark){{{_rules(DARK)}}}"
        )
        self._panel = ElementTree.SubElement(self._root, "rect", {"class": "panel", "x": "0.5", "y": "0.5", "rx": "8"})
        self.y: float = MARGIN
        self.paragraph(Line(title, HEAD, bold=True))
        self.y += 8

    def text(self, x: float, y: float, line: Line, anchor: str = "start") -> None:
        """Write a line whose top is at ``y``, and whose start, middle or end is at ``x``."""
        self._write(x, y, line, anchor, self._root)

    def paragraph(self, line: Line) -> None:
        """Write a line over the whole width, or several, and go on below."""
        for words in wrapped(line.words, WIDTH - 2 * MARGIN, line.size, line.bold):
            self.text(MARGIN, self.y, replace(line, words=words))
            self.y += LEADING * line.size

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a box without text."""
        self._rectangle(self._root, x, y, width, height, f"{colour} full")

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        lines: Sequence[Line],
        *,
        centred: bool = True,
    ) -> None:
        """Draw a box with lines of text in its middle.

        Raises
        ------
        ValueError
            If a text may be wider, or all of them higher, than the box.
        """
        group = ElementTree.SubElement(self._root, "g", {"class": "box"})
        self._rectangle(group, x, y, width, height, colour)
        top = y + (height - LEADING * sum(line.size for line in lines)) / 2
        if top < y:
            raise ValueError(f"height of a box must be enough for {[line.words for line in lines]}, not {height!r}")
        for line in lines:
            if line.width > width:
                raise ValueError(f"width of a box must be enough for {line.words!r}, not {width!r}")
            place = x + (width / 2 if centred else PADDING / 2)
            self._write(place, top + 0.05 * line.size, line, "middle" if centred else "start", group)
            top += LEADING * line.size

    def path(self, *points: tuple[float, float], tip: bool = False, faint: bool = False) -> None:
        """Draw a line through points; its last part is straight down or to the right where it has a tip."""
        way = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        ElementTree.SubElement(self._root, "path", {"d": way, **({"class": "faint"} if faint else {})})
        if tip:
            (x, y), down = points[-1], points[-1][0] == points[-2][0]
            corners = ((x - 5, y - 8), (x + 5, y - 8)) if down else ((x - 8, y - 5), (x - 8, y + 5))
            head = "M" + "L".join(f"{a:g} {b:g}" for a, b in ((x, y), *corners)) + "Z"
            ElementTree.SubElement(self._root, "path", {"d": head, "class": "tip"})

    def svg(self) -> str:
        """The file."""
        height = self.y + MARGIN
        self._root.attrib |= {"viewBox": f"0 0 {WIDTH} {height:g}", "width": str(WIDTH), "height": f"{height:g}"}
        self._panel.attrib |= {"width": f"{WIDTH - 1}", "height": f"{height - 1:g}"}
        ElementTree.indent(self._root, " ")
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"

    @staticmethod
    def _write(x: float, y: float, line: Line, anchor: str, parent: ElementTree.Element) -> None:
        kind = ("quiet" if line.quiet else "ink") + (" bold" if line.bold else "")
        place = {"x": f"{x:g}", "y": f"{y + BASELINE * line.size:g}", "text-anchor": anchor}
        element = ElementTree.SubElement(parent, "text", {"class": kind, **place, "font-size": f"{line.size:g}"})
        element.text = line.words

    @staticmethod
    def _rectangle(parent: ElementTree.Element, x: float, y: float, width: float, height: float, colour: str) -> None:
        names = ("x", "y", "width", "height")
        sizes = {name: f"{value:g}" for name, value in zip(names, (x, y, width, height), strict=True)}
        ElementTree.SubElement(parent, "rect", {"class": colour, "rx": "4", **sizes})
