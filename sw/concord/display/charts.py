"""Charts of a page: histograms and curves in steps, as the geometry of an SVG that ``parts.html.j2`` draws.

Positions are pixels from the upper left corner of the field between the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Pixels of the field of a chart.
WIDTH, HEIGHT = 460, 140
#: Space below the line of one value on a logarithmic axis, in decades.
_BELOW = 0.35


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where it is, its text, and the exponent after it."""

    at: float
    text: str
    exponent: str = ""


@dataclass(frozen=True)
class Curve:
    """Path of an SVG, empty where there is no value; x of a dashed line that belongs to it; which colour both have."""

    path: str
    limit: float
    colour: int


@dataclass(frozen=True)
class Chart:
    """Marks that are drawn in a field, and the ticks of its axes.

    Parameters
    ----------
    x_ticks, y_ticks : tuple of Tick
        Below the field, and on its left.
    bars : tuple of tuples
        x, y, width and height.
    curves : tuple of Curve
        In the order they are drawn.
    window : tuple of float, optional
        x of both ends of what is shaded.
    """

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...] = ()
    bars: tuple[tuple[float, float, float, float], ...] = ()
    curves: tuple[Curve, ...] = ()
    window: tuple[float, float] | None = None
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Steps:
    """A curve before it is drawn: its value from each whole number to the next, and where its dashed line is."""

    values: tuple[int, ...]
    limit: int
    colour: int


def histogram(first: int, counts: Sequence[int], window: tuple[int, int]) -> Chart:
    """Counts by powers of two, with a window of them shaded.

    Parameters
    ----------
    first : int
        Bin k is from ``2 ** (first + k)`` up to the next power.
    counts : sequence of int
        Values per bin.
    window : tuple of int
        Exponents at both ends of the window.
    """
    low, high = window
    start, stop = min(first, low) - 1, max(first + len(counts), high) + 1
    step, most = WIDTH / (stop - start), max(*counts, 1)
    bars = tuple(
        (
            round((first + k - start) * step + 0.5, 2),
            round(HEIGHT * (1 - count / most), 2),
            round(step - 1, 2),
            round(HEIGHT * count / most, 2),
        )
        for k, count in enumerate(counts)
        if count
    )
    every = 4 if stop - start <= 40 else 8
    ticks = (Tick(round((n - start) * step, 2), "2", f"{n}") for n in range(start + 1, stop) if n % every == 0)
    ends = round((low - start) * step, 2), round((high - start) * step, 2)
    return Chart(tuple(ticks), bars=bars, window=ends)


def steps(curves: Sequence[Steps], stop: int) -> Chart:
    """Curves in steps over the numbers from 0 to ``stop``, with their values on a logarithmic axis."""
    most = max((curve.values[0] for curve in curves if curve.values), default=1)
    decades = max(1, math.ceil(math.log10(max(most, 1))))
    step = WIDTH / (stop + 1)

    def height(value: int) -> float:
        return round(HEIGHT * (1 - (math.log10(value) + _BELOW) / (decades + _BELOW)), 2)

    def path(values: Sequence[int]) -> str:
        line = (f"{round(step * k, 2)} {height(n)} H {round(step * (k + 1), 2)}" for k, n in enumerate(values))
        return f"M {' L '.join(line)} V {HEIGHT}" if values else ""

    return Chart(
        tuple(Tick(round(step * n, 2), f"{n}") for n in range(8, stop + 1, 8)),
        tuple(Tick(height(10**k), "10", f"{k}") for k in range(0, decades + 1, max(1, math.ceil(decades / 5)))),
        curves=tuple(Curve(path(c.values), round(step * c.limit, 2), c.colour) for c in curves),
    )
