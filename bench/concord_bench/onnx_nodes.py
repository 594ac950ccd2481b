"""Nodes and constants of an ONNX model that is written by hand, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Weights = Mapping[str, NDArray[np.float32]]


class NodeWriter:
    """Collects nodes, each with one output of its name.

    Parameters
    ----------
    weights : mapping of str to array
        Trained weights by name, which products and sums take.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def op(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Append a node, and return its output, which has its name."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """A constant, by name."""
        self.constants[name] = values
        return name

    def weight(self, name: str) -> str:
        """The weights of a name as a constant."""
        return self.constant(f"{name}.weight", self.weights[name].astype(np.float32))

    def shaped(self, name: str, x: str, *shape: int) -> str:
        """Reshape of a tensor to another shape."""
        return self.op("Reshape", name, x, self.constant(f"{name}.shape", np.array(shape, np.int64)))

    def product(self, name: str, x: str) -> str:
        """A product with the weights of this name."""
        return self.op("MatMul", name, x, self.weight(name))

    def initializers(self) -> list[onnx.TensorProto]:
        """All constants."""
        return [numpy_helper.from_array(np.asarray(values), name) for name, values in self.constants.items()]
