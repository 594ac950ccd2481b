"""Operators on every element, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Annotated, Any

import numpy as np

from concord.functions import evaluate, function
from concord.functions.segmented import TableSegment
from concord.golden.codes import Codes
from concord.golden.host_math import host_log_softmax, host_mean, host_softmax
from concord.golden.scale import scaled
from concord.graph.ops.attributes import (
    ARRAY,
    AXES,
    AXIS,
    FLAG,
    FUNCTION_PAIRS,
    INPUTS,
    INTEGER,
    NOT_NEGATIVE,
    NUMBER,
    QUANTIZATION,
    SEGMENT,
    SIZES,
    TENSOR,
    Attribute,
    NoAttributes,
)
from concord.graph.ops.base import (
    Arrays,
    Evaluation,
    Operation,
    Operator,
    OperatorKind,
    Shape,
    ShapeRule,
    Shapes,
    SignRule,
    aligned,
    any_sign,
    broadcast,
    keeps_sign,
    no_macs,
    present,
)
from concord.spec.limits import SCALED_BITS_MAX
from concord.utils.arrays import FloatArray


def _same_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    return [present(inputs[0])]


def _along_axes(name: str) -> ShapeRule:
    """The shape of the input, which must have the axes that the attribute ``name`` says."""

    def rule(node: Operation, inputs: Shapes) -> list[Shape]:
        shape, axes = present(inputs[0]), getattr(node.attributes(NoAttributes), name)
        _check_axes(shape, axes if isinstance(axes, tuple) else (axes,))
        return [shape]

    return rule


def _check_axes(shape: Shape, axes: Sequence[int]) -> None:
    if any(axis >= len(shape) for axis in axes):
        raise ValueError(f"axes must be of the {len(shape)} that {list(shape)} has, not {list(axes)}")


def _channel_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(BatchNormAttributes)
    channels = len(attributes.scale)
    if len(shape) < 2 or shape[1] != channels:
        raise ValueError(f"shape {list(shape)} must have {channels} channels along axis 1")
    if any(values.shape != (channels,) for values in (attributes.bias, attributes.mean, attributes.variance)):
        raise ValueError(f"bias, mean and variance must have {channels} elements, as many as scale")
    return [shape]


def _unary(function: Callable[[Operation, FloatArray], FloatArray]) -> Evaluation:
    return lambda node, inputs: [function(node, present(inputs[0]))]


def broadcast_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    """The shape to which two operands are broadcast, a constant among them."""
    shapes, constant = [present(shape) for shape in inputs], node.attributes(BinaryAttributes).constant
    if constant is not None:
        shapes.append(constant.shape)
    if len(shapes) != 2:
        raise ValueError(f"operands must be two, a constant among them, not {len(shapes)}")
    return [broadcast(*shapes)]


def evaluate_binary(
    ufunc: Callable[[FloatArray, FloatArray], FloatArray], node: Operation, inputs: Arrays
) -> list[FloatArray]:
    """A function of two operands that are broadcast, a constant among them."""
    operands, attributes = [present(x) for x in inputs], node.attributes(BinaryAttributes)
    constant = attributes.constant
    rank = max([x.ndim - 1 for x in operands] + ([] if constant is None else [constant.ndim]))
    operands = [aligned(x, rank) for x in operands]
    if constant is not None:
        operands = [constant, *operands] if attributes.constant_first else [*operands, constant]
    return [ufunc(operands[0], operands[1])]


def _softmax(function: Callable[[FloatArray, int], FloatArray], node: Operation, x: FloatArray) -> FloatArray:
    return np.asarray(function(x, node.attributes(SoftmaxAttributes).axis + 1))


def _normalise(node: Operation, x: FloatArray) -> FloatArray:
    attributes = node.attributes(NormaliseAttributes)
    axes = tuple(axis + 1 for axis in attributes.axes)
    if attributes.centred:
        x = x - host_mean(x, axes)
    spread = np.sqrt(host_mean(x * x, axes) + attributes.epsilon)
    return np.asarray(x / spread * attributes.scale)


def _batch_norm(node: Operation, x: FloatArray) -> FloatArray:
    attributes = node.attributes(BatchNormAttributes)
    factor = attributes.scale / np.sqrt(attributes.variance + attributes.epsilon)
    sizes = (-1, *[1] * (x.ndim - 3))
    return np.asarray(x * factor.reshape(sizes) + (attributes.bias - factor * attributes.mean).reshape(sizes))


def _reduced_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, attributes = present(inputs[0]), node.attributes(ReductionAttributes)
    axes, keep = attributes.axes, attributes.keepdims
    _check_axes(shape, axes)
    return [tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)]


def _reduction(function: Callable[..., FloatArray]) -> Evaluation:
    def evaluate(node: Operation, inputs: Arrays) -> list[FloatArray]:
        attributes = node.attributes(ReductionAttributes)
        axes = tuple(axis + 1 for axis in attributes.axes)
        return [np.asarray(function(present(inputs[0]), axis=axes, keepdims=attributes.keepdims))]

    return evaluate


def _expand_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, wanted = present(inputs[0]), node.attributes(BroadcastAttributes).shape
    if broadcast(shape, wanted) != wanted:
        raise ValueError(f"shape {list(wanted)} must be one that {list(shape)} broadcasts to")
    return [wanted]


def _expand(node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, shape = present(inputs[0]), node.attributes(BroadcastAttributes).shape
    return [np.broadcast_to(aligned(x, len(shape)), (len(x), *shape)).copy()]


def _clip(node: Operation, x: FloatArray) -> FloatArray:
    attributes = node.attributes(ClipAttributes)
    return np.asarray(np.minimum(np.maximum(x, attributes.min), attributes.max))


def _function(node: Operation, x: FloatArray) -> FloatArray:
    attributes = node.attributes(FunctionAttributes)
    if (entries := getattr(attributes.domain, "at", None)) is not None:
        return np.asarray(entries(x))
    if attributes.segment is not None:
        return attributes.segment.evaluate(attributes.functions, x)
    return evaluate(attributes.functions, x)


class BinaryAttributes(NoAttributes):
    """Attributes of all operators of two operands."""

    constant: Annotated[
        FloatArray | None, Attribute("the operand that is no tensor; absent if there are two tensors", ARRAY)
    ] = None
    beyond: Annotated[
        float | None,
        Attribute(
            "what the NPU has as the constant beside elements that are none of the tensor's", NUMBER, beside="constant"
        ),
    ] = None

    @property
    def constant_first(self) -> bool:
        """True if the constant is the first operand."""
        return False


def names_of(node: Operation | None) -> tuple[str, ...]:
    """Names of the functions of a Function, in the order in which they are applied; none of another node."""
    return node.attributes(FunctionAttributes).names if node is not None and node.op == "Function" else ()


def codes_of(node: Operation) -> Codes:
    """Codes to which a FakeQuantize rounds."""
    return node.attributes(FakeQuantizeAttributes).quantization


def constant_of(node: Operation, *ops: str) -> FloatArray | None:
    """The constant of a node if its operator is one of ``ops``; ``None`` for all others, and for two tensors."""
    return node.attributes(BinaryAttributes).constant if node.op in ops else None


class SubAttributes(BinaryAttributes):
    """Attributes of a Sub."""

    reversed: Annotated[bool, Attribute("the constant is the first operand", FLAG, beside="constant")] = False

    @property
    def constant_first(self) -> bool:
        """True if the constant is the first operand."""
        return self.reversed


class ReductionAttributes(NoAttributes):
    """Attributes of all reductions."""

    axes: Annotated[tuple[int, ...], Attribute("along which elements are reduced to one", AXES)]
    keepdims: Annotated[bool, Attribute("axes stay, with length 1", FLAG)]


class SumAttributes(ReductionAttributes):
    """Attributes of a ReduceSum."""

    product: Annotated[bool, Attribute("the elements are products of a MatMul", FLAG)] = False
    together: Annotated[
        tuple[int, ...] | None, Attribute("axes that should become elements of one position of the result", AXES)
    ] = None


class ReduceMaxAttributes(ReductionAttributes):
    """Attributes of a ReduceMax."""

    masked: Annotated[bool, Attribute("elements of native vectors that are none of the tensor's are small", FLAG)] = (
        False
    )


class ClipAttributes(NoAttributes):
    """Attributes of a Clip."""

    min: Annotated[float, Attribute("may be -infinity", NUMBER)]
    max: Annotated[float, Attribute("may be infinity; where it is below min, it is the result", NUMBER)]


class FunctionAttributes(NoAttributes):
    """Attributes of a Function."""

    functions: Annotated[
        tuple[tuple[str, Mapping[str, float]], ...], Attribute("applied in this order", FUNCTION_PAIRS)
    ]
    domain: Annotated[Any, Attribute("least and greatest input there is, as far as that is known", INPUTS)] = None
    segment: Annotated[
        TableSegment | None, Attribute("inputs of this function, elsewhere the least number", SEGMENT)
    ] = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the functions, in this order."""
        return tuple(name for name, _ in self.functions)

    @property
    def spec(self) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
        """Names and parameters, these in the order of their names: what a table is told from others by."""
        return tuple((name, tuple(sorted(parameters.items()))) for name, parameters in self.functions)


