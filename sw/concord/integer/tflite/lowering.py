"""Operators of TensorFlow Lite whose codes are those of several other operations in a row [tflite-kernels]."""

from __future__ import annotations

from math import prod

import numpy as np

from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatOperator, window_pads
from concord.integer.float32 import Integers
from concord.integer.moves import ConcatMove, Move, PadMove, ReshapeMove, TakeMove, TransposeMove
from concord.integer.operations import CodeMaximum, CodeMovement
from concord.integer.tflite import point_wise
from concord.integer.tflite.operations import FixedPointProduct, FixedPointSum
from concord.integer.tflite.operators import (
    Operator,
    axes_behind_samples,
    check_kinds,
    emit_product,
    has_wide_sums,
    operands_of,
    product_multiplier,
    same_scheme,
    strides_of,
    weight_codes,
)
from concord.integer.tflite.reading import FlatReading, multiplier_of
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.weighted_sums import CodeMatMul, IntegerConvolution
from concord.spec.formats import Rounding
from concord.transfer import CodeRange, Codes

#: Bits behind the point of a share of an element of an image that is made larger or smaller.
_SHARE_BITS = 10
#: Bits by which codes are moved up in front of a difference that is squared, and in front of other sums.
_SQUARE_UP, _SUM_UP = 7, 20


def _transposed_convolution(ctx: FlatReading, operator: FlatOperator) -> None:
    """TRANSPOSE_CONV: a convolution with turned weights, of an image with zeros between its elements."""
    _, w, x, *bias = operator.inputs
    # The other operators have the image, the weight and the bias in this order.
    turned = FlatOperator("CONV_2D", (x, w, *bias), operator.outputs, operator.options)
    (y,), wide, strides = operator.outputs, has_wide_sums(ctx, turned), strides_of(operator)
    codes, source = ctx.read(x), ctx.scheme(x)
    check_kinds(ctx, operator, x)
    weight, scales = weight_codes(ctx, turned, 0)
    image, kernel, made = ctx.tensor(x).shape, ctx.tensor(w).shape, ctx.tensor(y).shape
    if len(image) != 4 or len(kernel) != 4 or (kernel[3], kernel[0]) != (image[3], made[3]):
        raise Refusal(f"weight of shape {list(kernel)} must fit images {list(image)} and {list(made)}")
    begins = window_pads(operator.options.Padding(), made[1:3], kernel[1:3], strides, (1, 1))[:2]
    moves: list[Move] = []
    widths = [(0, 0), (0, 0), (0, 0), (0, 0)]
    for axis, begin, step in zip((1, 2), begins, strides, strict=True):
        size, window = image[axis], kernel[axis]
        # What each place of the padded image reads: an element, or the zero after the last one.
        places = (np.arange(made[axis] + window - 1) + begin - window + 1) / step
        inside = (places >= 0) & (places < size) & (places == np.floor(places))
        widths[axis] = (0, 1)
        moves.append(TakeMove(axis, tuple(int(place) for place in np.where(inside, places, size))))
    codes = ctx.moved_between(f"{ctx.names[y]}/between", [PadMove(tuple(widths), source.zero), *moves], codes)
    how = ctx.to_codes(operator, product_multiplier(ctx, operator, x, scales, wide), wide)
    turned_weight = np.transpose(weight[:, ::-1, ::-1], (0, 3, 1, 2))
    emit_product(ctx, turned, codes, turned_weight, how, strides=(1, 1), dilations=(1, 1), groups=1, pads=(0, 0, 0, 0))


