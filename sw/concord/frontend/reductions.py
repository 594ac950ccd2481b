"""Reductions over axes, and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

import numpy as np

from concord.frontend.context import Context, Handler, NodeReader, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.moving import along
from concord.frontend.pointwise import absolute_of, apply, sums_in_front, times
from concord.utils.matrices import check_size

#: Elements that a product over axes multiplies, one after the other.
LARGEST_PRODUCT = 64
#: Rows of a matrix whose determinant is a sum of products: 28 of them with four.
_MOST_ROWS = 4


def _operand(ctx: Context, node: OnnxNode) -> tuple[str, tuple[int, ...], bool]:
    """The tensor, the axes it is reduced over (none where the operator changes no shape), whether they stay as 1."""
    x = ctx.tensor(node.input(0))
    return x, *reduced_axes(ctx, node, len(ctx.shape(x)))


def reduced_axes(ctx: NodeReader, node: OnnxNode, rank: int) -> tuple[tuple[int, ...], bool]:
    """Axes over which a tensor of so many axes is reduced, and whether they stay as 1."""
    axes = ctx.integers(node, 1, "axes")
    if not axes:
        axes = [] if node.attrs.get("noop_with_empty_axes", 0) else list(range(rank))
    return ctx.axes(axes, rank), bool(node.attrs.get("keepdims", 1))


def _reduced(ctx: Context, node: OnnxNode, op: str, x: str, axes: Sequence[int], keep: bool) -> str:
    return ctx.emit(node, op, [x], axes=tuple(axes), keepdims=keep) if axes else x


def reduce(ctx: Context, node: OnnxNode) -> str:
    """The mean, sum or maximum."""
    return _reduced(ctx, node, node.op, *_operand(ctx, node))


def minimum(ctx: Context, node: OnnxNode) -> str:
    """The negated maximum of the negated tensor."""
    x, axes, keep = _operand(ctx, node)
    if not axes:
        return x
    return times(ctx, node, _reduced(ctx, node, "ReduceMax", times(ctx, node, x, -1.0), axes, keep), -1.0)


def sum_of_magnitudes(ctx: Context, node: OnnxNode) -> str:
    """The L1 norm."""
    x, axes, keep = _operand(ctx, node)
    return _reduced(ctx, node, "ReduceSum", absolute_of(ctx, node, x), axes, keep)


def sum_of_squares(ctx: Context, node: OnnxNode) -> str:
    """The sum of squares, or its square root: the L2 norm."""
    x, axes, keep = _operand(ctx, node)
    total = _reduced(ctx, node, "ReduceSum", ctx.emit(node, "Mul", [x, x]), axes, keep)
    return apply(ctx, node, total, "sqrt") if node.op == "ReduceL2" else total


def lp_normalization(ctx: Context, node: OnnxNode) -> str:
    """Divided by the L1 or L2 norm along an axis."""
    x, p = ctx.tensor(node.input(0)), int(node.attrs.get("p", 2))
    if p not in (1, 2):
        raise Refusal(f"p must be 1 or 2, not {p}")
    axes = ctx.axes([node.attrs.get("axis", -1)], len(ctx.shape(x)))
    terms = absolute_of(ctx, node, x) if p == 1 else ctx.emit(node, "Mul", [x, x])
    inverse = apply(ctx, node, _reduced(ctx, node, "ReduceSum", terms, axes, True), "reciprocal" if p == 1 else "rsqrt")
    return ctx.emit(node, "Mul", [x, inverse])


def local_response(ctx: Context, node: OnnxNode) -> str:
    """Divided by a power of the sum of squares of neighbouring channels."""
    x, attrs = ctx.tensor(node.input(0)), node.attrs
    channels, size, beta = ctx.shape(x)[1], int(attrs["size"]), float(attrs.get("beta", 0.75))
    if beta not in (0.5, 0.75, 1.0):
        raise Refusal(f"beta must be 0.5, 0.75 or 1, not {beta:g}", "use Pow and Div")
    first = np.arange(channels)[:, None] - (size - 1) // 2
    check_size("neighbouring channels", channels, channels)
    near = (np.arange(channels) >= first) & (np.arange(channels) < first + size)
    share = float(attrs.get("alpha", 1e-4)) / size
    sums = along(ctx, node, ctx.emit(node, "Mul", [x, x]), 1, near.astype(np.float64))
    total = ctx.emit(node, "Add", [times(ctx, node, sums, share)], constant=np.asarray(float(attrs.get("bias", 1.0))))
    inverse = apply(ctx, node, total, "reciprocal" if beta == 1.0 else "rsqrt")
    y = ctx.emit(node, "Mul", [x, inverse])
    return y if beta in (0.5, 1.0) else ctx.emit(node, "Mul", [y, apply(ctx, node, inverse, "sqrt")])


def log_sum(ctx: Context, node: OnnxNode) -> str:
    """The logarithm of the sum."""
    return apply(ctx, node, _reduced(ctx, node, "ReduceSum", *_operand(ctx, node)), "log")


def log_sum_exp(ctx: Context, node: OnnxNode) -> str:
    """The maximum, plus the logarithm of a sum of exponentials of at most 1."""
    x, axes, keep = _operand(ctx, node)
    if not axes:
        return x
    most = _reduced(ctx, node, "ReduceMax", x, axes, True)
    total = _reduced(ctx, node, "ReduceSum", apply(ctx, node, ctx.emit(node, "Sub", [x, most]), "exp"), axes, True)
    y = ctx.emit(node, "Add", [apply(ctx, node, total, "log"), most])
    if keep:
        return y
    shape = tuple(size for k, size in enumerate(ctx.shape(y)) if k not in axes)
    return ctx.emit(node, "Reshape", [y], shape=shape)


def multiply(ctx: Context, node: OnnxNode) -> str:
    """The product of a few elements, pairs first."""
    x, axes, keep = _operand(ctx, node)
    shape = ctx.shape(x)
    count = prod(shape[axis] for axis in axes)
    if count > LARGEST_PRODUCT:
        raise Refusal(
            f"must multiply at most {LARGEST_PRODUCT} elements, not {count}: binary16 rounds after each",
            "multiply over fewer axes, or sum the logarithms",
        )
    # The axes go first: elements that meet lie in the same lanes then.
    kept = [k for k in range(len(shape)) if k not in axes]
    order = (*kept, *axes)
    last = x if order == tuple(range(len(shape))) else ctx.emit(node, "Transpose", [x], perm=order)
    rest = tuple(shape[k] for k in kept)
    matrix = ctx.emit(node, "Reshape", [last], shape=(prod(rest), count))
    first = ctx.emit(node, "Transpose", [matrix], perm=(1, 0))
    factors = [
        ctx.emit(node, "Slice", [first], axes=(0,), starts=(k,), stops=(k + 1,), steps=(1,)) for k in range(count)
    ]
    while len(factors) > 1:
        pairs = zip(factors[::2], factors[1::2], strict=False)
        factors = [ctx.emit(node, "Mul", [a, b]) for a, b in pairs] + factors[len(factors) // 2 * 2 :]
    result = tuple(1 if k in axes else n for k, n in enumerate(shape)) if keep else rest
    return ctx.emit(node, "Reshape", factors, shape=result)


def running_sum(ctx: Context, node: OnnxNode) -> str:
    """Sums of the elements in front along an axis, which goes last."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    (axis,) = ctx.axes(ctx.integers(node, 1, "axis") or [0], len(shape))
    order = (*(k for k in range(len(shape)) if k != axis), axis)
    last = x if axis == len(shape) - 1 else ctx.emit(node, "Transpose", [x], perm=order)
    exclusive, reverse = bool(node.attrs.get("exclusive", 0)), bool(node.attrs.get("reverse", 0))
    y = sums_in_front(ctx, node, last, exclusive=exclusive, reverse=reverse)
    return y if last == x else ctx.emit(node, "Transpose", [y], perm=tuple(np.argsort(order).tolist()))


