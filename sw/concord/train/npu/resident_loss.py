"""Losses that the NPU computes: what the host writes for them before a step, and reads after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.host import Device
from concord.image.words import to_bytes, unpack_words
from concord.spec.integers import JUDGED_WORD, judged_per_word
from concord.spec.memmap import RegionId
from concord.spec.training import TrainingFormats
from concord.train.losses import (
    IGNORED,
    LossFigures,
    cross_entropy_figures,
    negated_targets,
    squared_error_figures,
)
from concord.train.npu.features import Features
from concord.train.npu.tensors import Held
from concord.train.npu.transfers import read_tensor, write_tensor
from concord.train.npu.words import narrow_words


class ResidentLoss(ABC):
    """A loss of batches of some size."""

    @abstractmethod
    def write(self, device: Device, labels: npt.NDArray[Any], formats: TrainingFormats) -> None:
        """Write what samples are judged by."""

    @abstractmethod
    def read(self, device: Device, labels: npt.NDArray[Any]) -> LossFigures:
        """Read what they were judged."""


@dataclass(frozen=True)
class ResidentCrossEntropy(ResidentLoss):
    """Softmax and cross-entropy.

    Parameters
    ----------
    features : Features
        Classes of a sample.
    labels : int
        Narrow word of the first label: vectors that are 1 at the class, and zero of a label that does not count.
    judged : int
        Wide word of what the first samples are judged.
    """

    features: Features
    labels: int
    judged: int

    def write(self, device: Device, labels: npt.NDArray[Any], formats: TrainingFormats) -> None:
        """Write a label for each sample, of any shape."""
        classes = np.arange(self.features.channels)
        vectors = self.features.pack(labels.reshape(-1, 1) == classes, device.config.native)
        device.write(RegionId.NARROW, self.labels, narrow_words(vectors, device.config))

    def read(self, device: Device, labels: npt.NDArray[Any]) -> LossFigures:
        """Figures of the labels that count."""
        count = -(-labels.size // judged_per_word(device.config.native))
        words = to_bytes(device.read(RegionId.WIDE, self.judged, count), device.config.wide_word.nbytes)
        samples = unpack_words(JUDGED_WORD, words)
        counted = np.flatnonzero(labels.reshape(-1) != IGNORED)
        return cross_entropy_figures(samples["hit"][counted], samples["right"][counted] > 0)


@dataclass(frozen=True)
class ResidentSquaredError(ResidentLoss):
    """The mean of the squared differences.

    Parameters
    ----------
    target : Held
        Targets with the opposite sign, before a step.
    difference : Held
        Output minus target, after it.
    """

    target: Held
    difference: Held

    def write(self, device: Device, labels: npt.NDArray[Any], formats: TrainingFormats) -> None:
        """Write targets ``[samples, ...]``."""
        write_tensor(device, self.target, negated_targets(labels, formats))

    def read(self, device: Device, labels: npt.NDArray[Any]) -> LossFigures:
        """Figures of all samples."""
        return squared_error_figures(read_tensor(device, self.difference, len(labels)))
