"""A quantised network as it is: loaded, and run on codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph
from concord.integer.operations import CodePairTable, TableOperation
from concord.integer.pairs import OF_PAIRS, PAIR_BYTES
from concord.integer.weighted_sums import RequantisedSums, WeightedSums
from concord.integer.wide import integers_of, numbers_of
from concord.integer.wide_numbers import WideNumbers
from concord.transfer import Codes, TransferSet

CodeArray = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class IntegerNetwork:
    """A network that is executed on codes alone.

    Parameters
    ----------
    graph : IntegerGraph
        What is computed.
    tables : TransferSet
        The tables of its point-wise functions by the tensors that they make, equal ones once.
    """

    graph: IntegerGraph
    tables: TransferSet = field(default_factory=TransferSet)

    @classmethod
    def of(cls, graph: IntegerGraph) -> IntegerNetwork:
        """The network of a graph, with the tables that are in it."""
        tables = TransferSet()
        for operation in graph.operations:
            if isinstance(operation, TableOperation):
                tables.add(operation.output, operation.table)
        return cls(graph, tables)

    def run(
        self, inputs: Mapping[str, ArrayLike], *, every: bool = False
    ) -> dict[str, CodeArray | NDArray[np.float32]]:
        """Codes of the outputs, or numbers of those that are wide.

        Parameters
        ----------
        inputs : mapping of str to array ``[samples, ...]``
            By the names of the inputs of the model: codes if the array is of integers, otherwise floats, which are
            quantised as QuantizeLinear does it.
        every : bool
            Return all tensors of codes, by their names in the model.

        Returns
        -------
        dict of arrays
            In the type of the codes, by the names of the outputs of the model. The codes of a float output are those
            in front of its DequantizeLinear; :meth:`scheme` says what they stand for.

        Raises
        ------
        ValueError
            If inputs are missing or unknown, have another shape than in the model after the samples, or are no codes.
        TypeError
            If an input has neither floats nor integers.
        OverflowError
            If an accumulator does not fit 32 bits, or those that an NPU holds where the network has its factors.
        """
        graph = self.graph
        start = {graph.inputs[name]: codes for name, codes in self.codes(inputs).items()}
        values: dict[str, Integers] = {}
        results = graph.compute(start, values.__setitem__) if every else graph.compute(start)
        if every:
            results = {**values, **{name: values[tensor] for name, tensor in graph.aliases.items() if tensor in values}}
        return {name: self.shown(name, codes) for name, codes in results.items()}

    def shown(self, name: str, integers: Integers) -> CodeArray | NDArray[np.float32]:
        """Codes of a tensor in their type, by its name in the model, and wide tensors as numbers."""
        scheme = self.scheme(name)
        return numbers_of(integers) if isinstance(scheme, WideNumbers) else integers.astype(scheme.dtype)

    def codes(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Integers]:
        """Codes of the inputs, by their names; parameters and errors as of :meth:`run`."""
        if set(inputs) != set(self.graph.inputs):
            raise ValueError(f"inputs must be {sorted(self.graph.inputs)}, not {sorted(inputs)}")
        return {name: self._codes(name, inputs[name]) for name in self.graph.inputs}

    def scheme(self, name: str) -> Codes | WideNumbers:
        """Scheme of the integers of a tensor, by its name in the model."""
        return self.graph.schemes[self.graph.outputs.get(name, self.graph.tensor(name))]

    def _codes(self, name: str, values: ArrayLike) -> Integers:
        """Codes of an input: as they are, or of floats as QuantizeLinear makes them."""
        array, shape, scheme = np.asarray(values), self.graph.shapes[name], self.graph.schemes[self.graph.inputs[name]]
        if array.dtype.kind not in "iuf":
            raise TypeError(f"{name} must be an array of floats or of codes, not of {array.dtype}")
        if array.ndim != len(shape) or any(
            size not in (None, n) for n, size in zip(array.shape[1:], shape[1:], strict=True)
        ):
            wanted = ", ".join(["samples", *("any" if size is None else str(size) for size in shape[1:])])
            raise ValueError(f"{name} must have shape [{wanted}], not {list(array.shape)}")
        if isinstance(scheme, WideNumbers):
            if array.dtype.kind != "f":
                raise TypeError(f"{name} must be an array of floats, not of {array.dtype}")
            return integers_of(array)
        if array.dtype.kind == "f":
            return scheme.codes_of(array.astype(np.float32))
        return scheme.check(array).astype(np.int64)

    @property
    def wide_sums(self) -> dict[str, int]:
        """Operations with sums that might not fit an accumulator, and the largest magnitude that one might have."""
        return {operation.name: operation.largest_sum for operation in self.with_wide_sums}

    @property
    def with_wide_sums(self) -> list[RequantisedSums]:
        """These operations."""
        sums = [operation for operation in self.graph.operations if isinstance(operation, RequantisedSums)]
        return [operation for operation in sums if operation.largest_sum > operation.requantisation.largest_sum]

    def report(self) -> str:
        """Operations, tables, and what might overflow."""
        products = sum(isinstance(operation, WeightedSums) for operation in self.graph.operations)
        lines = [f"{self.graph.name}: {len(self.graph.operations)} operations, {products} of them products"]
        lines.append(f"tables: {self.tables.report()}")
        pairs = [operation for operation in self.graph.operations if isinstance(operation, CodePairTable)]
        computed = sum(isinstance(operation, OF_PAIRS) for operation in self.graph.operations)
        if pairs or computed:
            total = f"{len(pairs)} of {len(pairs) + computed} operations of two tensors are tables"
            lines.append(f"{total}, which pay up to {PAIR_BYTES} bytes more than those that they take the place of")
        for operation in self.with_wide_sums:
            bits = operation.requantisation.bits
            lines.append(f"{operation.name}: accumulators may reach {operation.largest_sum}, beyond {bits} bits")
        return "\n".join(lines)
