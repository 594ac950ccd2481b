"""Samples to compare with, where nobody gives any."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.spec.formats import BINARY16_EXP_MIN, BINARY16_FRAC, BINARY16_MAX
from concord.utils.arrays import FloatArray

_TINY, _NORMAL = 2.0**-BINARY16_FRAC, 2.0**BINARY16_EXP_MIN
#: Numbers that inputs take, often where mistakes are; a device refuses infinities and NaNs.
_TIES = (1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, _TINY / 2, _TINY * 1.5)
CORNERS = np.array([0.0, -0.0, _TINY, -_TINY, _NORMAL - _TINY, _NORMAL, 1.0, -1.0, BINARY16_MAX, -BINARY16_MAX, *_TIES])
#: Spread of the powers of two of wild numbers.
_SPREAD = 14


def random_samples(shapes: Mapping[str, tuple[int, ...]], count: int, seed: int) -> dict[str, FloatArray]:
    """Samples ``[count, *shape]`` by input.

    In turn: normal numbers around 0; the same with corners among them; numbers of all sizes, with corners; corners
    alone. The fourth is all zeros.

    Parameters
    ----------
    shapes : mapping
        Of a sample, by input.
    count, seed : int
    """
    rng = np.random.default_rng(seed)
    samples = {}
    for name, shape in shapes.items():
        whole = np.zeros((count, *shape))
        for k in range(count):
            plain = rng.normal(size=shape)
            corners = rng.choice(CORNERS, shape)
            if k % 4 == 0:
                whole[k] = plain
            elif k % 4 == 1:
                whole[k] = np.where(rng.random(shape) < 0.05, corners, plain)
            elif k % 4 == 2:
                wild = np.clip(plain * np.exp2(rng.integers(-_SPREAD, _SPREAD, shape)), -BINARY16_MAX, BINARY16_MAX)
                whole[k] = np.where(rng.random(shape) < 0.1, corners, wild)
            elif k > 3:
                whole[k] = corners
        samples[name] = whole
    return samples
