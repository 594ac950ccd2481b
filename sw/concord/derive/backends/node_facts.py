"""Facts of nodes that backends need, as numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.golden import binary16
from concord.spec.formats import BINARY16_NAN
from concord.utils.arrays import FloatArray, Ids


def singles(bits: npt.NDArray[np.uint16] | np.uint16) -> npt.NDArray[np.float32]:
    """binary16 patterns as float32, any NaN as the canonical one: backends do not tell NaNs apart."""
    return binary16.decode(np.where(binary16.is_nan(bits), BINARY16_NAN, bits)).astype(np.float32)


def least_units(node: ir.Quantise) -> FloatArray:
    """Least powers of two of the blocks: that of the format, or what the constants of a block ask for."""
    peaks = np.array(node.peaks)
    powers = np.where(peaks > 0, np.ldexp(0.5, np.frexp(peaks)[1]), 0.0)
    return np.maximum(powers * 2.0**-node.form.headroom, 2.0**node.form.exp_min)


def positions(node: ir.MapWindows) -> tuple[Ids, tuple[int, int, int, int]]:
    """Positions ``[height, width, kh, kw]`` in the padded map, and the padding: top, bottom, left, right."""
    places, before, after = [], [], []
    for axis in (0, 1):
        taps = np.arange(node.kernel[axis]) * node.dilation[axis]
        places.append(node.origin[axis] + np.arange(node.output.shape[axis])[:, None] * node.stride[axis] + taps)
        before.append(max(0, -int(places[axis].min())))
        after.append(max(0, int(places[axis].max()) - node.x.shape[axis] + 1))
    rows, columns = (places[axis] + before[axis] for axis in (0, 1))
    width = node.x.shape[1] + before[1] + after[1]
    index = rows[:, None, :, None] * width + columns[None, :, None, :]
    return index, (before[0], after[0], before[1], after[1])
