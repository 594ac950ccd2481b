"""Decisions and savings of the data-type pass [dtype-pass] by tensor: types, conversions, and bytes that move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from concord.graph.ir import Graph
from concord.graph.passes.dtypes import Dtype, Entries, Types, assign
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH

#: An entry of a list of factors is written out up to so many times.
_WRITTEN_OUT = 3
#: Counts below this are written out.
_MANY = 1_000_000


@dataclass(frozen=True)
class DtypeTraffic:
    """Conversions and bytes of a tensor or of a network, for one sample, or for the batch of a compiled network.

    *Before*: all tensors are wide, and every input of a product converts for itself. *After*: with the types of the
    pass. A tensor is written once and read once by every reader, an output of the network also by the host; a
    conversion reads the wide tensor and writes a narrow one, and its readers read that. A narrow input of the network
    is converted once, by the host. That a quantised layer writes narrow is no conversion: it scales its sums anyway.
    What a recurrent layer reads of its own states is not counted.

    Parameters
    ----------
    name : str
        Name of the tensor or of the network.
    elements : int
        Elements of the tensor, or of all tensors.
    conversions_before, conversions_after : int
        How often a tensor is converted to narrow.
    bytes_before, bytes_after : int
        Bytes written and read.
    """

    name: str
    elements: int
    conversions_before: int
    conversions_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class ConversionFacts:
    """A conversion of a tensor to narrow.

    Parameters
    ----------
    factor : float
        What the tensor is multiplied by; 1 where every block has an exponent of its own.
    readers : tuple of str
        Operations that read the result.
    shared : bool
        Whether it has a place of its own after the tensor; otherwise its only reader does it for itself.
    """

    factor: float
    readers: tuple[str, ...]
    shared: bool

    @property
    def text(self) -> str:
        """Traffic in words."""
        names = ", ".join(self.readers)
        scaled = "" if self.factor == 1 else f" with the factor {self.factor:g}"
        return f"once{scaled} for {names}" if self.shared else f"by {names}{scaled}"


@dataclass(frozen=True)
class TensorTypes(DtypeTraffic):
    """Decision of the pass for a tensor, and its savings.

    Parameters
    ----------
    entries : tuple of pairs of float and int
        The list of factors, one entry per way down to a reader, 0 for wide: every factor, the greatest first, with how
        often it is in the list.
    type : str
        ``"narrow"`` or ``"wide"``.
    conversions : tuple of ConversionFacts
        Conversions after the tensor, and those of its readers.
    forms : tuple of str
        Forms of the quantised operations that write it, such as ``"narrow to wide"``; several write one storage.
    """

    entries: tuple[tuple[float, int], ...]
    type: str
    conversions: tuple[ConversionFacts, ...]
    forms: tuple[str, ...]

    @property
    def factors(self) -> str:
        """The list of factors; what is in it very often is there once, with the number."""
        return ", ".join(
            ", ".join([f"{factor:g}"] * count) if count <= _WRITTEN_OUT else f"{factor:g} ({_times(count)})"
            for factor, count in self.entries
        )


def _times(count: int) -> str:
    """A count in few characters: ways can be exponentially many."""
    return f"{count:,}x" if count < _MANY else f"over {_MANY:,}x"


def size(elements: int, kind: Dtype, config: NpuConfig) -> int:
    """Bytes of a tensor: binary16, or mantissas and one exponent per native vector; vectors are taken to be full."""
    if kind is Dtype.WIDE:
        return elements * BINARY16_WIDTH // 8
    bits = elements * config.act_mant + -(-elements // config.native) * config.act_exp_width
    return -(-bits // 8)


def rows(types: Types, elements: Mapping[str, int], config: NpuConfig) -> list[TensorTypes]:
    """Every tensor that the pass has looked at.

    Parameters
    ----------
    types : Types
        What the pass has decided.
    elements : mapping of str to int
        Elements by tensor.
    config : NpuConfig
        Whose formats the bytes are those of.
    """
    return [_row(types, name, elements[name], config) for name in types.tensors]


def graph_rows(graph: Graph, config: NpuConfig, types: Types | None = None) -> list[TensorTypes]:
    """Every tensor of a graph, layer by layer; ``types`` are those of the pass with its defaults if left out."""
    elements = {name: prod(shape) for name, shape in graph.shapes.items()}
    return rows(assign(graph) if types is None else types, elements, config)


def total(name: str, of: Iterable[DtypeTraffic]) -> DtypeTraffic:
    """The sum of rows."""
    of = list(of)
    return DtypeTraffic(
        name,
        sum(row.elements for row in of),
        sum(row.conversions_before for row in of),
        sum(row.conversions_after for row in of),
        sum(row.bytes_before for row in of),
        sum(row.bytes_after for row in of),
    )


def _row(types: Types, name: str, elements: int, config: NpuConfig) -> TensorTypes:
    flow = types.flow
    readers = [(node, index) for node in flow.operations for index, read in enumerate(node.inputs) if read == name]
    wide, narrow = (size(elements, kind, config) for kind in (Dtype.WIDE, Dtype.NARROW))
    type_of = types.tensors[name]
    shared = [conversion for conversion in types.conversions if conversion.tensor == name]
    own = [conversion for conversion in types.own if conversion.tensor == name]
    read_after = sum(narrow if types.inputs[node.name, index] is Dtype.NARROW else wide for node, index in readers)
    leaving = [factor for output, factor in flow.outputs if output == name]
    left_after = sum(narrow if factor else wide for factor in leaving)
    return TensorTypes(
        name,
        elements,
        sum((node.name, index) in node.products for node, index in readers),
        len(shared) + len(own) + (name in flow.inputs and type_of is Dtype.NARROW),
        wide * (1 + len(readers) + len(leaving)),
        (narrow if type_of is Dtype.NARROW else wide) + read_after + left_after + len(shared) * (wide + narrow),
        entries=_entries(types.entries[name]),
        type=type_of.value,
        conversions=tuple(
            ConversionFacts(conversion.factor, tuple(dict.fromkeys(node for node, _ in conversion.readers)), kind)
            for group, kind in ((shared, True), (own, False))
            for conversion in group
        ),
        forms=tuple(
            dict.fromkeys(
                types.forms[node.name].text
                for node in flow.operations
                if name in node.outputs and node.name in types.forms
            )
        ),
    )


def _entries(entries: Entries) -> tuple[tuple[float, int], ...]:
    return tuple(sorted(entries.items(), reverse=True))
