"""A graph as a network that can be trained, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from concord.functions import function, trainable
from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops import operator_of
from concord.graph.ops.elementwise import BatchNormAttributes, BinaryAttributes, FunctionAttributes, NormaliseAttributes
from concord.graph.ops.host import LookupAttributes
from concord.graph.ops.linear import AffineAttributes, ConvAttributes, is_fixed
from concord.graph.ops.recurrent import GruAttributes, LstmAttributes, RecurrentAttributes
from concord.spec.training import TrainingFormats
from concord.train.indices import index_lookups, only_indices
from concord.train.layers.attention import Mask, MatMulLayer, SoftmaxLayer
from concord.train.layers.base import PassContext, TrainableLayer
from concord.train.layers.bias import Bias
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense, FixedDense
from concord.train.layers.embedding import Embedding
from concord.train.layers.layer_norm import LayerNorm
from concord.train.layers.normalised import Normalised, normalised
from concord.train.layers.pointwise import Add, Moving, ReluLayer, ScaleLayer, TableFunction
from concord.train.layers.pooling import AveragePool, MaxPool, Mean
from concord.train.layers.recurrent import GRU, LSTM, CellParameters
from concord.train.noise import uniform
from concord.train.norm import Norm
from concord.train.parameters import Parameter
from concord.train.tensor import Tensor, added, quantised, top_of

#: Operators with layers, for messages.
TRAINABLE = (
    "Add (of tensors, of a bias behind a product, or of a mask in front of a Softmax), AveragePool, "
    "BatchNormalization behind a Conv or Dense, Conv, "
    "Dense (Gemm, MatMul with a constant), GRU, Lookup (Gather of a constant by the input), LSTM, MatMul (of tensors), "
    "MaxPool, Mul (by a number), Normalise (LayerNormalization), ReduceMean, Relu, Reshape, Slice, Softmax, Transpose, "
    f"{', '.join(sorted(record.onnx for record in trainable()))}, and a LogSoftmax at the end"
)

#: Operators that belong to the loss where they are the last one.
OF_THE_LOSS = ("Softmax", "LogSoftmax")


class CannotTrain(ValueError):
    """A network with operators that cannot be trained."""


class TrainableNetwork:
    """Layers in the order of a graph.

    Parameters
    ----------
    graph : Graph
        With one input. A Softmax or LogSoftmax at an output belongs to the loss.
    formats : TrainingFormats
        Of parameters.
    seed : int or None
        ``None``: weights are those of the graph. Otherwise they are random and biases zero: weights are uniform within
        ``sqrt(6 / fan-in)``, drawn with the seed.

    Raises
    ------
    CannotTrain
        With everything that cannot be trained.
    ValueError
        If a weight is not finite.
    """

    def __init__(self, graph: Graph, formats: TrainingFormats, seed: int | None = None):
        self.graph, self.formats, self.seed = deepcopy(graph), formats, seed
        if len(graph.inputs) != 1 or not graph.outputs:
            raise CannotTrain(
                f"network must have one input and an output or more, not {len(graph.inputs)} and {len(graph.outputs)}"
            )
        #: Tensors that the losses of the outputs read.
        self.outputs = {name: name for name in graph.outputs}
        problems: list[str] = []
        self.layers: list[TrainableLayer] = []
        for index, node in enumerate(graph.nodes):
            if node.op in OF_THE_LOSS and node.outputs[0] in self.outputs:
                self.outputs[node.outputs[0]] = node.inputs[0]
                if not graph.consumers(node.outputs[0]):
                    continue
            try:
                if node.op == "BatchNorm":
                    self._normalise(node)
                else:
                    self.layers.append(self._layer(node, index))
            except CannotTrain as error:
                problems.append(str(error))
        if problems:
            raise CannotTrain(f"operators must be among {TRAINABLE}; not so: " + "; ".join(problems))
        trained: set[str] = set()
        for layer in self.layers:
            layer.first = not trained & set(layer.inputs)
            if layer.parameters or not layer.first:
                trained.update(layer.outputs)
        if not self.parameters:
            raise CannotTrain("network must have weights to train, and has none")

    # Construction ------------------------------------------------------------------------------------

    def _layer(self, node: Node, index: int) -> TrainableLayer:
        make = self._WITH_WEIGHTS.get(node.op)
        layer = None if make is None else make(self, node, index)
        if layer is not None:
            return layer
        return without_weights(node, [self.graph.shapes[name] for name in node.inputs if name])

    def _conv(self, node: Node, index: int) -> TrainableLayer:
        return Conv(node, *self._weights(node, index, weight_axis(node)))

    def _dense(self, node: Node, index: int) -> TrainableLayer:
        if is_fixed(node):
            return FixedDense(node, *self._constant(node))
        weight, bias = self._weights(node, index, weight_axis(node))
        return Dense(node, weight, None if self._mixed_next(node) else bias)

    def _weights(self, node: Node, index: int, axis: int | None) -> tuple[Parameter, Parameter]:
        how = node.attributes(AffineAttributes)
        formats, weight, bias = self.formats, how.weight, how.bias
        if self.seed is not None:
            fan = int(np.prod(weight.shape[1:]))
            weight = uniform(self.seed, (1, index), weight.size).reshape(weight.shape) * np.sqrt(6.0 / fan)
            bias = np.zeros_like(bias)
        first = Parameter.begin(f"{node.name}.weight", weight, formats.weight, formats.accumulator, axis=axis)
        # A bias of zeros begins with the exponent of the weights, so that it can grow from there.
        second = Parameter.begin(
            f"{node.name}.bias", bias, formats.bias, formats.accumulator, zero_exp=int(first.exp.max())
        )
        return first, second

    def _constant(self, node: Node) -> tuple[Parameter, Parameter | None]:
        """A matrix that is not trained, and a bias after it, if there is one."""
        how = node.attributes(AffineAttributes)
        formats, weight, bias = self.formats, how.weight, how.bias
        first = Parameter.begin(f"{node.name}.weight", weight, formats.weight, formats.accumulator)
        if not bias.any():
            return first, None
        exp, values = int(first.exp.max()), np.zeros_like(bias) if self.seed is not None else bias
        return first, Parameter.begin(f"{node.name}.bias", values, formats.bias, formats.accumulator, zero_exp=exp)

    def _embedding(self, node: Node, index: int) -> TrainableLayer:
        names = [lookup.name for lookup in index_lookups(self.graph)]
        how, formats = node.attributes(LookupAttributes), self.formats
        if how.axis or node.name not in names or not only_indices(self.graph):
            why = "not of whole rows at indices that are the input of the network, and read by nothing else"
            raise CannotTrain(f"{node.name} (Lookup, {why})")
        table = how.table
        if self.seed is not None:
            table = uniform(self.seed, (1, index), table.size).reshape(table.shape)
        return Embedding(node, Parameter.begin(f"{node.name}.table", table, formats.weight, formats.accumulator))

    def _layer_norm(self, node: Node, index: int) -> TrainableLayer:
        scale, formats = np.asarray(node.attributes(NormaliseAttributes).scale, np.float64), self.formats
        values = np.ones_like(scale) if self.seed is not None else scale
        gamma = Parameter.begin(f"{node.name}.scale", values, formats.weight, formats.accumulator)
        return LayerNorm(node, gamma, len(self.graph.shapes[node.inputs[0]]))

    def _mixed_next(self, node: Node) -> bool:
        """True if a product has no bias, and only products with constants read it: there is none between them."""
        if node.attributes(AffineAttributes).bias.any() or node.outputs[0] in self.graph.outputs:
            return False
        readers = list(self.graph.consumers(node.outputs[0]))
        for reader in readers:
            if reader.op in ("Reshape", "Transpose") and reader.outputs[0] not in self.graph.outputs:
                readers += self.graph.consumers(reader.outputs[0])
            elif not is_fixed(reader):
                return False
        return bool(readers)

    def _products_behind(self, tensor: str) -> list[Conv | Dense | Embedding | LayerNorm]:
        """The product, table or normalisation that computes a tensor, and products that compute the input of a product,
        as far as layers between only move elements."""
        products: list[Conv | Dense | Embedding | LayerNorm] = []
        for layer in reversed(self.layers):
            if tensor in layer.outputs:
                if isinstance(layer, Embedding | LayerNorm) and not products:
                    return [layer]
                if not isinstance(layer, Conv | Dense | Moving):
                    break
                products += [] if isinstance(layer, Moving) else [layer]
                tensor = layer.inputs[0]
        return products

    def _constant_sum(self, node: Node, index: int) -> TrainableLayer | None:
        """A bias after a product that it is no part of, or a mask in front of a Softmax; ``None`` if what is added is
        a tensor, or the constant something else."""
        added = node.attributes(BinaryAttributes).constant
        if added is None:
            return None
        shape, constant_shape = self.graph.shapes[node.inputs[0]], np.shape(added)
        whole = (1,) * (len(shape) - len(constant_shape)) + constant_shape
        fits = len(whole) == len(shape) and all(own in (1, size) for own, size in zip(whole, shape, strict=True))
        if not fits:
            return None
        products = self._products_behind(node.inputs[0])
        if not constant_shape or whole[-1] != shape[-1] or not products:
            readers = {reader.op for reader in self.graph.consumers(node.outputs[0])}
            finite = bool(np.isfinite(added).all())
            masks = readers == {"Softmax"} and finite and node.outputs[0] not in self.graph.outputs
            return Mask(node, self.formats) if masks else None
        values, formats = np.asarray(added, np.float64), self.formats
        values = np.zeros_like(values) if self.seed is not None else values
        # As that of a product, a bias of zeros begins with the exponent of weights that are trained.
        product = next((layer for layer in products if "weight" in layer.parameters), products[0])
        exp = int(product.weight.exp.max())
        constant = Parameter.begin(f"{node.name}.constant", values, formats.bias, formats.accumulator, zero_exp=exp)
        return Bias(node, constant, whole)

    def _normalise(self, node: Node) -> None:
        """Put the product in front of a normalisation and that itself in the place of the product."""
        (source,) = node.inputs
        at = next((k for k, layer in enumerate(self.layers) if source in layer.outputs), None)
        product = None if at is None or isinstance(self.layers[at], FixedDense) else self.layers[at]
        read = [other.name for other in self.graph.consumers(source)]
        if at is None or not isinstance(product, Conv | Dense) or read != [node.name] or source in self.graph.outputs:
            why = "not behind a Conv or Dense whose result nothing else reads"
            raise CannotTrain(f'{node.name} (BatchNormalization, {why}; batchnorm = "fold" makes it a constant)')
        channels = len(node.attributes(BatchNormAttributes).scale)
        if product.weight.blocks.shape[0] != channels:
            raise CannotTrain(f"{node.name} (BatchNormalization along an axis that is not that of the outputs)")
        self.layers[at] = normalised(product, node, self.formats, self.seed is not None)

    def _recurrent(self, node: Node, index: int) -> TrainableLayer:
        how = node.attributes(RecurrentAttributes)
        hidden = how.hidden_size
        recurrence = operator_of(node).recurrence
        usual = None if recurrence is None else recurrence.functions
        odd = [
            what
            for what, there in {
                "peepholes": isinstance(how, LstmAttributes) and how.P is not None,
                "input_forget": isinstance(how, LstmAttributes) and how.input_forget,
                "clip": how.clip is not None,
                "functions": any(tuple(names) != usual for names in how.activations),
                "initial states": any(node.inputs[1:])
                or any(state is not None and np.any(state) for state in how.initial),
                "last cell": any(
                    name and (self.graph.consumers(name) or name in self.graph.outputs) for name in node.outputs[2:]
                ),
            }.items()
            if there
        ]
        if odd:
            raise CannotTrain(f"{node.name} ({node.op} with {', '.join(odd)})")
        cells = []
        for d, (w, r, b) in enumerate(zip(how.W, how.R, how.B, strict=True)):
            first, second = np.split(b, 2)
            inner = isinstance(how, GruAttributes) and how.linear_before_reset
            bias = first + second
            if inner:
                bias[2 * hidden :] = first[2 * hidden :]
            after = second[2 * hidden :]
            if self.seed is not None:
                w, r = (
                    uniform(self.seed, (1, index, 2 * d + k), m.size).reshape(m.shape) / np.sqrt(hidden)
                    for k, m in enumerate((w, r))
                )
                bias, after = np.zeros_like(bias), np.zeros_like(after)
            formats = self.formats
            weight, recurrent = (
                Parameter.begin(f"{node.name}.{key}{d}", m, formats.weight, formats.accumulator)
                for key, m in (("weight", w), ("recurrent", r))
            )
            exp = int(weight.exp.max())
            biases = [
                Parameter.begin(f"{node.name}.{key}{d}", m, formats.bias, formats.accumulator, zero_exp=exp)
                for key, m in (("bias", bias), ("hidden_bias", after))
            ]
            cells.append(CellParameters(weight, recurrent, biases[0], biases[1] if inner else None))
        return (LSTM if node.op == "LSTM" else GRU)(node, cells)

    #: Makes the layer of a node with weights from the network, the node and its number; ``None`` if it has none.
    _WITH_WEIGHTS: ClassVar[dict[str, Callable[[TrainableNetwork, Node, int], TrainableLayer | None]]] = {
        "Add": _constant_sum,
        "Conv": _conv,
        "Dense": _dense,
        "GRU": _recurrent,
        "LSTM": _recurrent,
        "Lookup": _embedding,
        "Normalise": _layer_norm,
    }

    # Passes -------------------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        """Tensor that the loss of the only output reads."""
        (tensor,) = self.outputs.values()
        return tensor

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Every parameter by its name."""
        return {p.name: p for layer in self.layers for p in layer.parameters.values()}

    @property
    def constants(self) -> dict[str, Parameter]:
        """Parameters that layers multiply with and do not train, by name."""
        return {p.name: p for layer in self.layers for p in layer.constants.values()}

    @property
    def norms(self) -> dict[str, Norm]:
        """Every normalisation by its name."""
        return {layer.norm.name: layer.norm for layer in self.layers if isinstance(layer, Normalised)}

    def follow(self, seen: Mapping[str, Any]) -> None:
        """Let running statistics follow those of a pass, by the name of the normalisation."""
        norms = self.norms
        for name, statistics in seen.items():
            norms[name].follow(statistics)

    def forward(self, x: Tensor, context: PassContext) -> tuple[Tensor, list[Any]]:
        """The only output before a final Softmax, an intermediate, and what backward needs."""
        outputs, memories = self.forward_all(x, context)
        (output,) = outputs.values()
        return output, memories

    def forward_all(self, x: Tensor, context: PassContext) -> tuple[dict[str, Tensor], list[Any]]:
        """All outputs by their names, each before a final Softmax, and what backward needs."""
        values = {self.graph.inputs[0]: x}
        memories = []
        for layer in self.layers:
            outputs, memory = layer.forward([values[name] for name in layer.inputs], context)
            memories.append(memory if context.training else None)
            values.update(zip(layer.outputs, outputs, strict=False))
        return {name: values[tensor] for name, tensor in self.outputs.items()}, memories

    def backward(
        self, gradient: Tensor | Mapping[str, Tensor], memories: Sequence[Any], context: PassContext
    ) -> dict[str, Tensor]:
        """Gradients of all parameters, from that of the only output, or from those of outputs by their names."""
        arriving = (
            [(self.output, gradient)]
            if isinstance(gradient, Tensor)
            else [(self.outputs[name], of_output) for name, of_output in gradient.items()]
        )
        steps = zip(reversed(self.layers), reversed(memories), strict=True)
        passed = ((layer, layer.inputs, layer.outputs, memory) for layer, memory in steps)
        return {parameter.name: change for parameter, change in parameter_gradients(passed, arriving, context)}

    # The way back ----------------------------------------------------------------------------------------

    def trained(self) -> Graph:
        """The graph with the weights as they are now: every one is what the integers are worth, exactly.

        Normalisations are folded, and so they are in evaluation.
        """
        graph = deepcopy(self.graph)
        layers: Mapping[str, TrainableLayer] = {layer.name: layer for layer in self.layers}
        for k, node in enumerate(graph.nodes):
            if node.name in layers:
                layer = layers[node.name]
                graph.nodes[k] = node.with_attrs(**layer.attributes).replace(outputs=layer.outputs)
        graph.nodes = [node for node in graph.nodes if node.op != "BatchNorm"]
        between = {node.inputs[0] for node in self.graph.nodes if node.op == "BatchNorm"}
        graph.shapes = {name: shape for name, shape in graph.shapes.items() if name not in between}
        return graph


