"""Functions of one element, sums, and layers that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from concord.functions import function
from concord.golden.rounding import round_number
from concord.graph.ir import Node
from concord.graph.ops.elementwise import BinaryAttributes, FunctionAttributes
from concord.graph.ops.moving import ReshapeAttributes, SliceAttributes, TransposeAttributes
from concord.spec.formats import Rounding
from concord.sums.exact import exact_type
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.tensor import Array, Dyadic, Tensor, added, multiplied, to_format

#: Bits of an entry of a table after its binary point, 16 with the sign, and the greatest entry.
ENTRY_POINT = 15
ENTRY_TOP = (1 << ENTRY_POINT) - 1


def entries_at(name: str, number: Fraction) -> tuple[int, int]:
    """Entries of the tables of a function for an exact number: its value and its slope there [transfer-lut].

    Entries are the exact results, times ``2**15``, rounded to the nearest (halves away) and at most ``2**15 - 1``;
    slopes follow from the results with 60 digits, not from the entries.
    """
    record = function(name)
    assert record.slope is not None
    y = Fraction(record.exact_with()(number))
    return _entry(y), _entry(record.slope(y))


def _entry(result: Fraction) -> int:
    entry = round_number(result * (1 << ENTRY_POINT), Rounding.NEAREST_AWAY)
    return min(max(entry, -ENTRY_TOP), ENTRY_TOP)


@lru_cache(maxsize=512)
def table(name: str, exp: int, q_max: int) -> tuple[Array, Array]:
    """A function and its slope for every mantissa of a grid, from ``-q_max`` on: :func:`entries_at`."""
    entries = [entries_at(name, Fraction(code) * Fraction(2) ** exp) for code in range(-q_max, q_max + 1)]
    values, slopes = np.array(entries, dtype=np.float32).T
    return values, slopes


def looked_up(name: str, x: Tensor, q_max: int) -> tuple[Tensor, Tensor]:
    """A function and its slope of an activation, by table."""
    values, slopes = table(name, x.exp, q_max)
    codes = x.mant.astype(np.intp) + q_max
    return Tensor(values[codes], -ENTRY_POINT, ENTRY_TOP), Tensor(slopes[codes], -ENTRY_POINT, ENTRY_TOP)


def times(a: Tensor, b: Tensor, context: PassContext) -> Tensor:
    """Products of elements, an intermediate."""
    dtype = exact_type(a.peak * b.peak)
    return to_format(a.mant.astype(dtype) * b.mant, a.exp + b.exp, a.peak * b.peak, context.formats.intermediate)


class ReluLayer(TrainableLayer):
    """Zero in the place of what is negative; the gradient passes where the input is above zero."""

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x = context.activation(xs[0])
        mant = np.maximum(x.mant, 0)
        return [x.with_mant(mant)], mant

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g = context.gradient(only(grads))
        return [g.with_mant(g.mant * np.minimum(memory, 1))], {}


class TableFunction(TrainableLayer):
    """A function with a slope, by table."""

    def __init__(self, node: Node):
        super().__init__(node)
        (self.function,) = node.attributes(FunctionAttributes).names

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        y, slope = looked_up(self.function, context.table_input(xs[0]), context.formats.activation.q_max)
        return [y], slope

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        return [times(context.gradient(only(grads)), memory, context)], {}


class Add(TrainableLayer):
    """The sum of two tensors of one shape, both as intermediates; its gradient is that of both."""

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        return [added(list(xs), context.formats.intermediate)], None

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        return [only(grads)] * len(self.inputs), {}


class ScaleLayer(TrainableLayer):
    """A tensor times a number that is not trained, the nearest one of 16 bits; so is the gradient."""

    def __init__(self, node: Node):
        super().__init__(node)
        constant = np.asarray(node.attributes(BinaryAttributes).constant)
        self.shape, self.factor = constant.shape, Dyadic.nearest(float(constant.reshape(())))

    @property
    def attributes(self) -> dict[str, Any]:
        return {"constant": np.full(self.shape, float(self.factor.value))}

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        return [multiplied(xs[0], self.factor, context.formats.intermediate)], None

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        return [multiplied(only(grads), self.factor, context.formats.intermediate)], {}


class Moving(TrainableLayer):
    """Reshape, Transpose and Slice: elements move; gradients move back."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.node = node

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        (x,) = xs
        return [x.with_mant(self._moved(x.mant))], x.mant.shape

    def _index(self, rank: int) -> tuple[slice, ...]:
        how, index = self.node.attributes(SliceAttributes), [slice(None)] * rank
        for axis, begin, stop, step in zip(how.axes, how.starts, how.stops, how.steps, strict=True):
            index[axis + 1] = slice(begin, stop if stop >= 0 else None, step)
        return tuple(index)

    def _order(self) -> list[int]:
        return [0, *(axis + 1 for axis in self.node.attributes(TransposeAttributes).perm)]

    def _moved(self, mant: Array) -> Array:
        if self.node.op == "Reshape":
            return mant.reshape(len(mant), *self.node.attributes(ReshapeAttributes).shape)
        return mant.transpose(self._order()) if self.node.op == "Transpose" else mant[self._index(mant.ndim)]

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        g = only(grads)
        if self.node.op == "Reshape":
            return [g.with_mant(g.mant.reshape(memory))], {}
        if self.node.op == "Transpose":
            return [g.with_mant(g.mant.transpose(np.argsort(self._order())))], {}
        back = np.zeros(memory, g.mant.dtype)
        back[self._index(len(memory))] = g.mant
        return [g.with_mant(back)], {}
