"""The largest part of a network that an NPU takes, where the host may compute all that is before it and after.

The part is a run of nodes in the order of execution. Of those that compile it has the most multiply-accumulates; where
it begins and ends between two products, the fewest values cross. A part of one that compiles is taken to compile, and
what has a part that does not compile is taken not to, so few are tried.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from math import prod

import numpy as np

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.host_partition import MOST_MACS, Parts, split, without_front
from concord.compiler.lowering.input_assumptions import assumed, synthetic_samples
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.memory.footprint import distinct_weights
from concord.compiler.model import compile_graph
from concord.graph.cost import macs, node_macs
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_rules import has_operations
from concord.graph.ir import Graph, Node
from concord.graph.ops import OperatorKind, operator_of
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.attempts import Attempts, Show, show_nothing

#: Least and greatest value.
Range = tuple[float, float]
#: Nodes that are tried to see whether the NPU takes any part.
_FEW = 3
#: Nodes of all parts that are compiled, some 5 processor milliseconds each; then the largest part so far is taken.
_MOST_NODES = 12_000
#: True if a graph compiles.
Fits = Callable[[Graph], bool]


def fits(graph: Graph, config: NpuConfig, mantissas: Mapping[str, int], batch: int) -> bool:
    """True if a graph compiles with plain formats.

    Parameters
    ----------
    graph, config, batch
        As for :func:`concord.compiler.model.compile_graph`.
    mantissas : mapping of str to int
        Bits of the mantissas of weights by layer.
    """
    try:
        compile_graph(graph, config, Formats(mantissas=dict(mantissas)), batch=batch)
    except (CapacityError, Unsupported):
        return False
    return True


class NpuShare:
    """Looks for the largest part that compiles.

    Parameters
    ----------
    whole : Graph
        The network.
    fits : callable
        Whether a part compiles.
    config : NpuConfig
        What for.
    show : callable, optional
        Shows what is tried.
    """

    def __init__(self, whole: Graph, fits: Fits, config: NpuConfig, show: Show = show_nothing):
        self.whole, self.fits, self.config = whole, fits, config
        self.attempts = Attempts(show)
        self.nodes = split(without_front(whole).rest)[0].nodes
        work = [node_macs(whole, node) for node in self.nodes]
        if not any(work):
            work = [int(operator_of(node).kind is not OperatorKind.MOVING) for node in self.nodes]
        #: Places of the nodes that count, and how much each does.
        self.places, self.work = [k for k, size in enumerate(work) if size], [size for size in work if size]
        self.crossing = self._crossing()
        fixed = [index for index, node in enumerate(self.nodes) if not self._for_host(node)]
        #: A part has these at least: there are no operations of the host for the first one and the last one.
        self.first, self.last = (fixed[0], fixed[-1] + 1) if fixed else (len(self.nodes), 0)
        #: By the first and the last of the nodes that count: where the part begins and ends; nowhere if none compiles.
        self.known: dict[tuple[int, int], tuple[int, int] | None] = {}
        self.tried: dict[tuple[int, int], bool] = {}

    def _for_host(self, node: Node) -> bool:
        return has_operations(node) and node_macs(self.whole, node) <= MOST_MACS

    def _crossing(self) -> list[int]:
        """Values of a sample that are known before a node and read by it or later, by place of the node."""
        count = len(self.nodes)
        known = dict.fromkeys(self.whole.inputs, 0) | {
            name: place + 1 for place, node in enumerate(self.nodes) for name in node.outputs if name
        }
        read = {name: place for place, node in enumerate(self.nodes) for name in node.inputs}
        read |= dict.fromkeys(self.whole.outputs, count)
        changes = [0] * (count + 2)
        for name in known.keys() & read.keys():
            if known[name] <= read[name]:
                changes[known[name]] += prod(self.whole.shapes[name])
                changes[read[name] + 1] -= prod(self.whole.shapes[name])
        return list(accumulate(changes[:-1]))

    def largest(self, least: int = 0) -> frozenset[str] | None:
        """Names of the nodes of the largest part; ``None`` if none with more than ``least`` compiles."""
        best: tuple[int, int] | None = None
        count, totals = len(self.places), list(accumulate(self.work, initial=0))
        for a in range(count):
            low, high = bisect_right(totals, totals[a] + least) - 1, count
            if low >= count or (best is not None and self._nodes_tried() >= _MOST_NODES):
                break  # all that is left is not enough, or has taken long enough
            if self._span(a, low) is None:
                continue
            while high - low > 1:  # a part up to low compiles, and up to high none does
                middle = (low + high) // 2
                low, high = (middle, high) if self._span(a, middle) is not None else (low, middle)
            best, least = self._span(a, low), totals[low + 1] - totals[a]
        return None if best is None else self._names(*best)

    @property
    def heaviest(self) -> Node | None:
        """Node with the most multiply-accumulates of several that count; ``None`` for a network with one or none."""
        if len(self.places) < 2:
            return None
        return self.nodes[self.places[max(range(len(self.work)), key=self.work.__getitem__)]]

    def _nodes_tried(self) -> int:
        return sum(stop - start for start, stop in self.tried)

    def takes_any(self) -> bool:
        """True if a part with one node that counts compiles, if only the largest ones are tried."""
        ranked = sorted(range(len(self.places)), key=self.work.__getitem__, reverse=True)
        return any(self._span(k, k) is not None for k in ranked[:_FEW])

    def size(self, names: Collection[str]) -> int:
        """Multiply-accumulates of a part; of a network without products the nodes that compute."""
        return sum(work for place, work in zip(self.places, self.work, strict=True) if self.nodes[place].name in names)

    def refuse(self, names: Collection[str]) -> None:
        """A part that :meth:`largest` gave does not compile after all."""
        own = [index for index, node in enumerate(self.nodes) if node.name in names]
        self.tried[own[0], own[-1] + 1] = False
        self.known = {span: part for span, part in self.known.items() if part is None}

    def _names(self, start: int, stop: int) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes[start:stop])

    def _span(self, a: int, b: int) -> tuple[int, int] | None:
        """A part from the a-th to the b-th of the nodes that count, if one compiles."""
        if any(first >= a and last <= b and part is None for (first, last), part in self.known.items()):
            return None
        if (a, b) not in self.known:
            parts = ((start, stop) for start in self._starts(a) for stop in self._stops(b))
            self.known[a, b] = next((part for part in parts if self._compiles(*part)), None)
        return self.known[a, b]

    def _starts(self, a: int) -> list[int]:
        """Beginnings of a part: where the fewest values cross, and right in front of the node that counts."""
        before = self.places[a - 1] + 1 if a else 0
        fewest = min(range(before, self.places[a] + 1), key=lambda place: (self.crossing[place], place))
        return list(dict.fromkeys(min(place, self.first) for place in (fewest, self.places[a])))

    def _stops(self, b: int) -> list[int]:
        """Ends of a part: where the fewest values cross, and right after the node that counts."""
        place = self.places[b] + 1
        following = self.places[b + 1] if b + 1 < len(self.places) else len(self.nodes)
        fewest = min(range(place, following + 1), key=lambda stop: (self.crossing[stop], -stop))
        return list(dict.fromkeys(max(stop, self.last) for stop in (fewest, place)))

    def _compiles(self, start: int, stop: int) -> bool:
        if (start, stop) not in self.tried:
            self.attempts.begin(f"{stop - start} nodes on the NPU")
            self.tried[start, stop] = self._weights_fit(start, stop) and self._tried(start, stop)
        return self.tried[start, stop]

    def _weights_fit(self, start: int, stop: int) -> bool:
        """True if the matrix memory has room for the weights alone."""
        count = distinct_weights(self.nodes[start:stop])
        return count <= self.config.matrix_depth * self.config.rows * self.config.lanes

    def _tried(self, start: int, stop: int) -> bool:
        try:
            parts = without_front(replace(self.whole, npu_nodes=self._names(start, stop)))
        except Unsupported:
            return False
        return self.fits(parts.rest)


def largest(shares: Iterable[NpuShare]) -> tuple[NpuShare, frozenset[str]] | None:
    """Configuration whose largest part has most multiply-accumulates, and that part; ``None`` without any."""
    best, least = None, 0
    for share in shares:
        if (names := share.largest(least)) is not None:
            best, least = (share, names), share.size(names)
    return best


def share_text(whole: Graph, part: Graph) -> str:
    """Share of a network that the NPU computes, in words."""
    all_of_it, own = macs(whole), macs(part)
    return f"{own:,} of {all_of_it:,} multiply-accumulates ({100 * own / max(all_of_it, 1):.3g} %)"


def ranges_of_front(parts: Parts, known: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges of what the host computes in front, from synthetic samples of the inputs; those that are known stay.

    Parameters
    ----------
    parts : Parts
        The network.
    known : mapping of str to pair of floats
        Ranges of inputs.
    """
    if parts.front is None:
        return dict(known)
    front = replace(parts.front, known_ranges=parts.rest.known_ranges, element_types=parts.rest.element_types)
    samples = synthetic_samples(front, assumed(front, {name: known[name] for name in front.inputs if name in known}))
    ranges = {name: known[name] for name in parts.rest.inputs if name in known}
    for name, values in run_on_host(front, samples).items():
        low, high = float(values.min()), float(values.max())
        if name not in parts.rest.known_ranges and np.isfinite([low, high]).all() and low < high:
            ranges.setdefault(name, (low, high))
    return ranges
