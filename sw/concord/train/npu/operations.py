"""Operations that can be trained on the NPU: those of a network in the order of its graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from concord.graph.ops import divisors
from concord.graph.ops.windows import AveragePoolAttributes
from concord.spec.isa import ACCUMULATOR_POINT, COARSER_MAX
from concord.spec.training import TrainingFormats
from concord.train.layers.base import TrainableLayer
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense
from concord.train.layers.pointwise import Add, Moving, ReluLayer, TableFunction
from concord.train.layers.pooling import AveragePool, MaxPool, Mean
from concord.train.network import CannotTrain, TrainableNetwork
from concord.train.npu.features import Features, WindowShape
from concord.train.parameters import Parameter
from concord.train.settings import Settings
from concord.train.tensor import Dyadic

#: Most readers of a tensor: sums of gradients have two terms.
_READERS = 2
#: Axes of the tensor of an image: that of the batch, channels, rows and columns.
_IMAGE_AXES = 4
#: Most rows and columns of an image: what windows and their padding reach.
_SIDE = 63


@dataclass(frozen=True)
class TrainedOperation:
    """An operation of a network.

    Parameters
    ----------
    name : str
        Of its layer.
    reads : tuple of str
        Tensors that it reads.
    makes : str
        The tensor that it makes.
    inputs, outputs : Features
        Of these.
    back : tuple of bool
        For every tensor that it reads, whether its gradient is asked for.
    """

    name: str
    reads: tuple[str, ...]
    makes: str
    inputs: Features
    outputs: Features
    back: tuple[bool, ...]


@dataclass(frozen=True)
class TrainedProduct(TrainedOperation):
    """A convolution, or a product with a vector: then the window is the whole image.

    Parameters
    ----------
    weight, bias : Parameter
        ``[O, C, *kernel]`` or ``[O, C * taps]``, and ``[O]``.
    window : WindowShape
    """

    weight: Parameter
    bias: Parameter
    window: WindowShape

    @property
    def flat(self) -> bool:
        """True if every vector of the input is in one window, those of a window side by side."""
        whole = self.window.kernel == (self.inputs.height, self.inputs.width) and self.outputs.positions == 1
        plain = self.window.taps == 1 and self.window.strides == (1, 1)
        return (whole or plain) and not any(self.window.pads) and self.window.dilations == (1, 1)


@dataclass(frozen=True)
class TrainedDepthwise(TrainedProduct):
    """A convolution with a kernel for every channel; weights are ``[C, 1, *kernel]``."""

    @property
    def flat(self) -> bool:
        return False


@dataclass(frozen=True)
class TrainedRelu(TrainedOperation):
    """Zero in the place of what is negative."""


@dataclass(frozen=True)
class TrainedMaximum(TrainedOperation):
    """The greatest element of windows that do not overlap."""

    window: WindowShape


@dataclass(frozen=True)
class TrainedAverage(TrainedOperation):
    """The sum of windows that do not overlap, times a factor."""

    window: WindowShape
    factor: Dyadic


@dataclass(frozen=True)
class TrainedSum(TrainedOperation):
    """The sum of two tensors."""


@dataclass(frozen=True)
class TrainingOperations:
    """A network.

    Parameters
    ----------
    steps : tuple of TrainedOperation
        In the order of the graph.
    source, output : str
        The tensors that it reads and makes.
    features : dict
        Of every tensor.
    """

    steps: tuple[TrainedOperation, ...]
    source: str
    output: str
    features: dict[str, Features]

    @property
    def products(self) -> tuple[TrainedProduct, ...]:
        """Operations with parameters."""
        return tuple(step for step in self.steps if isinstance(step, TrainedProduct))

    def readers(self, tensor: str) -> list[TrainedOperation]:
        """Operations that read a tensor, each as often as it does."""
        return [step for step in self.steps for name in step.reads if name == tensor]


def operations_of(network: TrainableNetwork, settings: Settings) -> TrainingOperations:
    """The operations of a network.

    Parameters
    ----------
    network, settings
        What is trained, and how.

    Raises
    ------
    CannotTrain
        With everything that is in the way of training it on the NPU.
    """
    reasons = list(_settings_in_the_way(settings))
    others = [layer for layer in network.layers if not _supported(layer)]
    if others:
        known = "dense, conv (groups = 1), depthwise, relu, max_pool, average_pool, global_average, add or flatten"
        reasons.append(f"layers that are {known}, not {', '.join(map(_named, others))}")
        if any(isinstance(layer, TableFunction) for layer in others):
            reasons.append("relu in the place of these functions")
    else:
        builder = _Builder(network)
        reasons += builder.problems
        if not reasons:
            return builder.operations
    raise CannotTrain(
        f"training on the NPU needs {'; '.join(reasons)}; or train this network on the host, without --on"
    )


def _settings_in_the_way(settings: Settings) -> Iterator[str]:
    usual, formats = TrainingFormats(), settings.formats
    least, point = ACCUMULATOR_POINT - COARSER_MAX, formats.accumulator.shift
    formats = replace(formats, accumulator=replace(formats.accumulator, point=None))
    if other := [name for name in TrainingFormats.names() if getattr(formats, name) != getattr(usual, name)]:
        yield f"the formats that are the default, not others for {', '.join(other)}"
    elif not least <= point <= ACCUMULATOR_POINT:
        yield f"accumulator.point in {least}..{ACCUMULATOR_POINT}, not {point}"
    if settings.shards != 1:
        yield f"shards = 1, not {settings.shards}"
    if settings.overflow is not None:
        yield "exact sums, not accumulators of few bits ([overflow])"


def _supported(layer: TrainableLayer) -> bool:
    if isinstance(layer, Moving):
        return layer.node.op == "Reshape"
    if type(layer) is Conv:
        return layer.group == 1 or layer.depthwise
    return type(layer) is Dense or isinstance(layer, ReluLayer | MaxPool | AveragePool | Mean | Add)


def _named(layer: TrainableLayer) -> str:
    """Name of a layer, and its kind or function."""
    return f"{layer.name} ({layer.function if isinstance(layer, TableFunction) else layer.kind})"


@dataclass
class _Builder:
    """Builds the operations, and collects what is in the way."""

    network: TrainableNetwork
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = self.network.graph
        self.source = graph.inputs[0]
        self.names = {self.source: self.source}
        readers = graph.consumers(self.source)
        only_vectors = bool(readers) and all(
            node.op == "Reshape" and prod(graph.shapes[node.outputs[0]][:-1]) == 1 for node in readers
        )
        first = graph.shapes[self.source]
        self.features = {self.source: Features(prod(first)) if only_vectors else Features.of(first)}
        self.asked: set[str] = set()
        self.steps: list[TrainedOperation] = []
        for layer in self.network.layers:
            self._add(layer)
        self.output = self.names[self.network.output]
        self._check()

    @property
    def operations(self) -> TrainingOperations:
        """Operations that were built."""
        return TrainingOperations(tuple(self.steps), self.source, self.output, self.features)

    def _add(self, layer: TrainableLayer) -> None:
        reads = tuple(self.names[name] for name in layer.inputs)
        made = layer.outputs[0]
        if isinstance(layer, Moving):
            self._reshape(layer, reads[0])
            return
        self.names[made] = made
        back = tuple(name in self.asked for name in reads)
        if layer.parameters or any(back):
            self.asked.add(made)
        shapes, inputs = self.network.graph.shapes, self.features[reads[0]]
        source, outputs = shapes[layer.inputs[0]], Features.of(shapes[made])
        kind: type[TrainedOperation] = TrainedRelu
        own: dict[str, Any] = {}
        match layer:
            case Conv():
                self._check_images(layer, inputs)
                kind = TrainedDepthwise if layer.group > 1 else TrainedProduct
                own = {"weight": layer.weight, "bias": layer.bias, "window": WindowShape.of(layer.geometry)}
            case Dense():
                if prod(source[:-1]) != 1:
                    self.problems.append(f"products of vectors, not of {list(source[1:])} as {layer.name}")
                kind, outputs = TrainedProduct, Features(layer.weight.blocks.shape[0])
                own = {"weight": layer.weight, "bias": layer.bias, "window": WindowShape((inputs.height, inputs.width))}
            case MaxPool() | AveragePool():
                self._check_images(layer, inputs)
                kind, own = TrainedMaximum, {"window": self._pool_window(layer, inputs, outputs)}
                if isinstance(layer, AveragePool):
                    numbers = np.unique(divisors(layer.node.attributes(AveragePoolAttributes), source[2:]))
                    kind, own["factor"] = TrainedAverage, Dyadic.nearest(Fraction(1, int(numbers[0])))
            case Mean():
                if Features.of(source) != inputs or [axis - 1 for axis in layer.axes] != list(range(2, len(source))):
                    self.problems.append(f"means over all positions of images, not as {layer.name}")
                kind, outputs = TrainedAverage, Features(inputs.channels)
                own = {"window": WindowShape((inputs.height, inputs.width))}
                own["factor"] = Dyadic.nearest(Fraction(1, inputs.positions))
            case Add():
                if len({self.features[name] for name in reads}) > 1 or len(set(reads)) < len(reads):
                    self.problems.append(f"sums of two tensors with the same layout, not as {layer.name}")
                kind, outputs = TrainedSum, inputs
            case _:
                outputs = inputs
        self.features[made] = outputs
        self.steps.append(kind(layer.name, reads, made, inputs, outputs, back, **own))

    def _check_images(self, layer: TrainableLayer, inputs: Features) -> None:
        """Windows go over images as they were made: what a Reshape has made of a tensor lies as before."""
        shape = self.network.graph.shapes[layer.inputs[0]]
        if len(shape) > _IMAGE_AXES:
            self.problems.append(f"windows over images, not over {list(shape[1:])} as {layer.name}")
        elif Features.of(shape) != inputs:
            self.problems.append(f"windows over images that no reshape has made, not {list(shape[1:])} as {layer.name}")

    def _reshape(self, layer: Moving, read: str) -> None:
        shapes, made = self.network.graph.shapes, layer.outputs[0]
        before, after = shapes[layer.inputs[0]], shapes[made]
        if prod(after[:-1]) != 1 and before != after and not prod(before) == after[1]:
            self.problems.append(f"reshapes to vectors, not to {list(after[1:])} as {layer.name}")
        self.names[made] = read

    def _pool_window(self, layer: MaxPool | AveragePool, inputs: Features, outputs: Features) -> WindowShape:
        """The window of a pooling."""
        window = WindowShape.of(layer.geometry)
        if not layer.geometry.apart:
            self.problems.append(f"windows of poolings that do not overlap, not as {layer.name}")
        if any(not window.inside(tap, inputs, outputs) for tap in range(window.taps)):
            self.problems.append(f"windows of poolings inside the image, not as {layer.name}")
        return window

    def _check(self) -> None:
        """Collect the problems of the network as a whole."""
        operations = self.operations
        for step in operations.steps:
            if len(operations.readers(step.makes)) > _READERS:
                self.problems.append(f"at most {_READERS} readers of a tensor, not as {step.name}")
            if step.makes == self.output and operations.readers(step.makes):
                self.problems.append(f"an output of the network that no layer reads, not {step.name}")
        last = next((step for step in operations.steps if step.makes == self.output), None)
        if not isinstance(last, TrainedProduct | TrainedAverage | TrainedSum):
            self.problems.append("a product, an average or a sum at the end of the network")
        sides = [size for step in self.steps for size in (step.inputs.height, step.inputs.width)]
        if max(sides, default=0) > _SIDE:
            self.problems.append(f"images of at most {_SIDE} rows and columns, not {max(sides)}")
