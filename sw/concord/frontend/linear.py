"""Conv, Gemm, MatMul and normalisation with constants."""

from __future__ import annotations

from math import prod

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.pointwise import times
from concord.frontend.pooling import one_image, window_attrs
from concord.frontend.volumes import Filters, conv_volume
from concord.graph.ops.base import broadcast
from concord.utils.arrays import FloatArray

#: Matrices of a constant that differs over the batch, each of which is a product of its own.
_MATRICES = 64


def conv(ctx: Context, node: OnnxNode) -> str:
    """Convolution with constant weights over one to three spatial axes; images of a fixed batch are groups."""
    x, weight = ctx.tensor(node.input(0)), ctx.floats(node.input(1), "weight")
    if weight.ndim not in (3, 4, 5):
        raise Refusal(f"must have 1 to 3 spatial axes, not {weight.ndim - 2}", "use Conv over fewer axes")
    bias = ctx.floats(node.input(2), "bias") if node.input(2) else np.zeros(len(weight))
    attrs = window_attrs(node, weight.shape[2:], ctx.shape(x)[2:])
    if weight.ndim == 5 and not ctx.volumes:
        return conv_volume(ctx, node, x, Filters(weight, bias, int(node.attrs.get("group", 1))), attrs)
    images, each = ctx.shape(x)[0], len(weight)
    weight, bias = np.concatenate([weight] * images), np.tile(bias, images)
    group = images * node.attrs.get("group", 1)
    y = ctx.emit(node, "Conv", [one_image(ctx, node, x)], weight=weight, bias=bias, group=group, **attrs)
    ctx.remember_weight(node.input(1), 0, repeats=images)
    return y if images == 1 else ctx.emit(node, "Reshape", [y], shape=(images, each, *ctx.shape(y)[2:]))


def _transposed(ctx: Context, node: OnnxNode, x: str) -> str:
    """Exchange the last two axes."""
    rank = len(ctx.graph.shapes[x])
    if rank < 2:
        raise Refusal("must have at least two axes")
    return ctx.emit(node, "Transpose", [x], perm=(*range(rank - 2), rank - 1, rank - 2))


def _dense(ctx: Context, node: OnnxNode, x: str, weight: FloatArray, left: bool = False) -> str:
    """A product with a constant; one on the left, such as an adjacency, is fixed."""
    more = {"fixed": True} if left else {}
    return ctx.emit(node, "Dense", [x], weight=weight, bias=np.zeros(weight.shape[:1]), **more)


def gemm(ctx: Context, node: OnnxNode) -> str:
    """A Dense or MatMul and, where C is more than a bias, an addition; either factor may be constant."""
    alpha = float(node.attrs.get("alpha", 1.0))
    trans = [bool(node.attrs.get(name, 0)) for name in ("transA", "transB")]
    data = 0 if ctx.is_constant(node.input(1)) else 1
    if not ctx.is_constant(node.input(1 - data)):
        factors = [ctx.tensor(node.input(k)) for k in range(2)]
        factors = [_transposed(ctx, node, x) if swapped else x for x, swapped in zip(factors, trans, strict=True)]
        y = times(ctx, node, ctx.emit(node, "MatMul", factors), alpha)
        return _plus(ctx, node, y) if node.input(2) else y
    weight = ctx.floats(node.input(1 - data), "weight")
    outputs_first = trans[1 - data] == (data == 0)
    x = ctx.tensor(node.input(data))
    if trans[data] == (data == 0):
        x = _transposed(ctx, node, x)
    y = _dense(ctx, node, x, alpha * (weight if outputs_first else weight.T), left=data == 1)
    ctx.remember_weight(node.input(1 - data), 0 if outputs_first else 1, alpha)
    if data == 1:
        y = _transposed(ctx, node, y)
    return _plus(ctx, node, y) if node.input(2) else y


def _plus(ctx: Context, node: OnnxNode, y: str) -> str:
    """Add beta times C."""
    beta, shape = float(node.attrs.get("beta", 1.0)), ctx.shape(y)
    bias_shape = ctx.operand_shape(node.input(2))
    if broadcast(bias_shape, shape) != shape:
        reason = f"bias must be one that is broadcast to {list(shape)}, not of the shape {list(bias_shape)}"
        raise Refusal(reason)
    if ctx.is_constant(node.input(2)):
        return ctx.emit(node, "Add", [y], constant=beta * ctx.floats(node.input(2), "bias"))
    c = ctx.tensor(node.input(2))
    scaled = c if beta == 1.0 else ctx.emit(node, "Mul", [c], constant=np.asarray(beta))
    return ctx.emit(node, "Add", [y, scaled])


