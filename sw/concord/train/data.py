"""Samples for training, checked before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.graph.ir import Graph, Shape
from concord.train.indices import check_indices, index_lookups
from concord.train.losses import IGNORED, ONLY, OutputLoss, judged_count

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """Inputs and what should come out.

    Parameters
    ----------
    x : array of numbers
        ``[samples, *shape]``, of any type.
    y : array, or dict of arrays
        Classes ``[samples]``; or a class per position ``[samples, *positions]``, where the output has so many before
        its last axis and -1 is a position that does not count; or targets ``[samples, *shape of the output]`` for a
        squared error. Where losses have the names of outputs, an array for each of these.
    scale, zero : float
        The network reads ``(x - zero) * scale``, in double precision, rounded to the format of activations batch by
        batch.
    """

    x: Array
    y: Any
    scale: float = 1.0
    zero: float = 0.0

    def __len__(self) -> int:
        return len(self.x)

    def inputs(self, rows: Array | slice) -> npt.NDArray[np.float64]:
        """Inputs of the network for some samples."""
        return np.asarray((self.x[rows].astype(np.float64) - self.zero) * self.scale)

    @property
    def labels(self) -> dict[str, Array]:
        """Labels or targets by the output that they are of."""
        return {name: np.asarray(y) for name, y in (self.y if isinstance(self.y, Mapping) else {ONLY: self.y}).items()}

    def part(self, rows: Array | slice) -> Samples:
        """Some of the samples."""
        parts = {name: y[rows] for name, y in self.labels.items()}
        return replace(self, x=np.asarray(self.x)[rows], y=parts if isinstance(self.y, Mapping) else parts[ONLY])

    def check(self, what: str, graph: Graph, outputs: Mapping[str, str], losses: Mapping[str, OutputLoss]) -> None:
        """Raise ``ValueError`` unless a network can read and judge them.

        ``outputs`` are the tensors that the losses read, by the name that the losses have.
        """
        self.check_inputs(what, graph)
        x, labels = np.asarray(self.x), self.labels
        if set(labels) != set(losses):
            wanted = "one array, that of the only output" if ONLY in losses else f"one of each of {', '.join(losses)}"
            there = "one array" if ONLY in labels else ", ".join(labels) or "none"
            raise ValueError(f"labels of the {what} data must be {wanted}, not {there}")
        for name, y in labels.items():
            data = f"{what} data of {name}" if name else f"{what} data"
            if y.dtype.kind not in "iufb":
                raise ValueError(f"labels of the {data} must be numbers, not {y.dtype}")
            if len(y) != len(x) if y.ndim else True:
                raise ValueError(f"{data} must have a label for each of {len(x)} samples, not {list(y.shape)}")
            self._check_labels(data, y, graph.shapes[outputs[name]], losses[name].loss)

    def check_inputs(self, what: str, graph: Graph) -> None:
        """Raise ``ValueError`` unless a network can read them."""
        name, x = graph.inputs[0], np.asarray(self.x)
        if x.dtype.kind not in "iufb":
            raise ValueError(f"{what} data must be numbers, not {x.dtype}")
        shape = graph.sample_shape(name)
        if not x.ndim or not len(x):
            raise ValueError(f"{what} data must have at least one sample, not the shape {list(x.shape)}")
        if prod(x.shape[1:]) != prod(shape) or _bare(x.shape[1:]) != _bare(shape):
            raise ValueError(f"samples of the {what} data must have the shape {list(shape)}, not {list(x.shape[1:])}")
        if not np.isfinite([self.scale, self.zero]).all():
            raise ValueError(f"scale and zero must be finite, not {self.scale!r} and {self.zero!r}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            first = int(np.argwhere(~np.isfinite(x))[0][0])
            raise ValueError(f"{what} data must be finite, and sample {first} has an infinity or NaN")
        if index_lookups(graph):
            check_indices(what, graph, self.inputs(slice(None)))

    def _check_labels(self, data: str, y: Array, shape: Shape, loss: str) -> None:
        outputs, positions = prod(shape), _bare(shape[:-1])
        if loss == "cross_entropy":
            single = y.ndim == 1
            if y.dtype.kind not in "iu" or not (single or _bare(y.shape[1:]) == positions):
                several = f" or one for each of the positions {list(positions)}" if positions else ""
                raise ValueError(
                    f"labels of the {data} must be whole numbers, one per sample{several}, not "
                    f"{y.dtype} {list(y.shape)}"
                )
            least, classes = (0, outputs) if single else (IGNORED, shape[-1])
            if y.min() < least or y.max() >= classes:
                raise ValueError(f"labels of the {data} must be in {least}..{classes - 1}, not {y.min()}..{y.max()}")
            if not judged_count(loss, y):
                raise ValueError(f"labels of the {data} must have one that counts, and all are {IGNORED}")
        elif prod(y.shape[1:]) != outputs:
            raise ValueError(f"targets of the {data} must have {outputs} elements per sample, not {list(y.shape)}")
        elif y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError(f"targets of the {data} must be finite, not infinite or NaN")


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of length 1."""
    return tuple(size for size in shape if size != 1)
