"""Weights of convolutions and products, rounded so that their results change least for the inputs of samples.

Rounding to the nearest is best for weights alone. Inputs that are alike, as those of neighbouring pixels or of channels
after a ReLU are, add errors up or cancel them. So weights are rounded one after the other, and those of the same
output that are still to come make up for each error as well as they can: the method of Frantar et al., "GPTQ: Accurate
Post-Training Quantization for Generative Pre-trained Transformers", ICLR 2023. Exponents of blocks stay what they are.

It is kept for a layer only where it holds for samples that it has not been made with: rounded with one half of them,
weights have to lose clearly less than the nearest ones on the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from concord.compiler.calibration.input_products import InputSums, are_few, channel_means, input_sums
from concord.compiler.ir.layers import Layer, Reduction
from concord.compiler.lowering.rules import lowered
from concord.compiler.model import Compiled
from concord.graph.ir import Graph, Node
from concord.graph.ops.linear import AffineAttributes
from concord.graph.passes.batch import with_batch
from concord.image.packing import depthwise_units, matrix_units
from concord.spec.widths import largest
from concord.utils.arrays import FloatArray, Ids
from concord.utils.blas import SINGLE_THREADED

#: Operators whose weights are rounded for samples; those of others are rounded to the nearest.
ROUNDED = ("Conv", "Dense")
#: Terms to add to the mean square of inputs, relative to its mean, so that few samples do not decide too much.
DAMPINGS = (0.01, 0.1, 1.0)
#: Loss of weights on samples that they were not made with, as a share of the loss of the nearest ones.
KEPT = 0.9
#: Windows, or rows, of a quarter of the samples that are multiplied at most: so many in any case, and so many for every
#: weight of an output. More change hardly any weight.
_WINDOWS, _PER_WEIGHT = 1 << 14, 8
#: Parts into which samples are divided: a half has two halves of its own.
_QUARTERS = 4


@dataclass(frozen=True)
class Units:
    """Values that weights of a node may have: multiples of ``unit``, in the shape of the weights, up to ``largest``."""

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
        node.name: node.attributes(AffineAttributes).weight.shape
        for node in graph.nodes
        if node.op in ROUNDED and node.name not in graph.weight_quantization and are_few(node)
    }
    by_node = {}
    for layer, places in zip(compiled.lowered.layers, _places(compiled, set(sizes)), strict=True):
        if not isinstance(layer, Layer) or layer.weight is None or not layer.nodes or layer.nodes[0] not in sizes:
            continue
        shape, mant = sizes[layer.nodes[0]], formats.mantissa(layer, config)
        count, taken = int(np.prod(shape)), places > 0
        if np.array_equal(np.sort(places[taken]), np.arange(1, count + 1)):
            in_units = depthwise_units if layer.reduction is Reduction.DEPTHWISE else matrix_units
            unit = np.empty(count)
            unit[places[taken] - 1] = in_units(layer.weight, config, mant)[taken]
            by_node[layer.nodes[0]] = Units(unit.reshape(shape), largest(mant))
    return by_node


def _places(compiled: Compiled, names: set[str]) -> list[Ids]:
    """Number, from 1, of the node's weight in each place of the weights of a layer, or 0, by layer.

    The graph is lowered once more, with these numbers as weights; a product that is several layers keeps its own, as
    what these are depends on them.
    """
    names = names & {la.nodes[0] for la in compiled.lowered.layers if isinstance(la, Layer) and la.nodes}
    scale = 2.0**-32  # exact, and below what a block can hold
    nodes = []
    for node in compiled.npu.nodes:
        if node.name in names:
            weight = node.attributes(AffineAttributes).weight
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
    # What matters most has most to make up for it; of what matters as much, rounding of sums does not decide.
    order = np.argsort(-diagonal.astype(np.float32), axis=1, kind="stable")
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
    first, second = halves
    nearest = allowed.nearest(weight)
    least, chosen = KEPT * (loss(weight, nearest, first) + loss(weight, nearest, second)), None
    for damping in DAMPINGS:
        held = loss(weight, rounded(weight, allowed, first, damping), second)
        held += loss(weight, rounded(weight, allowed, second, damping), first)
        if held < least:
            least, chosen = held, damping
    return None if chosen is None else rounded(weight, allowed, (first + second) / 2, chosen)


class _Sums:
    """Sums over the inputs of nodes, of every fourth sample; computed once."""

    def __init__(self, values: Mapping[str, FloatArray]):
        self._values = values
        self._known: dict[str, list[InputSums]] = {}

    def quarters(self, node: Node) -> list[InputSums]:
        """Sums over the samples 0, 4, 8, ..., over 1, 5, 9, ..., and so on."""
        if node.name not in self._known:
            x, weight = self._values[node.inputs[0]], node.attributes(AffineAttributes).weight
            most = max(_WINDOWS, _PER_WEIGHT * weight[0].size)
            origin = channel_means(node, x)
            self._known[node.name] = [input_sums(node, x[k::_QUARTERS], origin, most) for k in range(_QUARTERS)]
        return self._known[node.name]


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
        self.graph = graph
        self._sums = _Sums(values)
        self._parts: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 2), (1, 3))
        self._chosen: dict[tuple[str, int, bytes], FloatArray | None] = {}

    @property
    def divisible(self) -> bool:
        """True if it is one for all samples, of which there are halves."""
        return all(len(part) > 1 for part in self._parts)

    def halved(self, start: int) -> Rounder:
        """A rounder for every other sample from ``start`` on, 0 or 1, if it is :attr:`divisible`."""
        rounder = copy(self)
        first, second = self._parts[start]
        rounder._parts, rounder._chosen = ((first,), (second,)), {}
        return rounder

    def weights(self, compiled: Compiled) -> dict[str, FloatArray]:
        """Rounded weights, by node; those that are best rounded to the nearest are left out."""
        allowed, weights = units(self.graph, compiled), {}
        with SINGLE_THREADED:  # the matrices are too small for more, and sums do not depend on the number of threads
            for node in self.graph.nodes:
                if node.name in allowed and (weight := self._weight(node, allowed[node.name])) is not None:
                    weights[node.name] = weight
        return weights

    def _weight(self, node: Node, allowed: Units) -> FloatArray | None:
        key = node.name, allowed.largest, allowed.unit.tobytes()
        if key not in self._chosen:
            self._chosen[key] = best(node.attributes(AffineAttributes).weight, allowed, self._halves(node))
        return self._chosen[key]

    def _halves(self, node: Node) -> tuple[FloatArray, FloatArray]:
        """Products of inputs of every other sample, and those of the others.

        A bias takes over what rounding changes in the mean. Each half has a mean of its own: one of all samples would
        tell one half about the other.
        """
        quarters, biased = self._sums.quarters(node), node.attributes(AffineAttributes).bias.any()
        first, second = (reduce(add, [quarters[k] for k in part]) for part in self._parts)
        return first.about(first.mean * biased), second.about(second.mean * biased)