class FakeQuantizeAttributes(NoAttributes):
    """Attributes of a FakeQuantize."""

    quantization: Annotated[
        Codes, Attribute("codes to which is rounded and limited; they are made values again", QUANTIZATION)
    ]
    stays: Annotated[bool, Attribute("no tensor of floats can take the place of its result", FLAG)] = False


class ScaleAttributes(NoAttributes):
    """Attributes of a ScaleAccumulators: codes of accumulators (:mod:`concord.golden.scale`)."""

    factor: Annotated[FloatArray, Attribute("whole numbers of 16 bits, broadcast to the input", ARRAY)]
    fraction: Annotated[FloatArray, Attribute("whole numbers of 16 bits with a sign, broadcast to the input", ARRAY)]
    shift: Annotated[int, Attribute("bits by which products move down", NOT_NEGATIVE)]
    unit: Annotated[int, Attribute("log2 of the unit of accumulators", INTEGER)]


class RoundAttributes(NoAttributes):
    """Attributes of a Round, to the nearest whole number, in the middle to the even one."""

    limited: Annotated[bool, Attribute("no input is beyond 512 in magnitude", FLAG)] = False


class SoftmaxAttributes(NoAttributes):
    """Attributes of a Softmax."""

    axis: Annotated[int, Attribute("along which the results add up to 1", AXIS)]