def parameter_gradients(
    steps: Iterable[tuple[TrainableLayer, Sequence[str], Sequence[str], Any]],
    gradients: Iterable[tuple[str, Tensor]],
    context: PassContext,
) -> Iterator[tuple[Parameter, Tensor]]:
    """Gradients of parameters, from those of outputs.

    Parameters
    ----------
    steps : iterable of (TrainableLayer, names, names, memory)
        The forward pass from its end to its start: layers, what they have read and made, and what they have kept.
    gradients : iterable of (str, Tensor)
        Names of the tensors whose gradients are there, and these.
    context : PassContext
        Of the forward pass.
    """
    arriving: dict[str, list[Tensor]] = {}
    for name, gradient in gradients:
        arriving.setdefault(name, []).append(gradient)
    fmt = context.formats.intermediate
    for layer, inputs, outputs, memory in steps:
        grads = [added(arriving.pop(name), fmt) if name in arriving else None for name in outputs]
        if all(g is None for g in grads):
            continue
        back, layer_changes = layer.backward(grads, memory, context)
        yield from ((layer.parameters[key], change) for key, change in layer_changes.items())
        for name, g in zip(inputs, back, strict=True):
            if g is not None and name:
                arriving.setdefault(name, []).append(g)


def weight_axis(node: Node) -> int | None:
    """The axis of a Conv's or Dense's weights along which blocks are: input channels; ``None`` if depthwise."""
    if node.op == "Dense":
        return -1
    how = node.attributes(ConvAttributes)
    return None if how.weight.shape[:2] == (how.group, 1) else 1


