"""Read an ONNX file and find out the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from concord.frontend.limits import LARGEST_TENSOR, MOST_NODES
from concord.frontend.qonnx import import_domains, in_standard_form
from concord.graph.element_types import ELEMENT_TYPES
from concord.graph.ir import Shape
from concord.graph.passes.order import depth_first
from concord.utils import foreign

OLDEST_OPSET = 7


def serialized(model: Any) -> bytes:
    """The contents of an ONNX file: of the file with this name, these bytes, a ``ModelProto`` or what has one.

    Raises
    ------
    TypeError
        If it is something else: what it is, and how to make ONNX of it.
    ValueError
        If a file is no ONNX: what it is, and how to make ONNX of it.
    """
    if isinstance(model, str | PathLike):
        return one_file(Path(model))
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model)
    return bytes(_proto(model).SerializeToString())


def _proto(model: Any) -> Any:
    """The ``ModelProto`` that an object is, or has: exporters return objects that have one."""
    import onnx

    for proto in (model, getattr(model, "model_proto", None)):
        if isinstance(proto, onnx.ModelProto):
            return proto
    kind = foreign.of_object(model)
    raise TypeError(f"model must be an ONNX model, not {kind}")


def load(model: str | Path | bytes | Any) -> Any:
    """Return the checked ``ModelProto`` of a file, or of its contents; one that is given is copied.

    Raises
    ------
    TypeError
        If it is no file, no bytes and no ``ModelProto``.
    ValueError
        If it is no valid ONNX, or older than opset 7.
    UnsupportedModel
        If operators of QONNX have no standard form.
    """
    import onnx
    from google.protobuf.message import DecodeError  # onnx brings it

    try:
        if isinstance(model, str | Path):
            proto = _read(Path(model))
        elif isinstance(model, bytes):
            _check_kind(foreign.of_bytes(model), "the model")
            proto = onnx.load_model_from_string(model)
        else:
            proto = onnx.ModelProto()
            proto.CopyFrom(_proto(model))
        import_domains(proto)
        for value in proto.graph.input:
            _settle_shape(value, True)
        for value in proto.graph.output:
            _settle_shape(value, False)
        onnx.checker.check_model(proto)
    except (DecodeError, UnicodeDecodeError, onnx.checker.ValidationError) as error:
        raise _invalid(model if isinstance(model, str | Path) else "the model", error) from error
    if (count := node_count(proto)) > MOST_NODES:
        calls = ", with the nodes of every function wherever it is called" if proto.functions else ""
        raise ValueError(
            f"model must have at most {MOST_NODES:,} nodes{calls}, not {_short(count)}: a program has an "
            "instruction or more for most of them; simplify it, or leave loops to the host"
        )
    if proto.functions:
        proto = _inlined(proto)
    if opset(proto) < OLDEST_OPSET:
        raise ValueError(
            f"opset must be {OLDEST_OPSET} or later, not {opset(proto)}; convert it with onnx.version_converter"
        )
    in_standard_form(proto)
    return proto


def node_count(proto: Any) -> int:
    """Nodes that a model has once its functions are inlined, counted without doing so.

    Raises
    ------
    ValueError
        If a function calls itself.
    """
    functions = {(item.domain, item.name, item.overload): item for item in proto.functions}
    counts: dict[tuple[str, str, str], int] = {}
    open_calls: set[tuple[str, str, str]] = set()

    def of(nodes: Any) -> int:
        """Nodes, those of functions that they call, and those of bodies of control flow."""
        total = 0
        for node in nodes:
            bodies = [item.g for item in node.attribute if item.HasField("g")]
            total += of_call((node.domain, node.op_type, node.overload)) + sum(of(body.node) for body in bodies)
        return total

    def of_call(key: tuple[str, str, str]) -> int:
        if key not in functions:
            return 1
        if key in open_calls:
            raise ValueError(f"function {key[1]!r} must not call itself, also not by way of others")
        if key not in counts:
            open_calls.add(key)
            counts[key] = of(functions[key].node)
            open_calls.remove(key)
        return counts[key]

    return of(proto.graph.node)


def _short(count: int) -> str:
    """A count, with a power of two in the place of very many digits."""
    return f"{count:,}" if count < 1 << 40 else f"2^{count.bit_length() - 1} or more"


def _inlined(proto: Any) -> Any:
    """The model without functions; nodes are in their order before, as names inside of functions are numbered."""
    from onnx.inliner import inline_local_functions

    nodes = [proto.graph.node[k] for k in live_order(proto.graph)]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return inline_local_functions(proto)


def live_order(graph: Any) -> list[int]:
    """Numbers of the nodes that an output depends on, in the order of :mod:`concord.graph.passes.order`.

    A file may list its nodes in many orders; names, messages and programs do not depend on which one it is.
    """
    producers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    operands = {
        k: [producers[name] for name in (*node.input, *captured(node)) if name in producers]
        for k, node in enumerate(graph.node)
    }
    return list(depth_first([producers[item.name] for item in graph.output if item.name in producers], operands))


def captured(node: Any) -> list[str]:
    """Names that the bodies of control flow read."""
    bodies = [item.g for item in node.attribute if item.HasField("g")]
    return [name for body in bodies for inner in body.node for name in (*inner.input, *captured(inner))]


def one_file(model: Path) -> bytes:
    """The contents of a model, or contents with all of its tensors where some are in files beside it.

    Raises
    ------
    ValueError
        If it is no ONNX, or a file is missing.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto, data = _read(model), model.read_bytes()
        return data if onnx.load_model_from_string(data) == proto else bytes(proto.SerializeToString())
    except (DecodeError, UnicodeDecodeError, onnx.checker.ValidationError) as error:
        raise _invalid(model, error) from error