class LogSoftmaxAttributes(SoftmaxAttributes):
    """Attributes of a LogSoftmax."""

    axis: Annotated[int, Attribute("along which exp of the results adds up to 1", AXIS)]


class NormaliseAttributes(NoAttributes):
    """Attributes of a Normalise."""

    axes: Annotated[
        tuple[int, ...], Attribute("of the elements that are divided by the root of the mean of their squares", AXES)
    ]
    centred: Annotated[bool, Attribute("their mean is taken off before", FLAG)]
    epsilon: Annotated[float, Attribute("positive, added to the mean of the squares", NUMBER)]
    scale: Annotated[FloatArray, Attribute("broadcast to the input; the result is multiplied with it", ARRAY)]


class BatchNormAttributes(NoAttributes):
    """Attributes of a BatchNorm."""

    scale: Annotated[FloatArray, Attribute("[channels], the first axis behind the batch", ARRAY)]
    bias: Annotated[FloatArray, Attribute("[channels], the first axis behind the batch", ARRAY)]
    mean: Annotated[FloatArray, Attribute("[channels], the first axis behind the batch", ARRAY)]
    variance: Annotated[FloatArray, Attribute("[channels], the first axis behind the batch", ARRAY)]
    epsilon: Annotated[float, Attribute("positive, added to the variance", NUMBER)]
    momentum: Annotated[float, Attribute("share of the past in the running statistics, for training", NUMBER)]


