"""A multilayer perceptron in double precision: the float reference and the input of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.floatfunctions import FLOAT_FUNCTIONS, Floats

#: What each activation computes, by its ONNX name.
ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "Relu": FLOAT_FUNCTIONS["relu"],
    "Sigmoid": FLOAT_FUNCTIONS["sigmoid"],
    "Tanh": FLOAT_FUNCTIONS["tanh"],
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
    """Layers one after the other."""

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
