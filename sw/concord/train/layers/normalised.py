"""Batch normalisation after a convolution or product, and the weights it is folded into.

In training the result of the product is normalised with mean and variance of the batch, channel by channel. For
evaluation and export the running ones are folded into weights and bias, which are narrowed to the bits the NPU holds:
what is judged is what is written. Sums are integers, and everything per channel is computed with integers of any
length (:mod:`concord.golden.normalise`), so the order of samples changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.normalise import nearest, rounded_quotient
from concord.golden.rounding import MAGNITUDE_BITS, round_shift
from concord.golden.training import bits_to_drop, ceil_log2
from concord.graph.ir import Node
from concord.graph.ops.elementwise import BatchNormAttributes
from concord.spec.training import BLOCK_SPREAD, TRAIN_EXP_MIN, TrainingFormat, TrainingFormats
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer, only
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense, with_bias
from concord.train.norm import ROOT_BITS, Norm, Number, Running, Statistics, on_one_grid
from concord.train.parameters import BlockLayout, Parameter
from concord.train.products import exact, total
from concord.train.tensor import Array, Dyadic, Tensor, to_format, top_of
from concord.utils.arrays import Ints

#: Of what is centred, and of what is normalised.
CENTRED = TrainingFormat(16)
#: A folded bias has as many bits as the significand of binary16, and is a multiple of ``2**BIAS_EXP`` as that is.
BIAS_BITS, BIAS_EXP = 11, -24
#: Elements have that many bits where a mean is taken off, and factors on one grid at most.
FINE = 30


@dataclass(frozen=True)
class Fixed:
    """Weights that are not trained, in the place of a :class:`concord.train.parameters.Parameter`.

    Parameters
    ----------
    tensor : Tensor
        For products.
    blocks : BlockLayout
        Shape.
    """

    tensor: Tensor
    blocks: BlockLayout

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Values of the parameters: exact, for export."""
        return self.tensor.values


@dataclass
class _Kept:
    """Memory of the forward pass that backward needs."""

    product: Memory
    normal: Tensor
    roots: list[Number]
    shape: tuple[int, ...]


