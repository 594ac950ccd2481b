"""Losses of products because the elements of a block share an exponent, as an estimate from numbers and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from concord.graph.channels import FIXED, ZERO, Channels
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.linear import ConvAttributes, ungrouped
from concord.spec.config import NpuConfig
from concord.utils.arrays import Bools, FloatArray, Ids

#: Stands for the exponent of zero.
NOTHING = -200
#: Rows of a tensor that are looked at.
_ROWS = 256
_SEED = 7


@dataclass(frozen=True)
class ProductLoss:
    """Loss of a product with constants through rounding to blocks, by the powers of its channels.

    Parameters
    ----------
    channel : array of int ``[D]``
        Channel of every element that it sums up.
    blocks : list of arrays of int
        Elements that share an exponent.
    x, w : arrays of int
        ``[rows, D]`` and ``[outputs, D]``: floor of log2 of magnitudes.
    x_squares, w_squares : arrays ``[D]``
        Mean square of the elements, sum of squares of the weights.
    share : tuple of float
        Weight of the square of an error of one unit, for activations and for weights.
    least : tuple of int
        log2 of the numbers below which blocks of both are rounded as finely as there, and no finer.
    results : array of int ``[outputs]``
        Channels of what the rows of weights compute.
    """

    channel: Ids
    blocks: list[Ids]
    x: Ids
    w: Ids
    x_squares: FloatArray
    w_squares: FloatArray
    share: tuple[float, float]
    least: tuple[int, int]
    results: Ids

    def below(self, block: Ids) -> Bools:
        """Rows of the weights of a block that the least exponent rounds, as they are."""
        largest = self.w[:, block].max(axis=1)
        return np.asarray((largest > NOTHING) & (largest < self.least[1]))

    def cost(self, block: Ids, powers: Ids, of_results: Ids | int) -> float:
        """Expected square of the error of one block, ``powers`` by element of it, and by row of the weights."""
        grown = np.exp2(2.0 * powers)
        x = _units(self.x[:, block] - powers, self.least[0])
        w = _units(self.w[:, block] + powers, self.least[1] + of_results)
        activations = x.mean() * (self.w_squares[block] @ grown)
        weights = w.sum() * (self.x_squares[block] @ (1 / grown))
        return float(self.share[0] * activations + self.share[1] * weights)


def _units(exponents: Ids, least: int | Ids) -> FloatArray:
    """Square of the largest number of blocks ``[blocks, elements]``, at least that of the least; zero without any."""
    largest = exponents.max(axis=1)
    return np.where(largest > NOTHING // 2, np.exp2(2.0 * np.maximum(largest, least)), 0.0)


def columns_of(node: Node, weight: FloatArray) -> FloatArray:
    """Weights of a product as ``[..., D]``, a row for every output and tap; of a convolution in groups zeros beside."""
    if node.op != "Conv":
        return weight.reshape(-1, weight.shape[-1])
    full = ungrouped(weight, node.attributes(ConvAttributes).group)
    return np.moveaxis(full, 1, -1).reshape(-1, full.shape[1])


def exponents_of(values: FloatArray) -> Ids:
    """Floor of log2 of magnitudes."""
    return np.where(values == 0, NOTHING, np.frexp(values)[1] - 1).astype(np.int64)


def _blocks(graph: Graph, native: int) -> dict[str, Ids]:
    """Native vector that every element lies in, by tensor, as far as that is known before layers are made."""
    blocks: dict[str, Ids] = {}
    start = 0

    def own(shape: Sequence[int], channel: int) -> Ids:
        nonlocal start
        moved = [*shape[:channel], *shape[channel + 1 :], shape[channel]] if shape else [1]
        vectors = -(-moved[-1] // native)
        lines = np.arange(int(np.prod(moved[:-1], dtype=int))).reshape([*moved[:-1], 1])
        ids = start + lines * vectors + np.arange(moved[-1]) // native
        start += int(np.prod(moved[:-1], dtype=int)) * vectors
        return np.moveaxis(ids, -1, channel).reshape(tuple(shape))

    for name in graph.inputs:
        shape = graph.shapes[name]
        image = any(operator_of(node).windowed for node in graph.consumers(name))
        blocks[name] = own(shape, 1 if image else max(len(shape) - 1, 0))
    for node in graph.nodes:
        record = operator_of(node)
        if (record.view or node.op == "PadCopy") and all(name in blocks for name in node.inputs):
            padded = node.with_attrs(value=ZERO) if "value" in node.attrs else node
            (made,) = record.evaluate(padded, [blocks[name][None].astype(np.float64) for name in node.inputs])
            blocks[node.outputs[0]] = np.asarray(made[0]).astype(np.int64)
            continue
        for name in filter(None, node.outputs):
            shape, (first, *_) = graph.shapes[name], node.inputs
            if not record.windowed and record.weights is None and graph.shapes[first] == shape:
                blocks[name] = blocks[first]
            else:
                blocks[name] = own(shape, 1 if record.windowed else max(len(shape) - 1, 0))
    return blocks


def _results(graph: Graph, channel_map: Channels, node: Node, rows: int) -> Ids:
    """Channels of what the rows of the weights of a product compute."""
    affine = operator_of(node).affine
    if affine is None:
        return np.full(1, FIXED)
    ids = channel_map.of[node.outputs[0]]
    return np.moveaxis(ids, affine.channel(ids.ndim), 0).reshape(rows, -1)[:, 0]


def product_losses(
    graph: Graph,
    channel_map: Channels,
    config: NpuConfig,
    values: Mapping[str, FloatArray],
    mantissas: Mapping[str, int],
) -> list[ProductLoss]:
    """Losses of all products with constants that sum up several elements of a block.

    Parameters
    ----------
    graph, found
        The network and its channels.
    config : NpuConfig
        Widths of mantissas, and elements of a native vector.
    values : mapping of str to array
        All tensors in double precision, samples along the first axis.
    mantissas : mapping of str to int
        Bits of the weights of layers that have others.
    """
    rng, places, readers = np.random.default_rng(_SEED), _blocks(graph, config.native), []
    for node in graph.nodes:
        record = operator_of(node)
        if node.name not in channel_map.columns or record.weights is None:
            continue
        weight, channel = record.weights.weight_of(node), channel_map.columns[node.name]
        if node.op == "Conv" and node.attributes(ConvAttributes).group == len(weight) == len(channel):
            continue  # depthwise: an exponent per channel
        axis = record.weights.inputs % len(graph.shapes[node.inputs[0]])
        x = values[node.inputs[0]]
        x = x.reshape(len(x), *graph.shapes[node.inputs[0]])
        rows = np.moveaxis(x, axis + 1, -1).reshape(-1, x.shape[axis + 1])
        if len(rows) > _ROWS:
            rows = rows[rng.choice(len(rows), _ROWS, replace=False)]
        place = np.moveaxis(places[node.inputs[0]], axis, -1).reshape(-1, x.shape[axis + 1])[0]
        blocks = [np.flatnonzero(place == vector) for vector in np.unique(place)]
        columns = columns_of(node, weight)
        result = values[node.outputs[0] or next(filter(None, node.outputs))]
        power = float(np.square(result).mean()) * len(weight) + 1e-300
        bits = mantissas.get(node.name, config.wgt_mant)
        share = 4.0 ** (2 - config.act_mant) / 12 / power, 4.0 ** (2 - bits) / 12 / power
        x_squares, w_squares = np.square(rows).mean(axis=0), np.square(columns).sum(axis=0) * (rows != 0).mean(axis=0)
        least = config.act_exp_min + config.act_mant - 2, config.wgt_exp_min + bits - 2
        exponents = exponents_of(rows), exponents_of(columns)
        of_rows = _results(graph, channel_map, node, len(weight))
        results = np.repeat(of_rows, len(columns) // len(of_rows))
        readers.append(ProductLoss(channel, blocks, *exponents, x_squares, w_squares, share, least, results))
    return readers
