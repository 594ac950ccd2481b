"""Operations that can be trained on the NPU: those of a network in the order of its graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

import numpy as np

from concord.compiler.ir.layers import LayerWindow
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
from concord.train.npu.tensors import WHOLE, Features
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
    """An operation of a network: a layer of the trainer, and the layouts of what it reads and makes.

    Parameters
    ----------
    layer : TrainableLayer
        What is computed.
    reads : tuple of str
        Tensors that it reads.
    makes : str
        The tensor that it makes.
    inputs, outputs : Features
        Of these.
    back : tuple of bool
        For every tensor that it reads, whether its gradient is asked for.
    window : LayerWindow
        Of a product or a pooling. That of a product with a vector is the whole image.
    factor : Dyadic or None
        Of an average: what the sum of a window is multiplied by.
    """

    layer: TrainableLayer
    reads: tuple[str, ...]
    makes: str
    inputs: Features
    outputs: Features
    back: tuple[bool, ...]
    window: LayerWindow = WHOLE
    factor: Dyadic | None = None

    @property
    def name(self) -> str:
        """Name of the layer."""
        return self.layer.name

    @property
    def product(self) -> bool:
        """True if there are weights and a bias: ``[O, C, *kernel]`` or ``[O, C * taps]``, and ``[O]``."""
        return bool(self.layer.parameters)

    @property
    def pooling(self) -> bool:
        """True for maxima and averages of windows."""
        return isinstance(self.layer, MaxPool | AveragePool | Mean)

    @property
    def depthwise(self) -> bool:
        """True for a convolution with a kernel for every channel; weights are ``[C, 1, *kernel]``."""
        return isinstance(self.layer, Conv) and self.layer.group > 1

    @property
    def flat(self) -> bool:
        """True if every vector of the input is in one window of a product, those of a window side by side."""
        window, (height, width) = self.window, self.inputs.size
        whole = window.kernel == (height, width) and self.outputs.positions == 1
        plain = window.taps == 1 and window.stride == (1, 1)
        apart = window.dilation == (1, 1) and not window.padded(self.outputs.size)
        return self.product and not self.depthwise and (whole or plain) and apart and not any(window.begin)

    @property
    def windowed(self) -> bool:
        """True for a product of all inputs of windows."""
        return self.product and not self.depthwise and not self.flat

    @property
    def packed(self) -> bool:
        """True if all elements of a window of a product fit a vector, and are worth to be put there."""
        return self.windowed and 1 < self.window.taps <= self.inputs.native // self.inputs.channels

    @property
    def windows(self) -> Features:
        """Layout of the elements that windows meet, where a vector holds one window."""
        return replace(self.outputs, channels=self.window.taps * self.inputs.channels)

    @property
    def layouts(self) -> dict[str, Features]:
        """Layouts of its parameters: outputs as channels, taps as rows, inputs of a tap as columns."""
        inputs = 1 if self.depthwise else self.inputs.channels
        bias = Features(self.inputs.native, self.outputs.channels)
        return {"weight": replace(bias, height=self.window.taps, width=inputs), "bias": bias}


@dataclass(frozen=True)
class TrainingOperations:
    """A network.

    Parameters
    ----------
    steps : list of TrainedOperation
        In the order of the graph.
    source, output : str
        The tensors that it reads and makes.
    features : dict
        Of every tensor.
    """

    steps: list[TrainedOperation]
    source: str
    output: str
    features: dict[str, Features]

    @property
    def products(self) -> list[TrainedOperation]:
        """Operations with parameters."""
        return [step for step in self.steps if step.product]

    @property
    def packed_samples(self) -> TrainedOperation | None:
        """The only reader of the samples, if it multiplies windows that a vector holds."""
        readers = self.readers(self.source)
        step = readers[0] if len(readers) == 1 else None
        return step if step is not None and step.packed else None

    def readers(self, tensor: str) -> list[TrainedOperation]:
        """Operations that read a tensor, each as often as it does."""
        return [step for step in self.steps for name in step.reads if name == tensor]


def operations_of(network: TrainableNetwork, settings: Settings, native: int) -> TrainingOperations:
    """The operations of a network.

    Parameters
    ----------
    network, settings
        What is trained, and how.
    native : int
        Native dimension of the NPU.

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
        builder = _Builder(network, native)
        operations = builder.built()
        reasons += [*builder.problems, *_network_in_the_way(operations)]
        if not reasons:
            return operations
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


def _network_in_the_way(operations: TrainingOperations) -> Iterator[str]:
    """Problems of a network as a whole."""
    for step in operations.steps:
        if len(operations.readers(step.makes)) > _READERS:
            yield f"at most {_READERS} readers of a tensor, not as {step.name}"
        if step.makes == operations.output and operations.readers(step.makes):
            yield f"an output of the network that no layer reads, not {step.name}"
    last = [step.layer for step in operations.steps if step.makes == operations.output]
    if not any(isinstance(layer, Conv | Dense | AveragePool | Mean | Add) for layer in last):
        yield "a product, an average or a sum at the end of the network"
    most = max((size for step in operations.steps for size in step.inputs.size), default=0)
    if most > _SIDE:
        yield f"images of at most {_SIDE} rows and columns, not {most}"


