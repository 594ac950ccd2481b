"""Padding lanes: lanes of native vectors in which no element of a tensor lies.

They are computed like all others. Were their weights and constants zero, a reciprocal would meet a zero there, a
logarithm too, and flags would tell of numbers that nobody reads; and a block would take its exponent from them. So a
padding lane holds a copy of the nearest element before it, or after it if there is none: its weights, its constants,
its input.
"""

from __future__ import annotations

import numpy as np

from concord.compiler.ir.layers import Layer, Reduction
from concord.compiler.ir.layout import PAD
from concord.utils.arrays import Bools, FloatArray, Ids


def nearest(used: Bools) -> Ids:
    """For every place along the last axis the nearest used one before it, or else after it; itself if none is."""
    places = np.arange(used.shape[-1])
    before = np.maximum.accumulate(np.where(used, places, -1), axis=-1)
    last = used.shape[-1]
    after = np.flip(np.minimum.accumulate(np.flip(np.where(used, places, last), -1), axis=-1), -1)
    neighbours = np.where(before >= 0, before, after)
    return np.asarray(np.where(neighbours == last, places, neighbours))


def pad_lanes(values: FloatArray) -> FloatArray:
    """Constants ``[..., native]`` with copies where they are NaN, and zeros where there is nothing to copy."""
    copied = np.take_along_axis(values, nearest(~np.isnan(values)), axis=-1)
    return np.asarray(np.nan_to_num(copied))


def pad_weight(layer: Layer) -> FloatArray:
    """The weights of a layer, rows of padding lanes being copies; as many rows as its vectors have lanes."""
    weight = layer.weight
    assert weight is not None and layer.reduction in (Reduction.DENSE, Reduction.DEPTHWISE)
    lanes = layer.out[2] * layer.target.native
    full = np.zeros((lanes, *weight.shape[1:]))
    full[: len(weight)] = weight
    used = np.asarray(full.reshape(lanes, -1).any(axis=1))
    used[(layer.ids[layer.ids != PAD] - layer.target.base) % lanes] = True
    return np.asarray(full[nearest(used)])
