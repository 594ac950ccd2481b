"""Weights of convolutions and products, rounded so that their results change least for the inputs of samples.

Rounding to the nearest is best for weights alone. Inputs that are alike, as those of neighbouring pixels or of channels
behind a ReLU are, add errors up or cancel them. So weights are rounded one after the other, and those of the same
output that are still to come make up for each error as well as they can: the method of Frantar et al., "GPTQ: Accurate
Post-Training Quantization for Generative Pre-trained Transformers", ICLR 2023. Exponents of blocks stay what they are.

It is kept for a layer only where it holds for samples that it has not been made with: rounded with one half of them,
weights have to lose clearly less than the nearest ones on the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from concord.compiler.ir.layers import Layer, Reduction
from concord.compiler.lowering.rules import lowered
from concord.compiler.model import Compiled
from concord.graph.ir import Graph, Node
from concord.graph.ops.windows import windows
from concord.graph.passes.batch import with_batch
from concord.image.packing import depthwise_units, matrix_units
from concord.utils.arrays import FloatArray, Ids

#: Operators whose weights are rounded for samples; those of others are rounded to the nearest.
ROUNDED = ("Conv", "Dense")
#: What is added to the mean square of inputs, relative to its mean, so that few samples do not decide too much.
DAMPINGS = (0.01, 0.1, 1.0)
#: What weights may lose on samples that they were not made with, as a share of what the nearest ones lose.
KEPT = 0.9
#: Elements of windows that are taken at once.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Units:
    """What weights of a node may become: multiples of ``unit``, in the shape of the weights, up to ``largest``."""

    unit: FloatArray
    largest: int

    def nearest(self, weight: FloatArray) -> FloatArray:
        """Every weight rounded by itself."""
        return np.asarray(np.clip(np.rint(weight / self.unit), -self.largest, self.largest) * self.unit)


def units(graph: Graph, compiled: Compiled) -> dict[str, Units]:
    """Units of all convolutions and products whose weights are each in one place, by node.

    Weights that are codes of a quantised model are left out: they are what they should be.

    Parameters
    ----------
    graph : Graph
        What was compiled.
    compiled : Compiled
        Says where weights are, and the widths of their mantissas.
    """
    config, formats = compiled.image.config, compiled.package.formats
    sizes = {
        node.name: node.attrs["weight"].shape
        for node in graph.nodes
        if node.op in ROUNDED and node.name not in graph.weight_quantization
    }
    found = {}
    for layer, places in zip(compiled.lowered.layers, _places(compiled, set(sizes)), strict=True):
        if not isinstance(layer, Layer) or layer.weight is None or layer.nodes[0] not in sizes:
            continue
        shape, mant = sizes[layer.nodes[0]], formats.mantissa(layer, config)
        count, taken = int(np.prod(shape)), places > 0
        if np.array_equal(np.sort(places[taken]), np.arange(1, count + 1)):
            in_units = depthwise_units if layer.reduction is Reduction.DEPTHWISE else matrix_units
            unit = np.empty(count)
            unit[places[taken] - 1] = in_units(layer.weight, config, mant)[taken]
            found[layer.nodes[0]] = Units(unit.reshape(shape), (1 << mant - 1) - 1)
    return found


def _places(compiled: Compiled, names: set[str]) -> list[Ids]:
    """By layer, in the shape of its weights: the number, from 1, of the node's weight that is there, or 0.

    The graph is lowered once more, with these numbers as weights; a product that is several layers keeps its own, as
    what these are depends on them.
    """
    names = names & {la.nodes[0] for la in compiled.lowered.layers if isinstance(la, Layer) and la.nodes}
    scale = 2.0**-32  # exact, and below what a block can hold
    nodes = []
    for node in compiled.npu.nodes:
        if node.name in names:
            weight = node.attrs["weight"]
            node = node.with_attrs(weight=scale * np.arange(1.0, weight.size + 1).reshape(weight.shape))
        nodes.append(node)
    npu = replace(compiled.npu, nodes=nodes)
    if (batch := compiled.package.arrangement.batch) != 1:
        npu = with_batch(npu, batch)
    formats = replace(compiled.package.formats, means={}, weights={})
    unfold, variance_range = compiled.lowered.unfold, compiled.lowered.variance_range
    layers = lowered(npu, compiled.image.config, unfold, formats, variance_range).layers
    none = np.zeros(0)
    weights = [layer.weight if isinstance(layer, Layer) and layer.weight is not None else none for layer in layers]
    return [np.rint(weight / scale).astype(np.int64) for weight in weights]


def channel_means(node: Node, x: FloatArray) -> FloatArray:
    """Mean of every input channel of a convolution or product; zeros without samples."""
    channel = -1 if node.op == "Dense" else 1 - node.attrs["weight"].ndim
    rows = np.moveaxis(x, channel, -1).reshape(-1, x.shape[channel])
    return np.asarray(rows.sum(axis=0) / max(len(rows), 1))


def moments(node: Node, x: FloatArray, mean: FloatArray) -> FloatArray:
    """Mean products of what the weights of an output are multiplied with, less the mean of its channel.

    Parameters
    ----------
    node : Node
        A convolution or a product.
    x : array
        Its inputs, samples along the first axis.
    mean : array
        By channel of the input.

    Returns
    -------
    array
        ``[groups, D, D]`` for weights ``[outputs, D]`` in groups of outputs.
    """
    weight = node.attrs["weight"]
    if node.op == "Dense":
        rows = x.reshape(-1, x.shape[-1]) - mean
        return np.asarray(rows.T @ rows / max(len(rows), 1))[None]
    group, rank = node.attrs["group"], weight.ndim - 2
    images = x.reshape(-1, *x.shape[-rank - 1 :])
    inputs = weight[0].size
    total, count = np.zeros((group, inputs, inputs)), 0
    size = max(1, _BLOCK // (group * inputs * max(1, int(np.prod(images.shape[2:])))))
    for start in range(0, len(images), size):
        view = windows(node.attrs, weight.shape[2:], images[start : start + size], 0.0)
        order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
        columns = view.transpose(order).reshape(len(mean), int(np.prod(weight.shape[2:])), -1)
        columns = (columns - mean[:, None, None]).reshape(group, inputs, -1)
        total += columns @ columns.swapaxes(1, 2)
        count += columns.shape[2]
    return total / max(count, 1)


def rounded(weight: FloatArray, allowed: Units, products: FloatArray, damping: float) -> FloatArray:
    """Round one weight of every output after the other; the next ones make up for its error.

    Parameters
    ----------
    weight : array
        ``[outputs, ...]``.
    allowed : Units
        What it may become.
    products : array
        ``[groups, D, D]``: mean products of inputs.
    damping : float
        What is added to their diagonals, relative to the mean of these.
    """
    groups, inputs = products.shape[:2]
    shape = groups, len(weight) // groups, inputs
    diagonal = np.diagonal(products, axis1=1, axis2=2)
    order = np.argsort(-diagonal, axis=1, kind="stable")  # what matters most has most to make up for it
    by_row, each = order[:, None, :], np.arange(groups)[:, None, None]
    left = np.take_along_axis(weight.reshape(shape), by_row, axis=2)
    unit = np.take_along_axis(allowed.unit.reshape(shape), by_row, axis=2)
    level = damping * diagonal.mean(axis=1) + np.finfo(np.float64).tiny ** 0.5
    damped = products[each, order[:, :, None], by_row] + level[:, None, None] * np.eye(inputs)
    upper = np.linalg.cholesky(np.linalg.inv(damped)).swapaxes(1, 2)
    for k in range(inputs):
        codes = np.clip(np.rint(left[..., k] / unit[..., k]), -allowed.largest, allowed.largest)
        error = (left[..., k] - codes * unit[..., k]) / upper[:, k, k, None]
        left[..., k] = codes * unit[..., k]
        left[..., k + 1 :] -= error[..., None] * upper[:, None, k, k + 1 :]
    result = np.empty(shape)
    np.put_along_axis(result, np.broadcast_to(by_row, shape), left, axis=2)
    return result.reshape(weight.shape)


def loss(weight: FloatArray, other: FloatArray, products: FloatArray) -> float:
    """Mean square, summed over outputs, of what other weights change."""
    change = (other - weight).reshape(len(products), -1, products.shape[1])
    return float(np.einsum("goi,gij,goj->", change, products, change, optimize=True))


def best(weight: FloatArray, allowed: Units, halves: tuple[FloatArray, FloatArray]) -> FloatArray | None:
    """The best weights, or ``None`` if these are the nearest ones.

    Parameters
    ----------
    weight, allowed
        As for :func:`rounded`.
    halves : two arrays
        Mean products of inputs of two halves of the samples.
    """
    one, other = halves
    nearest = allowed.nearest(weight)
    least, chosen = KEPT * (loss(weight, nearest, one) + loss(weight, nearest, other)), None
    for damping in DAMPINGS:
        held = loss(weight, rounded(weight, allowed, one, damping), other)
        held += loss(weight, rounded(weight, allowed, other, damping), one)
        if held < least:
            least, chosen = held, damping
    return None if chosen is None else rounded(weight, allowed, (one + other) / 2, chosen)


class Rounder:
    """Rounds the weights of a network for samples.

    Parameters
    ----------
    graph : Graph
        The network.
    values : mapping of str to array
        All tensors in double precision, samples along the first axis.
    """

    def __init__(self, graph: Graph, values: Mapping[str, FloatArray]):
        self.graph, self.values = graph, values
        self._products: dict[str, tuple[FloatArray, FloatArray]] = {}
        self._chosen: dict[tuple[str, int, bytes], FloatArray | None] = {}

    def weights(self, compiled: Compiled) -> dict[str, FloatArray]:
        """What the weights become, by node; those that are best rounded to the nearest are left out."""
        allowed, found = units(self.graph, compiled), {}
        for node in self.graph.nodes:
            if node.name in allowed and (weight := self._weight(node, allowed[node.name])) is not None:
                found[node.name] = weight
        return found

    def _weight(self, node: Node, allowed: Units) -> FloatArray | None:
        key = node.name, allowed.largest, allowed.unit.tobytes()
        if key not in self._chosen:
            self._chosen[key] = best(node.attrs["weight"], allowed, self._halves(node))
        return self._chosen[key]

    def _halves(self, node: Node) -> tuple[FloatArray, FloatArray]:
        """Products of inputs of every other sample, and those of the others.

        A bias takes over what rounding changes in the mean. Each half has a mean of its own: one of all samples would
        tell one half about the other.
        """
        if node.name not in self._products:
            x, biased = self.values[node.inputs[0]], node.attrs["bias"].any()
            one, other = (moments(node, half, channel_means(node, half) * biased) for half in (x[0::2], x[1::2]))
            self._products[node.name] = one, other
        return self._products[node.name]
