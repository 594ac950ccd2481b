"""The data-type pass [dtype-pass]: which tensors are narrow, which are wide, and where one conversion serves several.

Every tensor keeps a list of quantisation factors, one entry per way down to an operation that wants it narrow (its
factor, > 0) or wide (0). Walks upwards fill it. They start

* at every input of a quantised operation with the factor of that input,
* at every input of a precise operation with 0, also if no quantised operation follows,
* at every output of the network with 0, unless it leaves narrow;

they end at quantised operations, go on through a data-moving operation with what they have, to each of its inputs, and
through a precise operation with 0. Ways can be exponentially many, so a list is kept as a
:class:`~collections.Counter`, and one visit per operation in reversed order gives what the single walks give together.

With n_t entries, n of them > 0, a tensor is

========================================  ==============================================================
computed by a precise operation           wide
empty list                                wide
n < n_t                                   wide
n = n_t, all factors equal                narrow
n = n_t, factors differ                   wide: one block of mantissas cannot have two steps
========================================  ==============================================================

Readers of a wide tensor that want it narrow are grouped by factor, and each group counts for itself: with n above the
set number of the source (``conversions_from``, 1 if nothing else is said) it gets a conversion that all of the group
read; otherwise every reader converts for itself. Entries that come through a
data-moving operation that is wide (one of its outputs has a 0, or factors differ) are not counted: that operation reads
wide, so a conversion in front of it would serve nobody. A data-moving operation has one type on all sides; if it is
narrow and alone in wanting a wide tensor narrow, it converts what it reads.

Inputs of the network are typed as outputs of a quantised operation: the host can write either type.

What the pass looks at is a :class:`Dataflow`. :func:`dataflow` makes one of a graph, to report what the types save.
That of the layers of a network (:func:`concord.compiler.memory.dataflow.dataflow`) decides which memories hold tensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from concord.graph.ir import Graph
from concord.graph.ops import OperatorKind, operator_of
from concord.graph.passes.dtype_forms import DtypeForm

#: An operation by name, and the index of one of its inputs.
Input = tuple[str, int]
#: Entries of a list of factors: how often each is in it.
Entries = Counter[float]
#: Kinds of operators of the host, which reads and writes wide.
_KINDS = {OperatorKind.HOST: OperatorKind.PRECISE}


class Dtype(Enum):
    """Number format of a tensor."""

    WIDE = "wide"
    NARROW = "narrow"


@dataclass(frozen=True)
class DataflowNode:
    """An operation as the pass sees it: a node of a graph, or a layer of a compiled network.

    Parameters
    ----------
    name : str
        Unique in its dataflow.
    kind : Kind
        How it treats types.
    inputs, outputs : tuple of str
        Tensors; an input or an output that is left out is the empty string.
    wide_inputs : frozenset of int
        Inputs of a quantised operation that no product reads: they are wide.
    keeps : tuple of pairs of str and float
        Outputs that the operation itself reads again while it runs, each with the factor that it wants, 0 for wide.
    """

    name: str
    kind: OperatorKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    wide_inputs: frozenset[int] = frozenset()
    keeps: tuple[tuple[str, float], ...] = ()

    @property
    def products(self) -> list[Input]:
        """Inputs that a product reads; none unless the operation is quantised."""
        if self.kind is not OperatorKind.QUANTISED:
            return []
        return [(self.name, index) for index, name in enumerate(self.inputs) if name and index not in self.wide_inputs]


@dataclass(frozen=True)
class Dataflow:
    """Operations and the tensors between them.

    Parameters
    ----------
    inputs : tuple of str
        Tensors that the host writes.
    operations : tuple of Operation
        In execution order. Several may write one tensor, as layers do whose results lie in one storage; then an
        operation hands on what those after it want.
    outputs : tuple of pairs of str and float
        Tensors that leave, each with the factor that it leaves with, 0 for wide.
    """

    inputs: tuple[str, ...]
    operations: tuple[DataflowNode, ...]
    outputs: tuple[tuple[str, float], ...]

    @property
    def tensors(self) -> list[str]:
        """All tensors, each once."""
        computed = (name for node in self.operations for name in node.outputs if name)
        return list(dict.fromkeys([*self.inputs, *computed]))


def dataflow(graph: Graph) -> Dataflow:
    """The nodes of a graph as operations; all outputs leave wide."""
    records = ((node, operator_of(node)) for node in graph.nodes)
    operations = (
        DataflowNode(node.name, _KINDS.get(record.kind, record.kind), node.inputs, node.outputs, record.wide_inputs)
        for node, record in records
    )
    return Dataflow(tuple(graph.inputs), tuple(operations), tuple((name, 0.0) for name in graph.outputs))


def factors_of_codes(graph: Graph) -> dict[Input, float]:
    """Factors of inputs of quantised operations whose codes a model states: one over their scale.

    Those with a scale for each channel have none, as a tensor that is multiplied once has one factor.
    """
    codes = {name: scheme for name, scheme in graph.quantization.items() if len(scheme.scales) == 1}
    return {
        key: 1 / float(codes[name].scales[0])
        for node in dataflow(graph).operations
        for key in node.products
        if (name := node.inputs[key[1]]) in codes
    }


@dataclass(frozen=True)
class Conversion:
    """A wide tensor is multiplied by a factor and rounded, once, for one or more readers."""

    tensor: str
    factor: float
    readers: tuple[Input, ...]


@dataclass(frozen=True)
class Types:
    """Decisions of the pass; the graph stays as it is.

    Parameters
    ----------
    flow : Dataflow
        What it has looked at.
    entries : dict
        List of factors of every tensor.
    tensors : dict
        Type of every tensor.
    inputs : dict
        Type that every input of every operation sees: narrow if the tensor is, or if a conversion is in front of it.
    conversions : tuple of Conversion
        Conversions with their own place after a tensor.
    own : tuple of Conversion
        Conversions that a reader does for itself; it sees the tensor wide.
    forms : dict
        Form of every quantised operation. Wide inputs do not count; it writes wide if one of its outputs is
        wide.
    """

    flow: Dataflow
    entries: dict[str, Entries]
    tensors: dict[str, Dtype]
    inputs: dict[Input, Dtype]
    conversions: tuple[Conversion, ...]
    own: tuple[Conversion, ...]
    forms: dict[str, DtypeForm]

    def factor(self, tensor: str) -> float:
        """Factor of a narrow tensor; ``ValueError`` if it is wide."""
        if self.tensors[tensor] is not Dtype.NARROW:
            raise ValueError(f"tensor must be narrow, not {tensor!r}")
        return next(iter(self.entries[tensor]))

    @cached_property
    def reads(self) -> dict[Input, Dtype]:
        """Type of the numbers that every input works with: what it sees, or what it converts that to for itself."""
        converted = {reader: Dtype.NARROW for conversion in self.own for reader in conversion.readers}
        return self.inputs | converted

    @cached_property
    def written(self) -> dict[str, set[Dtype]]:
        """Types in which every tensor exists where what writes it makes all conversions, as chains of the NPU do.

        Narrow if an operation works with narrow numbers, wide if one works with wide ones; what leaves or is kept
        counts, too.
        """
        types: dict[str, set[Dtype]] = {name: set() for name in self.tensors}
        for name, factor in (*self.flow.outputs, *(pair for node in self.flow.operations for pair in node.keeps)):
            types[name].add(Dtype.NARROW if factor else Dtype.WIDE)
        for node in self.flow.operations:
            for index, name in enumerate(node.inputs):
                if name:
                    types[name].add(self.reads[node.name, index])
        return types


def assign(
    network: Graph | Dataflow, factors: Mapping[Input, float] | None = None, *, conversions_from: int = 1
) -> Types:
    """Give every tensor and every input a type.

    Parameters
    ----------
    network : Graph or Dataflow
        The network.
    factors : mapping, optional
        Factor of inputs of quantised layers: 1 / step where the step is static. It is 1.0 for all others: with an
        exponent per block nothing needs to be known but that the layer wants narrow. Those of a quantised model
        are :func:`factors_of_codes`.
    conversions_from : int
        The set number of the source: more entries with a factor than this get a conversion that their readers share.
        It decides who converts, but not which tensors are narrow.

    Returns
    -------
    Types

    Raises
    ------
    ValueError
        If a factor is not positive, or not that of an input of a quantised operation that a product reads; if
        ``conversions_from`` is negative.
    """
    if conversions_from < 0:
        raise ValueError(f"conversions_from must be 0 or more, not {conversions_from!r}")
    flow = dataflow(network) if isinstance(network, Graph) else network
    demands = Demands.of(flow, factors or {})
    tensors = {name: narrow_or_wide(demands.entries[name]) for name in flow.inputs}
    for node in flow.operations:
        for name in filter(None, node.outputs):
            kind = demands.written(node, name)
            tensors[name] = kind if tensors.get(name) is not Dtype.WIDE else Dtype.WIDE
    inputs = {key: tensors[name] for name, keys in demands.readers.items() for key in keys}
    conversions: list[Conversion] = []
    own: list[Conversion] = []
    for name in [name for name in demands.readers if tensors[name] is Dtype.WIDE]:
        for factor, (count, readers) in _groups(demands, name).items():
            if count > conversions_from:
                conversions.append(Conversion(name, factor, tuple(readers)))
                inputs.update(dict.fromkeys(readers, Dtype.NARROW))
            else:
                own += [Conversion(name, factor, (reader,)) for reader in readers]
    forms = {node.name: _form(node, tensors, inputs) for node in flow.operations if node.kind is OperatorKind.QUANTISED}
    return Types(flow, demands.entries, tensors, inputs, tuple(conversions), tuple(own), forms)


def narrow_or_wide(entries: Entries) -> Dtype:
    """Type of an output that can be written either way."""
    return Dtype.NARROW if len(entries) == 1 and 0.0 not in entries else Dtype.WIDE


class Demands:
    """Demands of the readers of every tensor.

    Parameters
    ----------
    flow : Dataflow
        The network.
    factors : mapping
        Factors of all inputs of quantised operations that a product reads.
    """

    def __init__(self, flow: Dataflow, factors: Mapping[Input, float]):
        self.flow, self.factors = flow, factors
        self.operations = {node.name: node for node in flow.operations}
        self.readers: dict[str, list[Input]] = {name: [] for name in flow.tensors}
        self.entries: dict[str, Entries] = {name: Counter() for name in flow.tensors}
        #: Entries of the outputs of every operation from those after it.
        self.below: dict[str, Entries] = {}

    @classmethod
    def of(cls, flow: Dataflow, factors: Mapping[Input, float]) -> Demands:
        """Demands of a network; some of its ``factors``, as :func:`assign` takes them, are not 1."""
        known = {key: 1.0 for node in flow.operations for key in node.products}
        for key, factor in factors.items():
            if key not in known:
                raise ValueError(f"factors must be for inputs of quantised layers that a product reads, not {key!r}")
            if not (factor > 0 and math.isfinite(factor)):
                raise ValueError(f"factor of input {key[1]} of {key[0]!r} must be > 0 and finite, not {factor!r}")
            known[key] = float(factor)
        demands = cls(flow, known)
        demands._read()
        demands._walk()
        return demands

    def _read(self) -> None:
        """Find the readers of every tensor."""
        for node in self.flow.operations:
            for index, name in enumerate(node.inputs):
                if name:
                    self.readers[name].append((node.name, index))

    def _walk(self) -> None:
        """All walks at once: what arrives at the outputs of an operation is complete when its turn comes."""
        for name, factor in self.flow.outputs:
            self.entries[name][factor] += 1
        for node in reversed(self.flow.operations):
            for name, factor in node.keeps:
                self.entries[name][factor] += 1
            self.below[node.name] = sum((self.entries[name] for name in node.outputs if name), Counter())
            for index, name in enumerate(node.inputs):
                if name:
                    self.entries[name].update(self.passed(node, index))

    def passed(self, node: DataflowNode, index: int) -> Entries:
        """Entries that walks bring to the tensor that an input reads."""
        match node.kind:
            case OperatorKind.QUANTISED:
                return Counter({self.factors.get((node.name, index), 0.0): 1})
            case OperatorKind.PRECISE | OperatorKind.HOST:
                return Counter({0.0: 1 + self.below[node.name].total()})
            case OperatorKind.MOVING:
                return self.below[node.name] or Counter({0.0: 1})  # nothing reads it: as if it left the network

    def wanted(self, reader: Input) -> Entries:
        """Entries of :meth:`passed`; zeros alone where the reader reads wide."""
        entries = self.passed(self.operations[reader[0]], reader[1])
        return entries if narrow_or_wide(entries) is Dtype.NARROW else Counter({0.0: entries.total()})

    def written(self, node: DataflowNode, tensor: str) -> Dtype:
        """Type of an output of an operation."""
        if node.kind is OperatorKind.PRECISE or (
            node.kind is OperatorKind.MOVING and narrow_or_wide(self.passed(node, 0)) is Dtype.WIDE
        ):
            return Dtype.WIDE
        return narrow_or_wide(self.entries[tensor])


def _groups(demands: Demands, tensor: str) -> dict[float, tuple[int, list[Input]]]:
    """Readers that want a tensor narrow, by factor, with the number of entries that come through them."""
    groups: dict[float, tuple[int, list[Input]]] = {}
    for reader in demands.readers[tensor]:
        for factor, more in demands.wanted(reader).items():
            if factor > 0:
                count, readers = groups.get(factor, (0, []))
                groups[factor] = (count + more, [*readers, reader])
    return groups


def _form(node: DataflowNode, tensors: Mapping[str, Dtype], inputs: Mapping[Input, Dtype]) -> DtypeForm:
    reads = all(inputs[key] is Dtype.NARROW for key in node.products)
    writes = all(tensors[name] is Dtype.NARROW for name in node.outputs if name)
    return DtypeForm.of(reads, writes)


def problems(types: Types) -> Iterator[str]:
    """A line for every rule of the pass that does not hold."""
    known = {*types.flow.inputs}
    for node in types.flow.operations:
        yield from (
            f"{node.name} reads {name!r}, which nothing has written"
            for name in node.inputs
            if name and name not in known
        )
        known.update(node.outputs)
        products = [index for _, index in node.products]
        for index in (index for index, name in enumerate(node.inputs) if name):
            reads = types.reads.get((node.name, index))
            if reads is None:
                yield f"input {index} of {node.name} must have a type"
            elif node.kind is not OperatorKind.MOVING and (reads is Dtype.NARROW) is not (index in products):
                yield f"input {index} of {node.name} ({node.kind.value}) must not be {reads.value}"
        if node.kind is OperatorKind.PRECISE:
            yield from (
                f"{name!r} is computed by {node.name} (precise) and must be wide"
                for name in node.outputs
                if name and types.tensors.get(name) is Dtype.NARROW
            )
    for name in types.flow.tensors:
        if name not in types.tensors:
            yield f"{name!r} must have a type"
        elif types.tensors[name] is Dtype.NARROW and narrow_or_wide(types.entries[name]) is Dtype.WIDE:
            yield f"{name!r} must not be narrow: its readers want {sorted(types.entries[name])}"


def text(types: Types) -> Iterator[str]:
    """Types as readable lines: every tensor with its conversions, every operation with what it reads."""
    for name, kind in types.tensors.items():
        written = " and ".join(sorted(kind.value for kind in types.written[name]))
        yield f"{name}: {kind.value}, written {written or 'nowhere'}"
        shared = [conversion.readers for conversion in types.conversions if conversion.tensor == name]
        yield from (f"  converted once for {', '.join(reader for reader, _ in readers)}" for readers in shared)
        own = [conversion.readers for conversion in types.own if conversion.tensor == name]
        yield from (f"  converted by {readers[0][0]}" for readers in own)
    for node in types.flow.operations:
        reads = ", ".join(f"{name} {types.reads[node.name, k].value}" for k, name in enumerate(node.inputs) if name)
        form = f", {types.forms[node.name].text}" if node.name in types.forms else ""
        yield f"operation {node.name} ({node.kind.value}{form}) reads {reads}"
