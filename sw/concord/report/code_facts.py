"""Facts of a network on codes, and the codes that its tensors have on samples: for terminal, page and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from concord.integer.graph import IntegerOperation
from concord.integer.network import IntegerNetwork
from concord.integer.operations import TableOperation
from concord.networks.records import RecordWriter
from concord.transfer import Codes


@dataclass(frozen=True)
class UsedCodes:
    """Codes of a tensor on samples: its sizes, the least and the greatest code, and the shares at the ends of all."""

    sizes: tuple[int, ...]
    least: int
    greatest: int
    at_low: float
    at_high: float


@dataclass(frozen=True)
class OperationFacts:
    """An operation: its class, the tensor that it makes, what its codes stand for, bytes of constants, its table."""

    name: str
    kind: str
    output: str
    codes: str
    nbytes: int
    table: int | None
    used: UsedCodes | None


@dataclass(frozen=True)
class TableFacts:
    """A stored table: the codes that it is read with and made of, its bytes, those that it saves, and its sites."""

    codes: int
    type: str
    nbytes: int
    saved: int
    sites: tuple[str, ...]


@dataclass(frozen=True)
class PortFacts:
    """An input or an output: its name, what its codes stand for, and the sizes that are known, -1 for others."""

    name: str
    codes: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class IntegerFacts:
    """A network on codes.

    Parameters
    ----------
    name : str
        Of the model.
    samples : int
        Number of samples on which codes were looked at.
    sites, saved : int
        Places that a table is looked up at, and bytes that sharing saves.
    """

    name: str
    samples: int
    inputs: tuple[PortFacts, ...]
    outputs: tuple[PortFacts, ...]
    operations: tuple[OperationFacts, ...]
    tables: tuple[TableFacts, ...]
    sites: int
    saved: int
    wide_sums: tuple[str, ...]

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights and other constants."""
        return sum(operation.nbytes for operation in self.operations)

    @property
    def table_bytes(self) -> int:
        """Bytes of the stored tables."""
        return sum(table.nbytes for table in self.tables)

    def to_json(self) -> str:
        """All facts as JSON."""
        return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"


def facts_of(network: IntegerNetwork, inputs: Mapping[str, ArrayLike] | None = None) -> IntegerFacts:
    """The facts of a network; with ``inputs`` also the codes on these samples, whose errors are those of ``run``."""
    graph, sharing = network.graph, network.tables.report()
    codes = {} if inputs is None else network.run(inputs, every=True)
    samples = 0 if inputs is None else len(np.asarray(next(iter(inputs.values()))))

    def facts(operation: IntegerOperation) -> OperationFacts:
        writer = RecordWriter(lambda table: "")
        writer.record(operation)
        output, scheme = operation.output, graph.schemes[operation.output]
        table = network.tables.sites[output].table if isinstance(operation, TableOperation) else None
        used = _used(codes[output], scheme) if output in codes and isinstance(scheme, Codes) else None
        kind, nbytes = type(operation).__name__, sum(array.nbytes for array in writer.arrays)
        return OperationFacts(operation.name, kind, output, str(scheme), nbytes, table, used)

    tables = []
    for (_, entries), users in zip(network.tables.stored, sharing.users, strict=True):
        saved = (len(users) - 1) * entries.nbytes
        tables.append(TableFacts(len(entries), entries.dtype.name, entries.nbytes, saved, users))

    def ports(tensors: Mapping[str, str]) -> tuple[PortFacts, ...]:
        """Sizes are known of inputs alone."""
        return tuple(
            PortFacts(name, str(graph.schemes[tensor]), tuple(size or -1 for size in graph.shapes.get(name, ())))
            for name, tensor in tensors.items()
        )

    wide = tuple(f"{name}: accumulators may reach {bound}" for name, bound in network.wide_sums.items())
    return IntegerFacts(
        graph.name, samples, ports(graph.inputs), ports(graph.outputs), tuple(map(facts, graph.operations)),
        tuple(tables), sharing.sites, sharing.unshared - sharing.nbytes, wide,
    )  # fmt: skip


def _used(codes: ArrayLike, scheme: Codes) -> UsedCodes:
    array = np.asarray(codes)
    low, high = (float(np.mean(array == end)) if array.size else 0.0 for end in (scheme.low, scheme.high))
    ends = (int(array.min()), int(array.max())) if array.size else (scheme.zero, scheme.zero)
    return UsedCodes(array.shape, *ends, low, high)