def _shares(size: int, made: int, aligned: bool, centred: bool) -> tuple[Integers, Integers]:
    """Both places that each element of an axis is between, and their shares, with 10 bits behind the point."""
    scale = ((size << _SHARE_BITS) + made // 2) // made
    if aligned and made > 1:
        scale = ((size - 1 << _SHARE_BITS) + (made - 1) // 2) // (made - 1)
    at = np.arange(made) * scale + (scale // 2 - (1 << _SHARE_BITS - 1) if centred else 0)
    lower = np.minimum(np.maximum(at, 0) >> _SHARE_BITS, size - 1)
    upper = np.clip(at + (1 << _SHARE_BITS) - 1 >> _SHARE_BITS, 0, size - 1)
    rest = at - (lower << _SHARE_BITS)
    return np.stack([lower, upper]), np.stack([(1 << _SHARE_BITS) - rest, rest])


def _bilinear(ctx: FlatReading, operator: FlatOperator) -> None:
    """RESIZE_BILINEAR: four elements for each one, summed up with their shares as a depthwise convolution does it."""
    x, (y,), options = operator.inputs[0], operator.outputs, operator.options
    check_kinds(ctx, operator, x)
    scheme, name = ctx.scheme(x), ctx.names[y]
    if scheme.low == 0:
        raise Refusal("codes must be of int8 or int16: its kernel for uint8 computes in floats", "quantise it to int8")
    image, made = ctx.tensor(x).shape, ctx.tensor(y).shape
    corners = bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    (rows, row_shares), (columns, column_shares) = (_shares(image[k], made[k], *corners) for k in (1, 2))
    places = (rows[:, None, :, None] * image[2] + columns[None, :, None, :]).reshape(4, -1)
    shares = (row_shares[:, None, :, None] * column_shares[None, :, None, :]).reshape(4, -1)
    count, channels = made[1] * made[2], image[3]
    moves = [
        ReshapeMove((0, image[1] * image[2], channels)), TakeMove(1, tuple(places.ravel().tolist())),
        ReshapeMove((0, 4, count, channels)), TransposeMove((0, 1, 3, 2)),
    ]  # fmt: skip
    codes = ctx.moved_between(f"{name}/corners", moves, ctx.read(x))
    spare = int(np.bitwise_or.reduce(shares, axis=None))
    spare = (spare & -spare).bit_length() - 1  # lower bits that are 0 in every share
    unit, shares = 2.0 ** (spare - 2 * _SHARE_BITS), shares >> spare
    sums = ctx.emit_between(
        f"{name}/sums", IntegerConvolution, scheme, codes, last=True, weight=shares.T.reshape(count, 1, 4, 1),
        bias=np.zeros(count, np.int64), zero_point=0, reach=scheme.reach(0),
        requantisation=Binary64Requantisation.of(unit, 0, scheme.low, scheme.high, wide=scheme.bits == 16),
        strides=(1, 1), dilations=(1, 1), groups=count, pads=(0, 0, 0, 0),
    )  # fmt: skip
    ctx.moves(operator, [TransposeMove((0, 1, 3, 2)), ReshapeMove((0, *made[1:]))], sums)


def _greatest(ctx: FlatReading, operator: FlatOperator, codes: str, count: int, least: bool) -> None:
    """The greatest, or the least, of ``count`` codes ``[samples, count, elements, 1]``."""
    scheme, name = ctx.graph.scheme(codes), ctx.names[operator.outputs[0]]
    turned = point_wise.function_table("NEG", scheme, lambda c: scheme.low + scheme.high - c, scheme)
    if least:
        codes = ctx.table_between(f"{name}/turned", turned, codes)
    codes = ctx.emit_between(
        f"{name}/greatest", CodeMaximum, scheme, codes, kernel=(count, 1), strides=(1, 1), dilations=(1, 1),
        pads=(0, 0, 0, 0), last=True, low=scheme.low, high=scheme.high,
    )  # fmt: skip
    if least:
        codes = ctx.table_between(f"{name}/back", turned, codes)
    ctx.move(operator, ReshapeMove((0, *ctx.tensor(operator.outputs[0]).shape[1:])), codes)


def _reduced(ctx: FlatReading, operator: FlatOperator) -> None:
    """REDUCE_MAX and REDUCE_MIN: a window of all elements along some axes."""
    x, shape = operator.inputs[0], ctx.tensor(operator.inputs[0]).shape
    check_kinds(ctx, operator, x)
    axes = axes_behind_samples(ctx, operator)
    same_scheme(ctx, operator, x)
    order = (0, *axes, *(axis for axis in range(1, len(shape)) if axis not in axes))
    count = prod(shape[axis] for axis in axes)
    moves = [TransposeMove(order), ReshapeMove((0, count, prod(shape[1:]) // count, 1))]
    codes = ctx.moved_between(f"{ctx.names[operator.outputs[0]]}/rows", moves, ctx.read(x))
    _greatest(ctx, operator, codes, count, operator.name == "REDUCE_MIN")


def _extremes(ctx: FlatReading, operator: FlatOperator) -> None:
    """MAXIMUM and MINIMUM of two tensors, or of a tensor and one constant code."""
    check_kinds(ctx, operator, *operator.inputs)
    same_scheme(ctx, operator, *operator.inputs)
    computed = [index for index in operator.inputs if ctx.tensor(index).data is None]
    least, (y,) = operator.name == "MINIMUM", operator.outputs
    scheme, shape = ctx.scheme(y), ctx.tensor(y).shape
    if len(computed) == 1:
        (other,) = (index for index in operator.inputs if index not in computed)
        values = np.unique(ctx.constant(other, "operand")).astype(np.int64)
        if values.size != 1 or ctx.tensor(computed[0]).shape != shape:
            raise Refusal("a constant operand must be one code for all elements", "compute it outside")
        limit = np.minimum if least else np.maximum
        turned = FlatOperator(operator.name, (computed[0],), operator.outputs, None)
        ctx.emit_table(turned, lambda codes: limit(codes, values[0]))
        return
    if any(ctx.tensor(index).shape != shape for index in operator.inputs):
        raise Refusal(f"operands must have the shape of the result, {list(shape)}", "repeat elements in front of it")
    rows = [ctx.move_between(f"{ctx.names[y]}/{k}", ReshapeMove((0, 1, prod(shape[1:]), 1)), ctx.read(index))
            for k, index in enumerate(operator.inputs)]  # fmt: skip
    pair = ctx.emit_between(
        f"{ctx.names[y]}/pair", CodeMovement, scheme, *rows, move=ConcatMove(1), low=scheme.low, high=scheme.high
    )
    _greatest(ctx, operator, pair, 2, least)


def _prelu(ctx: FlatReading, operator: FlatOperator) -> None:
    """PRELU: positive codes by one multiplier, negative ones times a factor by another; one of both is 0."""
    x, slope = operator.inputs
    check_kinds(ctx, operator, x, slope)
    source, target, name = ctx.scheme(x), ctx.scheme(operator.outputs[0]), ctx.names[operator.outputs[0]]
    codes, factors = ctx.read(x), ctx.operand(slope, len(ctx.tensor(x).shape))
    a, b, result = point_wise.scales_of(source, ctx.scheme(slope), target)
    zero = source.zero
    rescaled = point_wise.rescaled(source, target, float(a / result))
    table = point_wise.function_table("PRELU", source, lambda c: rescaled(np.maximum(c, zero)), target)
    positive = ctx.table_between(f"{name}/positive", table, codes)
    table = point_wise.function_table("MINIMUM", source, lambda c: np.minimum(c, zero), source)
    negative = ctx.table_between(f"{name}/negative", table, codes)
    how, zeros = ctx.to_codes(operator, a * b / result), (zero, ctx.scheme(slope).zero)
    product = ctx.emit_between(
        f"{name}/product", FixedPointProduct, target, negative, factors, zeros=zeros, requantisation=how
    )
    whole, half = ctx.to_codes(operator, 2.0 / (1 << _SUM_UP)), multiplier_of(0.5)
    ctx.emit(
        operator, FixedPointSum, positive, product, zeros=(target.zero, target.zero), up=_SUM_UP, scales=(half, half),
        difference=False, requantisation=whole,
    )  # fmt: skip


def _squared_difference(ctx: FlatReading, operator: FlatOperator) -> None:
    """SQUARED_DIFFERENCE: the difference fits 16 bits; its product with itself is requantised."""
    names, (first, second, target) = operands_of(ctx, operator)
    if target.bits == 16:
        raise Refusal("codes must be of int8: there is no kernel for int16", "quantise it to int8")
    twice = 2 * max(float(first.scale), float(second.scale))
    wide = Codes(16, twice / (1 << _SQUARE_UP), 0, CodeRange.SIGNED, Rounding.NEAREST_AWAY)
    stem = f"{ctx.names[operator.outputs[0]]}/difference"
    difference = ctx.emit_between(
        stem, FixedPointSum, wide, *names, zeros=(first.zero, second.zero), up=_SQUARE_UP,
        scales=(multiplier_of(float(first.scale) / twice), multiplier_of(float(second.scale) / twice)), difference=True,
        requantisation=FixedPointRequantisation(multiplier_of(1.0), 0, wide.low, wide.high),
    )  # fmt: skip
    how = ctx.to_codes(operator, twice * twice / ((1 << 2 * _SQUARE_UP) * float(target.scale)))
    ctx.emit(operator, FixedPointProduct, difference, difference, zeros=(0, 0), requantisation=how)


def _product_of_two(ctx: FlatReading, operator: FlatOperator) -> None:
    """BATCH_MATMUL of two tensors that are computed, or of one and a constant."""
    name, rank = ctx.names[operator.outputs[0]], len(ctx.tensor(operator.outputs[0]).shape)
    shapes = [ctx.tensor(index).shape for index in operator.inputs]
    if rank < 3 or any(len(shape) != rank for shape in shapes):
        raise Refusal("operands must be matrices of each sample, with the axes of the result", "reshape them")
    codes, (first, second, target) = operands_of(ctx, operator)
    turned = bool(operator.options.AdjX()), bool(operator.options.AdjY())
    order = TransposeMove((*range(rank - 2), rank - 1, rank - 2))
    for k, turn in enumerate(turned):
        codes[k] = ctx.move_between(f"{name}/{k}", order, codes[k]) if turn else codes[k]
    a, b = point_wise.scales_of(first, second)
    inner = shapes[0][-2 if turned[0] else -1]
    ctx.emit(
        operator, CodeMatMul, *codes, zeros=(first.zero, second.zero),
        largest=first.reach() * second.reach() * inner,
        requantisation=ctx.to_codes(operator, float(a * b) / float(target.scale), wide=first.bits == 16),
    )  # fmt: skip


#: By the name of the operator in the schema.
LOWERED: dict[str, Operator] = {
    "TRANSPOSE_CONV": _transposed_convolution,
    "RESIZE_BILINEAR": _bilinear,
    "REDUCE_MAX": _reduced,
    "REDUCE_MIN": _reduced,
    "MAXIMUM": _extremes,
    "MINIMUM": _extremes,
    "PRELU": _prelu,
    "SQUARED_DIFFERENCE": _squared_difference,
    "BATCH_MATMUL": _product_of_two,
}