def _supported(layer: TrainableLayer) -> bool:
    match layer:
        case Moving():
            return layer.node.op == "Reshape"
        case Conv():
            return layer.group == 1 or layer.depthwise
        case Dense():
            return type(layer) is Dense
    return isinstance(layer, ReluLayer | MaxPool | AveragePool | Mean | Add)


def _named(layer: TrainableLayer) -> str:
    """Name of a layer, and its kind or function."""
    return f"{layer.name} ({layer.function if isinstance(layer, TableFunction) else layer.kind})"


@dataclass
class _Builder:
    """Builds the operations, and collects what is in the way of single layers."""

    network: TrainableNetwork
    native: int
    problems: list[str] = field(default_factory=list)
    #: Tensors that the NPU has, by tensors of the graph.
    names: dict[str, str] = field(default_factory=dict)
    features: dict[str, Features] = field(default_factory=dict)
    #: Tensors whose gradients are asked for.
    asked: set[str] = field(default_factory=set)
    steps: list[TrainedOperation] = field(default_factory=list)

    def built(self) -> TrainingOperations:
        """The operations."""
        graph = self.network.graph
        source = graph.inputs[0]
        first, readers = graph.shapes[source], graph.consumers(source)
        only_vectors = bool(readers) and all(
            node.op == "Reshape" and prod(graph.shapes[node.outputs[0]][:-1]) == 1 for node in readers
        )
        self.names[source] = source
        self.features[source] = Features(self.native, prod(first)) if only_vectors else self._layout(source)
        for layer in self.network.layers:
            if isinstance(layer, Moving):
                self._reshape(layer)
            else:
                self._add(layer)
        return TrainingOperations(self.steps, source, self.names[self.network.output], self.features)

    def _layout(self, name: str) -> Features:
        """Layout of a tensor as the graph has it."""
        return Features.of(self.network.graph.shapes[name], self.native)

    def _add(self, layer: TrainableLayer) -> None:
        reads, made = tuple(self.names[name] for name in layer.inputs), layer.outputs[0]
        back = tuple(name in self.asked for name in reads)
        if layer.parameters or any(back):
            self.asked.add(made)
        source = self.network.graph.shapes[layer.inputs[0]]
        inputs = outputs = self.features[reads[0]]
        window, whole, factor = WHOLE, LayerWindow(inputs.size, size=inputs.size), None
        match layer:
            case Conv():
                window, outputs = self._image_window(layer, inputs), self._layout(made)
            case Dense():
                if prod(source[:-1]) != 1:
                    self.problems.append(f"products of vectors, not of {list(source[1:])} as {layer.name}")
                window, outputs = whole, Features(self.native, layer.weight.blocks.shape[0])
            case MaxPool() | AveragePool():
                window, outputs = self._image_window(layer, inputs), self._layout(made)
                if not layer.geometry.apart:
                    self.problems.append(f"windows of poolings that do not overlap, not as {layer.name}")
                if window.padded(outputs.size):
                    self.problems.append(f"windows of poolings inside the image, not as {layer.name}")
                if isinstance(layer, AveragePool):
                    numbers = np.unique(divisors(layer.node.attributes(AveragePoolAttributes), source[2:]))
                    factor = Dyadic.nearest(Fraction(1, int(numbers[0])))
            case Mean():
                if self._layout(layer.inputs[0]) != inputs or [n - 1 for n in layer.axes] != [*range(2, len(source))]:
                    self.problems.append(f"means over all positions of images, not as {layer.name}")
                window, outputs = whole, Features(self.native, inputs.channels)
                factor = Dyadic.nearest(Fraction(1, inputs.positions))
            case Add():
                if len({self.features[name] for name in reads}) > 1 or len(set(reads)) < len(reads):
                    self.problems.append(f"sums of two tensors with the same layout, not as {layer.name}")
        self.names[made], self.features[made] = made, outputs
        self.steps.append(TrainedOperation(layer, reads, made, inputs, outputs, back, window, factor))

    def _image_window(self, layer: Conv | MaxPool | AveragePool, inputs: Features) -> LayerWindow:
        """Window over images as they were made: what a Reshape has made of a tensor lies as before."""
        shape, geometry = self.network.graph.shapes[layer.inputs[0]], layer.geometry
        if len(shape) > _IMAGE_AXES:
            self.problems.append(f"windows over images, not over {list(shape[1:])} as {layer.name}")
            return WHOLE
        if self._layout(layer.inputs[0]) != inputs:
            self.problems.append(f"windows over images that no reshape has made, not {list(shape[1:])} as {layer.name}")
        return LayerWindow.of(geometry.attributes, geometry.kernel, inputs.size)

    def _reshape(self, layer: Moving) -> None:
        shapes, made = self.network.graph.shapes, layer.outputs[0]
        before, after = shapes[layer.inputs[0]], shapes[made]
        if prod(after[:-1]) != 1 and before != after and not prod(before) == after[1]:
            self.problems.append(f"reshapes to vectors, not to {list(after[1:])} as {layer.name}")
        self.names[made] = self.names[layer.inputs[0]]
