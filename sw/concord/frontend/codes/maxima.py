"""Maxima of codes: of windows, of elements along axes, and of several tensors; and minima of these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from concord.frontend.codes.functions import NEGATIVE
from concord.frontend.codes.model_values import CodeTarget, Unquantised
from concord.frontend.codes.moving import reduction
from concord.frontend.codes.point_wise import is_number, limited_by, number_at
from concord.frontend.codes.reading import Reading
from concord.frontend.codes.windows import window_settings
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.graph import IntegerOperation
from concord.integer.moves import (
    ConcatMove,
    Move,
    NoMove,
    ReshapeMove,
    TakeMove,
    TransposeMove,
)
from concord.integer.operations import CodeConstant, CodeMaximum, CodeMovement, Ends
from concord.integer.wide import WIDE, WideDifference
from concord.integer.wide_numbers import WideNumbers
from concord.transfer import Codes

Scheme = Codes | WideNumbers


def max_pool(ctx: Reading, node: OnnxNode) -> None:
    """Read a MaxPool of codes, whose scheme stays, or of wide numbers."""
    if len([name for name in node.outputs if name]) > 1:
        raise Refusal("must have one output", "leave out the indices")
    kernel = tuple(node.attrs["kernel_shape"])
    settings: dict[str, Any] = window_settings(ctx, node, kernel)
    _pooled(ctx, node, partial(CodeMaximum, kernel=kernel, **settings))


def global_max_pool(ctx: Reading, node: OnnxNode) -> None:
    """Read a GlobalMaxPool as a MaxPool with one window."""
    _pooled(ctx, node, _maximum_of(ctx.sizes_of(node.input(0))[2:]))


def _maximum_of(kernel: tuple[int, ...], **settings: Any) -> Callable[..., CodeMaximum]:
    """Maker of the greatest codes of windows side by side."""
    ones, pads = (1,) * len(kernel), (0,) * 2 * len(kernel)
    return partial(CodeMaximum, kernel=kernel, strides=ones, dilations=ones, pads=pads, **settings)


def _pooled(ctx: Reading, node: OnnxNode, maximum: Callable[..., CodeMaximum]) -> None:
    x = node.input(0)

    def appended(first: str, last: str, scheme: Scheme) -> list[IntegerOperation]:
        return [maximum(name=node.name, inputs=(first,), output=last)]

    if (x in ctx.floats and ctx.uses.end_in_codes(node.outputs[0])) or ctx.passes(x):
        ctx.pass_numbers(x, node.outputs[0], appended)
        return
    codes = ctx.codes(x)
    output, scheme = ctx.moved_name(x, node.outputs[0]), ctx.scheme_of(codes)
    ctx.add_all(appended(codes, output, scheme), scheme)


def reduced_max(ctx: Reading, node: OnnxNode) -> None:
    """ReduceMax and ReduceMin over any axes but that of the samples, as a MaxPool with one window."""
    x, y = ctx.codes(node.input(0)), ctx.moved_name(node.input(0), node.outputs[0])
    kept, reduced, made = reduction(ctx, node, x)
    shape, scheme = ctx.sizes(x), ctx.scheme_of(x)
    channels, size = (prod(shape[axis] for axis in part) for part in (kept[1:], reduced))
    order, rows = (*kept, *reduced), (0, channels, size)
    if ctx.last:
        order, rows = (0, *reduced, *kept[1:]), (0, size, channels)
    last, between = y, scheme
    if node.op == "ReduceMin":  # the opposite of the greatest one of opposites
        between, last = _opposite(scheme), ctx.unique(f"{y}/opposite")
        ctx.emit(ctx.table(node.name, x, (NEGATIVE,), between, source := ctx.unique(f"{x}/opposite")), between)
        x = source
    in_rows = ctx.moved_codes(node.name, [TransposeMove(order), ReshapeMove(rows)], x, ctx.unique(f"{x}/rows"))
    maximum = _maximum_of((size,), last=ctx.last, low=between.low, high=between.high)
    greatest = ctx.unique(f"{x}/greatest")
    ctx.emit(maximum(name=node.name, inputs=(in_rows,), output=greatest), between)
    ctx.moved_codes(node.name, [made], greatest, last)
    if last != y:
        ctx.emit(ctx.table(node.name, last, (NEGATIVE,), scheme, y), scheme)


def _opposite(scheme: Codes) -> Codes:
    """The scheme in which the opposites of all numbers have codes."""
    return replace(scheme, zeros=(scheme.low + scheme.high - scheme.zero,))


def of_several(ctx: Reading, node: OnnxNode) -> None:
    """Max or Min of codes, each of which gets the scheme of the result first, or of codes and one number.

    The least ones are the greatest ones of their opposites.
    """
    numbers = [k for k, name in enumerate(node.inputs) if is_number(ctx, name)]
    if len(node.inputs) == 2 and len(numbers) == 1:
        (place,) = numbers
        number = number_at(ctx, node, place, "operand")
        limits = (number, math.inf) if node.op == "Max" else (-math.inf, number)
        limited_by(ctx, node, node.input(1 - place), limits)
        return
    beside = TensorsBeside(ctx, node)

    def widen(name: str) -> list[IntegerOperation]:
        parts = [ctx.numbers(part) for part in node.inputs]
        if node.op == "Max":
            return beside.greatest(parts, name, WIDE, WIDE)
        zero, greatest = (ctx.unique(f"{name}/{word}") for word in ("zero", "opposite"))
        opposites = [ctx.unique(f"{name}/{k}") for k in range(len(parts))]
        ctx.graph.schemes.update(dict.fromkeys((zero, *opposites), WIDE))
        return [
            CodeConstant(name=node.name, inputs=(), output=zero, value=np.zeros((1,) * len(beside.shape), np.int64)),
            *(
                WideDifference(name=node.name, inputs=(zero, part), output=output)
                for part, output in zip(parts, opposites, strict=True)
            ),
            *beside.greatest(opposites, greatest, WIDE, WIDE),
            WideDifference(name=node.name, inputs=(zero, greatest), output=name),
        ]

    if not all(map(ctx.reads_codes, node.inputs)):
        ctx.add_wide(node.outputs[0], widen)
        return
    operands = [ctx.operand(name) for name in node.inputs]

    def make_least(target: CodeTarget) -> list[IntegerOperation]:
        scheme = target.scheme
        opposite = _opposite(scheme)
        names = [ctx.unique(f"{target.name}/{k}") for k in range(len(operands))]
        steps: list[IntegerOperation] = [
            ctx.table(f"{node.name}/{k}", part, (*functions, NEGATIVE), opposite, name)
            for k, ((part, functions), name) in enumerate(zip(operands, names, strict=True))
        ]
        greatest, least = (ctx.unique(f"{target.name}/{word}") for word in ("opposite", "least"))
        ctx.graph.schemes.update(dict.fromkeys((*names, greatest), opposite) | {least: scheme})
        steps += beside.greatest(names, greatest, opposite, opposite)
        if (target.low, target.high) == (scheme.low, scheme.high):
            return [*steps, ctx.table(node.name, greatest, (NEGATIVE,), scheme, target.name)]
        steps.append(ctx.table(node.name, greatest, (NEGATIVE,), scheme, least))
        return [*steps, CodeMovement.of(node.name, (least,), target.name, NoMove(), target)]

    def make(target: CodeTarget) -> list[IntegerOperation]:
        if node.op == "Min":
            return make_least(target)
        tables, parts = ctx.in_scheme(node.name, operands, target)
        return [*tables, *beside.greatest(parts, target.name, target.scheme, target)]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


class TensorsBeside:
    """Tensors of a node in rows, one after the other, over which there are windows.

    Raises
    ------
    Refusal
        If they do not have one rank.
    """

    def __init__(self, ctx: Reading, node: OnnxNode):
        self.ctx, self.node = ctx, node
        self.shapes = [ctx.sizes_of(name) for name in node.inputs]
        self.shape = np.broadcast_shapes(*self.shapes)
        if len(self.shape) < 2 or any(len(own) != len(self.shape) for own in self.shapes):
            reason = f"operands must have one rank, not shapes {[list(own) for own in self.shapes]}"
            raise Refusal(reason, "put Reshape in front of it")

    def greatest(self, parts: list[str], output: str, scheme: Scheme, ends: Ends) -> list[IntegerOperation]:
        """Operations whose last one makes the greatest elements, within ends."""
        steps = list[IntegerOperation]()

        def made(operation: IntegerOperation) -> str:
            steps.append(operation)
            self.ctx.graph.schemes[operation.output] = scheme
            return operation.output

        def moved(tensors: list[str], move: Move, name: str, ends: Ends) -> str:
            return made(CodeMovement.of(self.node.name, tensors, name, move, ends))

        rows = []
        for part, own in zip(parts, self.shapes, strict=True):
            moves: list[Move] = [
                TakeMove(axis, (0,) * size) for axis, size in enumerate(self.shape) if axis and own[axis] != size
            ]
            for move in (*moves, ReshapeMove((0, 1, prod(self.shape[1:])))):
                part = moved([part], move, self.ctx.unique(f"{output}/moved"), scheme)
            rows.append(part)
        beside = moved(rows, ConcatMove(1), self.ctx.unique(f"{output}/beside"), scheme)
        maximum = _maximum_of((len(parts),), last=True)
        name = self.ctx.unique(f"{output}/greatest")
        greatest = made(maximum(name=self.node.name, inputs=(beside,), output=name))
        moved([greatest], ReshapeMove((0, *self.shape[1:])), output, ends)
        return steps
