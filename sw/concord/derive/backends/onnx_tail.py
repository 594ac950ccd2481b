"""What the host computes behind the NPU, in ONNX: standard operators on DOUBLE."""

from __future__ import annotations

from concord.derive import ir
from concord.graph.ir import Graph, Node

from .node_facts import check_tail
from .onnx_writer import Writer


def write_tail(writer: Writer, tail: Graph, model: ir.Model) -> dict[str, ir.Shape]:
    """Write the nodes of a tail, which reads outputs of the NPU by name; returns its outputs with their shapes.

    Raises
    ------
    ValueError
        For an operator that is not written here, or a tail that reads inputs of the network.
    """
    check_tail(tail, [model.names[value.name] for value in model.outputs])
    for node in tail.nodes:
        _write(writer, tail, node)
    return {name: tuple(tail.sample_shape(name)) for name in tail.outputs}


def _write(writer: Writer, tail: Graph, node: Node) -> None:
    (x,), (y,) = node.inputs, node.outputs
    shape = tail.shapes[x]
    whole = writer.node("Reshape", [x, writer.ints([-1, *shape])])
    if node.op == "Softmax":
        whole = writer.node("Softmax", [whole], axis=node.attrs["axis"] + 1)
    elif node.op == "Transpose":
        whole = writer.node("Transpose", [whole], perm=[0, *(axis + 1 for axis in node.attrs["perm"])])
    writer.node("Reshape", [whole, writer.ints([-1, *tail.sample_shape(y)])], y)
