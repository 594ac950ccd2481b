"""Read a multilayer perceptron from ONNX.

Understands one data path of Flatten, Reshape, Identity, Gemm, MatMul, Relu, Sigmoid and Tanh with constant weights.
Add, Mul and BatchNormalization behind a product become part of it. Everything else is listed at once, each node with
the reason; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.floatfunctions import Floats
from concord.network import ACTIVATIONS, Dense, Network


class UnsupportedModel(ValueError):
    """The model has nodes that cannot be compiled; ``reasons`` names every one of them."""

    def __init__(self, name: str, reasons: list[str]):
        self.reasons = reasons
        lines = "".join(f"\n  {reason}" for reason in reasons)
        super().__init__(f"{name} cannot be compiled; supported operators are {', '.join(_HANDLERS)}:{lines}")


@dataclass
class _Importer:
    """Walks the nodes in order. ``value`` is the name of the tensor at the end of the data path so far."""

    constants: dict[str, Floats]
    value: str
    reasons: list[str]
    layers: list[Dense] = field(default_factory=list)

    def node(self, node: Any) -> None:
        """Take one node, or note why it cannot be taken; go on behind it, to find every reason."""
        if node.op_type == "Constant":
            self._constant(node)
            return
        handler = _HANDLERS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if handler is None:
            reason: str | None = "operator is not supported"
        elif self.value not in node.input:
            reason = self._context("is not on the single path from the input to the output")
        else:
            reason = handler(self, node)
        if reason is not None:
            self.reasons.append(f"{node.op_type} '{node.name or node.output[0]}': {reason}")
        if self.value in node.input:
            self.value = node.output[0]

    def _context(self, reason: str) -> str | None:
        """A reason that lies in the nodes before: not worth telling when one of those has been refused."""
        return None if self.reasons else reason

    def _constant(self, node: Any) -> None:
        from onnx import numpy_helper

        for name, value in _attributes(node).items():
            if name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(value)
            elif name in ("value_float", "value_floats", "value_int", "value_ints"):
                self.constants[node.output[0]] = np.asarray(value)

    def _other(self, node: Any) -> Floats | None:
        """The constant operand of a node with two inputs, as doubles."""
        others = [name for name in node.input[:2] if name != self.value]
        return None if len(others) != 1 or others[0] not in self.constants else self.constants[others[0]].astype(float)

    def flatten(self, node: Any) -> str | None:
        """Samples are flat already."""
        axis = _attributes(node).get("axis", 1)
        return None if axis == 1 else f"axis must be 1, not {axis}"

    def identity(self, node: Any) -> str | None:
        """Nothing to do."""
        return None

    def reshape(self, node: Any) -> str | None:
        """Only as another spelling of Flatten."""
        shape = self._other(node)
        if shape is None:
            return "shape must be constant"
        flat = len(shape) == 2 and (shape[0] in (0, 1, -1)) and (shape[1] > 0 or shape[1] == -1)
        return None if flat else f"must flatten to batch by elements, not to {shape.astype(int).tolist()}"

    def gemm(self, node: Any) -> str | None:
        """A layer with its bias."""
        attributes = _attributes(node)
        if attributes.get("transA", 0) or node.input[0] != self.value:
            return "the data must be the first operand, not transposed"
        weight = self.constants.get(node.input[1])
        bias = self.constants.get(node.input[2]) if len(node.input) > 2 else np.zeros(1)
        if weight is None or bias is None:
            return "weight and bias must be constant"
        weight = weight.astype(float) if attributes.get("transB", 0) else weight.astype(float).T
        refused = self._product(node, weight * attributes.get("alpha", 1.0))
        return refused or self._join(1.0, bias * attributes.get("beta", 1.0))

    def matmul(self, node: Any) -> str | None:
        """A layer whose bias may follow."""
        weight = self._other(node)
        if weight is None or weight.ndim != 2 or node.input[0] != self.value:
            return "the second operand must be a constant matrix"
        return self._product(node, weight.T)

    def _product(self, node: Any, weight: Floats) -> str | None:
        """A new layer."""
        self.layers.append(Dense(node.name or node.output[0], weight, np.zeros(len(weight))))
        if len(self.layers) < 2:
            return None
        have, want = self.layers[-2].outputs, self.layers[-1].inputs
        return None if have == want else self._context(f"reads {want} elements, but the layer before gives {have}")

    def add(self, node: Any) -> str | None:
        """A bias."""
        bias = self._other(node)
        return "one operand must be constant" if bias is None else self._join(1.0, bias)

    def mul(self, node: Any) -> str | None:
        """A factor per output."""
        factor = self._other(node)
        return "one operand must be constant" if factor is None else self._join(factor, 0.0)

    def batch_normalization(self, node: Any) -> str | None:
        """Factor and bias per output, as in inference."""
        attributes = _attributes(node)
        names = node.input[1:5]
        if attributes.get("training_mode", 0) or any(name not in self.constants for name in names):
            return "must be for inference, with constant scale, bias, mean and variance"
        scale, bias, mean, variance = (self.constants[name].astype(float) for name in names)
        factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        return self._join(factor, bias - factor * mean)

    def _join(self, factor: npt.ArrayLike, bias: npt.ArrayLike) -> str | None:
        """Make ``factor * y + bias`` part of the layer before; each is one number, or one per output."""
        if not self.layers or self.layers[-1].activation is not None:
            return self._context("must follow a matrix product")
        layer = self.layers[-1]
        full = []
        for operand in (np.asarray(factor, dtype=float), np.asarray(bias, dtype=float)):
            if operand.size not in (1, layer.outputs) or operand.shape[-1:] not in ((), (operand.size,)):
                return self._context(f"constant must have 1 or {layer.outputs} elements, not {list(operand.shape)}")
            full.append(np.broadcast_to(operand.reshape(-1), layer.outputs))
        self.layers[-1] = replace(layer, weight=full[0][:, None] * layer.weight, bias=full[0] * layer.bias + full[1])
        return None

    def activation(self, node: Any) -> str | None:
        """The activation of the layer before."""
        if not self.layers or self.layers[-1].activation is not None:
            return self._context("must follow a matrix product")
        self.layers[-1] = replace(self.layers[-1], activation=node.op_type)
        return None


_HANDLERS: dict[str, Callable[[_Importer, Any], str | None]] = {
    "Flatten": _Importer.flatten,
    "Reshape": _Importer.reshape,
    "Identity": _Importer.identity,
    "Gemm": _Importer.gemm,
    "MatMul": _Importer.matmul,
    "Add": _Importer.add,
    "Mul": _Importer.mul,
    "BatchNormalization": _Importer.batch_normalization,
    **dict.fromkeys(ACTIVATIONS, _Importer.activation),
}


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def import_onnx(model: str | Path | Any) -> Network:
    """Return the network of an ONNX file (or ``ModelProto``).

    Raises
    ------
    UnsupportedModel
        With every node that cannot be compiled and the reason.
    ValueError
        If the file is none of ONNX.
    """
    import onnx
    from google.protobuf.message import DecodeError  # onnx brings it
    from onnx import numpy_helper

    try:
        proto = onnx.load(model) if isinstance(model, str | Path) else model
    except DecodeError as error:
        raise ValueError(f"{model} must be an ONNX file: {error}") from error
    graph = proto.graph
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    inputs = [item.name for item in graph.input if item.name not in constants]
    name = graph.name or "model"
    reasons = []
    if len(inputs) != 1 or len(graph.output) != 1:
        reasons.append(f"must have one input and one output, not {len(inputs)} and {len(graph.output)}")
    importer = _Importer(constants, inputs[0] if inputs else "", reasons)
    for node in graph.node:
        importer.node(node)
    if not reasons and importer.value != graph.output[0].name:
        reasons.append(f"output '{graph.output[0].name}' is not at the end of the data path")
    if not reasons:
        reasons += _unfit(graph, inputs[0], importer.layers)
    if reasons:
        raise UnsupportedModel(name, reasons)
    return Network(name, _distinct(importer.layers))


def _unfit(graph: Any, name: str, layers: list[Dense]) -> list[str]:
    """Why the layers do not go with the input of the graph, which may leave its shape open."""
    if not layers:
        return ["there is no matrix product in it"]
    (value,) = (item for item in graph.input if item.name == name)
    sample = [size.dim_value for size in value.type.tensor_type.shape.dim][1:]
    if all(sample) and sample and int(np.prod(sample)) != layers[0].inputs:
        return [f"{layers[0].name} reads {layers[0].inputs} elements, but a sample of '{name}' has the shape {sample}"]
    return []


def _distinct(layers: list[Dense]) -> tuple[Dense, ...]:
    """The layers, with a number behind every name that was there before."""
    names = [layer.name for layer in layers]
    return tuple(
        replace(layer, name=f"{layer.name}#{k}") if layer.name in names[:k] else layer for k, layer in enumerate(layers)
    )
