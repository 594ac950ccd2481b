"""Layers of attention beside products with weights: products of two tensors, masks, and Softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concord.golden.rounding import round_shift
from concord.golden.softmax import probabilities
from concord.graph.ir import Node
from concord.graph.ops.base import aligned
from concord.graph.ops.elementwise import BinaryAttributes, SoftmaxAttributes
from concord.spec.softmax import PROBABILITY_POINT
from concord.spec.training import TrainingFormats
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.layers.normalised import FINE
from concord.train.products import exact, total
from concord.train.tensor import Array, Tensor, added, quantised, to_format, top_of
from concord.utils.arrays import Ints


class MatMulLayer(TrainableLayer):
    """``A B`` of two tensors ``[..., I, K]`` and ``[..., K, J]``, both of which get gradients.

    The axes in front broadcast as those of the graph do. Blocks of both are along K.
    """

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        first, second = (context.activation(x, axis) for x, axis in zip(xs, (-1, -2), strict=True))
        a, b = self._of_one_rank(first, second)
        mant, peak = exact(np.matmul, a, first.peak, b, second.peak, a.shape[-1])
        return [to_format(mant, first.exp + second.exp, peak, context.formats.intermediate)], (first, second)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        first, second = memory
        g, (a, b) = context.gradient(only(grads), -1), self._of_one_rank(first, second)
        changes = (
            (first, second, exact(np.matmul, g.mant, g.peak, b.swapaxes(-1, -2), second.peak, b.shape[-1])),
            (second, first, exact(np.matmul, a.swapaxes(-1, -2), first.peak, g.mant, g.peak, a.shape[-2])),
        )
        fmt = context.formats.intermediate
        return [
            to_format(*_as_before(mant, g.exp + other.exp, peak, operand.mant.shape), fmt)
            for operand, other, (mant, peak) in changes
        ], {}

    @staticmethod
    def _of_one_rank(first: Tensor, second: Tensor) -> tuple[Array, Array]:
        """Both, with axes of length 1 after that of the samples where one has fewer."""
        rank = max(first.mant.ndim, second.mant.ndim) - 1
        return aligned(first.mant, rank), aligned(second.mant, rank)


def _as_before(mant: Array, exp: int, peak: int, shape: Sequence[int]) -> tuple[Array, int, int]:
    """Sums along the axes that an operand of this shape was broadcast along, in its shape; exponent and bound."""
    own = (shape[0], *[1] * (mant.ndim - len(shape)), *shape[1:])
    axes = tuple(axis for axis, size in enumerate(own) if size < mant.shape[axis])
    if axes:
        mant, peak = total(mant, peak, axes)
    return mant.reshape(shape), exp, peak


class Mask(TrainableLayer):
    """A constant that is not trained, added in front of a Softmax: zero, or far below all numbers.

    Parameters
    ----------
    node : Node
        An Add of the constant.
    formats : TrainingFormats
        The constant is an intermediate, with one exponent.
    """

    def __init__(self, node: Node, formats: TrainingFormats):
        super().__init__(node)
        constant = np.asarray(node.attributes(BinaryAttributes).constant, np.float64)
        block = quantised(constant.reshape(-1), formats.intermediate)
        mant = block.mant.astype(np.float64).reshape(constant.shape)
        self.mask = Tensor(mant, int(block.exp), formats.intermediate.q_max)

    @property
    def attributes(self) -> dict[str, Any]:
        return {"constant": self.mask.values}

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        (x,) = xs
        mask = self.mask.with_mant(np.broadcast_to(self.mask.mant, x.mant.shape))
        return [added([x, mask], context.formats.intermediate)], None

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        return [only(grads)], {}


class SoftmaxLayer(TrainableLayer):
    """Probabilities along an axis, with the bits of :func:`concord.golden.softmax.probabilities`.

    Backward ``y (g - sum(g y))``, the sum exact, on a grid where g has at least 30 bits.
    """

    def __init__(self, node: Node):
        super().__init__(node)
        self.axis = node.attributes(SoftmaxAttributes).axis + 1

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        (x,) = xs
        mant: Ints = np.moveaxis(
            probabilities(np.moveaxis(x.mant, self.axis, -1).astype(np.int64), x.exp), -1, self.axis
        )
        y = to_format(mant, -PROBABILITY_POINT, 1 << PROBABILITY_POINT, context.formats.intermediate)
        return [y], y

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        y, g = memory, context.gradient(only(grads), self.axis)
        fine = max(0, FINE - top_of(g.mant).bit_length())
        sums, _ = exact(self._sums_of_products, g.mant, g.peak, y.mant, y.peak, g.mant.shape[self.axis])
        left = np.ldexp(g.mant.astype(np.float64), fine)
        left -= round_shift(sums, -y.exp - fine)
        inner = context.gradient(Tensor(left, g.exp - fine, top_of(left)), self.axis)
        mant, peak = exact(np.multiply, inner.mant, inner.peak, y.mant, y.peak, 1)
        return [to_format(mant, inner.exp + y.exp, peak, context.formats.intermediate)], {}

    def _sums_of_products(self, a: Array, b: Array) -> Array:
        """Sums along the axis, which stays."""
        return np.asarray((a * b).sum(axis=self.axis, keepdims=True))
