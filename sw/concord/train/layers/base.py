"""Base of layers: forward and backward in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from concord.graph.ir import Node
from concord.spec.training import TrainingFormats
from concord.train.noise import NoiseStream
from concord.train.overflow_monitor import OverflowMonitor
from concord.train.parameters import Parameter
from concord.train.tensor import Tensor, narrow

#: Values that forward keeps for backward.
Memory = Any
#: Gradients of inputs, and of parameters by what they are to the layer.
Gradients = tuple[list[Tensor | None], dict[str, Tensor]]


@dataclass
class PassContext:
    """One pass through a network.

    Parameters
    ----------
    formats : TrainingFormats
        Of everything.
    noise : NoiseStream or None
        For stochastic rounding.
    training : bool
        Whether statistics of the batch are taken (BatchNorm), and memories are kept.
    seen : dict
        Those statistics, by the name of the normalisation.
    monitor : OverflowMonitor or None
        Accumulators of few bits in the place of exact sums.
    """

    formats: TrainingFormats
    noise: NoiseStream | None = None
    training: bool = True
    seen: dict[str, Any] = field(default_factory=dict)
    monitor: OverflowMonitor | None = None
    _narrowed: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def activation(self, x: Tensor, axis: int | None = None) -> Tensor:
        """A tensor as a product, a pooling or a function reads it; all readers get the same one.

        Blocks are along the channels: the given axis, or that of images, or the last one. With accumulators of few bits
        only products narrow what they read.
        """
        if self.monitor is not None:
            return x
        axis = channels(x) if axis is None else axis
        key = id(x), axis
        if key not in self._narrowed:
            self._narrowed[key] = x, narrow(x, self.formats.activation, self.noise, axis)
        return self._narrowed[key][1]

    def operand(self, x: Tensor, site: str, axis: int | None = None) -> Tensor:
        """The input of a product."""
        return self.activation(x, axis) if self.monitor is None else self.monitor.operand(x, site)

    def table_input(self, x: Tensor) -> Tensor:
        """An activation as a table reads it: with one exponent, whatever the block of activations is."""
        return narrow(x, replace(self.formats.activation, block=0), self.noise)

    def gradient(self, g: Tensor, axis: int | None = None) -> Tensor:
        """The gradient of an activation as a layer reads it."""
        axis = channels(g) if axis is None else axis
        return narrow(g, self.formats.gradient, self.noise, axis)


def channels(x: Tensor) -> int:
    """Axis of the channels: of images ``[samples, batch, C, H, W]``, of videos ``[samples, batch, C, D, H, W]``, or the
    last one."""
    return {5: -3, 6: -4}.get(x.mant.ndim, -1)


class TrainableLayer:
    """One operation of a network that can be trained.

    Parameters
    ----------
    node : Node or TrainableLayer
        What it is called, and the tensors it reads and makes; names of those that are left out are empty. Or the layer
        whose place it takes.
    """

    def __init__(self, node: Node | TrainableLayer):
        self.name: str = node.name
        self.inputs: tuple[str, ...] = node.inputs
        self.outputs: tuple[str, ...] = node.outputs
        #: True if nothing in front of the layer is trained, so that nobody asks for the gradient of its input.
        self.first = False

    @property
    def kind(self) -> str:
        """Name of the layer in checkpoints: that of its class, where a "Layer" at the end does not count."""
        return type(self).__name__.removesuffix("Layer")

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by what they are to the layer."""
        return {}

    @property
    def constants(self) -> dict[str, Parameter]:
        """Parameters that the layer multiplies with and does not train, by their role."""
        return {}

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the node as they are now: what parameters and constants are worth, exactly."""
        return {key: parameter.values for key, parameter in (self.parameters | self.constants).items()}

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        """Outputs, and what backward needs."""
        raise NotImplementedError

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        """Gradients of inputs and parameters; ``grads`` are those of the outputs, ``None`` where nothing reads one."""
        raise NotImplementedError


def only(tensors: Sequence[Tensor | None]) -> Tensor:
    """The gradient of the only output."""
    (gradient,) = (tensor for tensor in tensors if tensor is not None)
    return gradient
