"""Operators of TensorFlow Lite whose codes are those of several other operations in a row [tflite-kernels]."""

from __future__ import annotations

import numpy as np

from concord.frontend.codes.tflite.operators import (
    Kernel,
    check_kinds,
    operands_of,
)
from concord.frontend.codes.tflite.reading import KernelReading, multiplier_of
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.float32 import Integers
from concord.integer.moves import ReshapeMove, TakeMove, TransposeMove
from concord.integer.operations import IntegerProduct
from concord.integer.tflite import point_wise
from concord.integer.tflite.operations import FixedPointSum
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.weighted_sums import IntegerConvolution
from concord.spec.formats import Rounding
from concord.transfer import CodeRange, Codes

#: Bits behind the point of a share of an element of an image that is made larger or smaller.
_SHARE_BITS = 10
#: Bits by which codes are moved up in front of a difference that is squared, and in front of other sums.
_SQUARE_UP, _SUM_UP = 7, 20


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


def _bilinear(ctx: KernelReading, node: OnnxNode) -> None:
    """RESIZE_BILINEAR: four elements for each one, summed up with their shares as a depthwise convolution does it."""
    x, (y,), options = node.inputs[0], node.outputs, node.options
    check_kinds(ctx, node, x)
    scheme, name = ctx.scheme_of(x), y
    if scheme.low == 0:
        raise Refusal("codes must be of int8 or int16: its kernel for uint8 computes in floats", "quantise it to int8")
    image, made = ctx.tensors[x].shape, ctx.tensors[y].shape
    corners = bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    (rows, row_shares), (columns, column_shares) = (_shares(image[k], made[k], *corners) for k in (1, 2))
    places = (rows[:, None, :, None] * image[2] + columns[None, :, None, :]).reshape(4, -1)
    shares = (row_shares[:, None, :, None] * column_shares[None, :, None, :]).reshape(4, -1)
    count, channels = made[1] * made[2], image[3]
    moves = [
        ReshapeMove((0, image[1] * image[2], channels)), TakeMove(1, tuple(places.ravel().tolist())),
        ReshapeMove((0, 4, count, channels)), TransposeMove((0, 1, 3, 2)),
    ]  # fmt: skip
    codes = ctx.moved_codes(f"{name}/corners", moves, ctx.codes(x), ctx.unique(f"{name}/corners"))
    spare = int(np.bitwise_or.reduce(shares, axis=None))
    spare = (spare & -spare).bit_length() - 1  # lower bits that are 0 in every share
    unit, shares = 2.0 ** (spare - 2 * _SHARE_BITS), shares >> spare
    sums = ctx.between(
        f"{name}/sums", IntegerConvolution, scheme, codes, last=True, weight=shares.T.reshape(count, 1, 4, 1),
        bias=np.zeros(count, np.int64), zero_point=0, reach=scheme.reach(0),
        requantisation=Binary64Requantisation.of(unit, 0, scheme.low, scheme.high, wide=scheme.bits == 16),
        strides=(1, 1), dilations=(1, 1), groups=count, pads=(0, 0, 0, 0),
    )  # fmt: skip
    ctx.moved_codes(y, [TransposeMove((0, 1, 3, 2)), ReshapeMove((0, *made[1:]))], sums, y)
    ctx.graph.schemes[y] = ctx.scheme_of(y)


def _prelu(ctx: KernelReading, node: OnnxNode) -> None:
    """PRELU: positive codes by one multiplier, negative ones times a factor by another; one of both is 0."""
    x, slope = node.inputs
    check_kinds(ctx, node, x, slope)
    source, target, name = ctx.scheme_of(x), ctx.scheme_of(node.outputs[0]), node.outputs[0]
    codes, factors = ctx.codes(x), ctx.beside(slope, len(ctx.tensors[x].shape))
    a, b, result = point_wise.scales_of(source, ctx.scheme_of(slope), target)
    zero = source.zero
    rescaled = point_wise.rescaled(source, target, float(a / result))
    positive = ctx.tabled(f"{name}/positive", codes, lambda c: rescaled(np.maximum(c, zero)), target)
    negative = ctx.tabled(f"{name}/negative", codes, lambda c: np.minimum(c, zero), source)
    how, zeros = ctx.to_codes(node, a * b / result), (zero, ctx.scheme_of(slope).zero)
    product = ctx.between(f"{name}/product", IntegerProduct, target, negative, factors, zeros=zeros, requantisation=how)
    whole, half = ctx.to_codes(node, 2.0 / (1 << _SUM_UP)), multiplier_of(0.5)
    ctx.result(
        node, FixedPointSum, positive, product, zeros=(target.zero, target.zero), up=_SUM_UP, scales=(half, half),
        difference=False, requantisation=whole,
    )  # fmt: skip


def _squared_difference(ctx: KernelReading, node: OnnxNode) -> None:
    """SQUARED_DIFFERENCE: the difference fits 16 bits; its product with itself is requantised."""
    names, (first, second, target) = operands_of(ctx, node)
    if target.bits == 16:
        raise Refusal("codes must be of int8: there is no kernel for int16", "quantise it to int8")
    twice = 2 * max(float(first.scale), float(second.scale))
    wide = Codes(16, twice / (1 << _SQUARE_UP), 0, CodeRange.SIGNED, Rounding.NEAREST_AWAY)
    stem = f"{node.outputs[0]}/difference"
    difference = ctx.between(
        stem, FixedPointSum, wide, *names, zeros=(first.zero, second.zero), up=_SQUARE_UP,
        scales=(multiplier_of(float(first.scale) / twice), multiplier_of(float(second.scale) / twice)), difference=True,
        requantisation=FixedPointRequantisation(multiplier_of(1.0), 0, wide.low, wide.high),
    )  # fmt: skip
    how = ctx.to_codes(node, twice * twice / ((1 << 2 * _SQUARE_UP) * float(target.scale)))
    ctx.result(node, IntegerProduct, difference, difference, zeros=(0, 0), requantisation=how)


#: By the name of the operator in the schema.
LOWERED: dict[str, Kernel] = {
    "RESIZE_BILINEAR": _bilinear,
    "PRELU": _prelu,
    "SQUARED_DIFFERENCE": _squared_difference,
}
