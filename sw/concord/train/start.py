"""Weights to start from, rounded so that results change least for the inputs of samples.

Rounding to the nearest is best for weights alone; :mod:`concord.compiler.calibration.weights` says why another one is
better for results, and rounds. Exponents are chosen here: for a block whose greatest weight is far above the others it
is better to cut that one off and to have finer steps for all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.compiler.calibration.input_products import are_few, channel_means, moments
from concord.compiler.calibration.weights import ROUNDED, Units, best
from concord.golden.training import shared_exponent
from concord.graph import execute
from concord.graph.ir import Graph, Node
from concord.graph.ops.linear import AffineAttributes, ConvAttributes, is_fixed
from concord.spec.training import TRAIN_EXP_MIN, TrainingFormats
from concord.train.network import weight_axis
from concord.train.parameters import BlockLayout
from concord.utils.arrays import FloatArray

#: By how much at most an exponent is below the one that holds the greatest weight.
_CUT = 2


def fitted(graph: Graph, formats: TrainingFormats, x: FloatArray) -> Graph:
    """A network whose weights of convolutions and products are in a format, rounded for samples.

    Training that begins with it begins with these weights, and with accumulators of zeros. Layers for which rounding
    to the nearest is as good on samples that were not rounded with keep their weights. The computation is one in double
    precision: on another machine single weights may be one step apart. What follows from them is exact.

    Parameters
    ----------
    graph : Graph
        The network.
    formats : TrainingFormats
        Of its weights.
    x : array
        Inputs ``[samples, *shape]`` as the network reads them; no labels.

    Raises
    ------
    ValueError
        If there are fewer than two samples.
    """
    if len(x) < 2:
        raise ValueError(f"weights must be rounded for two samples at least, not {len(x)}")
    nodes = [node for node in graph.nodes if node.op in ROUNDED and not is_fixed(node) and are_few(node)]
    name = graph.inputs[0]
    values = execute.run(graph, {name: x.reshape(len(x), *graph.sample_shape(name))}, {n.inputs[0] for n in nodes})
    replaced = {}
    for node in nodes:
        inputs, biased = values[node.inputs[0]], bool(np.any(node.attributes(AffineAttributes).bias))
        halves = [moments(node, half, channel_means(node, half) * biased) for half in (inputs[0::2], inputs[1::2])]
        weight = node.attributes(AffineAttributes).weight
        blocks = BlockLayout(weight.shape, formats.weight.block, weight_axis(node))
        spread = np.broadcast_to(np.diagonal(sum(halves), axis1=1, axis2=2)[:, None], _rows(weight, halves[0]))
        unit = _units(weight, spread.reshape(weight.shape), blocks, formats)
        allowed = Units(unit, formats.weight.q_max)
        chosen = best(weight, allowed, (halves[0], halves[1]))
        rounded = allowed.nearest(weight) if chosen is None else chosen
        bias = (
            node.attributes(AffineAttributes).bias
            + _mean_change(node, weight - rounded, channel_means(node, inputs)) * biased
        )
        replaced[node.name] = node.with_attrs(weight=rounded, bias=bias)
    return replace(graph, nodes=[replaced.get(node.name, node) for node in graph.nodes])


def _mean_change(node: Node, change: FloatArray, mean: FloatArray) -> FloatArray:
    """Change of every output in the mean, so that the bias can make up for it."""
    if node.op == "Dense":
        return change @ mean
    group = node.attributes(ConvAttributes).group
    by_group = change.reshape(group, -1, change.shape[1], int(np.prod(change.shape[2:])))
    return np.asarray(np.einsum("goit,gi->go", by_group, mean.reshape(group, -1)).reshape(-1))


def _rows(weight: FloatArray, products: FloatArray) -> tuple[int, int, int]:
    """``[groups, outputs of a group, D]``."""
    return len(products), len(weight) // len(products), products.shape[1]


def _units(weight: FloatArray, spread: FloatArray, blocks: BlockLayout, formats: TrainingFormats) -> FloatArray:
    """Value of a step of each weight: that of the exponent with the least error of the block.

    ``spread`` is how much a result changes with each weight.
    """
    fmt = formats.weight
    split, heavy = blocks.split(weight), blocks.split(spread)
    top = shared_exponent(split, fmt.bits)
    least, chosen = np.full(top.shape, np.inf), top
    for cut in range(_CUT + 1):
        exp = np.maximum(top - cut, TRAIN_EXP_MIN + formats.accumulator.shift)
        unit = np.ldexp(1.0, exp)[:, None]
        error = (heavy * (Units(unit, fmt.q_max).nearest(split) - split) ** 2).sum(axis=1)
        chosen, least = np.where(error < least, exp, chosen), np.minimum(error, least)
    return blocks.join(np.broadcast_to(np.ldexp(1.0, chosen)[:, None], split.shape))
