"""The data-type pass [dtype-pass]: which tensors are narrow, which are wide, and where one conversion serves several.

Every tensor keeps a list of quantisation factors, one entry per way down to a layer that wants it narrow (its factor,
> 0) or wide (0). Walks upwards fill it. They start

* at every input of a quantised layer with the factor of that input,
* at every input of a precise layer with 0, also if no quantised layer follows,
* at every output of the network with 0: it stays wide;

they end at quantised layers, go on through a data-moving layer with what they have, to each of its inputs, and through
a precise layer with 0. Ways can be exponentially many, so a list is kept as a :class:`~collections.Counter`, and one
visit per node in reversed order gives what the single walks give together.

With n_t entries, n of them > 0, a tensor is

========================================  ==============================================================
computed by a precise layer               wide
empty list                                wide
n < n_t                                   wide
n = n_t, all factors equal                narrow
n = n_t, factors differ                   wide: one block of mantissas cannot have two steps
========================================  ==============================================================

Readers of a wide tensor that want it narrow are grouped by factor, and each group counts for itself: with n > 1 it gets
a conversion that all of the group read, with n = 1 its only reader converts for itself. Entries that come through a
data-moving layer that is wide (one of its outputs has a 0, or factors differ) are not counted: that layer reads wide,
so a conversion in front of it would serve nobody. A data-moving layer has one type on all sides; if it is narrow and
alone in wanting a wide tensor narrow, it converts what it reads.

Inputs of the network are typed as outputs of a quantised layer: the host can write either type.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from concord.graph.ir import Graph, Node
from concord.graph.ops import Kind, operator_of
from concord.graph.passes.dtype_forms import Form

#: A node by name, and the index of one of its inputs.
Input = tuple[str, int]
#: Entries of a list of factors: how often each is in it.
Entries = Counter[float]


class Type(Enum):
    """Number format of a tensor."""

    WIDE = "wide"
    NARROW = "narrow"


@dataclass(frozen=True)
class Conversion:
    """A wide tensor is multiplied by a factor and rounded, once, for one or more readers."""

    tensor: str
    factor: float
    readers: tuple[Input, ...]


@dataclass(frozen=True)
class Types:
    """What the pass decides; the graph stays as it is.

    Parameters
    ----------
    graph : Graph
        The network.
    entries : dict
        List of factors of every tensor.
    tensors : dict
        Type of every tensor.
    inputs : dict
        Type that every input of every node sees: narrow if the tensor is, or if a conversion is in front of it.
    conversions : tuple of Conversion
        Conversions with their own place behind a tensor.
    own : tuple of Conversion
        Conversions that a reader, the only one, does for itself; it sees the tensor wide.
    forms : dict
        Form of every quantised node. Inputs that are states do not count; it writes wide if one of its outputs is wide.
    """

    graph: Graph
    entries: dict[str, Entries]
    tensors: dict[str, Type]
    inputs: dict[Input, Type]
    conversions: tuple[Conversion, ...]
    own: tuple[Conversion, ...]
    forms: dict[str, Form]

    def factor(self, tensor: str) -> float:
        """Factor of a narrow tensor; ``ValueError`` if it is wide."""
        if self.tensors[tensor] is not Type.NARROW:
            raise ValueError(f"tensor must be narrow, not {tensor!r}")
        return next(iter(self.entries[tensor]))


def assign(graph: Graph, factors: Mapping[Input, float] | None = None) -> Types:
    """Give every tensor and every input a type.

    Parameters
    ----------
    graph : Graph
        The network.
    factors : mapping, optional
        Factor of inputs of quantised layers: 1 / step where the step is static. It is 1.0 for all others: with an
        exponent per block nothing needs to be known but that the layer wants narrow.

    Returns
    -------
    Types

    Raises
    ------
    ValueError
        If a factor is not positive, or not that of an input of a quantised layer that a product reads.
    """
    demands = Demands(graph, factors or {})
    tensors = {name: narrow_or_wide(demands.entries[name]) for name in graph.inputs}
    for node in graph.nodes:
        tensors.update((name, demands.written(node, name)) for name in node.outputs if name)
    inputs = {key: tensors[name] for name, keys in demands.readers.items() for key in keys}
    conversions: list[Conversion] = []
    own: list[Conversion] = []
    for name in [name for name in demands.readers if tensors[name] is Type.WIDE]:
        for factor, (count, readers) in _groups(demands, name).items():
            conversion = Conversion(name, factor, tuple(readers))
            (conversions if count > 1 else own).append(conversion)
            if count > 1:
                inputs.update(dict.fromkeys(readers, Type.NARROW))
    forms = {
        node.name: _form(node, tensors, inputs) for node in graph.nodes if operator_of(node).kind is Kind.QUANTISED
    }
    return Types(graph, demands.entries, tensors, inputs, tuple(conversions), tuple(own), forms)


def narrow_or_wide(entries: Entries) -> Type:
    """Type of an output that can be written either way."""
    return Type.NARROW if len(entries) == 1 and 0.0 not in entries else Type.WIDE


class Demands:
    """What the readers of every tensor want.

    Parameters
    ----------
    graph : Graph
        The network.
    factors : mapping
        Factors of inputs of quantised layers, as :func:`assign` takes them.
    """

    def __init__(self, graph: Graph, factors: Mapping[Input, float]):
        self.graph = graph
        self.factors = {key: 1.0 for node in graph.nodes for key in products(node)}
        for key, factor in factors.items():
            if key not in self.factors:
                raise ValueError(f"factors must be for inputs of quantised layers that a product reads, not {key!r}")
            if not (factor > 0 and math.isfinite(factor)):
                raise ValueError(f"factor of input {key[1]} of {key[0]!r} must be > 0 and finite, not {factor!r}")
            self.factors[key] = float(factor)
        self.nodes = {node.name: node for node in graph.nodes}
        self.readers: dict[str, list[Input]] = {name: [] for name in _tensors(graph)}
        for node in graph.nodes:
            for index, name in enumerate(node.inputs):
                if name:
                    self.readers[name].append((node.name, index))
        self.entries: dict[str, Entries] = {name: Counter() for name in self.readers}
        self._walk()

    def _walk(self) -> None:
        """All walks at once: what arrives at the outputs of a node is complete when its turn comes."""
        for name in self.graph.outputs:
            self.entries[name][0.0] += 1
        for node in reversed(self.graph.nodes):
            for index, name in enumerate(node.inputs):
                if name:
                    self.entries[name].update(self.passed(node, index))

    def passed(self, node: Node, index: int) -> Entries:
        """Entries that walks bring to the tensor that an input reads."""
        below = sum((self.entries[name] for name in node.outputs if name), Counter())
        match operator_of(node).kind:
            case Kind.QUANTISED:
                return Counter({self.factors.get((node.name, index), 0.0): 1})
            case Kind.PRECISE:
                return Counter({0.0: 1 + below.total()})
            case Kind.MOVING:
                return below or Counter({0.0: 1})  # nothing reads it: as if it left the network

    def wanted(self, reader: Input) -> Entries:
        """As :meth:`passed`, with zeros only where the reader reads wide."""
        node = self.nodes[reader[0]]
        entries = self.passed(node, reader[1])
        return entries if narrow_or_wide(entries) is Type.NARROW else Counter({0.0: entries.total()})

    def written(self, node: Node, tensor: str) -> Type:
        """Type of an output of a node."""
        kind = operator_of(node).kind
        if kind is Kind.PRECISE or not self.entries[tensor]:
            return Type.WIDE
        return narrow_or_wide(self.passed(node, 0) if kind is Kind.MOVING else self.entries[tensor])


def products(node: Node) -> list[Input]:
    """Inputs of a quantised layer that a product reads; none for other layers."""
    record = operator_of(node)
    if record.kind is not Kind.QUANTISED:
        return []
    return [(node.name, index) for index, name in enumerate(node.inputs) if name and index not in record.wide_inputs]


def _tensors(graph: Graph) -> list[str]:
    return [*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)]


def _groups(demands: Demands, tensor: str) -> dict[float, tuple[int, list[Input]]]:
    """Readers that want a tensor narrow, by factor, with the number of entries that come through them."""
    groups: dict[float, tuple[int, list[Input]]] = {}
    for reader in demands.readers[tensor]:
        for factor, more in demands.wanted(reader).items():
            if factor > 0:
                count, readers = groups.get(factor, (0, []))
                groups[factor] = (count + more, [*readers, reader])
    return groups


def _form(node: Node, tensors: Mapping[str, Type], inputs: Mapping[Input, Type]) -> Form:
    reads = all(inputs[key] is Type.NARROW for key in products(node))
    writes = all(tensors[name] is Type.NARROW for name in node.outputs if name)
    return Form.of(reads, writes)
