"""What the data-type pass saves [dtype-pass]: conversions, and bytes that move between layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from concord.graph.ir import Graph
from concord.graph.passes.dtypes import Dtype, Types, assign
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH


@dataclass(frozen=True)
class DtypeTraffic:
    """Conversions and bytes of a tensor or of a network, for one sample.

    *Before*: all tensors are wide, and every input of a product converts for itself. *After*: with the types of the
    pass. A tensor is written once and read once by every reader, an output of the network also by the host; a
    conversion reads the wide tensor and writes a narrow one, and its readers read that. A narrow input of the network
    is converted once, by the host. That a quantised layer writes narrow is no conversion: it scales its sums anyway.

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


def size(elements: int, kind: Dtype, config: NpuConfig) -> int:
    """Bytes of a tensor: binary16, or mantissas and one exponent per native vector; vectors are taken to be full."""
    if kind is Dtype.WIDE:
        return elements * BINARY16_WIDTH // 8
    bits = elements * config.act_mant + -(-elements // config.native) * config.act_exp_width
    return -(-bits // 8)


def rows(graph: Graph, config: NpuConfig) -> list[DtypeTraffic]:
    """Every tensor of a network."""
    types = assign(graph)
    return [_row(graph, types, name, config) for name in types.tensors]


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


def _row(graph: Graph, types: Types, name: str, config: NpuConfig) -> DtypeTraffic:
    readers = [
        (node, index) for node in types.flow.operations for index, read in enumerate(node.inputs) if read == name
    ]
    elements = prod(graph.shapes[name])
    wide, narrow = (size(elements, kind, config) for kind in (Dtype.WIDE, Dtype.NARROW))
    type_of = types.tensors[name]
    shared = [conversion for conversion in types.conversions if conversion.tensor == name]
    own = [conversion for conversion in types.own if conversion.tensor == name]
    read_after = sum(narrow if types.inputs[node.name, index] is Dtype.NARROW else wide for node, index in readers)
    leaves = wide * graph.outputs.count(name)
    return DtypeTraffic(
        name,
        elements,
        sum((node.name, index) in node.products for node, index in readers),
        len(shared) + len(own) + (name in graph.inputs and type_of is Dtype.NARROW),
        wide * (1 + len(readers)) + leaves,
        (narrow if type_of is Dtype.NARROW else wide) + read_after + leaves + len(shared) * (wide + narrow),
    )