class Normalised(TrainableLayer):
    """A convolution or product without bias, and the normalisation after it.

    Parameters
    ----------
    product : Conv or Dense
        Its bias, if it has one, must have been taken over (:meth:`Norm.begin_behind`).
    norm : Norm
        Of as many channels.
    outputs : tuple of str
        Of the normalisation.
    """

    def __init__(self, product: Conv | Dense, norm: Norm, outputs: tuple[str, ...]):
        super().__init__(product)
        self.outputs = outputs
        self.product, self.norm = copy(product), norm
        self.product.bias = None
        self.axis = product.axis if isinstance(product, Conv) else -1

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {"weight": self.product.weight, "scale": self.norm.scale, "shift": self.norm.shift}

    @property
    def attributes(self) -> dict[str, Any]:
        """Folded weights and bias."""
        weight, bias = self.folded
        return {"weight": weight.values, "bias": bias.values}

    # Evaluation ------------------------------------------------------------------------------------------

    @property
    def folded(self) -> tuple[Fixed, Fixed]:
        """Weights and bias of evaluation and export.

        With ``f`` the factor of a channel (:meth:`Norm.factors` of the running variance): weights are ``W f``, narrowed
        to the format of weights with an exponent per channel, at most 12 below the greatest; the bias is
        ``beta - mean f``, the nearest number of 11 bits, and a multiple of ``2**-24``.
        """
        parameter, norm = self.product.weight, self.norm
        factors = norm.factors([norm.root(mant, 1, exp) for mant, exp in norm.variance.numbers])
        w, shift = parameter.tensor, norm.shift.tensor
        rows = w.mant.reshape(len(factors), -1).astype(np.int64)
        mants = rows * np.array([mant for mant, _ in factors], np.int64)[:, None]
        weight = _narrow_rows(mants, w.exp + np.array([exp for _, exp in factors], np.int64), parameter.fmt)
        biases = []
        for beta, (mean, at), (mant, exp) in zip(shift.mant.tolist(), norm.mean.numbers, factors, strict=True):
            least = min(shift.exp, at + exp)
            worth = (int(beta) << shift.exp - least) - (mean * mant << at + exp - least)
            rounded = nearest(worth, 1, least, BIAS_BITS)
            if rounded[1] < BIAS_EXP:
                rounded = rounded_quotient(worth, 1 << BIAS_EXP - least), BIAS_EXP
            biases.append(rounded)
        bias = on_one_grid(biases, MAGNITUDE_BITS)
        return Fixed(weight.reshaped(*w.mant.shape), parameter.blocks), Fixed(bias, norm.shift.blocks)

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        if context.training:
            return self._normalise(xs, context)
        plain = copy(self.product)
        plain.weight, plain.bias = self.folded  # type: ignore[assignment]
        return plain.forward(xs, context)

    # Training --------------------------------------------------------------------------------------------

    def _rows(self, mant: Array) -> Array:
        """``[elements, C]``."""
        last = np.moveaxis(mant, self.axis, -1)
        return last.reshape(-1, last.shape[-1])

    def _whole(self, rows: Array, shape: Sequence[int]) -> Array:
        """Inverse of :meth:`_rows`."""
        sizes = np.moveaxis(np.empty(shape, np.bool_), self.axis, -1).shape
        return np.moveaxis(rows.reshape(sizes), -1, self.axis)

    def _normalise(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        (y,), memory = self.product.forward(xs, context)
        rows = self._rows(y.mant)
        fine = max(0, FINE - top_of(rows).bit_length())
        sums = [int(s) for s in total(rows, y.peak, (0,))[0].tolist()]
        centre = np.array([rounded_quotient(s << fine, len(rows)) for s in sums], np.float64)
        short, drop = narrow_columns(np.ldexp(rows.astype(np.float64), fine) - centre)
        exps = [y.exp - fine + int(d) for d in drop]
        squares = [int(v) for v in total(np.square(short), CENTRED.q_max**2, (0,))[0].tolist()]
        context.seen[self.norm.name] = Statistics(len(rows), sums, y.exp, squares, exps)
        roots = [self.norm.root(v, len(rows), 2 * e) for v, e in zip(squares, exps, strict=True)]
        normal = normal_columns(short, np.array(exps), *np.array(roots, dtype=np.int64).T)
        scale, shift = self.norm.scale.tensor, self.norm.shift.tensor
        mant, peak = exact(np.multiply, normal.mant, normal.peak, scale.mant, scale.peak, 1)
        shifted = with_bias(mant, normal.exp + scale.exp, peak, shift, context.formats.intermediate)
        out = shifted.with_mant(self._whole(shifted.mant, y.mant.shape))
        return [out], _Kept(memory, normal, roots, y.mant.shape)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        kept: _Kept = memory
        whole, normal, fmt = only(grads), kept.normal, context.formats.intermediate
        mant, peak = total(self._rows(whole.mant), whole.peak, (0,))
        changes = {"shift": to_format(mant, whole.exp, peak, fmt)}
        g = context.gradient(whole, self.axis)
        rows = self._rows(g.mant).astype(np.float64)
        plain, _ = total(rows, g.peak, (0,))
        crossed, peak = total(rows * normal.mant, g.peak * normal.peak, (0,))
        changes["scale"] = to_format(crossed, g.exp + normal.exp, peak, fmt)
        # g - mean(g) - x mean(g x), on a grid where g has at least 30 bits
        fine, count = max(0, FINE - top_of(rows).bit_length()), len(rows)
        means = np.array([rounded_quotient(int(s) << fine, count) for s in plain.tolist()], np.float64)
        slopes = [nearest(int(s), count, 2 * normal.exp + fine, ROOT_BITS) for s in crossed.tolist()]
        along = normal.mant.astype(np.int64) * np.array([m for m, _ in slopes], np.int64)
        along = round_shift(along, np.array([-e for _, e in slopes], np.int64))
        left = np.ldexp(rows, fine) - means - along
        centred = Tensor(self._whole(left, kept.shape), g.exp - fine, top_of(left))
        inner = context.gradient(centred, self.axis)
        factors = on_one_grid(self.norm.factors(kept.roots), FINE)
        mant, peak = exact(np.multiply, self._rows(inner.mant), inner.peak, factors.mant, factors.peak, 1)
        back = to_format(self._whole(mant, kept.shape), inner.exp + factors.exp, peak, fmt)
        self.product.first = self.first
        inputs, product_changes = self.product.backward([back], kept.product, context)
        return inputs, changes | product_changes


def _narrow_rows(mants: npt.NDArray[np.int64], exps: npt.NDArray[np.int64], fmt: TrainingFormat) -> Tensor:
    """Rows ``[n, k]`` with exponents ``[n]`` in a format with an exponent per row, on one grid."""
    used = np.any(mants, axis=1)
    if not used.any():
        return Tensor(np.zeros(mants.shape, np.float32), 0, 0)
    tops = np.abs(mants).max(axis=1, initial=0)
    wanted = exps + bits_to_drop(tops, fmt.bits)
    least = max(int(wanted[used].max()) - BLOCK_SPREAD, TRAIN_EXP_MIN)
    right = np.maximum(wanted, least) - exps
    short = np.clip(round_shift(mants, np.where(used, right, 0)[:, None], fmt.rounding), -fmt.q_max, fmt.q_max)
    shared = np.where(used, exps + right, 0)
    grid = int(shared[used].min())
    short = short << np.where(used, shared - grid, 0)[:, None]
    return Tensor.of(short, grid)


def narrow_columns(rows: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Whole numbers ``[n, C]`` below ``2**32`` with 16 bits per channel, and how many bits every channel dropped."""
    tops = np.maximum(rows.max(axis=0), -rows.min(axis=0)).astype(np.int64)
    drop = bits_to_drop(tops, CENTRED.bits)
    return _rounded(rows, drop), drop


def _rounded(rows: Array, right: npt.NDArray[np.int64]) -> Array:
    """Doubles that are whole numbers times ``2**-right``, to the nearest, halves away, within 16 bits.

    The sum with a half is exact wherever it decides: a number of at most 32 bits that is near a half has no bits below
    ``2**-32``.
    """
    moved = np.ldexp(rows, -right)
    return np.asarray(np.clip(np.trunc(moved + np.copysign(0.5, moved)), -CENTRED.q_max, CENTRED.q_max))


def normal_columns(short: Array, exps: Ints, mants: Ints, roots: Ints) -> Tensor:
    """Columns times ``2**exps`` times their roots ``mants * 2**roots``: 16 bits with one exponent for all."""
    products, at = short * mants.astype(np.float64), roots + exps
    tops = np.abs(products).max(axis=0).astype(np.int64)
    if not tops.any():
        return Tensor(np.zeros(short.shape, np.float32), 0, 0)
    exp = int((ceil_log2(tops) + at)[tops > 0].max()) - (CENTRED.bits - 1)
    mant = _rounded(products, np.where(tops > 0, exp - at, 0))
    return Tensor.of(mant, exp)


def norm_of(node: Node, formats: TrainingFormats, fresh: bool = False) -> Norm:
    """Normalisation of a node.

    Parameters
    ----------
    node : Node
        ``BatchNorm``.
    formats : TrainingFormats
        Of parameters.
    fresh : bool
        Begin with gamma 1, beta 0, and running mean 0 and variance 1, in the place of the numbers of the node.

    Raises
    ------
    ValueError
        If numbers of the node are not what a normalisation can have.
    """
    how, name = node.attributes(BatchNormAttributes), node.name
    values = how.scale, how.bias, how.mean, how.variance
    scale, shift, mean, variance = (np.asarray(array, dtype=np.float64) for array in values)
    if fresh:
        scale, shift, mean, variance = (np.full_like(scale, value) for value in (1, 0, 0, 1))
    if not (np.isfinite(mean).all() and np.isfinite(variance).all() and variance.min() >= 0):
        raise ValueError(f"{name} must have finite means and variances from 0 on")
    epsilon, momentum = float(how.epsilon), float(how.momentum)
    if not 0 < epsilon < 1 << 30 or not 0 <= momentum <= 1:
        message = f"{name} must have an epsilon above 0 and a momentum in 0..1, not {epsilon!r} and {momentum!r}"
        raise ValueError(message)
    gamma = Parameter.begin(f"{name}.scale", scale, formats.weight, formats.accumulator)
    least = int(gamma.exp.max())
    beta = Parameter.begin(f"{name}.shift", shift, formats.bias, formats.accumulator, zero_exp=least)
    share = Dyadic.nearest(1 - Fraction(momentum).limit_denominator(10**7))
    return Norm(name, gamma, beta, Running.begin(mean), Running.begin(variance), Dyadic.nearest(epsilon), share)


def normalised(product: Conv | Dense, node: Node, formats: TrainingFormats, fresh: bool) -> Normalised:
    """A product with the normalisation of a node that reads its result (:func:`norm_of`) after it.

    A bias of the product is taken over by the running mean.
    """
    norm = norm_of(node, formats, fresh)
    if product.bias is not None and not fresh:
        norm.begin_behind(product.bias)
    return Normalised(product, norm, node.outputs)
