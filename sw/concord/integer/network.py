"""A quantised network as it is: loaded, and run on codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.integer.composing import composed
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph
from concord.integer.importer import import_integer_graph
from concord.integer.operations import CodeTable, IntegerProduct
from concord.integer.requantise import ACCUMULATOR, codes_of_floats
from concord.transfer import TransferSet, UniformAffine

Codes = NDArray[np.integer[Any]]


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

    def run(self, inputs: Mapping[str, ArrayLike], *, every: bool = False) -> dict[str, Codes]:
        """Codes of the outputs.

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
            If inputs are missing or unknown, have another shape than in the model behind the samples, or are no codes.
        TypeError
            If an input has neither floats nor integers.
        OverflowError
            If an accumulator does not fit 32 bits.
        """
        graph = self.graph
        if set(inputs) != set(graph.inputs):
            raise ValueError(f"inputs must be {sorted(graph.inputs)}, not {sorted(inputs)}")
        start = {tensor: self._codes(name, inputs[name]) for name, tensor in graph.inputs.items()}
        values: dict[str, Integers] = {}
        results = graph.compute(start, values.__setitem__) if every else graph.compute(start)
        if every:
            results = {**values, **{name: values[tensor] for name, tensor in graph.aliases.items() if tensor in values}}
        return {name: codes.astype(self.scheme(name).dtype) for name, codes in results.items()}

    def scheme(self, name: str) -> UniformAffine:
        """What the codes of a tensor stand for, by its name in the model."""
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
        return scheme.check(array).astype(np.int64) if array.dtype.kind in "iu" else codes_of_floats(array, scheme)

    @property
    def wide_sums(self) -> dict[str, int]:
        """Products whose accumulators might not fit 32 bits, and the largest magnitude that one might have."""
        products = [operation for operation in self.graph.operations if isinstance(operation, IntegerProduct)]
        largest = {product.name: int(product.largest_sums.max()) for product in products}
        return {name: bound for name, bound in largest.items() if bound > ACCUMULATOR[1]}

    def report(self) -> str:
        """Operations, tables, and what might overflow."""
        products = sum(isinstance(operation, IntegerProduct) for operation in self.graph.operations)
        lines = [f"{self.graph.name}: {len(self.graph.operations)} operations, {products} of them products"]
        lines.append(f"tables: {self.tables.report()}")
        lines += [f"{name}: accumulators may reach {bound}, beyond 32 bits" for name, bound in self.wide_sums.items()]
        return "\n".join(lines)


def load(
    model: str | Path | bytes | Any, outputs: Sequence[str] | None = None, *, compose: bool = True
) -> IntegerNetwork:
    """Load a quantised network.

    Parameters
    ----------
    model, outputs
        As of :func:`import_integer_graph`, whose errors it has.
    compose : bool
        Make one table of several in a row, and leave out those that change nothing. Results are the same; without it,
        every tensor of codes of the model is computed.
    """
    graph = import_integer_graph(model, outputs)
    if compose:
        graph = composed(graph)
    tables = TransferSet()
    for operation in graph.operations:
        if isinstance(operation, CodeTable):
            tables.add(operation.output, operation.table)
    return IntegerNetwork(graph, tables)
