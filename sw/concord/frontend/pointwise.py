"""Functions of one element, Softmax and LogSoftmax."""

from __future__ import annotations

import math

import numpy as np

from concord.frontend.context import Context, Handler, NodeReader, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.quantization import clip_codes
from concord.functions import by_onnx_name
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

_DROPPED = 0.5
#: Elements of an axis whose running sums are one product.
_LONGEST_TRIANGLE = 512
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def apply(ctx: Context, node: OnnxNode, x: str, *names: str, **parameters: float) -> str:
    """Apply functions; parameters are those of the first one."""
    functions = tuple((name, {} if k else parameters) for k, name in enumerate(names))
    return ctx.emit(node, "Function", [x], functions=functions)


def times(ctx: Context, node: OnnxNode, x: str, factor: float) -> str:
    """Multiply by a number, unless it is 1."""
    return x if factor == 1.0 else ctx.emit(node, "Mul", [x], constant=np.asarray(float(factor)))


def function(ctx: Context, node: OnnxNode) -> str:
    """An operator that is one function of the catalogue; its attributes are the parameters."""
    record = by_onnx_name()[node.op]
    parameters = {key: float(node.attrs.get(key, value)) for key, value in record.parameters.items()}
    for key in record.positive:
        if not parameters[key] > 0:
            raise Refusal(f"{key} must be greater than 0, not {parameters[key]:g}")
    return apply(ctx, node, ctx.tensor(node.input(0)), record.name, **parameters)


def relu(ctx: Context, node: OnnxNode) -> str:
    """Relu."""
    return ctx.emit(node, "Relu", [ctx.tensor(node.input(0))])


def gelu(ctx: Context, node: OnnxNode) -> str:
    """Gelu with the normal distribution, or its approximation through tanh."""
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    return apply(ctx, node, ctx.tensor(node.input(0)), names[node.attrs.get("approximate", "none")])


def swish(ctx: Context, node: OnnxNode) -> str:
    """``x * sigmoid(alpha * x)``."""
    x, alpha = ctx.tensor(node.input(0)), float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0:
        return apply(ctx, node, x, "silu")
    return ctx.emit(node, "Mul", [x, apply(ctx, node, times(ctx, node, x, alpha), "sigmoid")])


def mish(ctx: Context, node: OnnxNode) -> str:
    """``x * tanh(softplus(x))``."""
    x = ctx.tensor(node.input(0))
    return ctx.emit(node, "Mul", [x, apply(ctx, node, x, "softplus", "tanh")])


def selu(ctx: Context, node: OnnxNode) -> str:
    """``gamma`` times an Elu."""
    alpha, gamma = node.attrs.get("alpha", _SELU_ALPHA), node.attrs.get("gamma", _SELU_GAMMA)
    return times(ctx, node, apply(ctx, node, ctx.tensor(node.input(0)), "elu", alpha=float(alpha)), gamma)


def opposite(ctx: Context, node: OnnxNode, x: str) -> str:
    """1 less x."""
    return ctx.emit(node, "Sub", [x], constant=np.ones(()), reversed=True)


def negate(ctx: Context, node: OnnxNode) -> str:
    """Times -1."""
    return times(ctx, node, ctx.tensor(node.input(0)), -1.0)


def absolute_of(ctx: Context, node: OnnxNode, x: str) -> str:
    """The larger one of x and -x."""
    return ctx.emit(node, "Max", [x, times(ctx, node, x, -1.0)])


def absolute(ctx: Context, node: OnnxNode) -> str:
    """The magnitude of every element."""
    return absolute_of(ctx, node, ctx.tensor(node.input(0)))


def prelu(ctx: Context, node: OnnxNode) -> str:
    """LeakyRelu; where slopes differ, the same with all of them, or the sum of both halves if one is steep."""
    x, slope = ctx.tensor(node.input(0)), ctx.floats(node.input(1), "slope")
    if slope.size == 1:
        return apply(ctx, node, x, "leaky_relu", alpha=float(slope.reshape(-1)[0]))
    if np.abs(slope).max(initial=0.0) <= 1:
        return ctx.emit(node, "Max", [ctx.emit(node, "Mul", [x], constant=slope), x])
    negative = ctx.emit(node, "Clip", [x], min=-math.inf, max=0.0)
    return ctx.emit(node, "Add", [ctx.emit(node, "Relu", [x]), ctx.emit(node, "Mul", [negative], constant=slope)])


