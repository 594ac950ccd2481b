"""Zero-point offsets of inputs: numbers that the host subtracts, so that signed mantissas hold inputs with less error.

Pixels from 0 to 255 need nine bits with a sign; from -127 to 128 they need eight. The bias of the convolution that
reads the input makes up for the offset exactly: it contains the offset times the sum of the rounded weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.model import Compiled
from concord.golden import binary16
from concord.golden.blocks import quantize, to_binary16
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray

#: Steps of the range that inputs are expected to have: 8-bit sensors.
STEPS = 255
#: Elements that are rounded to see what is lost; of more, samples are left out.
_MOST = 1 << 16


def input_offsets(compiled: Compiled, inputs: Mapping[str, FloatArray]) -> dict[str, float]:
    """Offsets of inputs that are rounded less with one: the middle of the range, or half a step of the codes away.

    Parameters
    ----------
    compiled : Compiled
        Says which inputs may have an offset, and which elements share an exponent.
    inputs : mapping of str to array
        Samples along the first axis.
    """
    chosen, arrangement = {}, compiled.package.arrangement
    for name in sorted(compiled.lowered.offsettable - set(arrangement.grids)):
        x = arrangement.prepared(name, inputs[name])
        low, high = float(x.min()), float(x.max())
        x = x[:: max(1, x.size // _MOST)]
        middle, half_step = (low + high) / 2, (high - low) / (2 * STEPS)
        offsets = (0.0, middle, middle - half_step, middle + half_step)
        alone = replace(arrangement, inputs={name: arrangement.inputs[name]}, channel_scales={})
        best = min(offsets, key=lambda offset: _lost(alone, name, x, offset, compiled.image.config))
        if best:
            chosen[name] = best
    return chosen


def _lost(arrangement: Arrangement, name: str, x: FloatArray, offset: float, config: NpuConfig) -> float:
    """Sum of the squares of what narrow vectors lose of an input."""
    packed = replace(arrangement, input_offsets={name: offset}).pack({name: x})[name]
    blocks = quantize(binary16.encode(packed), config.act)
    return float(np.square(binary16.decode(to_binary16(blocks.mant, blocks.exp)) - packed).sum())
