"""Read a multilayer perceptron from ONNX.

Understands one data path of Flatten, Reshape, Identity, Gemm, MatMul with Add, Relu, Sigmoid and Tanh with constant
weights. Everything else is listed at once, each node with the reason; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: What each activation computes, by its ONNX name.
ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "Relu": lambda x: np.maximum(x, 0.0),
    "Sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "Tanh": np.tanh,
}


@dataclass(frozen=True)
class Dense:
    """One layer: ``activation(weight @ x + bias)``; ``weight`` is outputs by inputs."""

    name: str
    weight: Floats
    bias: Floats
    activation: str | None = None

    @property
    def inputs(self) -> int:
        """Elements it reads."""
        return int(self.weight.shape[1])

    @property
    def outputs(self) -> int:
        """Elements it computes."""
        return int(self.weight.shape[0])


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron in double precision: the float reference and the input of the compiler."""

    name: str
    layers: tuple[Dense, ...]

    @property
    def inputs(self) -> int:
        """Elements of one sample."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Elements of one result."""
        return self.layers[-1].outputs

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference."""
        return sum(layer.weight.size for layer in self.layers)

    def trace(self, x: npt.ArrayLike) -> list[Floats]:
        """Return the output of every layer for a batch (first axis), the last one being the result."""
        value = np.asarray(x, dtype=np.float64)
        value = value.reshape(len(value), -1)
        if value.shape[1] != self.inputs:
            raise ValueError(f"samples of {self.name} must have {self.inputs} elements, not {value.shape[1]}")
        outputs = []
        for layer in self.layers:
            value = value @ layer.weight.T + layer.bias
            if layer.activation is not None:
                value = ACTIVATIONS[layer.activation](value)
            outputs.append(value)
        return outputs

    def __call__(self, x: npt.ArrayLike) -> Floats:
        """Return the result for a batch."""
        return self.trace(x)[-1]


class UnsupportedModel(ValueError):
    """The model has nodes that cannot be compiled; ``reasons`` names every one of them."""

    def __init__(self, name: str, reasons: list[str]):
        self.reasons = reasons
        lines = "".join(f"\n  {reason}" for reason in reasons)
        super().__init__(f"{name} cannot be compiled; supported operators are {', '.join(_HANDLERS)}:{lines}")


@dataclass
class _Open:
    """The layer under construction: bias and activation can still join it."""

    name: str
    weight: Floats
    bias: Floats | None = None
    activation: str | None = None

    def close(self) -> Dense:
        bias = np.zeros(len(self.weight)) if self.bias is None else self.bias
        return Dense(self.name, self.weight, bias, self.activation)


@dataclass
class _Importer:
    """Walks the nodes in order. ``value`` is the name of the tensor at the end of the data path so far."""

    constants: dict[str, Floats]
    value: str
    reasons: list[str]
    layers: list[_Open] = field(default_factory=list)

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

        for attribute in node.attribute:
            if attribute.name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(attribute.t)

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
        full = np.broadcast_to(bias.astype(float).reshape(-1), len(weight)) * attributes.get("beta", 1.0)
        self.layers.append(_Open(node.name or node.output[0], weight * attributes.get("alpha", 1.0), full))
        return self._check_width()

    def matmul(self, node: Any) -> str | None:
        """A layer whose bias may follow."""
        weight = self._other(node)
        if weight is None or weight.ndim != 2 or node.input[0] != self.value:
            return "the second operand must be a constant matrix"
        self.layers.append(_Open(node.name or node.output[0], weight.T))
        return self._check_width()

    def _check_width(self) -> str | None:
        if len(self.layers) < 2:
            return None
        have, want = len(self.layers[-2].weight), self.layers[-1].weight.shape[1]
        return None if have == want else self._context(f"reads {want} elements, but the layer before gives {have}")

    def add(self, node: Any) -> str | None:
        """The bias of the layer before."""
        bias = self._other(node)
        if bias is None:
            return "only the addition of a constant bias is supported"
        if not self.layers or self.layers[-1].activation is not None:
            return self._context("must follow a matrix product")
        layer = self.layers[-1]
        if bias.size not in (1, len(layer.weight)):
            return self._context(f"bias must have {len(layer.weight)} elements, not {bias.size}")
        full = np.broadcast_to(bias.reshape(-1), len(layer.weight))
        layer.bias = full if layer.bias is None else layer.bias + full
        return None

    def activation(self, node: Any) -> str | None:
        """The activation of the layer before."""
        if not self.layers or self.layers[-1].activation is not None:
            return self._context("must follow a matrix product")
        self.layers[-1].activation = node.op_type
        return None


_HANDLERS: dict[str, Callable[[_Importer, Any], str | None]] = {
    "Flatten": _Importer.flatten,
    "Reshape": _Importer.reshape,
    "Identity": _Importer.identity,
    "Gemm": _Importer.gemm,
    "MatMul": _Importer.matmul,
    "Add": _Importer.add,
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
    """
    import onnx
    from onnx import numpy_helper

    proto = onnx.load(model) if isinstance(model, str | Path) else model
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
    if not reasons and not importer.layers:
        reasons.append("there is no matrix product in it")
    if reasons:
        raise UnsupportedModel(name, reasons)
    for k, layer in enumerate(importer.layers):
        if layer.name in [other.name for other in importer.layers[:k]]:
            layer.name = f"{layer.name}#{k}"
    return Network(name, tuple(layer.close() for layer in importer.layers))
