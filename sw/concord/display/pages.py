"""HTML pages that need no other file: their frame, tables and bars, from Jinja templates with one style.

A template of another package extends ``page.html.j2``, which says what it must define, and takes from ``parts.html.j2``
what pages are made of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from concord.display.terminal import counted


@dataclass(frozen=True)
class Figure:
    """A figure on top of a page: what it is, what it is about, and a note in small letters."""

    value: str
    label: str
    note: str


@dataclass(frozen=True)
class Bar:
    """A bar on a track, and a text beside it.

    Parameters
    ----------
    parts : tuple of tuples
        From the left to the right a share of the track, 0 to 1, and the class of the style: ``main``, ``other``,
        ``faint`` or ``warn``. Without any there is no track.
    text : str
        Beside the track.
    mark : float, optional
        Share of the track at which a line crosses it.
    """

    parts: tuple[tuple[float, str], ...]
    text: str = ""
    mark: float | None = None


def render(package: str, template: str, **values: object) -> str:
    """The page that a template of a package makes of ``values``.

    Texts are escaped, and an unknown name is an error. Filters are ``percent``, ``number``, ``shape`` and ``counted``.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("concord.display")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"percent": percent, "number": number, "shape": shape, "counted": counted}
    environment.filters |= filters
    return environment.get_template(template).render(**values)


def percent(share: float | None) -> str:
    """A share with two or three significant digits."""
    if share is None:
        return "not finite"
    value = 100 * share
    if value == 0:
        return "0 %"
    if value < 0.01:
        return "< 0.01 %"
    return f"{value:.{max(0, 2 - max(0, math.floor(math.log10(value))))}f} %"


def number(value: float | None) -> str:
    """A number with thousands separated, or four significant digits if it is not whole."""
    if value is None:
        return "not finite"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def shape(sizes: tuple[int, ...]) -> str:
    """Sizes with crosses in between."""
    return " × ".join(map(str, sizes)) or "scalar"
