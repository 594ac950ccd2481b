"""Maxima of codes: of windows, of all elements of a channel, and of several tensors."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.graph import IntegerOperation
from concord.integer.model_values import CodeTarget, Unquantised
from concord.integer.moves import ConcatMove, ExpandMove, Move, SqueezeMove, TakeMove
from concord.integer.operations import CodeMaximum, CodeMovement
from concord.integer.point_wise import is_number, limited_by, number_at
from concord.integer.reading import Reading
from concord.integer.wide_numbers import WideNumbers
from concord.integer.windows import window_settings
from concord.transfer import UniformAffine

Scheme = UniformAffine | WideNumbers


def max_pool(ctx: Reading, node: OnnxNode) -> None:
    """Read a MaxPool of codes, whose scheme stays, or of wide numbers."""
    if len([name for name in node.outputs if name]) > 1:
        raise Refusal("must have one output", "leave out the indices")
    kernel = tuple(node.attrs["kernel_shape"])
    _pooled(ctx, node, CodesOfWindows(kernel, **window_settings(ctx, node, kernel)))


def global_max_pool(ctx: Reading, node: OnnxNode) -> None:
    """Read a GlobalMaxPool as a MaxPool with one window."""
    kernel = ctx.sizes_of(node.input(0))[2:]
    ones = (1,) * len(kernel)
    _pooled(ctx, node, CodesOfWindows(kernel, strides=ones, dilations=ones, pads=(0,) * 2 * len(kernel)))


class CodesOfWindows:
    """Maker of an operation for the greatest codes of windows."""

    def __init__(self, kernel: tuple[int, ...], **windows: tuple[int, ...]):
        self.kernel, self.windows = kernel, windows

    def made(self, name: str, source: str, output: str) -> CodeMaximum:
        """The operation."""
        return CodeMaximum(name=name, inputs=(source,), output=output, kernel=self.kernel, **self.windows)


def _pooled(ctx: Reading, node: OnnxNode, windows: CodesOfWindows) -> None:
    x = node.input(0)

    def appended(first: str, last: str, scheme: Scheme) -> list[IntegerOperation]:
        return [windows.made(node.name, first, last)]

    if (x in ctx.floats and ctx.uses.end_in_codes(node.outputs[0])) or ctx.passes(x):
        ctx.pass_numbers(x, node.outputs[0], appended)
        return
    codes = ctx.codes(x)
    output, scheme = ctx.moved_name(x, node.outputs[0]), ctx.scheme_of(codes)
    ctx.add_all(appended(codes, output, scheme), scheme)


def maximum(ctx: Reading, node: OnnxNode) -> None:
    """Max of codes, each of which gets the scheme of the result first, or of codes and one number."""
    numbers = [k for k, name in enumerate(node.inputs) if is_number(ctx, name)]
    if len(node.inputs) == 2 and len(numbers) == 1:
        (place,) = numbers
        limited_by(ctx, node, node.input(1 - place), (number_at(ctx, node, place, "operand"), math.inf))
        return
    operands = [ctx.operand(name) for name in node.inputs]
    shapes = [ctx.sizes(codes) for codes, _ in operands]
    shape = np.broadcast_shapes(*shapes)
    if len(shape) < 2 or any(len(own) != len(shape) for own in shapes):
        raise Refusal(
            f"operands must have one rank, not shapes {[list(own) for own in shapes]}", "put Reshape in front"
        )

    def make(target: CodeTarget) -> list[IntegerOperation]:
        steps: list[IntegerOperation] = []
        parts = []
        for k, ((codes, functions), own) in enumerate(zip(operands, shapes, strict=True)):
            part = codes
            if functions or ctx.scheme_of(codes) != target.scheme:
                part = ctx.unique(f"{target.name}/{k}")
                steps.append(ctx.table(f"{node.name}/{k}", codes, functions, target.scheme, part))
                ctx.graph.schemes[part] = target.scheme
            moves: list[Move] = [
                TakeMove(axis, (0,) * size) for axis, size in enumerate(shape) if axis and own[axis] != size
            ]
            parts.append(_after(ctx, node, part, [*moves, ExpandMove((len(shape),))], target, steps))
        beside, greatest = (ctx.unique(f"{target.name}/{word}") for word in ("beside", "greatest"))
        ends = {"low": target.scheme.low, "high": target.scheme.high}
        steps.append(
            CodeMovement(name=node.name, inputs=tuple(parts), output=beside, move=ConcatMove(len(shape)), **ends)
        )
        window = (*[1] * (len(shape) - 2), len(parts))
        ones = (1,) * len(window)
        windows = CodesOfWindows(window, strides=ones, dilations=ones, pads=(0,) * 2 * len(window))
        steps.append(windows.made(node.name, beside, greatest))
        ctx.graph.schemes.update(dict.fromkeys((beside, greatest), target.scheme))
        last = CodeMovement(
            name=node.name, inputs=(greatest,), output=target.name, move=SqueezeMove((len(shape),)), low=target.low,
            high=target.high,
        )  # fmt: skip
        return [*steps, last]

    ctx.open[node.outputs[0]] = Unquantised(make)


def _after(
    ctx: Reading, node: OnnxNode, source: str, moves: list[Move], target: CodeTarget, steps: list[IntegerOperation]
) -> str:
    """Append moves of codes; the last tensor."""

    def moved(tensor: str, move: Move) -> str:
        output = ctx.unique(f"{target.name}/moved")
        low, high = target.scheme.low, target.scheme.high
        steps.append(CodeMovement(name=node.name, inputs=(tensor,), output=output, move=move, low=low, high=high))
        ctx.graph.schemes[output] = target.scheme
        return output

    return reduce(moved, moves, source)
