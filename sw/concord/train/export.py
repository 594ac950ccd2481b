"""A trained network as an ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from concord.functions import function
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import (
    FunctionAttributes,
    NormaliseAttributes,
    ReductionAttributes,
    SoftmaxAttributes,
)
from concord.graph.ops.host import LookupAttributes
from concord.graph.ops.linear import AffineAttributes, ConvAttributes, is_fixed
from concord.graph.ops.moving import ReshapeAttributes, SliceAttributes, TransposeAttributes
from concord.graph.ops.recurrent import GruAttributes, RecurrentAttributes
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes, WindowAttributes
from concord.train.indices import index_lookups
from concord.train.network import OF_THE_LOSS

#: Opset of the files, and the version of the format that goes with it.
OPSET, IR_VERSION = 17, 10


def export_onnx(graph: Graph) -> bytes:
    """The bytes of an ONNX file that computes a graph; weights are float32, which holds trained ones exactly.

    Indices, which only tables read, are int64. The batch is open (``N``) where it is the first axis of every tensor
    that is reshaped, and 1 otherwise.

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
    indices = set(graph.inputs if index_lookups(graph) else ())
    ends = [
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name in indices else TensorProto.FLOAT, writer.open(graph.shapes[name])
            )
            for name in names
        ]
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
        #: Products with a constant on the left, by the nodes that are written as part of them, and by their own name.
        products = [around for node in graph.nodes if (around := _on_the_left(graph, node)) is not None]
        self.left = {part.name: around for around in products for part in around}
        reshaped = [name for node in graph.nodes if node.op == "Reshape" for name in (*node.inputs, *node.outputs)]
        ends = set(graph.inputs) | set(graph.outputs)
        first = all(graph.shapes[name][:1] == (1,) for name in {*reshaped, *ends})
        moved = any(
            (node.op == "Transpose" or operator_of(node).recurrence) and node.name not in self.left
            for node in graph.nodes
        )
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

    def attribute_constants(self, node: Node, *keys: str) -> list[str]:
        """Attributes of a node as constants of the model."""
        return [self.constant(f"{node.name}.{key}", node.attrs[key]) for key in keys]

    def node(self, op: str, node: Node, inputs: Sequence[str], **attrs: Any) -> None:
        """A node of the model."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, list(inputs), list(node.outputs), name=node.name, **attrs))

    def add(self, node: Node) -> None:
        """Translate a node of the graph; ``ValueError`` with its operator if it cannot be written."""
        if node.name in self.left:
            self._left(node, *self.left[node.name])
        elif node.op in self._WRITERS:
            self._WRITERS[node.op](self, node)
        else:
            raise _cannot_write(node)

    def _same(self, node: Node) -> None:
        """ONNX has the operator with the same name and no attributes."""
        constants = self.attribute_constants(node, "constant") if "constant" in node.attrs else []
        self.node(node.op, node, [*node.inputs, *constants])

    def _conv(self, node: Node) -> None:
        weights = self.attribute_constants(node, "weight", "bias")
        self.node(
            "Conv", node, [node.inputs[0], *weights], group=node.attributes(ConvAttributes).group, **_window(node)
        )

    def _function(self, node: Node) -> None:
        functions = [function(name) for name in node.attributes(FunctionAttributes).names]
        if len(functions) != 1 or functions[0].slope is None:
            raise _cannot_write(node)
        self.node(functions[0].onnx, node, node.inputs)

    def _max_pool(self, node: Node) -> None:
        self.node(
            "MaxPool", node, node.inputs, kernel_shape=list(node.attributes(PoolAttributes).kernel), **_window(node)
        )

    def _average_pool(self, node: Node) -> None:
        how = node.attributes(AveragePoolAttributes)
        if how.counted not in ((0,) * len(how.pads), how.pads):
            raise _cannot_write(node)
        if max(how.dilations) > 1:
            raise ValueError(f"{node.name} must have no dilation, not {how.dilations}")
        include = int(any(how.pads) and how.counted == how.pads)
        window = {key: value for key, value in _window(node).items() if key != "dilations"}
        self.node("AveragePool", node, node.inputs, kernel_shape=list(how.kernel), count_include_pad=include, **window)

    def _mean(self, node: Node) -> None:
        how = node.attributes(ReductionAttributes)
        self.node("ReduceMean", node, node.inputs, axes=list(how.axes), keepdims=int(how.keepdims))

    def _reshape(self, node: Node) -> None:
        first, *others = node.attributes(ReshapeAttributes).shape
        shape = [-1 if self.batched else first, *others]
        sizes = self.constant(f"{node.name}.shape", np.array(shape, dtype=np.int64))
        self.node("Reshape", node, [*node.inputs, sizes])

    def _transpose(self, node: Node) -> None:
        self.node("Transpose", node, node.inputs, perm=list(node.attributes(TransposeAttributes).perm))

    def _slice(self, node: Node) -> None:
        how, least = node.attributes(SliceAttributes), -(1 << 31)
        stops = [stop if stop >= 0 else least for stop in how.stops]
        limits = {"starts": how.starts, "stops": stops, "axes": how.axes, "steps": how.steps}
        ends = [
            self.constant(f"{node.name}.{key}", np.array([max(value, least) for value in values], dtype=np.int64))
            for key, values in limits.items()
        ]
        self.node("Slice", node, [*node.inputs, *ends])

    def _recurrent(self, node: Node) -> None:
        how, weights = node.attributes(RecurrentAttributes), self.attribute_constants(node, "W", "R", "B")
        more = {"linear_before_reset": int(how.linear_before_reset)} if isinstance(how, GruAttributes) else {}
        inputs = [node.inputs[0], *weights]
        self.node(node.op, node, inputs, hidden_size=how.hidden_size, direction=how.direction, **more)

    def _along_axis(self, node: Node) -> None:
        self.node(node.op, node, node.inputs, axis=node.attributes(SoftmaxAttributes).axis)

    def _lookup(self, node: Node) -> None:
        tables = self.attribute_constants(node, "table")
        self.node("Gather", node, [*tables, *node.inputs], axis=node.attributes(LookupAttributes).axis)

    def _normalise(self, node: Node) -> None:
        """Write a LayerNormalization where the node is one, else the operators of ONNX that make it."""
        from onnx import helper

        how, (x,), (y,) = node.attributes(NormaliseAttributes), node.inputs, node.outputs
        shape, axes, scale = self.graph.shapes[x], how.axes, np.asarray(how.scale, np.float64)
        inner = shape[axes[0] :]
        if how.centred and axes == tuple(range(axes[0], len(shape))) and scale.ndim <= len(inner):
            gamma = self.constant(f"{node.name}.scale", np.broadcast_to(scale, inner))
            self.node("LayerNormalization", node, [x, gamma], axis=axes[0], epsilon=how.epsilon)
            return
        names = {what: f"{y}.{what}" for what in ("mean", "centred", "square", "spread", "shifted", "root", "factor")}
        steps: list[tuple[str, list[str], str, dict[str, Any]]] = []
        reduced = {"axes": list(axes), "keepdims": 1}
        if how.centred:
            steps += [("ReduceMean", [x], "mean", reduced), ("Sub", [x, names["mean"]], "centred", {})]
            x = names["centred"]
        epsilon = self.constant(f"{node.name}.epsilon", np.array([how.epsilon], np.float32))
        steps += [
            ("Mul", [x, x], "square", {}),
            ("ReduceMean", [names["square"]], "spread", reduced),
            ("Add", [names["spread"], epsilon], "shifted", {}),
            ("Sqrt", [names["shifted"]], "root", {}),
            ("Reciprocal", [names["root"]], "factor", {}),
        ]
        self.nodes += [
            helper.make_node(op, read, [names[what]], name=names[what], **more) for op, read, what, more in steps
        ]
        normal = f"{y}.normal"
        self.nodes.append(helper.make_node("Mul", [x, names["factor"]], [normal], name=normal))
        self.node("Mul", node, [normal, *self.attribute_constants(node, "scale")])

    def _left(self, node: Node, before: Node, product: Node, last: Node) -> None:
        """A product with a constant on the left, in the place of the last of its nodes."""
        if node is last:
            matrix = self.constant(f"{product.name}.weight", product.attributes(AffineAttributes).weight)
            self.node("MatMul", product.replace(outputs=last.outputs), [matrix, before.inputs[0]])

    def _turned(self, node: Node) -> None:
        """A product with a constant that is not trained stays one on the left, whatever is around it."""
        from onnx import helper

        rank, (y,) = len(self.graph.shapes[node.inputs[0]]), node.outputs
        if rank < 2:
            raise ValueError(f"{node.name} must have two axes or more, not {rank}")
        how = node.attributes(AffineAttributes)
        perm, biased = [*range(rank - 2), rank - 1, rank - 2], bool(how.bias.any())
        names = [f"{y}.{what}" for what in ("turned", "left", "product")]
        matrix, last = self.constant(f"{node.name}.weight", how.weight), names[2] if biased else y
        self.nodes += [
            helper.make_node("Transpose", [node.inputs[0]], names[:1], name=names[0], perm=perm),
            helper.make_node("MatMul", [matrix, names[0]], names[1:2], name=node.name),
            helper.make_node("Transpose", names[1:2], [last], name=names[2], perm=perm),
        ]
        if biased:
            bias = self.constant(f"{node.name}.bias", how.bias)
            self.nodes.append(helper.make_node("Add", [last, bias], [y], name=f"{node.name}.bias"))

    def _dense(self, node: Node) -> None:
        if is_fixed(node):
            self._turned(node)
            return
        how = node.attributes(AffineAttributes)
        weight, bias = how.weight, how.bias
        if len(self.graph.shapes[node.inputs[0]]) == 2:
            self.node("Gemm", node, [node.inputs[0], *self.attribute_constants(node, "weight", "bias")], transB=1)
            return
        from onnx import helper

        operands = [node.inputs[0], self.constant(f"{node.name}.weight", weight.T.copy())]
        if not bias.any():
            self.node("MatMul", node, operands)
            return
        between = f"{node.outputs[0]}.product"
        self.nodes.append(helper.make_node("MatMul", operands, [between], name=f"{node.name}.product"))
        self.node("Add", node, [between, *self.attribute_constants(node, "bias")])

    #: Writers of nodes, by operator.
    _WRITERS: ClassVar[dict[str, Callable[[_Writer, Node], None]]] = {
        "Add": _same,
        "AveragePool": _average_pool,
        "Conv": _conv,
        "Dense": _dense,
        "Function": _function,
        "GRU": _recurrent,
        "LSTM": _recurrent,
        "Lookup": _lookup,
        "MatMul": _same,
        "MaxPool": _max_pool,
        "Mul": _same,
        "Normalise": _normalise,
        "ReduceMean": _mean,
        "Relu": _same,
        "Reshape": _reshape,
        "Slice": _slice,
        "Transpose": _transpose,
        **dict.fromkeys(OF_THE_LOSS, _along_axis),
    }


def _cannot_write(node: Node) -> ValueError:
    return ValueError(f"{node.name} must be an operator that can be written to ONNX, not {node.op}")


def _on_the_left(graph: Graph, node: Node) -> tuple[Node, Node, Node] | None:
    """The nodes of ``A X``: a product with a constant between two that exchange the last two axes."""
    if not is_fixed(node) or node.attributes(AffineAttributes).bias.any():
        return None
    before, readers = graph.producer(node.inputs[0]), graph.consumers(node.outputs[0])
    if before is None or len(readers) != 1 or len(graph.consumers(node.inputs[0])) != 1:
        return None
    if {node.inputs[0], node.outputs[0]} & set(graph.outputs):
        return None
    rank = len(graph.shapes[node.inputs[0]])
    swap = (*range(rank - 2), rank - 1, rank - 2)
    swapping = [
        part.op == "Transpose" and part.attributes(TransposeAttributes).perm == swap for part in (before, readers[0])
    ]
    return (before, node, readers[0]) if all(swapping) else None


def _window(node: Node) -> dict[str, list[int]]:
    how = node.attributes(WindowAttributes)
    return {"strides": list(how.strides), "pads": list(how.pads), "dilations": list(how.dilations)}
