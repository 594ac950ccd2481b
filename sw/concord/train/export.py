"""A trained network as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concord.graph.ir import Graph, Node
from concord.train.network import OF_THE_LOSS

#: Opset of the files, and the version of the format that goes with it.
OPSET, IR_VERSION = 17, 10


def export_onnx(graph: Graph) -> bytes:
    """The bytes of an ONNX file that computes a graph; weights are float32, which holds trained ones exactly.

    The batch is open (``N``) where it is the first axis of every tensor that is reshaped, and 1 otherwise.

    Raises
    ------
    ValueError
        If an operator has no counterpart here, or a weight is no float32.
    """
    import onnx
    from onnx import TensorProto, helper

    writer = _Writer(graph)
    for node in graph.nodes:
        writer.add(node)
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, writer.open(graph.shapes[name])) for name in names]
        for names in (graph.inputs, graph.outputs)
    ]
    proto = helper.make_graph(writer.nodes, graph.name, ends[0], ends[1], writer.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(proto, opset_imports=opsets, producer_name="concord", ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


class _Writer:
    """Nodes and constants of a model."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        reshaped = [name for node in graph.nodes if node.op == "Reshape" for name in (*node.inputs, *node.outputs)]
        ends = set(graph.inputs) | set(graph.outputs)
        first = all(graph.shapes[name][:1] == (1,) for name in {*reshaped, *ends})
        moved = any(node.op in ("Transpose", "LSTM", "GRU") for node in graph.nodes)
        self.batched = first and not moved and ends <= graph.batched

    def open(self, shape: Sequence[int]) -> list[Any]:
        """A shape with the batch left open."""
        return ["N", *shape[1:]] if self.batched else list(shape)

    def constant(self, name: str, values: Any) -> str:
        """A constant of the model."""
        from onnx import numpy_helper

        exact = np.asarray(values)
        if exact.dtype == np.float64:
            single = exact.astype(np.float32)
            if not np.array_equal(single.astype(np.float64), exact):
                raise ValueError(f"{name} must be numbers of float32, and is not")
            exact = single
        self.constants.append(numpy_helper.from_array(exact, name))
        return name

    def node(self, op: str, node: Node, inputs: Sequence[str], **attrs: Any) -> None:
        """A node of the model."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, list(inputs), list(node.outputs), name=node.name, **attrs))

    def add(self, node: Node) -> None:
        """Translate a node of the graph."""
        attrs, (x, *_) = node.attrs, node.inputs
        if node.op == "Conv":
            weights = [self.constant(f"{node.name}.{key}", attrs[key]) for key in ("weight", "bias")]
            self.node("Conv", node, [x, *weights], group=attrs["group"], **_window(attrs))
        elif node.op == "Dense":
            self._dense(node)
        elif node.op == "Function" and len(attrs["functions"]) == 1 and attrs["functions"][0][0] in ("tanh", "sigmoid"):
            self.node(attrs["functions"][0][0].capitalize(), node, [x])
        elif node.op == "MaxPool":
            self.node("MaxPool", node, [x], kernel_shape=list(attrs["kernel"]), **_window(attrs))
        elif node.op == "AveragePool" and attrs["counted"] in ((0,) * len(attrs["pads"]), attrs["pads"]):
            include = int(any(attrs["pads"]) and attrs["counted"] == attrs["pads"])
            kernel = list(attrs["kernel"])
            window = {key: value for key, value in _window(attrs).items() if key != "dilations"}
            if max(attrs["dilations"]) > 1:
                raise ValueError(f"{node.name} must have no dilation, not {attrs['dilations']}")
            self.node("AveragePool", node, [x], kernel_shape=kernel, count_include_pad=include, **window)
        elif node.op == "ReduceMean":
            self.node("ReduceMean", node, [x], axes=list(attrs["axes"]), keepdims=int(attrs["keepdims"]))
        elif node.op == "Reshape":
            shape = [-1 if self.batched else attrs["shape"][0], *attrs["shape"][1:]]
            self.node("Reshape", node, [x, self.constant(f"{node.name}.shape", np.array(shape, dtype=np.int64))])
        elif node.op == "Transpose":
            self.node("Transpose", node, [x], perm=list(attrs["perm"]))
        elif node.op == "Slice":
            names = ("starts", "stops", "axes", "steps")
            ends = [[max(v, -(1 << 31)) if k != "stops" or v >= 0 else -(1 << 31) for v in attrs[k]] for k in names]
            self.node("Slice", node, [x, *(self.constant(f"{node.name}.{k}", np.array(v, dtype=np.int64))
                                           for k, v in zip(names, ends, strict=True))])  # fmt: skip
        elif node.op in ("LSTM", "GRU"):
            weights = [self.constant(f"{node.name}.{key}", attrs[key]) for key in ("W", "R", "B")]
            more = {"linear_before_reset": int(attrs["linear_before_reset"])} if node.op == "GRU" else {}
            self.node(
                node.op, node, [x, *weights], hidden_size=attrs["hidden_size"], direction=attrs["direction"], **more
            )
        elif node.op in OF_THE_LOSS:
            self.node(node.op, node, [x], axis=attrs["axis"])
        elif node.op in ("Relu", "Add"):
            self.node(node.op, node, node.inputs)
        else:
            raise ValueError(f"{node.name} must be an operator that can be written to ONNX, not {node.op}")

    def _dense(self, node: Node) -> None:
        weight, bias = node.attrs["weight"], node.attrs["bias"]
        if len(self.graph.shapes[node.inputs[0]]) == 2:
            names = [self.constant(f"{node.name}.weight", weight), self.constant(f"{node.name}.bias", bias)]
            self.node("Gemm", node, [node.inputs[0], *names], transB=1)
            return
        from onnx import helper

        between = f"{node.outputs[0]}.product"
        names = [self.constant(f"{node.name}.weight", weight.T.copy()), self.constant(f"{node.name}.bias", bias)]
        self.nodes.append(
            helper.make_node("MatMul", [node.inputs[0], names[0]], [between], name=f"{node.name}.product")
        )
        self.node("Add", node, [between, names[1]])


def _window(attrs: dict[str, Any]) -> dict[str, Any]:
    return {key: list(attrs[key]) for key in ("strides", "pads", "dilations")}