class BroadcastAttributes(NoAttributes):
    """Attributes of operators that broadcast their input."""

    shape: Annotated[tuple[int, ...], Attribute("of the output, to which the input is broadcast", SIZES)]


class ExpandAttributes(BroadcastAttributes):
    """Attributes of an Expand."""

    like: Annotated[
        str, Attribute("broadcasts to the same shape: elements come to the lanes of those they meet", TENSOR)
    ]


class CopyAttributes(BroadcastAttributes):
    """Attributes of a Copy."""

    lanes: Annotated[int, Attribute("whose elements lie side by side", AXIS)]


class AlignGroupsAttributes(NoAttributes):
    """Attributes of an AlignGroups."""

    axes: Annotated[
        tuple[int, ...], Attribute("elements that differ along others come into native vectors of their own", AXES)
    ]


class GroupMeanAttributes(NoAttributes):
    """Attributes of a GroupMean."""

    axes: Annotated[tuple[int, ...], Attribute("elements that differ along these alone have one mean", AXES)]


def _group_mean(node: Operation, x: FloatArray) -> FloatArray:
    axes = tuple(axis + 1 for axis in node.attributes(GroupMeanAttributes).axes)
    return np.broadcast_to(x.mean(axis=axes, keepdims=True), x.shape).copy()


def _scale_accumulators(node: Operation, x: FloatArray) -> FloatArray:
    attributes = node.attributes(ScaleAttributes)
    most = 2.0 ** (SCALED_BITS_MAX - 1)
    units = np.clip(np.floor(np.ldexp(x, -attributes.unit)), -most, most - 1)
    return scaled(units, attributes.factor, attributes.fraction, attributes.shift).astype(np.float64)


def _positive(node: Operation, inputs: Sequence[bool]) -> bool:
    return True


def _clip_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    attributes = node.attributes(ClipAttributes)
    return bool(min(attributes.min, attributes.max) >= 0)


def _function_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    return function(node.attributes(FunctionAttributes).names[-1]).never_negative


def _sum_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    """A constant that is added may be a bias, which training changes."""
    return all(inputs) and node.attributes(BinaryAttributes).constant is None


def _sign_with_constant(of: Callable[[list[bool]], bool]) -> SignRule:
    """``of`` whether each operand, a constant among them, is never negative."""

    def rule(node: Operation, inputs: Sequence[bool]) -> bool:
        constant = node.attributes(BinaryAttributes).constant
        return of([*inputs] if constant is None else [*inputs, bool(np.min(constant, initial=0.0) >= 0)])

    return rule


def _fake_quantize_shape(node: Operation, inputs: Shapes) -> list[Shape]:
    shape, quantization = present(inputs[0]), codes_of(node)
    axis = quantization.axis
    if axis is not None and (axis >= len(shape) or len(quantization.scales) != shape[axis]):
        raise ValueError(f"shape {list(shape)} must have a scale per index of axis {axis}")
    return [shape]


def _fake_quantize_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    low, _ = codes_of(node).offsets
    return all(inputs) or bool((low >= 0).all())


def _product_macs(node: Operation, inputs: Shapes, outputs: Shapes) -> int:
    """A sum of elements that are products of a MatMul."""
    return prod(present(inputs[0])) if node.attributes(SumAttributes).product else 0


def _compared(a: FloatArray, b: FloatArray) -> FloatArray:
    """The sign of the difference; 0 where one is NaN."""
    return np.subtract(a > b, a < b, dtype=np.float64)


#: Operators that compute every element of their result from the elements at its place.
_each = partial(Operator, batchable=True, layout_sensitive=False)
#: Products with ones, or with a matrix of zeros and ones.
_sums = partial(Operator, OperatorKind.QUANTISED, rises=True, never_negative=keeps_sign)


def _of_two(
    ufunc: Callable[[FloatArray, FloatArray], FloatArray],
    never_negative: SignRule = any_sign,
    record: type[BinaryAttributes] = BinaryAttributes,
) -> Operator:
    """An operator of two operands, one of which may be a constant."""
    evaluation = partial(evaluate_binary, ufunc)
    return _each(OperatorKind.PRECISE, record, broadcast_shape, evaluation, never_negative=never_negative)