def without_weights(node: Node, shapes: Sequence[Shape]) -> TrainableLayer:
    """The layer of a node that has no weights, whose inputs have these shapes.

    Raises
    ------
    CannotTrain
        If there is none.
    """
    layer = _WITHOUT_WEIGHTS.get(node.op)
    if layer is None:
        raise CannotTrain(f"{node.name} ({node.op})")
    if layer is TableFunction:
        functions = node.attributes(FunctionAttributes).names
        if len(functions) != 1 or function(functions[0]).slope is None:
            raise CannotTrain(f"{node.name} ({node.op}: {', '.join(functions)})")
    if layer is ScaleLayer:
        _check_factor(node, shapes)
    if layer is Add:
        if len(node.inputs) != 2:
            raise CannotTrain(f"{node.name} (Add of a constant)")
        if len(set(shapes)) != 1:
            raise CannotTrain(f"{node.name} (Add of the shapes {sorted(set(shapes))})")
    return layer(node)


def _check_factor(node: Node, shapes: Sequence[Shape]) -> None:
    """Raise :class:`CannotTrain` unless a Mul is that of a tensor by one finite number."""
    if len(node.inputs) != 1:
        raise CannotTrain(f"{node.name} (Mul of two tensors)")
    constant = np.asarray(node.attributes(BinaryAttributes).constant)
    if constant.size != 1 or constant.ndim > len(shapes[0]) or not np.isfinite(constant).all():
        raise CannotTrain(f"{node.name} (Mul by a constant that is not one finite number)")


#: Layers without weights by the operator of their node.
_WITHOUT_WEIGHTS: dict[str, type[TrainableLayer]] = {
    "Add": Add,
    "AveragePool": AveragePool,
    "Function": TableFunction,
    "MatMul": MatMulLayer,
    "MaxPool": MaxPool,
    "Mul": ScaleLayer,
    "ReduceMean": Mean,
    "Relu": ReluLayer,
    "Reshape": Moving,
    "Slice": Moving,
    "Softmax": SoftmaxLayer,
    "Transpose": Moving,
}


def batch(values: npt.NDArray[Any], graph: Graph, formats: TrainingFormats) -> Tensor:
    """Samples ``[samples, *shape]`` as activations with one exponent for the batch; indices as they are."""
    if index_lookups(graph):
        mant = values.reshape(len(values), *graph.shapes[graph.inputs[0]]).astype(np.float64)
        return Tensor(mant, 0, top_of(mant))
    block = quantised(values.reshape(-1).astype(np.float64), formats.activation)
    shape = len(values), *graph.shapes[graph.inputs[0]]
    return Tensor.of(block.mant.reshape(shape), int(block.exp), formats.activation.q_max)
