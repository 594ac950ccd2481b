"""Geometry of the drawings: which layer reads which, and where values lie in the window of a format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.report.facts import Analysis
from concord.report.layer_facts import Distribution

#: Pixels: of a row of the table of layers, between two lanes of the graph beside it, and of a chart.
ROW, LANE = 36, 12
WIDTH, HEIGHT = 460, 130
#: Bins between two labels of the axis of a chart.
_LABELS = 4


@dataclass(frozen=True)
class Edge:
    """From a row to a later one; in lane 0 straight down, else around what is in between."""

    source: int
    target: int
    lane: int

    @property
    def path(self) -> str:
        """The line as the path of an SVG, with the nodes at x = 0 and lanes to the left."""
        top, bottom = (row * ROW + ROW / 2 for row in (self.source, self.target))
        if not self.lane:
            return f"M 0 {top:g} V {bottom:g}"
        x, r = -LANE * self.lane, min(LANE, ROW / 2)
        return f"M 0 {top:g} Q {x:g} {top:g} {x:g} {top + r:g} V {bottom - r:g} Q {x:g} {bottom:g} 0 {bottom:g}"

    @staticmethod
    def gutter(edges: Sequence[Edge]) -> int:
        """Pixels that the lanes need."""
        return LANE * (1 + max((edge.lane for edge in edges), default=0))


def edges(analysis: Analysis) -> list[Edge]:
    """Who reads what: rows are the inputs of the network, its layers, and what leaves the NPU.

    Edges to the next row are straight; the others take the first lane that is free, short ones first.
    """
    inputs = {port.name: row for row, port in enumerate(analysis.inputs)}
    first, last = len(inputs), len(inputs) + len(analysis.layers)
    pairs = set()
    for index, layer in enumerate(analysis.layers):
        for read in layer.reads:
            source = inputs.get(read.input or "") if read.layer is None else first + read.layer
            if source is not None:
                pairs.add((source, first + index))
        if layer.leaves:
            pairs.add((first + index, last))
    lanes: list[list[tuple[int, int]]] = []
    found = []
    for source, target in sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair)):
        if target == source + 1:
            found.append(Edge(source, target, 0))
            continue
        free = (k for k, lane in enumerate(lanes) if all(b <= source or target <= a for a, b in lane))
        lane = next(free, len(lanes))
        lanes += [[]] if lane == len(lanes) else []
        lanes[lane].append((source, target))
        found.append(Edge(source, target, lane + 1))
    return found


@dataclass(frozen=True)
class Chart:
    """A histogram of log2 |x| with the window of a format.

    Parameters
    ----------
    bars : tuple of tuples
        x, y, width and height.
    window : tuple of float
        x of both ends of the window.
    labels : tuple of tuples
        x and power of two.
    """

    bars: tuple[tuple[float, float, float, float], ...]
    window: tuple[float, float]
    labels: tuple[tuple[float, int], ...]
    width: int = WIDTH
    height: int = HEIGHT


def chart(distribution: Distribution) -> Chart:
    """Where the values of a tensor lie."""
    first, counts, (low, high) = distribution.first, distribution.counts, distribution.window
    start, stop = min(first, low) - 1, max(first + len(counts), high) + 1
    step, most = WIDTH / (stop - start), max(*counts, 1)
    bars = tuple(
        (round((first + k - start) * step + 0.5, 2), round(HEIGHT * (1 - count / most), 2), round(step - 1, 2),
         round(HEIGHT * count / most, 2))
        for k, count in enumerate(counts) if count
    )  # fmt: skip
    every = _LABELS if stop - start <= 10 * _LABELS else 2 * _LABELS
    labels = tuple((round((n - start) * step, 2), n) for n in range(start + 1, stop) if n % every == 0)
    return Chart(bars, (round((low - start) * step, 2), round((high - start) * step, 2)), labels)
