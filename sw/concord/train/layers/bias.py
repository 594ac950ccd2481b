"""A bias that no product has: after a product with an adjacency, or for every element of a map."""

from __future__ import annotations

from collections.abc import Sequence

from concord.graph.ir import Node, Shape
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.layers.dense import with_bias
from concord.train.parameters import Parameter
from concord.train.products import total
from concord.train.tensor import Tensor, to_format


class Bias(TrainableLayer):
    """``y = x + b``, b broadcast to x; rounded to the grid of x, as that of a product.

    Parameters
    ----------
    node : Node
        As for any layer.
    constant : Parameter
        b.
    shape : tuple of int
        Of b, with as many axes as a sample of x; those it is broadcast along are 1.
    """

    def __init__(self, node: Node, constant: Parameter, shape: Shape):
        super().__init__(node)
        self.constant, self.shape = constant, shape

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"constant": self.constant}

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        (x,) = xs
        bias = self.constant.tensor.reshaped(*self.shape)
        if context.monitor is not None:
            return [context.monitor.add_binary16(x, bias)], None
        return [with_bias(x.mant, x.exp, x.peak, bias, context.formats.intermediate)], None

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g = only(grads)
        # A sample and an axis that b is broadcast along are summed over.
        axes = (0, *(axis for axis, size in enumerate(self.shape, 1) if size < g.mant.shape[axis]))
        mant, peak = total(g.mant, g.peak, axes)
        change = to_format(mant.reshape(self.constant.blocks.shape), g.exp, peak, context.formats.intermediate)
        return [None if self.first else g], {"constant": change}
