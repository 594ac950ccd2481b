"""Matrix product with a bias."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concord.golden.integers import beyond_grid
from concord.golden.rounding import round_shift
from concord.graph.ir import Node
from concord.spec.training import TrainingFormat
from concord.sums.exact import exact_type
from concord.sums.register import ProductOperands
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.parameters import Parameter
from concord.train.products import exact, total
from concord.train.tensor import Array, Tensor, added, to_format


def with_bias(mant: Array, exp: int, peak: int, bias: Tensor, fmt: TrainingFormat) -> Tensor:
    """A product plus a bias that is broadcast to it, on the grid of the product; an intermediate.

    What the bias has below that grid is rounded to the nearest, away. Where it would have more than 46 bits there, the
    grid is that of :func:`concord.train.tensor.added`.
    """
    if not bias.peak:
        return to_format(mant, exp, peak, fmt)
    if beyond_grid(exp, bias.exp, bias.peak):
        whole = np.broadcast_to(bias.mant, mant.shape)
        return added([Tensor(mant, exp, max(peak, 1)), Tensor(whole, bias.exp, bias.peak)], fmt)
    shifted = round_shift(bias.mant, exp - bias.exp)
    peak += int(np.abs(shifted).max())
    dtype = exact_type(peak)
    return to_format(mant.astype(dtype, copy=False) + shifted.astype(dtype), exp, peak, fmt)


class Dense(TrainableLayer):
    """``y = x W^T + b`` along the last axis. W is ``[O, K]``."""

    #: Channels of a tap, whose products make up a term of an accumulator of few bits; 0: all of them.
    channels = 0

    def __init__(self, node: Node, weight: Parameter, bias: Parameter | None):
        super().__init__(node)
        self.weight, self.bias = weight, bias

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x = context.operand(xs[0], self.name)
        bias = None if self.bias is None else self.bias.tensor
        return [product(x, self.weight.tensor, bias, context, self.name, self.channels)], x

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g, x = only(grads), memory
        changes = {"weight": weight_gradient(g, x, context)}
        if self.bias is not None:
            changes["bias"] = bias_gradient(g, context)
        if self.first:
            return [None], changes
        return [input_gradient(context.gradient(g), self.weight.tensor, context)], changes


class FixedDense(Dense):
    """``y = x A^T`` along the last axis, A ``[O, K]`` a constant that is not trained, such as an adjacency.

    A is in the format of weights. The axis is that of the nodes, whose elements lie in positions of the NPU: with an
    accumulator of few bits every product is a term of its own.

    Parameters
    ----------
    node : Node
        As for any layer.
    weight : Parameter
        A; an accumulator holds what its mantissas do not.
    bias : Parameter or None
        One number per output, which is trained.
    """

    channels = 1

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {} if self.bias is None else {"bias": self.bias}

    @property
    def constants(self) -> dict[str, Parameter]:
        return {"weight": self.weight}

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g = only(grads)
        changes = {} if self.bias is None else {"bias": bias_gradient(g, context)}
        return [None if self.first else input_gradient(context.gradient(g), self.weight.tensor, context)], changes


def product(x: Tensor, w: Tensor, bias: Tensor | None, context: PassContext, site: str, channels: int = 0) -> Tensor:
    """``x W^T + b``, an intermediate; ``site`` is its name for :class:`concord.train.overflow_monitor.OverflowMonitor`.

    A term of an accumulator of few bits is made of the products of one tap, which has so many ``channels``; 0: all.
    """
    rows = x.mant.reshape(-1, x.mant.shape[-1])
    mant, peak = exact(np.matmul, rows, x.peak, w.mant.T, w.peak, rows.shape[1])
    if context.monitor is not None:
        of = ProductOperands(rows[:, None], w.mant.T[None], channels or rows.shape[1])
        mant = context.monitor.sums(site, mant[:, None], of)
        return context.monitor.binary16(mant.reshape(*x.mant.shape[:-1], -1), x.exp + w.exp, bias)
    mant, exp = mant.reshape(*x.mant.shape[:-1], -1), x.exp + w.exp
    if bias is None:
        return to_format(mant, exp, peak, context.formats.intermediate)
    return with_bias(mant, exp, peak, bias, context.formats.intermediate)


def weight_gradient(g: Tensor, x: Tensor, context: PassContext) -> Tensor:
    """``g^T x`` over all rows: the gradient of the weights."""
    rows, read = g.mant.reshape(-1, g.mant.shape[-1]), x.mant.reshape(-1, x.mant.shape[-1])
    change, peak = exact(np.matmul, rows.T, g.peak, read, x.peak, len(rows))
    return to_format(change, g.exp + x.exp, peak, context.formats.intermediate)


def bias_gradient(g: Tensor, context: PassContext) -> Tensor:
    """The sum over all rows."""
    mant, peak = total(g.mant.reshape(-1, g.mant.shape[-1]), g.peak, (0,))
    return to_format(mant, g.exp, peak, context.formats.intermediate)


def input_gradient(g: Tensor, w: Tensor, context: PassContext) -> Tensor:
    """``g W``."""
    rows = g.mant.reshape(-1, g.mant.shape[-1])
    back, peak = exact(np.matmul, rows, g.peak, w.mant, w.peak, rows.shape[1])
    return to_format(back.reshape(*g.mant.shape[:-1], -1), g.exp + w.exp, peak, context.formats.intermediate)
