"""Augmentation of samples: shifted, mirrored, noisy and mixed ones, with labels or outputs of a network as targets.

A network that is trained on in another format learns to give the outputs that it gave before. These need no labels, so
samples that were changed serve as well as those that are there. The numbers that change them depend on the seed
alone; what comes out is data, computed once, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from concord.graph import execute
from concord.graph.ir import Graph
from concord.train.data import Samples
from concord.train.losses import ONLY, OutputLoss
from concord.train.network import OF_THE_LOSS
from concord.train.noise import permutation, raw, uniform
from concord.utils.arrays import FloatArray

#: Places of random numbers: noise of training is at 3, orders of samples at 2.
_PLACE = 4
_SHIFT, _FLIP, _NOISE, _PARTNER, _SHARE = range(5)


@dataclass(frozen=True)
class Augmentation:
    """Changes that are made to samples.

    Parameters
    ----------
    copies : int
        So many changed ones come on top of each sample.
    shift : tuple of int
        By how many elements at most, for each axis of a sample, such as ``(0, 2, 2)`` for images ``[C, H, W]`` and
        ``(0, 3, 0)`` for ``[1, time, features]``. What moves in is a copy of the edge. Empty: not at all.
    flip : int or None
        Axis of a sample along which every other copy, at random, is mirrored.
    noise : float
        Up to so much is added to or taken from every element, in what the network reads.
    mix : float
        Up to this share, 0 to 1, of a copy is another sample. Needs targets that a network gives.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    copies: int = 1
    shift: tuple[int, ...] = ()
    flip: int | None = None
    noise: float = 0.0
    mix: float = 0.0

    def __post_init__(self) -> None:
        if type(self.copies) is not int or self.copies < 1:
            raise ValueError(f"copies must be a whole number from 1 on, not {self.copies!r}")
        if any(type(most) is not int or most < 0 for most in self.shift):
            raise ValueError(f"shift must have whole numbers from 0 on, not {list(self.shift)!r}")
        if not (self.flip is None or (type(self.flip) is int and self.flip >= 0)):
            raise ValueError(f"flip must be an axis of a sample from 0 on, not {self.flip!r}")
        if not 0 <= self.noise < np.inf:
            raise ValueError(f"noise must be finite and from 0 on, not {self.noise!r}")
        if not 0 <= self.mix <= 1:
            raise ValueError(f"mix must be in 0..1, not {self.mix!r}")

    def changed(self, x: FloatArray, seed: int) -> FloatArray:
        """``[copies * samples, *shape]``: all samples once, then once more, and so on.

        Parameters
        ----------
        x : array
            ``[samples, *shape]``, as the network reads them.
        seed : int
            Of all that is random.

        Raises
        ------
        ValueError
            If a sample has other axes than the settings are for, or fewer elements than it is shifted by.
        """
        axes = x.ndim - 1
        if self.shift and len(self.shift) != axes:
            raise ValueError(f"shift must have a number for each of {axes} axes of a sample, not {list(self.shift)!r}")
        if self.flip is not None and self.flip >= axes:
            raise ValueError(f"flip must be an axis of a sample with {axes} axes, not {self.flip!r}")
        return np.concatenate([self._copy(x.astype(np.float64), seed, k) for k in range(self.copies)])

    def _copy(self, x: FloatArray, seed: int, number: int) -> FloatArray:
        count, changed = len(x), x

        def numbers(what: int, size: int = count) -> FloatArray:
            return uniform(seed, (_PLACE, what, number), size)

        for axis, most in enumerate(self.shift):
            if most:
                drawn = raw(seed, (_PLACE, _SHIFT, number * len(self.shift) + axis), count)
                by = (drawn % np.uint64(2 * most + 1)).astype(np.int64) - most
                changed = _shifted(changed, by, axis + 1)
        if self.flip is not None:
            mirrored = (numbers(_FLIP) < 0).reshape(-1, *[1] * (x.ndim - 1))
            changed = np.where(mirrored, np.flip(changed, self.flip + 1), changed)
        if self.mix:
            share = ((numbers(_SHARE) + 1) / 2 * self.mix).reshape(-1, *[1] * (x.ndim - 1))
            partner = x[permutation(seed, (_PLACE, _PARTNER, number), count)]
            changed = (1 - share) * changed + share * partner
        if self.noise:
            changed = changed + self.noise * numbers(_NOISE, x.size).reshape(x.shape)
        return np.asarray(changed)


def _shifted(x: FloatArray, by: np.ndarray, axis: int) -> FloatArray:
    """Every sample moved along an axis; the edge is repeated."""
    size = x.shape[axis]
    at = np.clip(np.arange(size) - by[:, None], 0, size - 1)
    return np.take_along_axis(x, at.reshape(len(x), *[size if k == axis else 1 for k in range(1, x.ndim)]), axis)


def augmented(
    samples: Samples, augmentation: Augmentation, seed: int, loss: str | Mapping[str, OutputLoss] = "cross_entropy"
) -> Samples:
    """Samples and changed ones, which have the labels or targets of what they were made from.

    ``loss`` is that of the only output, or there is one for each of several.

    Raises
    ------
    ValueError
        If samples are to be mixed: a mixture has no label. If positions with labels are to be moved.
    """
    if augmentation.mix:
        raise ValueError(f"mix must be 0 with labels, not {augmentation.mix!r}: a mixture has the targets of a network")
    x, labels = samples.inputs(slice(None)), samples.labels
    losses = {ONLY: OutputLoss(loss)} if isinstance(loss, str) else loss
    of_positions = any(
        name in losses and losses[name].loss == "cross_entropy" and y.ndim > 1 for name, y in labels.items()
    )
    if of_positions and (any(augmentation.shift) or augmentation.flip is not None):
        raise ValueError("shift and flip must not be set with a label per position, which would stay where it is")
    repeated = {name: np.concatenate([y] * (1 + augmentation.copies)) for name, y in labels.items()}
    changed = np.concatenate([x, augmentation.changed(x, seed)])
    return Samples(changed, repeated[ONLY] if ONLY in repeated else repeated)


def outputs(graph: Graph, x: FloatArray) -> FloatArray:
    """Outputs of a network in double precision, before a Softmax at its end: ``[samples, *shape of the output]``."""
    name = graph.outputs[0]
    last = next(node for node in graph.nodes if name in node.outputs)
    if last.op in OF_THE_LOSS:
        name = last.inputs[0]
    return execute.run(graph, {graph.inputs[0]: x.reshape(len(x), *graph.sample_shape(graph.inputs[0]))}, [name])[name]


def taught(graph: Graph, samples: Samples, augmentation: Augmentation | None = None, seed: int = 1) -> Samples:
    """Samples, and changed ones, with the outputs of a network as targets for a squared error; labels are not used.

    Parameters
    ----------
    graph : Graph
        The network in double precision: the teacher.
    samples : Samples
        Inputs.
    augmentation : Augmentation or None
        ``None``: no changed samples.
    seed : int
        Of what is random in them.

    Raises
    ------
    ValueError
        If samples do not fit the network or the settings.
    """
    samples.check_inputs("training", graph)
    x = samples.inputs(slice(None))
    if augmentation is not None:
        x = np.concatenate([x, augmentation.changed(x, seed)])
    return Samples(x, outputs(graph, x))
