"""Losses of products because the elements of a block share an exponent, as an estimate from numbers and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from concord.graph.channels import ZERO, Channels
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.linear import ConvAttributes, ungrouped
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray, Ids

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
    share : float
        Weight of the square of an error of one unit, for activations and for weights.
    """

    channel: Ids
    blocks: list[Ids]
    x: Ids
    w: Ids
    x_squares: FloatArray
    w_squares: FloatArray
    share: tuple[float, float]

    def cost(self, block: Ids, powers: Ids) -> float:
        """Expected square of the error of one block, ``powers`` by element of it."""
        grown = np.exp2(2.0 * powers)
        activations = np.exp2(2.0 * (self.x[:, block] - powers).max(axis=1)).mean() * (self.w_squares[block] @ grown)
        weights = np.exp2(2.0 * (self.w[:, block] + powers).max(axis=1)).sum() * (self.x_squares[block] @ (1 / grown))
        return float(self.share[0] * activations + self.share[1] * weights)


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
        readers.append(
            ProductLoss(channel, blocks, exponents_of(rows), exponents_of(columns), x_squares, w_squares, share)
        )
    return readers