def matmul(ctx: Context, node: OnnxNode) -> str:
    """A Dense, or a MatMul of two tensors; a constant on the left side is multiplied through transpositions."""
    names = [node.input(0), node.input(1)]
    constant = next((side for side in (1, 0) if ctx.is_constant(names[side])), None)
    if constant is None:
        return _two_tensors(ctx, node)
    weight, x = ctx.floats(names[constant], "weight"), ctx.tensor(names[1 - constant])
    rank = len(ctx.graph.shapes[x])
    if max(weight.shape[:-2], default=1) > 1:
        return batched_product(ctx, node, x, weight, left=constant == 0)
    matrix = weight.reshape(weight.shape[-2:]) if weight.ndim > 1 else weight[None]
    if constant == 1 and weight.ndim > 1:
        matrix = matrix.T
    turned = constant == 0 and rank > 1
    y = _dense(ctx, node, _transposed(ctx, node, x) if turned else x, matrix, left=constant == 0)
    ctx.remember_weight(names[constant], weight.ndim - (1 if constant == 1 else 2))
    if turned:
        y = _transposed(ctx, node, y)
    shape = _matmul_shape(weight.shape, ctx.graph.shapes[x], constant)
    return y if ctx.graph.shapes[y] == shape else ctx.emit(node, "Reshape", [y], shape=shape)


def batched_product(ctx: Context, node: OnnxNode, x: str, weight: FloatArray, left: bool = False) -> str:
    """One product for each matrix of a constant ``[*batch, ...]``, side by side; batch axes broadcast as in NumPy.

    With ``left`` the constant is the left factor.
    """
    if (count := int(np.prod(weight.shape[:-2]))) > _MATRICES:
        raise Refusal(f"constant must have at most {_MATRICES} matrices along the batch axes, not {count}", "use fewer")
    shape = ctx.shape(x)
    if len(shape) < 2:
        raise Refusal("operand must have two axes where the constant has more", "use Unsqueeze")
    rank = max(len(shape), weight.ndim)
    if len(shape) < rank:
        x = ctx.emit(node, "Reshape", [x], shape=(1,) * (rank - len(shape)) + shape)
    weight = weight.reshape((1,) * (rank - weight.ndim) + weight.shape)
    broadcast(ctx.shape(x)[:-2], weight.shape[:-2])
    return _along_batch(ctx, node, x, weight, 0, left)


def _along_batch(ctx: Context, node: OnnxNode, x: str, weight: FloatArray, axis: int, left: bool) -> str:
    if axis == weight.ndim - 2:
        matrix = weight.reshape(weight.shape[-2:])
        if left:
            return _transposed(ctx, node, _dense(ctx, node, _transposed(ctx, node, x), matrix, left=True))
        return _dense(ctx, node, x, matrix.T)
    count, size = weight.shape[axis], ctx.shape(x)[axis]
    parts = []
    for k, own in enumerate(np.split(weight, count, axis)):
        part = x
        if count > 1 and size > 1:
            part = ctx.emit(node, "Slice", [x], axes=(axis,), starts=(k,), stops=(k + 1,), steps=(1,))
        parts.append(_along_batch(ctx, node, part, own, axis + 1, left))
    return ctx.joined(node, parts, axis)


def _two_tensors(ctx: Context, node: OnnxNode) -> str:
    """A MatMul; a vector is a matrix of one row or column."""
    factors, shapes = [], []
    for index, column in enumerate((False, True)):
        x = ctx.tensor(node.input(index))
        shapes.append(ctx.shape(x))
        if len(shapes[-1]) == 1:
            size = shapes[-1][0]
            x = ctx.emit(node, "Reshape", [x], shape=(size, 1) if column else (1, size))
        factors.append(x)
    y = ctx.emit(node, "MatMul", factors)
    shape = _matmul_shape(shapes[0], shapes[1], 0)
    return y if ctx.shape(y) == shape else ctx.emit(node, "Reshape", [y], shape=shape)


def _matmul_shape(weight: tuple[int, ...], x: tuple[int, ...], constant: int) -> tuple[int, ...]:
    """Shape of the product as ONNX (and NumPy) have it, with axes of length 1 in the constant and vectors."""
    operands = (weight, x) if constant == 0 else (x, weight)
    return tuple((np.empty(operands[0], dtype=np.bool_) @ np.empty(operands[1], dtype=np.bool_)).shape)


