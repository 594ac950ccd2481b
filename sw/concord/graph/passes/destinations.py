"""Which destinations the layer that computes a tensor writes: narrow, wide or both [dtype-pass].

One chain can write a result to both vector memories in the same trip, or to narrow memory alone whatever it computes.
A conversion costs nothing where the tensor is written, and two questions are left: does some reader want it narrow,
does some reader want it wide?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS, Kind
from concord.graph.passes.dtypes import Demands, Input


@dataclass(frozen=True)
class Destinations:
    """What the readers of a tensor want.

    Parameters
    ----------
    factors : frozenset of float
        Factors with which it is wanted narrow.
    wide : bool
        Whether it is wanted wide. It is as well if there is more than one factor: a chain writes one narrow result.
    """

    factors: frozenset[float] = frozenset()
    wide: bool = False

    @property
    def narrow(self) -> bool:
        """Whether it is wanted narrow."""
        return bool(self.factors)

    def __or__(self, other: Destinations) -> Destinations:
        factors = self.factors | other.factors
        return Destinations(factors, self.wide or other.wide or len(factors) > 1)


WIDE = Destinations(wide=True)


def destinations(
    graph: Graph, groups: Iterable[Sequence[str]], factors: Mapping[Input, float] | None = None
) -> dict[str, Destinations]:
    """Return what is wanted of every tensor that a group computes for others, and of every input of the network.

    Parameters
    ----------
    graph : Graph
        The network.
    groups : iterable of sequences of str
        Names of nodes that one layer computes. Data-moving nodes in no group are views: who reads them reads what they
        move.
    factors : mapping, optional
        As for :func:`concord.graph.passes.dtypes.assign`.

    Raises
    ------
    ValueError
        If a node is unknown, in two groups, or in none and not data-moving, if a tensor inside a group is read by
        others too, or if ``factors`` are refused.
    """
    group_of, demands = _group_of(graph, groups), Demands(graph, factors or {})
    wanted = {name: Destinations() for name in demands.readers}
    readers: dict[str, set[int | None]] = {name: set() for name in wanted}  # groups; None: leaves the network
    for name in graph.outputs:
        wanted[name] = WIDE
        readers[name].add(None)
    for node in reversed(graph.nodes):
        group = group_of.get(node.name)
        for index, name in enumerate(node.inputs):
            if name:
                wanted[name] |= _reads(node, index, wanted, group is None, demands)
                behind = {reader for result in node.outputs if result for reader in readers[result]}
                readers[name] |= behind if group is None else {group}
    result = {name: wanted[name] for name in graph.inputs}
    for node in [node for node in graph.nodes if node.name in group_of]:
        for name in filter(None, node.outputs):
            if group_of[node.name] not in readers[name]:
                result[name] = wanted[name]
            elif len(readers[name]) > 1:
                raise ValueError(f"tensors inside a group must not be read by others, as is {name!r}")
    return result


def _group_of(graph: Graph, groups: Iterable[Sequence[str]]) -> dict[str, int]:
    nodes = {node.name: node for node in graph.nodes}
    group_of: dict[str, int] = {}
    for number, group in enumerate(groups):
        for name in group:
            if name not in nodes or name in group_of:
                raise ValueError(f"groups must have nodes of the graph, each once, not {name!r}")
            group_of[name] = number
    for name, node in nodes.items():
        if name not in group_of and OPS[node.op].kind is not Kind.MOVING:
            raise ValueError(f"nodes in no group must be data-moving, not {node.op} {name!r}")
    return group_of


def _reads(node: Node, index: int, wanted: Mapping[str, Destinations], is_view: bool, demands: Demands) -> Destinations:
    """What an input wants."""
    if OPS[node.op].kind is not Kind.MOVING:
        entries = demands.passed(node, index)
        return WIDE if 0.0 in entries else Destinations(frozenset(entries))
    below = Destinations()
    for name in filter(None, node.outputs):
        below |= wanted[name]
    narrow_only = below.narrow and not below.wide
    return below if is_view or narrow_only else WIDE
