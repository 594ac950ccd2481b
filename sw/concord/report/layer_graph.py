"""Geometry of the graph beside the table of layers: which layer reads which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.report.facts import NetworkFacts

#: Pixels: of a row of the table of layers, and between two lanes of the graph beside it.
ROW, LANE = 36, 12


@dataclass(frozen=True)
class Edge:
    """Edge from a row to a later one; in lane 0 straight down, else around what is in between."""

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


def edges(analysis: NetworkFacts) -> list[Edge]:
    """Edges between rows: the inputs of the network, its layers, and what leaves the NPU.

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
    drawn = []
    for source, target in sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair)):
        if target == source + 1:
            drawn.append(Edge(source, target, 0))
            continue
        free = (k for k, lane in enumerate(lanes) if all(b <= source or target <= a for a, b in lane))
        lane = next(free, len(lanes))
        lanes += [[]] if lane == len(lanes) else []
        lanes[lane].append((source, target))
        drawn.append(Edge(source, target, lane + 1))
    return drawn
