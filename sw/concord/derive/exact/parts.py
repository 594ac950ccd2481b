"""Parts that several operations on arrays are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from concord.derive.exact.arrays import Array, ArrayWriter, WindowPlaces
from concord.derive.exact.requantise import codes_of_sums
from concord.integer.graph import IntegerGraph
from concord.integer.operations import CodeMovement, CodeWindows
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul, RequantisedSums, WeightedSums
from concord.integer.wide import numbers_of


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
        return self.graph.scheme(tensor).reach(zero_point)

    def codes(self, operation: RequantisedSums, sums: Array, channels: tuple[int, ...] = ()) -> Array:
        """Codes of the sums of an operation; ``channels`` is the shape of what each channel has."""
        return codes_of_sums(self.writer, sums, operation.requantisation, operation.largest_sum, channels)

    def within(self, operation: CodeMovement | CodeWindows, made: Array) -> Array:
        """Codes, or numbers, within the ends of an operation; nothing to do if all that it reads are."""
        schemes = [self.graph.schemes[name] for name in operation.inputs]
        if all(operation.low <= scheme.low and scheme.high <= operation.high for scheme in schemes):
            return made
        if not made.real:
            return self.writer.limited(made, operation.low, operation.high)
        low, high = (float(numbers_of(np.asarray(end))) for end in (operation.low, operation.high))
        return self.writer.limited_numbers(made, low, high)

    def transposed(self, a: Array, axes: list[int]) -> Array:
        """Axes in another order, if it is another one."""
        return a if axes == list(range(len(axes))) else self.writer.transpose(a, axes)

    def shape_of(self, tensor: str, last: bool) -> tuple[int, ...]:
        """Shape of a tensor with the channels in the second axis; ``last`` if it has them in the last one."""
        shape = self.shapes[tensor]
        return (shape[0], shape[-1], *shape[1:-1]) if last else shape

    def channels_first(self, codes: Array, rank: int, last: bool) -> Array:
        """Codes with the channels in the second axis; ``last`` if they are in the last one."""
        return self.transposed(codes, [0, rank - 1, *range(1, rank - 1)]) if last else codes

    def channels_last(self, codes: Array, rank: int, last: bool) -> Array:
        """Codes with the channels in the last axis again."""
        return self.transposed(codes, [0, *range(2, rank), 1]) if last else codes

    def rows(self, operation: IntegerMatMul, codes: Array) -> Array:
        """Sums of products with a matrix."""
        rows = self.offset(codes, operation.zero_point)
        return self._plus_bias(operation, self.writer.matrix_product(rows, operation.weight, operation.reach), (-1,))

    def windows(self, operation: IntegerConvolution, codes: Array) -> Array:
        """Sums of products of windows, with the channels in the second axis."""
        rows = self.offset(self.channels_first(codes, operation.weight.ndim, operation.last), operation.zero_point)
        window = WindowPlaces.of(operation)
        sums = self.writer.convolution(rows, operation.weight, window, operation.groups, operation.reach)
        return self._plus_bias(operation, sums, (-1, *[1] * len(window.kernel)))

    def _plus_bias(self, operation: WeightedSums, sums: Array, channels: tuple[int, ...]) -> Array:
        if not operation.bias.any():
            return sums
        return self.writer.add(sums, self.writer.integers(operation.bias.reshape(channels), "bias"))
