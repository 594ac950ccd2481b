"""Nodes of a derived model, one after the other, as calls of primitives: what files of every language have in common.

A back end says how a primitive is called (:mod:`concord.derive.primitives`), and how elements change places. Tensors
are texts here: names, or in Python expressions, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.node_facts import least_units
from concord.derive.backends.products import ProductPlan, plan, steps, steps_of
from concord.derive.flags import accumulator_limit
from concord.derive.primitives import PRIMITIVES
from concord.spec.formats import BINARY16_MAX, ExponentMode, Flag, Rounding
from concord.utils.arrays import FloatArray

#: The rounding of a primitive that does not say another one.
EVEN = Rounding.NEAREST_EVEN


class NodeWalk(ABC):
    """Writes nodes. Tensors have the names of their values, but for those in ``names``.

    Members
    -------
    SINGLE_SUM : str or None
        The primitive that rounds sums in float32, if there are any.
    NOISE, INDEX : type
        Of constants that are noise of a stochastic rounding, and indices.
    """

    SINGLE_SUM: ClassVar[str | None] = None
    NOISE: ClassVar[Any] = np.float64
    INDEX: ClassVar[Any] = np.int64

    def __init__(self) -> None:
        self.names: dict[ir.Value, str] = {}

    # What a back end has a text for --------------------------------------------------------------

    def name(self, value: ir.Value) -> str:
        """The tensor of a value."""
        return self.names.get(value, value.name)

    @abstractmethod
    def constant(self, values: npt.ArrayLike, dtype: Any, hint: str) -> str:
        """A constant tensor; ``hint`` is what it is."""

    @abstractmethod
    def halves(self, bits: npt.NDArray[np.uint16], hint: str, real: bool = False) -> str:
        """A constant of binary16 patterns, for sources that are ``REAL`` or not."""

    @abstractmethod
    def call(
        self, primitive: str, operands: Sequence[str], output: str | None = None, rounding: Rounding = EVEN, **args: Any
    ) -> str:
        """Call a primitive with one result and numbers; noise is the last operand if ``rounding`` is stochastic."""

    @abstractmethod
    def arithmetic(self, a: str, sign: str, b: str, output: str | None = None) -> str:
        """``a + b``, ``a - b`` or ``a * b`` of float64 numbers, or float32 ones."""

    @abstractmethod
    def on_grid(self, x: str, grid: ir.InputGrid) -> str:
        """The nearest numbers that a quantised model knows."""

    @abstractmethod
    def limited(self, total: str, low: float, high: float) -> str:
        """Sums within limits."""

    @abstractmethod
    def clipped(self, x: str, most: float) -> str:
        """Halves between ``-most`` and ``most``; a NaN stays one."""

    @abstractmethod
    def wide(self, x: str) -> str:
        """Halves as what a product of float64 reads."""

    @abstractmethod
    def product(self, node: ir.MatMul | ir.Depthwise, x: str, dtype: Any) -> str:
        """Sums of products of ``x`` in a type, without the offset."""

    @abstractmethod
    def product_of(self, node: ir.ProductOf, x: str, matrix: str, dtype: Any) -> str:
        """Sums of products of two values in a type; ``x`` and ``matrix`` have samples."""

    @abstractmethod
    def ended(self, node: ir.MatMul | ir.Depthwise, x: str, how: ProductPlan) -> str:
        """Sums of products, infinite where they leave the register as they are added up."""

    @abstractmethod
    def parts(self, x: str, divisors: tuple[float, ...]) -> list[str]:
        """Numbers divided into multiples of the first step, then of the second and so on; and what remains."""

    @abstractmethod
    def sum_of(self, primitive: str, terms: Sequence[str]) -> list[str]:
        """Call a primitive with two results."""

    @abstractmethod
    def named(self, total: str) -> str:
        """Exact sums as a tensor that is read several times."""

    @abstractmethod
    def batch(self, value: ir.Value) -> str:
        """The number of samples of a value."""

    @abstractmethod
    def expand(self, name: str, shape: ir.Shape, batch: str) -> str:
        """A tensor without samples, once for every sample."""

    @abstractmethod
    def reshape(self, x: str, like: ir.Value, shape: ir.Shape, output: str | None = None) -> str:
        """The elements of samples in another shape; there are as many samples as in the value ``like``."""

    @abstractmethod
    def transpose(self, x: str, perm: list[int], output: str) -> str:
        """Axes in another order."""

    @abstractmethod
    def slice(self, node: ir.Slice) -> None:
        """Elements at regular places along axes."""

    @abstractmethod
    def part(self, x: str, start: int, stop: int) -> str:
        """A part along the last axis."""

    @abstractmethod
    def concat(self, xs: Sequence[str], axis: int, output: str | None = None) -> str:
        """Tensors side by side."""

    @abstractmethod
    def take(self, x: str, index: str, axis: int, output: str) -> str:
        """Elements along an axis, the first one or that after the samples."""

    @abstractmethod
    def windows(self, node: ir.MapWindows) -> None:
        """Windows of a map."""

    @abstractmethod
    def loop(self, node: ir.Loop) -> None:
        """Write a loop with its body."""

    @abstractmethod
    def note(self, node: ir.ModelNode, raised: Sequence[tuple[Flag, str]]) -> None:
        """Raise flags of a node where conditions are true."""

    # Arithmetic ---------------------------------------------------------------------------------

    def emit(self, node: ir.ModelNode) -> None:
        """Write one node, and what finds out whether it raises flags."""
        out = self.name(node.output)
        match node:
            case ir.Constant():
                self.names[node.output] = self.halves(node.data, node.output.name)
            case ir.Prepare():
                self._prepare(node)
            case ir.ToBinary16():
                self.call("real_to_half", [self.name(node.x)], out)
            case ir.ToReal():
                self.call("half_to_real", [self.name(node.x)], out)
            case ir.Quantise():
                self._quantise(node)
            case ir.MatMul() | ir.Depthwise() | ir.ProductOf():
                self._products(node)
            case ir.Elementwise():
                operands = [self.aligned(x, len(node.output.shape)) for x in node.xs]
                self.elementwise(node, operands)
                self._note(node, node.operation.primitive, operands)
            case ir.Maximum():
                self.reduce_max(node, node.axis % len(node.x.shape) + node.x.batched)
            case ir.TableLookup():
                operands = [self.name(node.x), self.halves(node.entries, node.name)]
                low, high = float(node.low), float(node.high)
                self.call("half_table", operands, out, factor=2.0**node.scale, low=low, high=high)
                self._note(node, "half_table", operands)
            case ir.Loop():
                self.loop(node)
            case _:
                self._move(node)

    def elementwise(self, node: ir.Elementwise, operands: list[str]) -> None:
        """An operation on every element."""
        self.call(node.operation.primitive, operands, self.name(node.output))

    def reduce_max(self, node: ir.Maximum, axis: int) -> None:
        """The greatest element along an axis, those of samples counted."""
        self.call("half_reduce_max", [self.name(node.x)], self.name(node.output), axis=axis)

    def _note(self, node: ir.ModelNode, primitive: str, operands: Sequence[str]) -> None:
        """Notes the conditions of the flags of a node that is this primitive."""
        if node.may:
            conditions = [(flag, PRIMITIVES[primitive].raises[flag]) for flag in node.may]
            self.note(node, [(flag, self._condition(node, name, operands)) for flag, name in conditions])

    def _condition(self, node: ir.ModelNode, name: str, operands: Sequence[str]) -> str:
        """Condition of a flag of a node; ``operands`` are those of its primitive, or the exact sums of a product."""
        x, result = operands[0], self.name(node.output)
        match node:
            case ir.ExactSums():
                if name == "infinite":
                    return self.call(name, [result])
                return self.call(name, operands, limit=accumulator_limit(node))
            case ir.Elementwise():
                return self.call(name, [result, *operands])
            case ir.TableLookup() if name == "table_clamped":
                low, high = (np.inf if end else 0.0 for end in node.constant_ends)
                return self.call(name, [x], factor=2.0**node.scale, low=node.low - low, high=node.high + high)
            case ir.Quantise() if name == "saturated" and node.mode is ExponentMode.DYNAMIC:
                return self.call(name, [x], unit=2.0 * node.form.limit, codes=1.0)  # half a unit is the limit
            case ir.Quantise() if name == "saturated":
                rounding = Rounding.NEAREST_EVEN if node.noise is None else Rounding.STOCHASTIC
                return self.call(name, operands, rounding=rounding, unit=2.0**node.exp, codes=node.form.q_max + 1.0)
        return self.call(name, [x])

    def _prepare(self, node: ir.Prepare) -> None:
        x, stem = self.name(node.x), node.output.name
        if node.grid is not None:
            x = self.on_grid(x, node.grid)
        for sign, hint, array in (("-", "middles", node.middles), ("*", "factors", node.factors)):
            if array is not None:
                x = self.arithmetic(x, sign, self.constant(array, np.float64, f"{stem}_{hint}"))
        self.arithmetic(x, "-", self.constant(node.offset, np.float64, f"{stem}_offset"), self.name(node.output))

    def _quantise(self, node: ir.Quantise) -> None:
        x, out, code = self.name(node.x), self.name(node.output), float(node.form.q_max)
        if node.mode is ExponentMode.STATIC:
            operands = [x, *self._noise(node, node.noise)]
            self.call("static_quantize", operands, out, node.rounding, unit=2.0**node.exp, greatest_code=code)
            self._note(node, "static_quantize", operands)
            return
        read = x
        if node.form.limit <= BINARY16_MAX:  # the exponent has an end
            x = self.clipped(x, code * 2.0**node.form.exp_max)
        parts, start, least = [], 0, least_units(node)
        runs = [(size, len(list(same))) for size, same in groupby(node.blocks)]
        for size, count in runs:
            front, stop = node.x.shape[:-1], start + count * size
            part = x if len(runs) == 1 else self.part(x, start, stop)
            floor, least = least[:count], least[count:]
            floor = floor[:1] if (floor == floor[0]).all() else floor[:, None]
            noise = None if node.noise is None else node.noise[..., start:stop].reshape(*front, count, size)
            blocks = self.reshape(part, node.x, (*front, count, size))
            operands = [
                blocks,
                self.constant(floor, np.float32, f"{node.output.name}_least"),
                *self._noise(node, noise),
            ]
            share = 2.0**-node.form.headroom
            numbers = self.call("block_quantize", operands, None, node.rounding, share=share, greatest_code=code)
            last = out if len(runs) == 1 else None
            parts.append(self.reshape(numbers, node.x, (*front, count * size), last))
            start = stop
        if len(parts) > 1:
            self.concat(parts, len(node.x.shape) - 1 + node.x.batched, out)
        self._note(node, "block_quantize", [read])

    def _noise(self, node: ir.Quantise, noise: npt.NDArray[Any] | None) -> list[str]:
        return [] if noise is None else [self.constant(noise, self.NOISE, f"{node.output.name}_noise")]

    def _products(self, node: ir.MatMul | ir.Depthwise | ir.ProductOf) -> None:
        how = plan(node)
        single = self.SINGLE_SUM if how.single else None
        sums = self.sums(node, how)
        total, *rest = sums
        if how.limits is not None:
            total = self.limited(total, *how.limits)
        rounding = "round_sum_to_half" if rest else single or "round_to_half"
        self.call(rounding, [total, *rest], self.name(node.output))
        self._note(node, rounding, sums)

    def sums(self, node: ir.MatMul | ir.Depthwise | ir.ProductOf, how: ProductPlan) -> list[str]:
        """Exact sums with the offset: a tensor, or two as for round_sum_to_half."""
        dtype = np.float32 if how.single and self.SINGLE_SUM else np.float64
        if isinstance(node, ir.ProductOf):
            return self._sums_of(node, how, dtype)
        x = self.name(node.x) if dtype is np.float32 else self.wide(self.name(node.x))
        if how.register is not None:
            return [self.named(self.ended(node, x, how))]
        offset = [] if node.offset is None else [self.constant(node.offset, dtype, f"{node.output.name}_offset")]
        divisors = steps(node) if how.several else ()
        if not divisors:
            total = self.product(node, x, dtype)
            return [self.named(self.arithmetic(total, "+", *offset) if offset else total)]
        terms = [*(self.product(node, part, dtype) for part in self.parts(x, divisors)), *offset]
        return self.sum_of({2: "sum_of_two", 3: "sum_of_three"}[len(terms)], terms)

    def _sums_of(self, node: ir.ProductOf, how: ProductPlan, dtype: Any) -> list[str]:
        """Exact sums of a product of two values."""
        x, matrix = self.together(node.inputs)
        if dtype is np.float64:
            x, matrix = self.wide(x), self.wide(matrix)
        if not how.several:
            return [self.named(self.product_of(node, x, matrix, dtype))]
        divided, divisors = steps_of(node)
        parts = self.parts(matrix if divided else x, divisors)
        pairs = [(x, part) if divided else (part, matrix) for part in parts]
        terms = [self.product_of(node, *pair, dtype) for pair in pairs]
        return self.sum_of({2: "sum_of_two", 3: "sum_of_three"}[len(terms)], terms)

    # Data movement ------------------------------------------------------------------------------

    def expanded(self, value: ir.Value, batch: str) -> str:
        """The tensor of a value with an axis of samples, whether it has one or not."""
        return self.name(value) if value.batched else self.expand(self.name(value), value.shape, batch)

    def aligned(self, value: ir.Value, rank: int) -> str:
        """A value for broadcasting with samples of ``rank`` axes."""
        missing = rank - len(value.shape)
        if not value.batched or not missing:
            return self.name(value)
        return self.reshape(self.name(value), value, (*[1] * missing, *value.shape))

    def together(self, xs: Sequence[ir.Value]) -> list[str]:
        """Sources that all have samples, if one has."""
        batched = [value for value in xs if value.batched]
        if not batched or len(batched) == len(xs):
            return [self.name(value) for value in xs]
        batch = self.batch(batched[0])
        return [self.expanded(value, batch) for value in xs]

    def _move(self, node: ir.ModelNode) -> None:
        out, axes = self.name(node.output), int(node.output.batched)
        match node:
            case ir.Gather():
                self._gather(node)
            case ir.Reshape():
                self.reshape(self.name(node.x), node.x, node.output.shape, out)
            case ir.Transpose():
                self.transpose(self.name(node.x), [*range(axes), *(axis + axes for axis in node.perm)], out)
            case ir.Slice():
                self.slice(node)
            case ir.Concat():
                self.concat(self.together(node.xs), node.axis % len(node.output.shape) + axes, out)
            case ir.MapWindows():
                self.windows(node)
            case _:
                raise TypeError(f"nodes must be those of concord.derive.ir, not {type(node).__name__}")

    def _gather(self, node: ir.Gather) -> None:
        """Writes a gather from all sources side by side, and then from the constants."""
        first = next((value for value in node.xs if value.batched), node.xs[0])
        flat = [
            self.reshape(name, first, (value.size,))
            for name, value in zip(self.together(node.xs), node.xs, strict=True)
        ]
        total = sum(value.size for value in node.xs)
        if len(node.fill):
            fill = self.halves(node.fill, f"{node.output.name}_fill", node.output.type is ir.Type.REAL)
            flat.append(self.expand(fill, node.fill.shape, self.batch(first)) if first.batched else fill)
        every = flat[0] if len(flat) == 1 else self.concat(flat, int(first.batched))
        index = np.where(node.index < 0, total - 1 - node.index, node.index)
        self.take_all(node, every, first, index, total + len(node.fill))

    def take_all(
        self, node: ir.Gather | ir.MapWindows, x: str, like: ir.Value, index: npt.NDArray[Any], count: int
    ) -> None:
        """Elements along the axis after the samples; nothing moves if all stay where they are."""
        out = self.name(node.output)
        if np.array_equal(index.reshape(-1), np.arange(count)):
            self.reshape(x, like, node.output.shape, out)
            return
        places = self.constant(index, self.INDEX, f"{node.output.name}_index")
        self.take(x, places, int(like.batched), out)


def weight_of(node: ir.MatMul | ir.Depthwise) -> FloatArray:
    """Weights as the primitives have them: ``[..., inputs, outputs]``, or ``[taps, channels]``."""
    return node.weight if isinstance(node, ir.Depthwise) else np.moveaxis(node.weight, -1, -2)
