"""Maxima of codes: of windows, of all elements of a channel, and of several tensors."""

from __future__ import annotations

import math

import numpy as np

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.graph import IntegerOperation
from concord.integer.model_values import CodeTarget, Unquantised
from concord.integer.moves import ConcatMove, ExpandMove, Move, SqueezeMove, TakeMove
from concord.integer.operations import CodeMaximum, CodeMovement
from concord.integer.point_wise import is_number, limited_by, number_at
from concord.integer.reading import Reading
from concord.integer.wide import WIDE
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
    beside = TensorsBeside(ctx, node)

    def widen(name: str) -> list[IntegerOperation]:
        return beside.greatest([ctx.numbers(part) for part in node.inputs], name, WIDE, WIDE.low, WIDE.high)

    if not all(ctx.are_codes(name) or (name in ctx.open and ctx.open[name].source is not None) for name in node.inputs):
        output = node.outputs[0]
        ctx.add_all(widen(output), WIDE)
        ctx.wide[output] = output
        return
    operands = [ctx.operand(name) for name in node.inputs]

    def make(target: CodeTarget) -> list[IntegerOperation]:
        steps: list[IntegerOperation] = []
        parts = []
        for k, (part, functions) in enumerate(operands):
            if functions or ctx.scheme_of(part) != target.scheme:
                made = ctx.unique(f"{target.name}/{k}")
                steps.append(ctx.table(f"{node.name}/{k}", part, functions, target.scheme, made))
                ctx.graph.schemes[made] = target.scheme
                part = made
            parts.append(part)
        return [*steps, *beside.greatest(parts, target.name, target.scheme, target.low, target.high)]

    ctx.open[node.outputs[0]] = Unquantised(make, widen=widen)


class TensorsBeside:
    """Tensors of a node side by side in a new axis, over which there are windows.

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

    def greatest(self, parts: list[str], output: str, scheme: Scheme, low: int, high: int) -> list[IntegerOperation]:
        """Operations whose last one makes the greatest elements, from ``low`` to ``high``."""
        rank, steps = len(self.shape), list[IntegerOperation]()

        def made(operation: IntegerOperation) -> str:
            steps.append(operation)
            self.ctx.graph.schemes[operation.output] = scheme
            return operation.output

        def moved(tensors: list[str], move: Move, name: str, low: int, high: int) -> str:
            ends = {"low": low, "high": high}
            return made(CodeMovement(name=self.node.name, inputs=tuple(tensors), output=name, move=move, **ends))

        wide = []
        for part, own in zip(parts, self.shapes, strict=True):
            moves: list[Move] = [
                TakeMove(axis, (0,) * size) for axis, size in enumerate(self.shape) if axis and own[axis] != size
            ]
            for move in (*moves, ExpandMove((rank,))):
                part = moved([part], move, self.ctx.unique(f"{output}/moved"), scheme.low, scheme.high)
            wide.append(part)
        beside = moved(wide, ConcatMove(rank), self.ctx.unique(f"{output}/beside"), scheme.low, scheme.high)
        window = (*[1] * (rank - 2), len(parts))
        ones = (1,) * len(window)
        windows = CodesOfWindows(window, strides=ones, dilations=ones, pads=(0,) * 2 * len(window))
        greatest = made(windows.made(self.node.name, beside, self.ctx.unique(f"{output}/greatest")))
        moved([greatest], SqueezeMove((rank,)), output, low, high)
        return steps
