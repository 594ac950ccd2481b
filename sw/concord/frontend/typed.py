"""An ONNX file with the decisions of the data-type pass in it [dtype-pass].

A conversion that several readers share is a node of the function ``concord.ToNarrow``, which the file defines. It hands
on what it reads, so the file computes what it did before, to the bit, wherever ONNX runs. It marks the place where an
NPU multiplies by the attribute ``factor`` and rounds to mantissas; how many there are, and which share an exponent,
depends on the configuration of an NPU and is no matter of the types.

Everything else is metadata, under these keys:

=============================  ==========================================================================
of a tensor                    ``concord:factors``, ``concord:type``
of a node that is a product    ``concord:form``
of a node ``ToNarrow``         ``concord:readers``: nodes of the graph that read narrow
of the model                   ``concord:types``: all rows of the table as JSON; ``concord:conversions_from``
=============================  ==========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from concord.frontend.context import OnnxNode, unused_name
from concord.frontend.load import load, opset
from concord.graph.ir import Graph
from concord.graph.passes.dtype_report import TensorTypes
from concord.graph.passes.dtypes import Conversion, Input, Types
from concord.utils.grouping import by_key

#: Domain and name of the function that is a conversion.
DOMAIN, FUNCTION = "concord", "ToNarrow"
#: Beginning of keys of metadata.
_PREFIX = f"{DOMAIN}:"
#: The first version of the format in which tensors and nodes have metadata.
_IR_VERSION = 10


@dataclass(frozen=True)
class TypedModel:
    """An ONNX file with types.

    Parameters
    ----------
    data : bytes
        The file.
    conversions : tuple of str
        Tensors that shared conversions make, in the order of the file.
    left_out : tuple of str
        Conversions that are no nodes, because the file has no such place; a line each, with the reason.
    """

    data: bytes
    conversions: tuple[str, ...]
    left_out: tuple[str, ...]


def typed_model(
    model: bytes, graph: Graph, types: Types, rows: Sequence[TensorTypes], conversions_from: int = 1
) -> TypedModel:
    """Write the decisions of the pass into a model.

    Parameters
    ----------
    model : bytes
        The ONNX file. Functions in it are written out; what an earlier call has written into it is replaced.
    graph : Graph
        What :func:`concord.frontend.import_model` makes of it.
    types : Types
        What the pass has decided for that.
    rows : sequence of TensorTypes
        The same as a table.
    conversions_from : int
        The set number that it was decided with.

    Returns
    -------
    TypedModel
        It passes ``onnx.checker``, and computes the same bits as the model.
    """
    import onnx

    proto = onnx.load_model_from_string(model)
    _forget(proto)
    if proto.functions:
        proto = load(proto)
    proto = onnx.shape_inference.infer_shapes(proto)
    _complete_outputs(proto, graph)
    proto.ir_version = max(proto.ir_version, _IR_VERSION)
    places = _Places(proto, graph)
    made, left_out = [], []
    for conversion in types.conversions:
        if reason := places.missing(conversion):
            left_out.append(f"the conversion of {conversion.tensor!r} is no node of the file: {reason}")
        else:
            made.append(_insert(proto, places, conversion))
    if made:
        if DOMAIN not in {item.domain for item in proto.opset_import}:
            proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        proto.functions.append(_function(opset(proto)))
    _note(proto, types, rows)
    _annotate(proto, {"types": json.dumps([asdict(row) for row in rows]), "conversions_from": str(conversions_from)})
    onnx.checker.check_model(proto)
    return TypedModel(bytes(proto.SerializeToString()), tuple(made), tuple(left_out))


def _complete_outputs(proto: Any, graph: Graph) -> None:
    """Give outputs without a shape as many open dimensions as they have: the checker asks for a shape."""
    for value in proto.graph.output:
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and not tensor.HasField("shape"):
            tensor.shape.SetInParent()
            for _ in graph.shapes[value.name]:
                tensor.shape.dim.add()


def _forget(proto: Any) -> None:
    """Take off what an earlier call has written: types may be others now."""
    graph = proto.graph
    converted = {node.output[0]: node.input[0] for node in graph.node if _is_conversion(node)}
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = converted.get(name, name)
    _keep(graph.node, lambda node: not _is_conversion(node))
    _keep(graph.value_info, lambda value: value.name not in converted)
    _keep(proto.functions, lambda function: (function.domain, function.name) != (DOMAIN, FUNCTION))
    for part in (proto, *graph.node, *graph.input, *graph.value_info, *graph.output):
        kept = {item.key: item.value for item in part.metadata_props if not item.key.startswith(_PREFIX)}
        del part.metadata_props[:]
        for key, value in kept.items():
            part.metadata_props.add(key=key, value=value)


def _is_conversion(node: Any) -> bool:
    return (node.domain, node.op_type) == (DOMAIN, FUNCTION)


def _keep(parts: Any, wanted: Callable[[Any], bool]) -> None:
    """Take the other parts off a repeated field."""
    for index in reversed(range(len(parts))):
        if not wanted(parts[index]):
            del parts[index]


def _function(version: int) -> Any:
    from onnx import helper

    body = [helper.make_node("Identity", ["x"], ["y"])]
    opsets = [helper.make_opsetid("", version)]
    return helper.make_function(
        DOMAIN,
        FUNCTION,
        ["x"],
        ["y"],
        body,
        opsets,
        ["factor"],
        doc_string="x, converted to narrow once for all who read y: an NPU multiplies by factor and rounds",
    )


class _Places:
    """Edges of the file that inputs of nodes of the graph are.

    Parameters
    ----------
    proto : ModelProto
        The file.
    graph : Graph
        What was made of it: nodes may stand for several of the file, and several for one of it.
    """

    def __init__(self, proto: Any, graph: Graph):
        self.graph = graph
        self.writers = {name: number for number, node in enumerate(proto.graph.node) for name in node.output if name}
        self.names = {*self.writers, *(value.name for value in proto.graph.input)}
        self.nodes = list(proto.graph.node)
        self.readers = by_key((name, (node, index)) for node in self.nodes for index, name in enumerate(node.input))
        self.producers = {name: node for node in graph.nodes for name in node.outputs if name}

    def edges(self, conversion: Conversion) -> Iterator[tuple[Any, int, set[Input]]]:
        """Edges of the file that read a tensor, with the inputs of the graph that each is part of."""
        for node, index in self.readers.get(conversion.tensor, []):
            yield node, index, self._inputs(node, conversion.tensor)

    def missing(self, conversion: Conversion) -> str:
        """Reason for which a conversion has no place in the file; empty if it has one."""
        if conversion.tensor not in self.names:
            return "the tensor is not in the file, operators of it are computed in parts"
        wanted, served = set(conversion.readers), set[Input]()
        for _, _, inputs in self.edges(conversion):
            if inputs & wanted and not inputs <= wanted:
                return "a node of the file reads the tensor for readers of both types"
            served |= inputs & wanted
        if lost := sorted({name for name, _ in wanted - served}):
            return f"{', '.join(lost)} cannot be traced to nodes of the file"
        return ""

    def _inputs(self, node: Any, tensor: str) -> set[Input]:
        """Inputs of the graph with a tensor, in what the graph has in the place of a node of the file."""
        ends, seen, waiting = set[str](), set[str](), [name for name in node.output if name]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.producers:
                ends.add(name)
            else:  # part of a larger node of the graph
                waiting += [output for reader, _ in self.readers.get(name, []) for output in reader.output if output]
        inputs, visited, open_nodes = set[Input](), set[str](), [self.producers[name] for name in ends]
        while open_nodes:
            part = open_nodes.pop()
            if part.name in visited:
                continue
            visited.add(part.name)
            for index, name in enumerate(part.inputs):
                if name == tensor:
                    inputs.add((part.name, index))
                elif name in self.producers and name not in self.names:
                    open_nodes.append(self.producers[name])
        return inputs


def _insert(proto: Any, places: _Places, conversion: Conversion) -> str:
    """Let the readers of a conversion read a new node, which follows the node that writes the tensor."""
    from onnx import helper

    taken = places.names | {name for node in places.nodes for name in (*node.input, node.name)}
    name = unused_name(f"{conversion.tensor}/narrow", taken)
    wanted = set(conversion.readers)
    for node, index, inputs in places.edges(conversion):
        if inputs & wanted:
            node.input[index] = name
    node = helper.make_node(
        FUNCTION, [conversion.tensor], [name], name=name, domain=DOMAIN, factor=float(conversion.factor)
    )
    _annotate(node, {"readers": ", ".join(dict.fromkeys(reader for reader, _ in conversion.readers))})
    writer = next((k for k, other in enumerate(proto.graph.node) if conversion.tensor in other.output), -1)
    proto.graph.node.insert(writer + 1, node)
    for value in (*proto.graph.value_info, *proto.graph.input):
        if value.name == conversion.tensor:
            copy = proto.graph.value_info.add()
            copy.CopyFrom(value)
            copy.name = name
            _annotate(copy, {"type": "narrow"})
            break
    places.names.add(name)
    return name


def _note(proto: Any, types: Types, rows: Sequence[TensorTypes]) -> None:
    """Write types to tensors, and forms to products."""
    by_name = {row.name: row for row in rows}
    for value in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        if value.name in by_name:
            row = by_name[value.name]
            _annotate(value, {"factors": row.factors, "type": row.type})
    for node in proto.graph.node:
        if (name := OnnxNode(node).name) in types.forms:
            _annotate(node, {"form": types.forms[name].text})


def _annotate(part: Any, entries: dict[str, str]) -> None:
    for key, value in entries.items():
        part.metadata_props.add(key=_PREFIX + key, value=value)