ELEMENTWISE_OPS = {
    "Relu": _each(
        OperatorKind.MOVING,
        NoAttributes,
        _same_shape,
        _unary(lambda node, x: np.maximum(x, 0.0)),
        rises=True,
        never_negative=_positive,
    ),
    "Clip": _each(
        OperatorKind.PRECISE, ClipAttributes, _same_shape, _unary(_clip), rises=True, never_negative=_clip_sign
    ),
    "Function": _each(
        OperatorKind.PRECISE, FunctionAttributes, _same_shape, _unary(_function), never_negative=_function_sign
    ),
    "FakeQuantize": _each(
        OperatorKind.PRECISE,
        FakeQuantizeAttributes,
        _fake_quantize_shape,
        _unary(lambda node, x: codes_of(node).rounded(x)),
        rises=True,
        never_negative=_fake_quantize_sign,
    ),
    "ScaleAccumulators": _each(
        OperatorKind.PRECISE, ScaleAttributes, _same_shape, _unary(_scale_accumulators), rises=True
    ),
    "Round": _each(
        OperatorKind.PRECISE,
        RoundAttributes,
        _same_shape,
        _unary(lambda node, x: np.rint(x)),
        rises=True,
        never_negative=keeps_sign,
    ),
    "Sign": _each(
        OperatorKind.PRECISE,
        NoAttributes,
        _same_shape,
        _unary(lambda node, x: np.sign(x)),
        rises=True,
        never_negative=keeps_sign,
    ),
    "Add": _of_two(np.add, _sum_sign),
    "Sub": _of_two(np.subtract, record=SubAttributes),
    # Of operands that no instruction has computed: numbers as they are where the host does it, else of binary16.
    "Compare": _of_two(_compared, record=SubAttributes),
    "Mul": _of_two(np.multiply, _sign_with_constant(all)),
    "Max": _of_two(np.maximum, _sign_with_constant(any)),
    "Min": _of_two(np.minimum, _sign_with_constant(all)),
    "Softmax": Operator(
        OperatorKind.PRECISE,
        SoftmaxAttributes,
        _along_axes("axis"),
        _unary(partial(_softmax, host_softmax)),
        layout_sensitive=False,
        host_partition=True,
        never_negative=_positive,
    ),
    "LogSoftmax": Operator(
        OperatorKind.PRECISE,
        LogSoftmaxAttributes,
        _along_axes("axis"),
        _unary(partial(_softmax, host_log_softmax)),
        layout_sensitive=False,
        host_partition=True,
    ),
    "Normalise": Operator(OperatorKind.PRECISE, NormaliseAttributes, _along_axes("axes"), _unary(_normalise)),
    "BatchNorm": Operator(OperatorKind.PRECISE, BatchNormAttributes, _channel_shape, _unary(_batch_norm)),
    "ReduceMean": _sums(ReductionAttributes, _reduced_shape, _reduction(np.mean), macs=no_macs),
    "ReduceSum": _sums(SumAttributes, _reduced_shape, _reduction(np.sum), macs=_product_macs),
    "ReduceMax": Operator(
        OperatorKind.MOVING,
        ReduceMaxAttributes,
        _reduced_shape,
        _reduction(np.max),
        rises=True,
        never_negative=keeps_sign,
    ),
    "Expand": _sums(ExpandAttributes, _expand_shape, _expand, macs=no_macs),
    # What stands in front of an operator that does not find elements where it needs them.
    "Copy": _sums(CopyAttributes, _expand_shape, _expand, macs=no_macs),
    "AlignGroups": _sums(AlignGroupsAttributes, _along_axes("axes"), _unary(lambda node, x: x), macs=no_macs),
    # A mean that stands in the place of each of the elements that it is of.
    "GroupMean": _sums(GroupMeanAttributes, _along_axes("axes"), _unary(_group_mean), macs=no_macs),
}
