"""Operators that the host computes: on whole numbers and truth values, and those that no instruction has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.load import element_type
from concord.graph.element_types import ends, texts_of
from concord.graph.ops.recurrent import RECURRENT_OPS
from concord.utils.arrays import FloatArray


@dataclass(frozen=True)
class TypedTensor:
    """A result, and the type of its elements if they are no floats; ``texts`` are those that it has the places of."""

    name: str
    element_type: str | None = None
    texts: tuple[str, ...] | None = None


#: Appends nodes for one of the file, and returns its results with their types.
HostHandler = Callable[[Context, OnnxNode], Sequence[TypedTensor]]
#: Operators that the frontend has for floats, and that move elements of any type: the result has that of the operand.
MOVING_OPERATORS = (
    "Reshape Flatten Squeeze Unsqueeze Transpose Concat Tile Expand DepthToSpace SpaceToDepth Slice Split Gather Pad "
    "Identity Dropout"
).split()
#: Operators that the NPU computes with constant indices, a constant condition, to floats, or by powers of two; else the
#: host.
OF_COMPUTED_OPERANDS = ("Gather", "Where", "Cast", "Mod")


#: Operators that the NPU computes with truth values.
_WITH_TRUTHS = ("And", "Or", "Xor", "Not", "Where", "Cast")


#: Operators that may read texts: they move elements, and the result has those of the first operand, or count them.
_OF_TEXTS = (
    "Reshape Flatten Squeeze Unsqueeze Transpose Concat Tile Expand Slice Split Gather Identity TfIdfVectorizer"
).split()
#: Operators of ``ai.onnx.ml`` on the host, and those that look texts up.
_LEARNED_OF_TEXTS = ("ArrayFeatureExtractor", "CategoryMapper", "LabelEncoder", "OneHotEncoder")
#: Numbers of 32 bits whose sum double precision holds, whatever they are.
_MOST_TERMS = 1 << 21


def texts_of_operands(ctx: Context, node: OnnxNode) -> tuple[str, ...] | None:
    """The texts whose places the operands of a node have; ``None`` if they are no texts.

    Raises
    ------
    Refusal
        If the operator computes, or if operands have places of different texts.
    """
    groups = {name: ctx.texts[name] for name in node.inputs if name in ctx.texts}
    if not groups:
        return None
    if node.op not in (_OF_TEXTS if node.standard else _LEARNED_OF_TEXTS):
        raise Refusal(f"operand '{next(iter(groups))}' must be numbers, not texts", "put a LabelEncoder in front")
    if len({*groups.values()}) > 1 or (node.op == "Concat" and len(groups) < len(node.inputs)):
        raise Refusal("operands must have the same texts", "put a LabelEncoder in front of each")
    return next(iter(groups.values()))


def looked_up_texts(ctx: Context, node: OnnxNode, wanted: Sequence[str]) -> tuple[str, FloatArray]:
    """The first operand, with one place for equal texts, and the places of texts; -1 for those that it never is."""
    x, first = ctx.tensor(node.input(0)), dict[str, int]()
    table = np.array([first.setdefault(text, k) for k, text in enumerate(ctx.texts[node.input(0)])], np.float64)
    if len(first) < len(table):
        x = ctx.emit(node, "Lookup", [x], table=table, axis=0)
    return x, np.array([first.get(text, -1) for text in wanted], np.float64)


def reads_whole_numbers(ctx: Context, node: OnnxNode) -> bool:
    """True if an operand is neither of floats nor, where the NPU computes with such, of truth values.

    Lengths of sequences are none that a recurrent layer computes with.
    """
    lengths = node.input(4) if node.op in RECURRENT_OPS else ""
    for name in filter(None, node.inputs):
        if name == lengths:
            continue
        kind = ctx.element_types.get(name)
        if kind is not None and not (kind == "bool" and node.op in _WITH_TRUTHS):
            return True
    branches = node.inputs[1:] if node.op == "Where" else ()
    return any(ctx.is_constant(name) and ctx.constants[name].dtype.kind in "iub" for name in branches)


def _target(proto_type: int) -> str | None:
    try:
        return element_type(proto_type)
    except ValueError as error:
        raise Refusal(str(error), "convert it outside the model") from error


def _type_of(ctx: Context, *names: str) -> str | None:
    """The type that the elements of operands have, by the first one that is computed."""
    computed = [name for name in names if name and not ctx.is_constant(name)]
    return ctx.element_types.get(computed[0]) if computed else None


def _numbers(ctx: Context, name: str) -> FloatArray:
    """A constant of any type as numbers, infinities included."""
    values = np.asarray(ctx.constants[name])
    if values.dtype.kind not in "fiub":
        raise Refusal(f"operand '{name}' must be numbers, not {values.dtype}")
    numbers = values.astype(np.float64)
    if np.isnan(numbers).any():
        raise Refusal(f"operand '{name}' must be numbers, not NaN")
    return numbers


def _two(ctx: Context, node: OnnxNode, op: str, a: str, b: str) -> str:
    """A node with two operands, tensors of the graph or constants of the file."""
    if ctx.is_constant(a) and ctx.is_constant(b):
        raise Refusal("must have an operand that is computed", "export with constants folded")
    if ctx.is_constant(b):
        return ctx.emit(node, op, [ctx.tensor(a)], constant=_numbers(ctx, b))
    if ctx.is_constant(a):
        if op not in ("Add", "Mul", "Max", "Min", "Equal"):
            return ctx.emit(node, op, [ctx.tensor(b)], constant=_numbers(ctx, a), reversed=True)
        return ctx.emit(node, op, [ctx.tensor(b)], constant=_numbers(ctx, a))
    return ctx.emit(node, op, [ctx.tensor(a), ctx.tensor(b)])


def _not(ctx: Context, node: OnnxNode, x: str) -> str:
    return ctx.emit(node, "Not", [x])


def _whole(ctx: Context, node: OnnxNode, x: str, kind: str | None) -> TypedTensor:
    """The result of arithmetic as a number of its type, which has an end; floats stay as they are."""
    if kind is None:
        return TypedTensor(x)
    if kind == "bool":
        return TypedTensor(_not(ctx, node, ctx.emit(node, "Equal", [x], constant=np.zeros(()))), kind)
    info = np.iinfo(kind)
    low, modulus = float(info.min), float(int(info.max) - int(info.min) + 1)
    return TypedTensor(ctx.emit(node, "Wrap", [x], low=low, modulus=modulus), kind)


def cast(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Whole numbers without their fractions, which wrap around at the ends of their type; or whether it is not zero."""
    x, kind = ctx.tensor(node.input(0)), _target(int(node.attrs["to"]))
    old = _type_of(ctx, node.input(0))
    if kind is None or kind == old:
        return [TypedTensor(x, kind)]
    if kind != "bool" and old is None:
        x = ctx.emit(node, "Truncate", [x])
    if old is not None and kind != "bool" and ends(kind)[0] <= ends(old)[0] and ends(old)[1] <= ends(kind)[1]:
        return [TypedTensor(x, kind)]
    return [_whole(ctx, node, x, kind)]


