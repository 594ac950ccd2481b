"""Functions of one element on codes: parts of tables, or limits of what is made of an accumulator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from concord.frontend.codes.code_limits import clip_codes, is_clip_of_codes
from concord.frontend.codes.functions import FUNCTION_NAMES, beside_constant, power, steps_of
from concord.frontend.codes.model_values import CodeTarget, Unquantised, Widener
from concord.frontend.codes.reading import PAIR, Reading
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.graph import IntegerOperation
from concord.integer.moves import ConcatMove, NoMove, TakeMove
from concord.integer.operations import CodeMovement
from concord.integer.tables import FunctionStep
from concord.integer.wide import WIDE, limit_of

#: Names of operators that this module reads, but for those beside a constant.
POINT_WISE = (*FUNCTION_NAMES, "Clip", "PRelu", "Pow")
_LARGEST = float(np.finfo(np.float32).max)
#: Most slopes of a PRelu, each of which is a table.
_MOST_SLOPES = 256


def function(ctx: Reading, node: OnnxNode) -> None:
    """A function of one element: a part of a table, or a limit of what is made of an accumulator."""
    if is_clip_of_codes(ctx, node):
        clip_codes(ctx, node)
        return
    limits = _limits(ctx, node)
    if node.op == "PRelu" and not is_number(ctx, node.input(1)):
        _slopes(ctx, node)
    elif limits is None:
        leave_function(ctx, node, _steps(ctx, node))
    else:
        limited_by(ctx, node, node.input(0), limits)


def _slopes(ctx: Reading, node: OnnxNode) -> None:
    """PRelu with a slope for each channel: a table for each, and the channels side by side again."""
    name, x = node.input(1), ctx.codes(node.input(0))
    slopes = ctx.weights[name].numbers if name in ctx.weights else ctx.constant(name, "slope")
    sizes = ctx.sizes(x)
    shape = (1,) * (len(sizes) - slopes.ndim) + slopes.shape
    several = [axis for axis, size in enumerate(shape) if size > 1]
    if len(shape) != len(sizes) or several not in ([axis] for axis in range(1, len(sizes))):
        reason = f"slope must be one number, or one for each index of an axis, not of shape {list(slopes.shape)}"
        raise Refusal(reason, "make it so")
    (axis,) = several
    if slopes.size != sizes[axis] or slopes.size > _MOST_SLOPES:
        raise Refusal(f"slopes must be {sizes[axis]}, and at most {_MOST_SLOPES}, not {slopes.size}", "make it so")

    def make(target: CodeTarget) -> list[IntegerOperation]:
        steps: list[IntegerOperation] = []
        parts = []
        for k, slope in enumerate(slopes.reshape(-1).tolist()):
            taken, part = (ctx.unique(f"{target.name}/{word} {k}") for word in ("taken", "channel"))
            source = ctx.scheme_of(x)
            steps.append(CodeMovement.of(node.name, (x,), taken, TakeMove(axis, (k,)), source))
            ctx.graph.schemes.update({taken: source, part: target.scheme})
            steps.append(ctx.table(f"{node.name}/{k}", taken, (("leaky_relu", {"alpha": slope}),), target.scheme, part))
            parts.append(part)
        return [*steps, CodeMovement.of(node.name, parts, target.name, ConcatMove(axis), target)]

    ctx.open[node.outputs[0]] = Unquantised(make)


def limited_by(ctx: Reading, node: OnnxNode, x: str, limits: tuple[float, float]) -> None:
    """Limits of a tensor: of its numbers, of the codes that are made of it, or as a part of a table."""
    y = node.outputs[0]
    later = x not in ctx.floats and _is_limited_later(ctx, x)
    as_numbers = ctx.uses.end_in_codes(y) if x in ctx.floats else ctx.are_numbers(x) and not ctx.are_codes(x)
    if as_numbers and not later:
        ctx.emit(_limited(ctx, node, x, limits, y), WIDE)
        ctx.wide[y] = y
        return
    if x in ctx.open and ctx.open[x].source is None:
        ctx.open[y] = replace(ctx.open[x], limits=(*ctx.open[x].limits, limits))
        return

    def widen(name: str) -> list[IntegerOperation]:
        return [_limited(ctx, node, x, limits, name)]

    low, high = max(limits[0], -_LARGEST), min(limits[1], _LARGEST)
    step: FunctionStep = "relu" if limits == (0, math.inf) else ("clip", {"min": low, "max": max(low, high)})
    widens = ctx.are_codes(x) or ctx.are_numbers(x)
    leave_function(ctx, node, [step], x, widen if widens else None)


def beside_number(ctx: Reading, node: OnnxNode) -> bool:
    """An operator that reads codes and one number as a function of the codes; ``False`` if it is another one."""
    for k, x in enumerate(node.inputs):
        other = node.input(1 - k)
        known = ctx.are_codes(x) or (x in ctx.open and ctx.open[x].source is not None)
        if not known or not is_number(ctx, other) or (other in ctx.weights and node.op != "Div"):
            continue
        number = number_at(ctx, node, 1 - k, "operand")
        if not math.isfinite(number):
            raise Refusal(f"operand must be a finite number, not {number}")
        steps = beside_constant(node.op, number, first=k == 1)
        leave_function(ctx, node, steps, x)
        return True
    return False


def divide(ctx: Reading, node: OnnxNode) -> None:
    """Div of codes and one number."""
    if not beside_number(ctx, node):
        raise Refusal("must be of codes and one constant number", "end the network in front of it, with outputs=[...]")


def leave_function(
    ctx: Reading, node: OnnxNode, steps: Sequence[FunctionStep], x: str = "", widen: Widener | None = None
) -> None:
    """Leave a function of codes, or of a function of codes, in front of QuantizeLinear."""
    x = x or node.input(0)
    if x in ctx.open and ctx.open[x].source is not None:
        before, source = ctx.open[x].functions, ctx.open[x].source
    elif x in ctx.open:
        raise Refusal("must read codes, not what a product or a sum makes", PAIR)
    else:
        before, source = (), ctx.codes(x)
    functions = (*before, *steps)
    assert source is not None
    ctx.open[node.outputs[0]] = function_of(ctx, node.name, source, functions, widen)


def function_of(
    ctx: Reading, node_name: str, source: str, functions: tuple[FunctionStep, ...], widen: Widener | None = None
) -> Unquantised:
    """A function of codes in front of QuantizeLinear."""

    def make(target: CodeTarget) -> list[IntegerOperation]:
        return [ctx.table(node_name, source, functions, target.scheme, target.name)]

    def tabled(name: str) -> list[IntegerOperation]:
        return [ctx.number_table(node_name, source, functions, name)]

    return Unquantised(make, source=source, functions=functions, widen=widen or tabled)


def _is_limited_later(ctx: Reading, x: str) -> bool:
    """True if limits of a tensor can be those of the codes that are made of it."""
    return x not in ctx.wide and x in ctx.open and (ctx.open[x].source is not None or ctx.uses.end_in_codes(x))


def _limited(ctx: Reading, node: OnnxNode, x: str, limits: tuple[float, float], output: str) -> CodeMovement:
    """Numbers within limits."""
    low, high = (limit_of(end) for end in limits)
    return CodeMovement(
        name=node.name, inputs=(ctx.numbers(x),), output=output, move=NoMove(), low=low, high=max(low, high)
    )


def _limits(ctx: Reading, node: OnnxNode) -> tuple[float, float] | None:
    """The numbers to which Relu and Clip limit."""
    if node.op == "Relu":
        return 0.0, math.inf
    if node.op != "Clip":
        return None
    ends = []
    for place, name, end in ((1, "min", -math.inf), (2, "max", math.inf)):
        operand = node.input(place)
        ends.append(number_at(ctx, node, place, name) if operand else float(node.attrs.get(name, end)))
    return ends[0], ends[1]


def is_number(ctx: Reading, name: str) -> bool:
    """True if a name is of one constant number, which may have been quantised, without axes of its own."""
    value = ctx.weights[name].offsets if name in ctx.weights else ctx.constants.get(name)
    return value is not None and value.size == 1 and value.ndim <= 1


def number_at(ctx: Reading, node: OnnxNode, place: int, what: str) -> float:
    """One constant number, which may have been quantised."""
    operand = node.input(place)
    if operand in ctx.weights:
        numbers = ctx.weights[operand].numbers
    else:
        numbers = ctx.constant(operand, what)
    if numbers.size != 1:
        raise Refusal(f"{what} must be one number, not of shape {list(numbers.shape)}", "make it one")
    return float(numbers.item())


def _steps(ctx: Reading, node: OnnxNode) -> list[FunctionStep]:
    """The node as steps of a function."""
    if node.op == "Pow":
        return [power(number_at(ctx, node, 1, "exponent"))]
    if node.op == "PRelu":
        return [("leaky_relu", {"alpha": number_at(ctx, node, 1, "slope")})]
    return steps_of(node.op, node.attrs)