def batch_normalization(ctx: Context, node: OnnxNode) -> str:
    """A multiplication and an addition per channel, for a pass to fold into the layer before; or what is trained."""
    x, attrs = ctx.tensor(node.input(0)), node.attrs
    if (attrs.get("training_mode", 0) and not ctx.batchnorm) or not attrs.get("spatial", 1):
        raise Refusal("must be in inference mode, over channels", "export the model for inference")
    names = ("scale", "bias", "mean", "variance")
    scale, bias, mean, variance = (ctx.floats(node.input(k), name) for k, name in enumerate(names, 1))
    spread = variance + attrs.get("epsilon", 1e-5)
    if spread.min() <= 0:
        raise Refusal("must have a positive variance")
    if ctx.batchnorm:
        more = {"epsilon": attrs.get("epsilon", 1e-5), "momentum": attrs.get("momentum", 0.9)}
        return ctx.emit(node, "BatchNorm", [x], scale=scale, bias=bias, mean=mean, variance=variance, **more)
    factor = scale / np.sqrt(spread)
    rank = len(ctx.shape(x))
    shape = (-1, *[1] * (rank - 2)) if rank > 1 else (-1,)
    y = ctx.emit(node, "Mul", [x], constant=factor.reshape(shape))
    return ctx.emit(node, "Add", [y], constant=(bias - factor * mean).reshape(shape))


def _scaled(ctx: Context, node: OnnxNode, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """A tensor whose mean square over axes is 1, and what it was multiplied with for that."""
    square = ctx.emit(node, "Mul", [x, x])
    mean = ctx.emit(node, "ReduceMean", [square], axes=axes, keepdims=True)
    shifted = ctx.emit(node, "Add", [mean], constant=np.asarray(float(node.attrs.get("epsilon", 1e-5))))
    factor = ctx.emit(node, "Function", [shifted], functions=(("rsqrt", {}),))
    return ctx.emit(node, "Mul", [x, factor]), factor


def _normalised(ctx: Context, node: OnnxNode, x: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """A tensor with mean 0 and variance 1 over axes, the mean it had, and the reciprocal root of its variance."""
    mean = ctx.emit(node, "ReduceMean", [x], axes=axes, keepdims=True)
    y, factor = _scaled(ctx, node, ctx.emit(node, "Sub", [x, mean]), axes)
    return y, mean, factor


def _last_axes(ctx: Context, node: OnnxNode, x: str) -> tuple[int, ...]:
    """Axes from ``axis`` on."""
    rank = len(ctx.shape(x))
    (first,) = ctx.axes([node.attrs.get("axis", -1)], rank)
    return tuple(range(first, rank))


def instance_normalization(ctx: Context, node: OnnxNode) -> str:
    """Every channel by itself, over all positions, then a multiplication and an addition per channel."""
    x = ctx.tensor(node.input(0))
    rank = len(ctx.shape(x))
    y, _, _ = _normalised(ctx, node, x, tuple(range(2, rank)))
    scale, bias = (
        ctx.floats(node.input(k), name).reshape(-1, *[1] * (rank - 2)) for k, name in ((1, "scale"), (2, "bias"))
    )
    return ctx.emit(node, "Add", [ctx.emit(node, "Mul", [y], constant=scale)], constant=bias)


def group_normalization(ctx: Context, node: OnnxNode) -> str:
    """Groups of channels, each over all positions, then a multiplication and an addition per channel."""
    x, groups = ctx.tensor(node.input(0)), int(node.attrs["num_groups"])
    shape = ctx.shape(x)
    if groups < 1 or shape[1] % groups:
        raise Refusal(f"channels must be a multiple of num_groups {groups}, not {shape[1]}")
    flat = ctx.emit(node, "Reshape", [x], shape=(shape[0], groups, prod(shape[1:]) // groups))
    y, _, _ = _normalised(ctx, node, flat, (2,))
    y = ctx.emit(node, "Reshape", [y], shape=shape)
    scale, bias = (
        ctx.floats(node.input(k), name).reshape(-1, *[1] * (len(shape) - 2)) for k, name in ((1, "scale"), (2, "bias"))
    )
    return ctx.emit(node, "Add", [ctx.emit(node, "Mul", [y], constant=scale)], constant=bias)


def layer_normalization(ctx: Context, node: OnnxNode) -> list[str]:
    """Mean, variance, reciprocal square root and a constant per element; mean and root may be outputs, too."""
    x = ctx.tensor(node.input(0))
    scale = ctx.floats(node.input(1), "scale")
    y, mean, factor = _normalised(ctx, node, x, _last_axes(ctx, node, x))
    y = ctx.emit(node, "Mul", [y], constant=scale)
    if node.input(2):
        y = ctx.emit(node, "Add", [y], constant=ctx.floats(node.input(2), "bias"))
    more = zip(node.outputs[1:], (mean, factor), strict=False)
    return [y, *(tensor if name in ctx.used else "" for name, tensor in more)]


def rms_normalization(ctx: Context, node: OnnxNode) -> str:
    """The reciprocal root of the mean square, and a constant per element."""
    x = ctx.tensor(node.input(0))
    y, _ = _scaled(ctx, node, x, _last_axes(ctx, node, x))
    return ctx.emit(node, "Mul", [y], constant=ctx.floats(node.input(1), "scale"))


HANDLERS: dict[str, Handler] = {
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": matmul,
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
}