def _is_small(ctx: Context, name: str) -> bool:
    """True if products of a constant with numbers of 32 bits are exact in double precision."""
    return ctx.is_constant(name) and bool((np.abs(_numbers(ctx, name)) <= 1 << 21).all())


def _product(ctx: Context, node: OnnxNode, a: str, b: str, kind: str) -> str:
    """A product of whole numbers of 32 bits, but for turns: by both halves of one, as it may have 64 bits itself."""
    if ctx.is_constant(a):
        a, b = b, a
    x = ctx.tensor(a)
    low = ctx.emit(node, "Modulo", [x], constant=np.array(65536.0))
    high = ctx.emit(node, "Sub", [x, low])
    other = {"constant": _numbers(ctx, b)} if ctx.is_constant(b) else {}
    rest = [] if other else [ctx.tensor(b)]
    parts = [_whole(ctx, node, ctx.emit(node, "Mul", [half, *rest], **other), kind).name for half in (low, high)]
    return ctx.emit(node, "Add", parts)


def arithmetic(op: str, ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Operands from left to right, two at a time; whole numbers wrap around at the ends of their type."""
    kind = _type_of(ctx, *node.inputs)
    y = node.input(0)
    for name in node.inputs[1:]:
        exact = op != "Mul" or kind not in ("int32", "uint32") or _is_small(ctx, y) or _is_small(ctx, name)
        y = _two(ctx, node, op, y, name) if exact else _product(ctx, node, y, name, str(kind))
    return [_whole(ctx, node, ctx.tensor(y), kind)]


def divide(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """A quotient; of whole numbers without its fraction."""
    kind = _type_of(ctx, *node.inputs)
    y = _two(ctx, node, "Divide", node.input(0), node.input(1))
    return [_whole(ctx, node, ctx.emit(node, "Truncate", [y]) if kind else y, kind)]


def modulo(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """The rest with the sign of the divisor, or with ``fmod`` that of the dividend."""
    kind, (a, b) = _type_of(ctx, *node.inputs), node.inputs
    if not node.attrs.get("fmod", 0):
        return [_whole(ctx, node, _two(ctx, node, "Modulo", a, b), kind)]
    turns = ctx.emit(node, "Truncate", [_two(ctx, node, "Divide", a, b)])
    if ctx.is_constant(b):
        taken = ctx.emit(node, "Mul", [turns], constant=_numbers(ctx, b))
    else:
        taken = ctx.emit(node, "Mul", [turns, ctx.tensor(b)])
    if ctx.is_constant(a):
        return [_whole(ctx, node, ctx.emit(node, "Sub", [taken], constant=_numbers(ctx, a), reversed=True), kind)]
    return [_whole(ctx, node, ctx.emit(node, "Sub", [ctx.tensor(a), taken]), kind)]


def negate(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """The number with the other sign."""
    x = ctx.emit(node, "Mul", [ctx.tensor(node.input(0))], constant=np.array(-1.0))
    return [_whole(ctx, node, x, _type_of(ctx, node.input(0)))]


def _magnitude(ctx: Context, node: OnnxNode, x: str) -> str:
    return ctx.emit(node, "Max", [x, ctx.emit(node, "Mul", [x], constant=np.array(-1.0))])


def absolute(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """The number without its sign."""
    return [_whole(ctx, node, _magnitude(ctx, node, ctx.tensor(node.input(0))), _type_of(ctx, node.input(0)))]


def clip(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Between two numbers, each of which may be left out."""
    x, kind = ctx.tensor(node.input(0)), _type_of(ctx, node.input(0))
    for index, op in ((1, "Max"), (2, "Min")):
        if name := node.input(index):
            limit = {"constant": _numbers(ctx, name).reshape(())} if ctx.is_constant(name) else {}
            x = ctx.emit(node, op, [x] if limit else [x, ctx.tensor(name)], **limit)
    return [_whole(ctx, node, x, kind)]


def sign(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """-1, 0 or 1."""
    return [_whole(ctx, node, ctx.emit(node, "Sign", [ctx.tensor(node.input(0))]), _type_of(ctx, node.input(0)))]


def compare(op: str, ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """1 where the comparison holds; 0 if an operand is no number."""
    a, b = node.inputs
    if op in ("Greater", "GreaterOrEqual"):
        a, b = b, a
    y = _two(ctx, node, "Equal" if op == "Equal" else "Less", a, b)
    if op.endswith("OrEqual"):
        y = ctx.emit(node, "Max", [y, _two(ctx, node, "Equal", a, b)])
    return [TypedTensor(y, "bool")]


def logic(op: str, ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Both, one or both, or one alone."""
    if op == "Xor":
        return [TypedTensor(_not(ctx, node, _two(ctx, node, "Equal", *node.inputs)), "bool")]
    y = _two(ctx, node, "Mul" if op == "And" else "Max", *node.inputs)
    return [_whole(ctx, node, y, "bool")]


def negation(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """1 where the operand is 0, else 0."""
    return [TypedTensor(_not(ctx, node, ctx.tensor(node.input(0))), "bool")]


def is_nan(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """1 where the operand is no number."""
    x = ctx.tensor(node.input(0))
    return [TypedTensor(_not(ctx, node, ctx.emit(node, "Equal", [x, x])), "bool")]


def is_infinite(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """1 where the operand is an infinity, or one with the signs that are searched."""
    x = ctx.tensor(node.input(0))
    signs = [sign for name, sign in (("detect_positive", 1.0), ("detect_negative", -1.0)) if node.attrs.get(name, 1)]
    hits = [ctx.emit(node, "Equal", [x], constant=np.asarray(sign * np.inf)) for sign in signs]
    y = hits[0] if hits else ctx.emit(node, "Less", [x, x])
    return [TypedTensor(ctx.emit(node, "Max", hits) if len(hits) > 1 else y, "bool")]


def where(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """A condition chooses."""
    if not ctx.is_constant(node.input(0)) and node.input(0) not in ctx.truths:
        raise Refusal(f"condition must be a truth value, not '{node.input(0)}'", "correct the model")
    attrs: dict[str, Any] = {}
    computed = []
    for name, key in zip(node.inputs, ("condition", "chosen", "other"), strict=True):
        if ctx.is_constant(name):
            attrs[key] = _numbers(ctx, name)
        else:
            computed.append(ctx.tensor(name))
    kind = _type_of(ctx, *node.inputs[1:])
    if all(ctx.is_constant(name) for name in node.inputs[1:]):
        values = np.asarray(ctx.constants[node.input(1)])
        kind = None if values.dtype.kind == "f" else values.dtype.name
    return [TypedTensor(ctx.emit(node, "Select", computed, **attrs), kind)]


def gather(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Elements at computed indices, of a constant table such as an embedding, or of a computed tensor."""
    data, indices = node.input(0), ctx.tensor(node.input(1))
    if ctx.is_constant(data) and ctx.constants[data].dtype.kind not in "fiub" and ctx.constants[data].ndim == 1:
        return [TypedTensor(indices, "int64", texts_of(ctx.constants[data]))]
    if ctx.is_constant(data):
        table = _numbers(ctx, data)
        (axis,) = ctx.axes([node.attrs.get("axis", 0)], table.ndim)
        constant = np.asarray(ctx.constants[data])
        kind = None if constant.dtype.kind == "f" else constant.dtype.name
        return [TypedTensor(ctx.emit(node, "Lookup", [indices], table=table, axis=axis), kind)]
    x = ctx.tensor(data)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(ctx.shape(x)))
    return [TypedTensor(ctx.emit(node, "Take", [x, indices], axis=axis), _type_of(ctx, data))]


def argument(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """The place of the greatest or least element along an axis."""
    x = ctx.tensor(node.input(0))
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(ctx.shape(x)))
    keep, last = (bool(node.attrs.get(*pair)) for pair in (("keepdims", 1), ("select_last_index", 0)))
    y = ctx.emit(node, "ArgMax", [x], axis=axis, keepdims=keep, least=node.op == "ArgMin", last=last)
    return [TypedTensor(y, "int64")]


def top(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Greatest or least elements along an axis, ``k`` of them in their order, and their places."""
    x = ctx.tensor(node.input(0))
    (axis,) = ctx.axes([node.attrs.get("axis", -1)], len(ctx.shape(x)))
    (count,) = ctx.integers(node, 1, "k") or [0]
    if not 1 <= count <= ctx.shape(x)[axis]:
        raise Refusal(f"k must be from 1 to {ctx.shape(x)[axis]}, not {count}")
    largest = bool(node.attrs.get("largest", 1))
    values, places = ctx.emit_all(node, "TopK", [x], 2, axis=axis, size=count, largest=largest)
    return [TypedTensor(values, _type_of(ctx, node.input(0))), TypedTensor(places, "int64")]


def one_hot(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """One value where the place is the index, the other value elsewhere."""
    indices = ctx.tensor(node.input(0))
    (depth,) = (int(value) for value in ctx.constant(node.input(1), "depth").reshape(-1))
    low, high = _numbers(ctx, node.input(2))
    rank = len(ctx.shape(indices)) + 1
    (axis,) = ctx.axes([node.attrs.get("axis", -1)], rank)
    shape = list(ctx.shape(indices))
    shape.insert(axis, 1)
    column = ctx.emit(node, "Reshape", [indices], shape=tuple(shape))
    places = np.arange(float(depth)).reshape([-1 if k == axis else 1 for k in range(rank)])
    hot = ctx.emit(node, "Max", [ctx.emit(node, "Equal", [column], constant=k) for k in (places, places - depth)])
    values = np.asarray(ctx.constants[node.input(2)])
    y = ctx.emit(node, "Select", [hot], chosen=np.asarray(high), other=np.asarray(low))
    return [TypedTensor(y, None if values.dtype.kind == "f" else values.dtype.name)]


def _exact_sum(ctx: Context, node: OnnxNode, kind: str, terms: int, added: Callable[[str], str], x: str) -> str:
    """Sums of some terms, not yet as numbers of their type; an error where double precision rounds one of them.

    Partial sums are exact if that of the magnitudes is.
    """
    y = added(x)
    if kind not in ("int64", "uint64") and terms <= _MOST_TERMS:
        return y
    total = _whole(ctx, node, added(_magnitude(ctx, node, x)), "int64").name
    return ctx.emit(node, "Add", [y, ctx.emit(node, "Mul", [total], constant=np.array(0.0))])


def _multiplied(ctx: Context, node: OnnxNode, a: str, b: str, kind: str) -> str:
    """A product of two computed tensors of a type."""
    y = _product(ctx, node, a, b, kind) if kind in ("int32", "uint32") else ctx.emit(node, "Mul", [a, b])
    return _whole(ctx, node, y, kind).name


def _part(ctx: Context, node: OnnxNode, x: str, axis: int, start: int, stop: int) -> str:
    return ctx.emit(node, "Slice", [x], axes=(axis,), starts=(start,), stops=(stop,), steps=(1,))


def _all_multiplied(ctx: Context, node: OnnxNode, x: str, axes: tuple[int, ...], keep: bool, kind: str) -> str:
    """Products over axes: halves of the elements, then halves of that, a last odd element as it is."""
    shape = ctx.shape(x)
    others = tuple(k for k in range(len(shape)) if k not in axes)
    rest = tuple(shape[k] for k in others)
    y = ctx.emit(node, "Transpose", [x], perm=(*axes, *others))
    y = ctx.emit(node, "Reshape", [y], shape=(math.prod(shape[k] for k in axes), *rest))
    while (count := ctx.shape(y)[0]) > 1:
        half = count // 2
        both = _part(ctx, node, y, 0, 0, half), _part(ctx, node, y, 0, half, 2 * half)
        last = [_part(ctx, node, y, 0, 2 * half, count)] if count % 2 else []
        y = ctx.joined(node, [_multiplied(ctx, node, *both, kind), *last], 0)
    kept = tuple(1 if k in axes else size for k, size in enumerate(shape)) if keep else rest
    return ctx.emit(node, "Reshape", [y], shape=kept)


def reduction(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Sums, means, products, and the greatest or least of whole numbers along axes.

    A mean is that of the sum without an end, less its fraction.
    """
    x, kind = ctx.tensor(node.input(0)), _type_of(ctx, node.input(0))
    if kind is None:
        raise Refusal("operator is not supported", "replace it, or compute it outside the model")
    if node.op == "ReduceL1":
        x = _magnitude(ctx, node, x)
    elif node.op == "ReduceSumSquare":
        x = _multiplied(ctx, node, x, x, kind)
    shape = ctx.shape(x)
    axes = ctx.integers(node, 1, "axes")
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        return [_whole(ctx, node, x, kind)]
    reduced, keep = ctx.axes(axes or range(len(shape)), len(shape)), bool(node.attrs.get("keepdims", 1))
    attrs: dict[str, Any] = {"axes": reduced, "keepdims": keep}
    if node.op == "ReduceMin":
        greatest = ctx.emit(node, "ReduceMax", [ctx.emit(node, "Mul", [x], constant=np.array(-1.0))], **attrs)
        return [_whole(ctx, node, ctx.emit(node, "Mul", [greatest], constant=np.array(-1.0)), kind)]
    if node.op == "ReduceMax":
        return [_whole(ctx, node, ctx.emit(node, "ReduceMax", [x], **attrs), kind)]
    if node.op == "ReduceProd":
        return [TypedTensor(_all_multiplied(ctx, node, x, reduced, keep, kind), kind)]
    terms = math.prod(shape[axis] for axis in reduced)
    y = _exact_sum(ctx, node, kind, terms, lambda name: ctx.emit(node, "ReduceSum", [name], **attrs), x)
    if node.op == "ReduceMean":
        quotient = ctx.emit(node, "Divide", [y], constant=np.array(float(terms)))
        return [TypedTensor(ctx.emit(node, "Truncate", [quotient]), kind)]
    return [_whole(ctx, node, y, kind)]


def running_sum(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Sums of the elements in front along an axis: pairs of neighbours first, then pairs of these, and so on."""
    x, kind = ctx.tensor(node.input(0)), _type_of(ctx, node.input(0))
    if kind is None:
        raise Refusal("operator is not supported", "replace it, or compute it outside the model")
    shape = ctx.shape(x)
    (axis,) = ctx.axes(ctx.integers(node, 1, "axis") or [0], len(shape))
    size, reverse = shape[axis], bool(node.attrs.get("reverse", 0))

    def moved(name: str, by: int) -> str:
        """Elements that many places on, behind zeros."""
        pads = [0] * (2 * len(shape))
        pads[axis + (len(shape) if reverse else 0)] = by
        padded = ctx.emit(node, "Pad", [name], pads=tuple(pads), mode="constant", value=0.0)
        return _part(ctx, node, padded, axis, *((by, size + by) if reverse else (0, size)))

    def added(name: str) -> str:
        y = moved(name, 1) if node.attrs.get("exclusive", 0) else name
        for power in range((size - 1).bit_length()):
            y = ctx.emit(node, "Add", [y, moved(y, 1 << power)])
        return y

    return [_whole(ctx, node, _exact_sum(ctx, node, kind, size, added, x), kind)]


HOST_HANDLERS: dict[str, HostHandler] = {
    "Cast": cast,
    **{op: partial(arithmetic, op) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    "Sum": partial(arithmetic, "Add"),
    "Div": divide,
    "Mod": modulo,
    "Neg": negate,
    "Abs": absolute,
    "Clip": clip,
    "Sign": sign,
    **{op: partial(compare, op) for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")},
    **{op: partial(logic, op) for op in ("And", "Or", "Xor")},
    "Not": negation,
    "IsNaN": is_nan,
    "IsInf": is_infinite,
    "Where": where,
    "Gather": gather,
    "ArgMax": argument,
    "ArgMin": argument,
    "TopK": top,
    "OneHot": one_hot,
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare", "ReduceMax", "ReduceMin"), reduction
    ),
    "CumSum": running_sum,
}
