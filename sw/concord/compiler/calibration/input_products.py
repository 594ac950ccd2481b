"""Mean products of what the weights of a node are multiplied with, from samples.

Sums over parts of the samples add up, so that every part is multiplied once, whatever subsets of them are looked at.
Windows beside each other have much in common, so of large maps not every window is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from concord.graph.ir import Node
from concord.graph.ops.linear import AffineAttributes, ConvAttributes
from concord.graph.ops.windows import windows
from concord.utils.arrays import FloatArray

#: Elements of windows that are taken at once.
_BLOCK = 1 << 22
#: Products of inputs that are kept: those of a matrix with 2,896 columns.
_MOST_PRODUCTS = 1 << 23
#: Less than this, relative to the terms of a sum or to the square of a mean, is taken for the rounding of these.
_OF_TERMS, _OF_SQUARE = 1e-12, 1e-28


def channel_means(node: Node, x: FloatArray) -> FloatArray:
    """Mean of every input channel of a convolution or product; zeros without samples."""
    channel = -1 if node.op == "Dense" else 1 - node.attributes(ConvAttributes).weight.ndim
    rows = np.moveaxis(x, channel, -1).reshape(-1, x.shape[channel])
    return np.asarray(rows.sum(axis=0) / max(len(rows), 1))


def are_few(node: Node) -> bool:
    """True if the products of inputs of a convolution or product are few enough to be kept, four times."""
    weight = node.attributes(AffineAttributes).weight
    groups = 1 if node.op == "Dense" else node.attributes(ConvAttributes).group
    columns = prod(weight.shape[1:])
    return groups * columns**2 <= _MOST_PRODUCTS


@dataclass(frozen=True)
class InputSums:
    """Sums over the inputs of a convolution or product, of some samples.

    Parameters
    ----------
    origin : array
        By channel of the input: what is taken off all inputs, so that sums of squares are not far greater than
        variances.
    samples : int
        Number of samples.
    means : array
        By channel: mean of the inputs times the number of samples.
    windows : int
        Number of windows, or of rows.
    total : array
        ``[groups, D]``: sum of what weights ``[outputs, D]`` in groups of outputs are multiplied with.
    products : array
        ``[groups, D, D]``: sum of their products.
    """

    origin: FloatArray
    samples: int
    means: FloatArray
    windows: int
    total: FloatArray
    products: FloatArray

    def __add__(self, other: InputSums) -> InputSums:
        """Sums over the samples of both, which have the same origin."""
        return InputSums(
            self.origin,
            self.samples + other.samples,
            self.means + other.means,
            self.windows + other.windows,
            self.total + other.total,
            self.products + other.products,
        )

    @property
    def mean(self) -> FloatArray:
        """Mean of the inputs by channel; zeros without samples."""
        return np.asarray(self.means / max(self.samples, 1))

    def about(self, mean: FloatArray) -> FloatArray:
        """Mean products ``[groups, D, D]`` of inputs less ``mean`` by channel; 0 where they are always that mean."""
        shift, middle = self._spread(mean - self.origin), self._spread(mean)
        crossed = self.total[:, :, None] * shift[:, None, :]
        squares = self.windows * shift[:, :, None] * shift[:, None, :]
        centred = self.products - crossed - crossed.swapaxes(1, 2) + squares
        terms = _diagonal(self.products) + 2 * np.abs(_diagonal(crossed)) + _diagonal(squares)
        left = _diagonal(centred) > _OF_TERMS * terms + _OF_SQUARE * self.windows * np.square(middle)
        return np.asarray(np.where(left[:, :, None] & left[:, None, :], centred, 0.0) / max(self.windows, 1))

    def _spread(self, by_channel: FloatArray) -> FloatArray:
        """Values of channels, repeated for every weight of an output."""
        return np.repeat(by_channel, self.total.size // len(by_channel)).reshape(self.total.shape)


def _diagonal(matrices: FloatArray) -> FloatArray:
    return np.asarray(np.diagonal(matrices, axis1=1, axis2=2))


def input_sums(node: Node, x: FloatArray, origin: FloatArray, most: int | None = None) -> InputSums:
    """Sums over the inputs of a convolution or product.

    Parameters
    ----------
    node : Node
        A convolution or a product.
    x : array
        Its inputs, samples along the first axis.
    origin : array
        What is taken off them, by channel.
    most : int, optional
        About so many windows, or rows, are taken, at least one of every image. They are spread evenly.
    """
    weight = node.attributes(AffineAttributes).weight
    groups = 1 if node.op == "Dense" else node.attributes(ConvAttributes).group
    inputs = int(np.prod(weight.shape[1:]))
    total, products, count = np.zeros((groups, inputs)), np.zeros((groups, inputs, inputs)), 0
    for columns in _columns(node, x, origin, most):
        total += columns.sum(axis=2)
        for group, matrix in enumerate(columns):
            products[group] += matrix @ matrix.T
        count += columns.shape[2]
    return InputSums(origin, len(x), len(x) * channel_means(node, x), count, total, products)


def moments(node: Node, x: FloatArray, mean: FloatArray) -> FloatArray:
    """Mean products ``[groups, D, D]`` of what weights of an output are multiplied with, less the mean of a channel.

    Parameters
    ----------
    node, x
        As for :func:`input_sums`.
    mean : array
        By channel of the input.
    """
    return input_sums(node, x, mean).about(mean)


def _columns(node: Node, x: FloatArray, origin: FloatArray, most: int | None) -> Iterator[FloatArray]:
    """Factors of the weights, less the origin: ``[groups, D, windows]``, in pieces."""
    if node.op == "Dense":
        rows = x.reshape(-1, x.shape[-1])
        rows = rows[:: _step(len(rows), most)] - origin
        yield rows.T[None]
        return
    attributes = node.attributes(ConvAttributes)
    weight, group = attributes.weight, attributes.group
    rank, inputs = weight.ndim - 2, weight[0].size
    images = x.reshape(-1, *x.shape[-rank - 1 :])
    counts = windows(attributes, weight.shape[2:], images[:1], 0.0).shape[2 : 2 + rank]
    positions = int(np.prod(counts))
    step = min(_step(len(images) * positions, most), positions)
    size = max(1, _BLOCK // (group * inputs * -(-positions // step)))
    for first in range(min(step, len(images))):  # every image has other windows than the ones before
        which = np.unravel_index(np.arange(first, positions, step), counts)
        chosen = images[first::step]
        for start in range(0, len(chosen), size):
            view = windows(attributes, weight.shape[2:], chosen[start : start + size], 0.0)
            index: tuple[Any, ...] = (slice(None), slice(None), *which)
            order = (1, *range(3, 3 + rank), 0, 2)
            columns = view[index].transpose(order).reshape(len(origin), int(np.prod(weight.shape[2:])), -1)
            yield (columns - origin[:, None, None]).reshape(group, inputs, -1)


def _step(count: int, most: int | None) -> int:
    """Distance of windows that are taken: an odd number, so that they are not all of the same columns of a map."""
    step = 1 if most is None else max(1, count // most)
    return step - 1 + step % 2
