"""Parts that several operations on arrays are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from concord.derive.exact.arrays import Array, ArrayWriter, WindowPlaces
from concord.integer.exact_sums import reach_of
from concord.integer.graph import IntegerGraph
from concord.integer.weighted_sums import WeightedRows, WeightedSums, WeightedWindows


@dataclass(frozen=True)
class LoweringParts:
    """Writes parts of operations of a graph.

    Parameters
    ----------
    writer : ArrayWriter
    graph : IntegerGraph
    shapes : dict of str to tuple
        Of all tensors, with one sample.
    """

    writer: ArrayWriter
    graph: IntegerGraph
    shapes: Mapping[str, tuple[int, ...]]

    def offset(self, codes: Array, zero_point: int) -> Array:
        """Codes less their zero point."""
        return self.writer.subtract(codes, self.writer.integers(zero_point, "zero")) if zero_point else codes

    def reach(self, tensor: str, zero_point: int) -> int:
        """Largest magnitude of a code of a tensor, less its zero point."""
        return reach_of(self.graph.scheme(tensor), zero_point)

    def transposed(self, a: Array, axes: list[int]) -> Array:
        """Axes in another order, if it is another one."""
        return a if axes == list(range(len(axes))) else self.writer.transpose(a, axes)

    def rows(self, operation: WeightedRows, codes: Array) -> Array:
        """Sums of products with a matrix."""
        rows = self.offset(codes, operation.zero_point)
        return self._plus_bias(operation, self.writer.matrix_product(rows, operation.weight, operation.reach), (-1,))

    def windows(self, operation: WeightedWindows, codes: Array) -> Array:
        """Sums of products of the windows of ``[samples, channels, *sizes]``."""
        rows = self.offset(codes, operation.zero_point)
        kernel = operation.weight.shape[2:]
        window = WindowPlaces(kernel, operation.strides, operation.dilations, operation.pads)
        sums = self.writer.convolution(rows, operation.weight, window, operation.groups, operation.reach)
        return self._plus_bias(operation, sums, (-1, *[1] * len(kernel)))

    def _plus_bias(self, operation: WeightedSums, sums: Array, channels: tuple[int, ...]) -> Array:
        if not operation.bias.any():
            return sums
        return self.writer.add(sums, self.writer.integers(operation.bias.reshape(channels), "bias"))