def clip(ctx: Context, node: OnnxNode) -> str | list[str]:
    """Clip; Relu if that is what it is; a maximum and a minimum where limits are computed."""
    if node.input(0) in ctx.codes:
        return clip_codes(ctx, node)
    x = ctx.tensor(node.input(0))
    if all(not name or ctx.is_constant(name) for name in node.inputs[1:3]):
        low, high = _limit(ctx, node, 1), _limit(ctx, node, 2)
        if (low, high) == (-math.inf, math.inf):
            return x
        if (low, high) == (0.0, math.inf):
            return ctx.emit(node, "Relu", [x])
        return ctx.emit(node, "Clip", [x], min=low, max=high)
    for op, index in (("Max", 1), ("Min", 2)):
        if (name := node.input(index)) and not ctx.is_constant(name):
            x = ctx.emit(node, op, [x, ctx.tensor(name)])
        elif not math.isinf(limit := _limit(ctx, node, index)):
            x = ctx.emit(node, op, [x], constant=np.asarray(limit))
    return x


def _limit(ctx: Context, node: OnnxNode, index: int) -> float:
    """A constant limit of a Clip, the lower one (``index`` 1) or upper one (2); an infinity if it is none."""
    name, unlimited = (("min", -math.inf), ("max", math.inf))[index - 1]
    value = float(node.attrs.get(name, unlimited))
    if node.input(index):
        value = float(ctx.constant(node.input(index), name).astype(np.float64).reshape(-1)[0])
    # Before it could be left out, the largest finite float32 stood for no limit.
    if abs(value) >= np.finfo(np.float32).max and (value < 0) == (unlimited < 0):
        return unlimited
    if not math.isfinite(value):
        raise Refusal(f"{name} must be a finite number, or {unlimited} for no limit, not {value}")
    return value


def power_by_logarithm(ctx: Context, node: OnnxNode, x: str, exponent: str | FloatArray) -> str:
    """The exponential of a logarithm times the exponent, a tensor or constant.

    What has no such power, negative numbers and zero to none of the positive ones, becomes an infinity, which raises
    HALF_OVERFLOW.
    """
    sign = ctx.emit(node, "Sign", [x])
    positive = ctx.emit(node, "Relu", [sign])
    others = opposite(ctx, node, positive)
    base = ctx.emit(node, "Add", [ctx.emit(node, "Relu", [x]), others])  # 1 in the place of what has no logarithm
    logarithm = apply(ctx, node, base, "log")
    undefined = ctx.emit(node, "Sub", [positive, sign])
    if isinstance(exponent, str):
        product = ctx.emit(node, "Mul", [logarithm, exponent])
        pole = opposite(ctx, node, ctx.emit(node, "Relu", [ctx.emit(node, "Sign", [exponent])]))
        pole = ctx.emit(node, "Mul", [others, pole])
        undefined = ctx.emit(node, "Max", [undefined, pole])
    else:
        product = ctx.emit(node, "Mul", [logarithm], constant=exponent)
        if exponent.min() <= 0:
            pole = ctx.emit(node, "Mul", [others], constant=(exponent <= 0).astype(np.float64))
            undefined = ctx.emit(node, "Max", [undefined, pole])
    power = ctx.emit(node, "Mul", [apply(ctx, node, product, "exp"), positive])
    beyond = times(ctx, node, times(ctx, node, undefined, BINARY16_MAX), BINARY16_MAX)
    return ctx.emit(node, "Add", [power, beyond])


def hardmax(ctx: Context, node: OnnxNode) -> str:
    """1 at the first of the greatest elements; before opset 13 of all axes from one on.

    A sum of truth values in front, by a product with a triangle of ones, tells the first of equal ones.
    """
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    (axis,) = ctx.axes([node.attrs.get("axis", -1 if ctx.opset >= 13 else 1)], len(shape))
    order = (*(k for k in range(len(shape)) if k != axis), axis)
    if ctx.opset < 13:
        last = ctx.emit(node, "Reshape", [x], shape=(math.prod(shape[:axis]), math.prod(shape[axis:])))
    else:
        last = x if axis == len(shape) - 1 else ctx.emit(node, "Transpose", [x], perm=order)
    lines = ctx.shape(last)
    most = ctx.emit(node, "ReduceMax", [last], axes=(len(lines) - 1,), keepdims=True)
    less = ctx.emit(node, "Sign", [ctx.emit(node, "Sub", [last, most])])
    equal = ctx.emit(node, "Add", [less], constant=np.ones(()))
    before = sums_in_front(ctx, node, equal, exclusive=True)
    y = ctx.emit(node, "Relu", [ctx.emit(node, "Sub", [equal, before])])
    if ctx.opset < 13:
        return ctx.emit(node, "Reshape", [y], shape=shape)
    return y if last == x else ctx.emit(node, "Transpose", [y], perm=tuple(np.argsort(order).tolist()))