def _read(path: Path) -> Any:
    """The model in a file, whatever that is called; what is no ONNX by its contents or its name is named."""
    import onnx
    from google.protobuf.message import DecodeError

    _check_kind(foreign.of_file(path), str(path))
    try:
        proto = onnx.load(path, format="protobuf")
    except (DecodeError, UnicodeDecodeError):
        _check_kind(foreign.by_name(path), str(path))
        raise
    if not proto.ir_version:
        _check_kind(foreign.by_name(path), str(path))
    return proto


def _check_kind(kind: foreign.Foreign | None, what: str) -> None:
    if kind is not None:
        raise ValueError(f"{what} must be an ONNX model, not {kind}")


def _invalid(what: str | Path, error: Exception) -> ValueError:
    text = "a name in it is not UTF-8" if isinstance(error, UnicodeDecodeError) else " ".join(str(error).split())
    return ValueError(f"{what} must be valid ONNX: {text}")


def _settle_shape(value: Any, is_input: bool) -> None:
    """onnx asks for a shape of every output, even though it follows from the nodes; inputs need one indeed."""
    if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
        if is_input:
            raise ValueError(f"input {value.name!r} must have a shape; each of its dimensions may be open")
        value.type.tensor_type.shape.SetInParent()


def opset(proto: Any) -> int:
    """Version of the standard operators."""
    return max([item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")], default=1)


def input_values(proto: Any) -> list[Any]:
    """Inputs that are not initialisers."""
    constant = {item.name for item in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in constant]


def texts_of_model(proto: Any) -> list[str]:
    """The texts that operators of a model compare with, each one once; those in bodies of control flow, too."""
    from onnx import TensorProto

    def lists(graph: Any) -> Iterator[Sequence[bytes]]:
        for item in (item for node in graph.node for item in node.attribute):
            if item.HasField("g"):
                yield from lists(item.g)
            elif item.name in ("cats_strings", "keys_strings", "pool_strings"):
                yield item.strings
            elif item.name == "keys_tensor" and item.t.data_type == TensorProto.STRING:
                yield item.t.string_data

    return list(dict.fromkeys(text.decode(errors="replace") for texts in lists(proto.graph) for text in texts))


def of_texts(value: Any) -> bool:
    """True if an input is a tensor of texts."""
    from onnx import TensorProto

    return bool(value.type.tensor_type.elem_type == TensorProto.STRING)


def input_type(value: Any) -> str | None:
    """The type of the elements of an input, ``None`` for floats; of texts that of their places."""
    return "int64" if of_texts(value) else element_type(value.type.tensor_type.elem_type)


def input_shapes(
    values: Sequence[Any], wanted: Mapping[str, Sequence[int]], texts: bool = False
) -> tuple[dict[str, Shape], list[str]]:
    """Shapes for one sample, and why there are none for the other inputs.

    Inputs may be texts if the model knows some. A symbolic first dimension is the batch, which is 1, as is every other
    dimension of the same name.

    Raises
    ------
    ValueError
        If a shape is given for what is no input, or does not fit.
    """
    if unknown := sorted(set(wanted) - {value.name for value in values}):
        raise ValueError(f"shapes must be of inputs {[value.name for value in values]}, not {unknown}")
    dims = {value.name: list(value.type.tensor_type.shape.dim) for value in values}
    batch = {d[0].dim_param for d in dims.values() if d and not is_fixed(d[0])} - {""}
    shapes: dict[str, Shape] = {}
    reasons = []
    for value in values:
        reason = None if texts and of_texts(value) else _type_reason(value)
        if reason is None and value.name in wanted:
            shapes[value.name] = chosen_shape(value.name, wanted[value.name], dims[value.name])
        elif reason is None:
            sizes = [_size(dim, axis, batch) for axis, dim in enumerate(dims[value.name])]
            shapes[value.name] = tuple(size for size in sizes if isinstance(size, int))
            open_dims = [size for size in sizes if isinstance(size, str)]
            reason = (
                f"{', '.join(open_dims)} must be fixed; --shape {value.name}="
                f"{','.join(str(size) if isinstance(size, int) else 'SIZE' for size in sizes)} does so"
                if open_dims
                else None
            )
            if reason is None and prod(shapes[value.name]) > LARGEST_TENSOR:
                reason = f"must have at most {LARGEST_TENSOR} elements, not {prod(shapes[value.name])}; make it smaller"
            if 0 in sizes:
                reason = f"dimension {sizes.index(0)} must be at least 1, not 0; there is nothing to compute"
        if reason is not None:
            shapes.pop(value.name, None)
            reasons.append(f"input '{value.name}': {reason}")
    return shapes, reasons


def _type_reason(value: Any) -> str | None:
    import onnx

    kind = (value.type.WhichOneof("value") or "unknown").removesuffix("_type")
    if kind == "tensor":
        try:
            element_type(value.type.tensor_type.elem_type)
            return None
        except ValueError:
            kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    return f"must be a tensor of numbers, not {kind}; convert it outside the model"


def element_type(number: int) -> str | None:
    """The type that a number of ``onnx.TensorProto`` stands for; ``None`` for floats.

    Raises
    ------
    ValueError
        For types that are no numbers of up to 64 bits, such as strings.
    """
    from onnx import TensorProto, helper

    if number in FLOAT_TYPES:
        return None
    known = number in TensorProto.DataType.values() and number != TensorProto.UNDEFINED
    name = np.dtype(helper.tensor_dtype_to_np_dtype(number)).name if known else ""
    if name not in ELEMENT_TYPES:
        kind = TensorProto.DataType.Name(number) if known else f"type {number}"
        raise ValueError(f"elements must be numbers, not {kind}")
    return name


def _size(dim: Any, axis: int, batch: set[str]) -> int | str:
    """Size of a dimension, or its name if it is open."""
    if is_fixed(dim):
        return int(dim.dim_value)
    if axis == 0 or dim.dim_param in batch:
        return 1
    return f"dimension {axis} {dim.dim_param!r}" if dim.dim_param else f"dimension {axis}"


def is_fixed(dim: Any) -> bool:
    """True if a dimension has a size; some exporters write -1 where they leave it open."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def chosen_shape(name: str, shape: Sequence[int], dims: Sequence[Any]) -> Shape:
    """A shape that goes with the dimensions that a model has; ``ValueError`` if it does not."""
    fixed = [dim.dim_value if is_fixed(dim) else None for dim in dims]
    fits = not dims or (len(shape) == len(fixed) and all(f in (None, s) for f, s in zip(fixed, shape, strict=True)))
    if not fits or any(size < 1 for size in shape):
        raise ValueError(f"shape of {name!r} must go with {[f or 'any' for f in fixed]}, not {list(shape)}")
    return tuple(int(size) for size in shape)


#: Stands for all texts that a model does not know; no text of a model is it.
OTHER_TEXT = "\0"
#: Element types that are read as floats, FLOAT, FLOAT16, DOUBLE and BFLOAT16 of ``onnx.TensorProto``, with the types of
#: results in NumPy, which has no bfloat16.
FLOAT_TYPES = {1: "float32", 10: "float16", 11: "float64", 16: "float32"}