def running_product(ctx: Context, node: OnnxNode) -> str:
    """Products along an axis, each of one element more."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    (axis,) = ctx.axes(ctx.integers(node, 1, "axis") or [0], len(shape))
    if shape[axis] > LARGEST_PRODUCT:
        raise Refusal(
            f"must multiply at most {LARGEST_PRODUCT} elements, not {shape[axis]}: binary16 rounds after each",
            "multiply fewer, or sum the logarithms",
        )
    places = range(shape[axis] - 1, -1, -1) if node.attrs.get("reverse", 0) else range(shape[axis])
    parts = [ctx.emit(node, "Slice", [x], axes=(axis,), starts=(k,), stops=(k + 1,), steps=(1,)) for k in places]
    products = parts[:1]
    for part in parts[1:]:
        products.append(ctx.emit(node, "Mul", [products[-1], part]))
    if node.attrs.get("exclusive", 0):
        nothing = ctx.emit(node, "Mul", parts[:1], constant=np.zeros(()))
        products = [ctx.emit(node, "Add", [nothing], constant=np.ones(())), *products[:-1]]
    if node.attrs.get("reverse", 0):
        products.reverse()
    return ctx.joined(node, products, axis)


def determinant(ctx: Context, node: OnnxNode) -> str:
    """Determinant of few rows by minors: a sum of products of elements with determinants of the rows above."""
    x = ctx.tensor(node.input(0))
    *batch, rows, columns = ctx.shape(x)
    if rows != columns or rows > _MOST_ROWS:
        reason = f"must have matrices of at most {_MOST_ROWS} rows, not {rows}: pivots depend on values"
        raise Refusal(reason, "compute it outside the model")
    axes = (len(batch), len(batch) + 1)

    def element(row: int, column: int) -> str:
        place = {"starts": (row, column), "stops": (row + 1, column + 1)}
        return ctx.emit(node, "Slice", [x], axes=axes, steps=(1, 1), **place)

    minors: dict[tuple[int, ...], str] = {(column,): element(0, column) for column in range(rows)}
    for row in range(1, rows):
        elements = [element(row, column) for column in range(rows)]
        larger = {}
        for chosen in combinations(range(rows), row + 1):
            total = ""
            for k, column in enumerate(chosen):
                minor = minors[chosen[:k] + chosen[k + 1 :]]
                term = ctx.emit(node, "Mul", [elements[column], minor])
                op = "Sub" if (row + k) % 2 else "Add"
                if not total:
                    total = term if op == "Add" else times(ctx, node, term, -1.0)
                else:
                    total = ctx.emit(node, op, [total, term])
            larger[chosen] = total
        minors = larger
    (y,) = minors.values()
    return ctx.emit(node, "Reshape", [y], shape=tuple(batch))


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), reduce),
    "ReduceMin": minimum,
    "ReduceProd": multiply,
    "ReduceL1": sum_of_magnitudes,
    **dict.fromkeys(("ReduceL2", "ReduceSumSquare"), sum_of_squares),
    "ReduceLogSum": log_sum,
    "ReduceLogSumExp": log_sum_exp,
    "CumSum": running_sum,
    "CumProd": running_product,
    "Det": determinant,
    "LRN": local_response,
    "LpNormalization": lp_normalization,
}
