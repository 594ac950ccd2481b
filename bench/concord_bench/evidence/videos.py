"""Videos of a digit that moves, and a network with convolutions over time that tells in which direction."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from concord.graph.ir import Graph
from concord.train import Samples, described
from concord.train.noise import raw
from concord_bench.evidence.data import Split, digits

#: Frames of a video, and rows and columns of a frame.
FRAMES, SIDE = 4, 14
#: Rows and columns by which the digit moves from frame to frame, by label: all neighbours.
DIRECTIONS = tuple((down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0))
#: Greatest noise of a pixel, of which a digit has up to 16.
_NOISE = 8
#: Seed and places of the digits, directions and starts, and of the noise.
_SEED, _PLACE, _NOISE_PLACE = 24, (9, 6), (9, 7)


@lru_cache(maxsize=1)
def moving_digits() -> Split:
    """Digits of scikit-learn, drawn in each part by itself: 1,500 videos to learn from, 300 to choose with, 1,000 to
    judge by."""
    parts, sizes = digits(), (1500, 300, 1000)
    return Split(*(
        _moved(part, size, number)
        for number, (part, size) in enumerate(zip((parts.train, parts.validation, parts.test), sizes, strict=True))
    ))  # fmt: skip


def _moved(samples: Samples, count: int, number: int) -> Samples:
    """Videos ``[1, frames, height, width]``, ``count`` of them; the digit stays inside."""
    digit, label, row, column = raw(_SEED, (*_PLACE, number), 4 * count).reshape(4, -1)
    labels = (label % np.uint64(len(DIRECTIONS))).astype(np.int64)
    images = np.asarray(samples.x)[(digit % np.uint64(len(samples))).astype(np.int64), 0]
    size, shape = images.shape[1], (count, 1, FRAMES, SIDE, SIDE)
    noise = raw(_SEED, (*_NOISE_PLACE, number), int(np.prod(shape))).reshape(shape)
    videos = (noise % np.uint64(_NOISE + 1)).astype(np.uint8)
    steps = FRAMES - 1
    for k, (image, direction) in enumerate(zip(images, labels, strict=True)):
        starts = [
            int(drawn % np.uint64(SIDE - size - steps * abs(step) + 1)) + (steps if step < 0 else 0)
            for drawn, step in zip((row[k], column[k]), DIRECTIONS[direction], strict=True)
        ]
        for frame in range(FRAMES):
            top, left = (start + frame * step for start, step in zip(starts, DIRECTIONS[direction], strict=True))
            videos[k, 0, frame, top : top + size, left : left + size] += image
    return Samples(videos, labels, 1 / 32)


def over_time() -> Graph:
    """Two convolutions over frames, rows and columns, the means of their channels, and a product."""
    layers: list[dict[str, Any]] = [
        {"op": "conv", "channels": 8, "pad": 1}, {"op": "relu"}, {"op": "max_pool", "kernel": [1, 2, 2]},
        {"op": "conv", "channels": 16, "pad": 1}, {"op": "relu"}, {"op": "max_pool"},
        {"op": "flatten"}, {"op": "dense", "outputs": len(DIRECTIONS)},
    ]  # fmt: skip
    return described(layers, (1, FRAMES, SIDE, SIDE))
