"""A quantised network from ONNX to an integer graph: QDQ form, and operators that read and make codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from concord.frontend.codes.code_limits import limited_by_reader
from concord.frontend.codes.fusion import Fusion
from concord.frontend.codes.model_values import ConstantCodes, MovedInput
from concord.frontend.codes.operators import OPERATORS, PASSED, Operator
from concord.frontend.codes.quantised import in_pairs
from concord.frontend.codes.reading import PAIR, Reading
from concord.frontend.codes.shape_values import is_folded
from concord.frontend.codes.uses import Uses
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal, UnsupportedModel
from concord.frontend.load import FLOAT_TYPES, input_values, is_fixed, live_order, opset
from concord.frontend.load import load as load_proto
from concord.frontend.quantised_operators import MICROSOFT
from concord.frontend.quantization import code_type, type_name
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation, live
from concord.integer.operations import CodeConstant
from concord.transfer import CodeRange, Codes
from concord.transfer.targets import MAX_BITS


class UnquantisedModel(ValueError):
    """The model cannot be executed on codes alone.

    Parameters
    ----------
    name : str
        Of the model.
    reasons : sequence of str
        Everything that is in the way, with its place and what helps.
    """

    def __init__(self, name: str, reasons: Sequence[str]):
        self.reasons = list(reasons)
        super().__init__(f"{name} cannot be executed in integers:" + "".join(f"\n  {reason}" for reason in reasons))


Node = TypeVar("Node", bound=OnnxNode)
#: Bits of the largest ratio of scales of the blocks of a channel.
_BLOCK_BITS = 16


def quantize(ctx: Reading, node: OnnxNode) -> None:
    """QuantizeLinear: codes of an input, or of what stands in front."""
    x, output, dtype = node.input(0), node.outputs[0], code_type(ctx, node)
    if x in ctx.constants and ctx.constants[x].dtype == np.float32:
        ctx.constants[output] = _codes_of_constant(ctx, node, dtype)
        return
    output, scheme = limited_by_reader(ctx, output, ctx.scheme(node, 1, dtype))
    quantize_as(ctx, node, scheme, output)


def quantize_as(ctx: Reading, node: OnnxNode, scheme: Codes, output: str) -> None:
    """Codes of a scheme of the first operand of a node."""
    x = node.input(0)
    if x in ctx.floats:
        ctx.quantised_input(x, scheme, output)
    elif x in ctx.wide and not ctx.are_codes(x):
        ctx.quantised_numbers(x, scheme, output)
    elif x in ctx.open:
        ctx.quantised(x, scheme, output)
    else:
        ctx.convert(node, ctx.codes(x), scheme, output)


def _codes_of_constant(ctx: Reading, node: OnnxNode, dtype: str) -> NDArray[Any]:
    """The codes of a constant, with one scale or one for each index of an axis."""
    numbers, scale = ctx.constants[node.input(0)], ctx.constant(node.input(1), "scale").astype(np.float32)
    if scale.size > 1 and (scale.ndim > 1 or node.attrs.get("block_size", 0)):
        raise Refusal("constants must have one scale, or one for each channel", "fold constants, as onnxsim does")
    axis = int(node.attrs.get("axis", 1)) % max(numbers.ndim, 1)
    shape = [-1 if k == axis else 1 for k in range(numbers.ndim)] if scale.size > 1 else []
    kind = np.dtype(dtype) if not node.input(2) else ctx.constants[node.input(2)].dtype
    match = re.fullmatch(r"(u?)int(\d+)", kind.name)
    if match is None:
        raise Refusal(f"codes must be integers, not {kind}", "quantise to int8")
    codes = CodeRange.of(not match[1])
    with np.errstate(over="ignore"):
        steps = np.rint(numbers / scale.reshape(shape)).astype(np.float64)
    return (steps + ctx.zero_point(node, 2, scale).reshape(shape)).clip(*codes.ends(int(match[2]))).astype(kind)


def dequantize(ctx: Reading, node: OnnxNode) -> None:
    """DequantizeLinear: a constant, or codes with the scale they were made with."""
    x, output = node.input(0), node.outputs[0]
    if x in ctx.constants:
        ctx.weights[output] = _constant_codes(ctx, node)
        return
    if x in ctx.types:
        ctx.graph.inputs[x] = x
        if x not in ctx.graph.schemes:
            ctx.graph.schemes[x] = ctx.scheme(node, 1, type_name(ctx.types[x]))
    codes = ctx.codes(x)
    known = ctx.scheme_of(codes)
    if ctx.step(node, 1) != (float(known.scale), known.zero):
        raise Refusal("scale and zero point must be those of QuantizeLinear", "give both the same constants")
    ctx.decoded[output] = codes


def _constant_codes(ctx: Reading, node: OnnxNode) -> ConstantCodes:
    """Constants less their zero points."""
    codes = ctx.constants[node.input(0)]
    if not codes.dtype.name.removeprefix("u").startswith("int"):
        raise Refusal(f"codes must be integers, not {codes.dtype}", "quantise to int8")
    scale = ctx.constant(node.input(1), "scale")
    zero = ctx.zero_point(node, 2, scale)
    if block := int(node.attrs.get("block_size", 0)):
        return _codes_of_blocks(codes.astype(np.int64), scale, zero, int(node.attrs.get("axis", 1)), block)
    axis = int(node.attrs.get("axis", 1)) if scale.size > 1 else None
    shape = [-1 if k == (axis or 0) % max(codes.ndim, 1) else 1 for k in range(codes.ndim)] if scale.size > 1 else []
    bits = int(codes.dtype.name.lstrip("uint"))
    scheme = ctx.scheme(node, 1, codes.dtype.name) if axis is None and bits <= MAX_BITS else None
    offsets = codes.astype(np.int64) - zero.reshape(shape)
    return ConstantCodes(offsets, scale.astype(np.float32).reshape(-1), axis, scheme)


def _codes_of_blocks(
    codes: NDArray[np.int64], scale: NDArray[Any], zero: NDArray[np.int64], axis: int, block: int
) -> ConstantCodes:
    """A matrix with a scale for each block of a channel: whole multiples of the smallest one become part of it."""
    remedy = "quantise per channel, or compile it for the NPU, which folds such weights"
    blocks = [-(-size // block) if k == axis % 2 else size for k, size in enumerate(codes.shape)]
    if codes.ndim != 2 or list(scale.shape) != blocks or zero.shape != scale.shape:
        reason = f"weights must be a matrix with a scale for each block of {block}"
        raise Refusal(f"{reason}, not of shapes {list(codes.shape)} and {list(scale.shape)}", remedy)
    scales, place = scale.astype(np.float32), [slice(None)] * 2
    place[axis] = slice(codes.shape[axis])
    least = scales.min(axis=axis, keepdims=True)
    if not (np.isfinite(scales).all() and least.min() > 0):
        raise Refusal("scales of blocks must be positive and finite", remedy)
    factors = scales.astype(np.float64) / least
    if not np.array_equal(factors, np.rint(factors)):
        raise Refusal("scales of blocks must be whole multiples of the smallest one of their channel", remedy)
    if factors.max() >= 1 << _BLOCK_BITS:
        raise Refusal(f"scales of the blocks of a channel must differ by less than 2**{_BLOCK_BITS}", remedy)
    offsets, multiples = (np.repeat(numbers, block, axis)[tuple(place)] for numbers in (zero, factors.astype(np.int64)))
    return ConstantCodes((codes - offsets) * multiples, least.reshape(-1), 1 - axis if least.size > 1 else None, None)


_QUANTISERS: dict[str, Operator] = {"QuantizeLinear": quantize, "DequantizeLinear": dequantize}


def _operator(node: OnnxNode) -> Operator:
    """Reader of a node; ``Refusal`` if there is none."""
    if (node.standard or node.proto.domain == MICROSOFT) and node.op in _QUANTISERS:
        return _QUANTISERS[node.op]
    if node.standard and node.op in OPERATORS:
        return OPERATORS[node.op]
    raise Refusal("is not an operator on codes", "end the network in front of it, with outputs=[...]")


def import_integer_graph(
    model: str | Path | bytes | Any, outputs: Sequence[str] | None = None, optimised: bool = True
) -> IntegerGraph:
    """Read a quantised network.

    Parameters
    ----------
    model : path, bytes or ModelProto
        ONNX in QDQ form, or with operators that read and make codes.
    outputs : sequence of str, optional
        Tensors of the model at which the network ends; those of the model if it is left out.
    optimised : bool
        Whether operators between pairs are rounded as ONNX Runtime does it with its optimisations on x86, or one after
        the other in binary32, as ``onnx.reference`` does it.

    Raises
    ------
    UnquantisedModel
        If an operator reads floats, or is none on codes: every reason.
    ValueError
        If it is no valid ONNX, or an output is no tensor of it.
    """
    from onnx import numpy_helper

    try:
        proto = load_proto(model)
    except UnsupportedModel as error:
        raise UnquantisedModel(Path(model).name if isinstance(model, str | Path) else "model", error.reasons) from error
    if outputs is not None:
        _end_at(proto, outputs)
    nodes = [OnnxNode(proto.graph.node[k]) for k in live_order(proto.graph)]
    constants = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
    constants |= {node.outputs[0]: _constant(node) for node in nodes if _is_constant(node)}
    nodes = [node for node in nodes if not _is_constant(node)]
    values = {value.name: value.type.tensor_type.elem_type for value in input_values(proto)}
    dims = {value.name: value.type.tensor_type.shape.dim for value in input_values(proto)}
    floats = {name: MovedInput(name) for name, kind in values.items() if kind in FLOAT_TYPES}
    graph = IntegerGraph(Path(model).name if isinstance(model, str | Path) else proto.graph.name or "model")
    types = {name: kind for name, kind in values.items() if name not in floats}
    graph.shapes.update({name: tuple(dim.dim_value if is_fixed(dim) else None for dim in dims[name]) for name in dims})
    names = {*constants, *values, *(name for node in nodes for name in node.outputs)}
    uses = Uses(nodes, [item.name for item in proto.graph.output], constants, PASSED)
    kinds = {name: type_name(kind) for name, kind in types.items()}
    fusion = Fusion(nodes, uses, constants, kinds, optimised)
    ctx = Reading(graph, opset(proto), constants, floats, types, names, uses, fusion)
    return read_nodes(ctx, nodes, [item.name for item in proto.graph.output], read_node)


def read_node(ctx: Reading, node: OnnxNode) -> None:
    """Read a node, or the nodes that it stands for."""
    for part in in_pairs(ctx, node) or [node]:
        if not is_folded(ctx, part):
            _operator(part)(ctx, part)


def read_nodes(
    ctx: Reading,
    nodes: Sequence[Node],
    outputs: Sequence[str],
    read: Callable[[Any, Node], None],
    refused: Sequence[str] = (),
) -> IntegerGraph:
    """The graph of nodes in their order, with some tensors as its outputs.

    Raises
    ------
    UnquantisedModel
        What is ``refused`` already, every reason for which ``read`` refuses a node or for which an output is none.
    """
    graph, reasons = ctx.graph, [*refused]
    unknown: set[str] = set()
    for node in nodes:
        if unknown.intersection(node.inputs):
            unknown.update(node.outputs)
        else:
            try:
                read(ctx, node)
            except Refusal as refusal:
                reasons.append(f"{node.label} {node.name!r}: {refusal}")
                unknown.update(node.outputs)
    for name in outputs:
        if name not in unknown:
            try:
                known = ctx.are_codes(name) or not ctx.are_numbers(name)
                graph.outputs[name] = ctx.codes(name) if known else ctx.numbers(name)
            except Refusal:
                reasons.append(f"output {name!r}: must be codes; {PAIR.replace('in front of', 'behind')}")
    operations = _with_constants(live(graph))
    constants = {operation.output for operation in operations if isinstance(operation, CodeConstant)}
    for name, tensor in graph.outputs.items():
        if tensor in constants:
            reasons.append(f"output {name!r}: must follow from an input; compute it outside the model")
    if reasons:
        raise UnquantisedModel(graph.name, reasons)
    return graph.with_operations(operations)


def _with_constants(operations: Sequence[IntegerOperation]) -> list[IntegerOperation]:
    """The operations, with a constant in the place of each that reads constants alone."""
    constants: dict[str, Integers] = {}
    made: list[IntegerOperation] = []
    for operation in operations:
        if all(name in constants for name in operation.inputs):
            value = operation.run(*(constants[name] for name in operation.inputs))
            constants[operation.output] = value
            operation = CodeConstant(name=operation.name, inputs=(), output=operation.output, value=value)
        made.append(operation)
    return made


def _is_constant(node: OnnxNode) -> bool:
    return node.op == "Constant" and node.standard


def _constant(node: OnnxNode) -> NDArray[Any]:
    from onnx import numpy_helper

    if "value" in node.attrs:
        return np.asarray(numpy_helper.to_array(node.attrs["value"]))
    (name, value), *_ = node.attrs.items()
    return np.asarray(value, dtype=np.float32 if name.startswith("value_float") else np.int64)


def _end_at(proto: Any, outputs: Sequence[str]) -> None:
    """Make tensors of a model its outputs."""
    known = {name for node in proto.graph.node for name in node.output} | {item.name for item in proto.graph.input}
    checked = check_known(outputs, known)
    del proto.graph.output[:]
    for name in checked:
        proto.graph.output.add().name = name


def check_known(outputs: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """The outputs that are wanted; ``ValueError`` if one is no tensor of the model."""
    if unknown := sorted(set(outputs).difference(known)):
        raise ValueError(f"outputs must be tensors of the model, not {unknown}")
    return outputs