def sums_in_front(ctx: Context, node: OnnxNode, x: str, *, exclusive: bool = False, reverse: bool = False) -> str:
    """Running sums along the last axis: a product with a triangle of ones.

    A long axis is cut into parts: sums within each of them, plus running sums of the parts.

    Parameters
    ----------
    exclusive : bool
        Without the element itself.
    reverse : bool
        Of the elements from the end on.
    """
    *rest, size = ctx.shape(x)
    if size <= _LONGEST_TRIANGLE:
        triangle = np.tri(size, k=-1 if exclusive else 0)
        triangle = triangle[::-1, ::-1] if reverse else triangle
        return ctx.emit(node, "Dense", [x], weight=triangle, bias=np.zeros(size), fixed=True)
    part = 1 << (size - 1).bit_length() // 2
    count = -(-size // part)
    if more := count * part - size:
        pads = (*[0] * len(rest), 0, *[0] * len(rest), more)
        x = ctx.emit(node, "Pad", [x], pads=pads, mode="constant", value=0.0)
    parts = ctx.emit(node, "Reshape", [x], shape=(*rest, count, part))
    sums = ctx.emit(node, "ReduceSum", [parts], axes=(len(rest) + 1,), keepdims=False)
    begin = sums_in_front(ctx, node, sums, exclusive=True, reverse=reverse)
    begin = ctx.emit(node, "Reshape", [begin], shape=(*rest, count, 1))
    within = sums_in_front(ctx, node, parts, exclusive=exclusive, reverse=reverse)
    y = ctx.emit(node, "Add", [within, begin])
    y = ctx.emit(node, "Reshape", [y], shape=(*rest, count * part))
    if not more:
        return y
    return ctx.emit(node, "Slice", [y], axes=(len(rest),), starts=(0,), stops=(size,), steps=(1,))


def softmax(ctx: Context, node: OnnxNode) -> str:
    """Softmax, or LogSoftmax; before opset 13 over all axes from one on."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    (axis,) = ctx.axes([node.attrs.get("axis", -1 if ctx.opset >= 13 else 1)], len(shape))
    if ctx.opset >= 13 or math.prod(shape[axis + 1 :]) == 1:
        return ctx.emit(node, node.op, [x], axis=axis)
    flat = ctx.emit(node, "Reshape", [x], shape=(math.prod(shape[:axis]), math.prod(shape[axis:])))
    return ctx.emit(node, "Reshape", [ctx.emit(node, node.op, [flat], axis=1)], shape=shape)


def same(ctx: Context, node: OnnxNode) -> str:
    """The operator changes nothing."""
    return ctx.tensor(node.input(0))


def dropout(ctx: Context, node: OnnxNode) -> str:
    """Nothing, in inference or if no element is dropped."""
    check_inference(ctx, node)
    return ctx.tensor(node.input(0))


def check_inference(ctx: NodeReader, node: OnnxNode) -> None:
    """``Refusal`` if a Dropout drops elements."""
    if node.input(2) and np.any(ctx.constant(node.input(2), "training_mode")):
        if np.any(ctx.constant(node.input(1), "ratio") if node.input(1) else _DROPPED):
            raise Refusal("must be in inference mode", "export the model for inference")


HANDLERS: dict[str, Handler] = {
    "Relu": relu,
    "Gelu": gelu,
    "Swish": swish,
    "Mish": mish,
    "Selu": selu,
    "Neg": negate,
    "Abs": absolute,
    "PRelu": prelu,
    "Clip": clip,
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "Hardmax": hardmax,
    "Identity": same,
    "Dropout": dropout,
}
