"""Loss of a network with the mantissas of a configuration: measured on samples, on the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from concord.compiler.calibration.calibration import ALL, Follow, classifies
from concord.compiler.calibration.mantissas import Budget
from concord.compiler.ir.tensor_formats import Formats
from concord.graph import execute
from concord.graph.ir import Graph
from concord.networks.calibrated import calibration_of, emulate
from concord.spec.config import NpuConfig
from concord.utils.arrays import Ints

#: Biases, tables and inputs follow the samples; weights are rounded to the nearest, which is faster to make.
FOLLOW = ALL & ~Follow.WEIGHTS
#: Samples that formats are made with at most: all tensors of them are kept in double precision.
MADE_WITH = 100


@dataclass(frozen=True)
class Verdict:
    """Accuracy and loss of a configuration, measured on samples.

    Parameters
    ----------
    accuracy : float or None
        Share of samples that are in the right class, if there are labels.
    agreement : float
        Share of samples that are decided as in double precision.
    error : float
        Root mean square error of the result, relative to double precision, before a final softmax or sigmoid.
    loss : float
        What the budget is about: points of accuracy or agreement, or percent of error.
    within : bool
        Whether the budget allows it.
    """

    accuracy: float | None
    agreement: float
    error: float
    loss: float
    within: bool

    @property
    def signal_to_noise(self) -> float:
        """Ratio of signal to error in dB; infinite without an error."""
        return -20 * math.log10(self.error) if self.error else math.inf


class Judge:
    """Measures configurations on samples: formats are made with one half of them and measured on the other, both ways.

    Results depend on native dimension, mantissas and accumulator, and not on lanes or depths. So each of them is
    measured once.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        Samples along the first axis. Formats are made with the first :data:`MADE_WITH` of them at most.
    budget : Budget
        What may be lost.
    labels : array of int, optional
        Right class of every sample; needed for a budget of accuracy.
    say : callable
        Gets how far the computation in double precision is.

    Raises
    ------
    ValueError
        If there are fewer than two samples, or they do not suit the network.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Any],
        budget: Budget,
        labels: Ints | None = None,
        say: Callable[[str], None] = lambda _: None,
    ):
        self.graph, self.budget, self.labels, self._say = graph, budget, labels, say
        self.inputs = {name: np.asarray(values) for name, values in inputs.items()}
        self.count = len(next(iter(self.inputs.values())))
        if self.count < 2:
            raise ValueError(f"inputs must have at least 2 samples, not {self.count}")
        self._few = calibration_of(graph, {name: values[:MADE_WITH] for name, values in self.inputs.items()})
        self.halves = self._few.some(0, 2), self._few.some(1, 2)
        self._known: dict[tuple[object, ...], Verdict] = {}

    @cached_property
    def best(self) -> Ints:
        """Decisions for all samples in double precision."""
        classes = [self._few.best]
        for start in range(MADE_WITH, self.count, MADE_WITH):
            self._say(f"computing in double precision: {start} of {self.count} samples")
            part = {name: values[start : start + MADE_WITH] for name, values in self.inputs.items()}
            classes.append(self._few.decided(execute.run(self.graph, part)[self.graph.outputs[0]]))
        return np.concatenate(classes)

    @property
    def classes(self) -> bool:
        """True if the result is a class."""
        return self.labels is not None or classifies(self.graph)

    @property
    def accuracy(self) -> float | None:
        """Share of samples that are in the right class in double precision, if there are labels."""
        return None if self.labels is None else float(np.mean(self.best == self.labels))

    def verdict(self, config: NpuConfig, say: Callable[[str], None] = lambda _: None) -> Verdict:
        """Measure a configuration on the samples, once; ``say`` gets what is measured, if it was not before.

        Raises
        ------
        CapacityError, Unsupported
            If the network cannot be compiled for it.
        """
        key = config.act, config.wgt, config.acc_width, config.acc_register
        if key not in self._known:
            say(f"{numbers(config)} on {self.count} samples")
            self._known[key] = self._measured(config)
        return self._known[key]

    def _measured(self, config: NpuConfig) -> Verdict:
        """Formats of each half on the samples of the other one."""
        best, squares = np.empty_like(self.best), 0.0
        for k, part in enumerate(self.halves):
            other = self.halves[1 - k]
            made = part.measure("", config, Formats(), FOLLOW, other)
            squares += made.error**2 / 2
            outputs = emulate(made.compiled, {name: values[1 - k :: 2] for name, values in self.inputs.items()})
            best[1 - k :: 2] = part.decided(outputs[self.graph.outputs[0]])
        agreement, error = float(np.mean(best == self.best)), math.sqrt(squares)
        accuracy = None if self.labels is None else float(np.mean(best == self.labels))
        losses = {"error": error, "agreement": 1 - agreement, "accuracy": (self.accuracy or 0.0) - (accuracy or 0.0)}
        loss = 100 * losses[self.budget.measure]
        return Verdict(accuracy, agreement, error, loss, loss <= self.budget.points + 1e-9)


def numbers(config: NpuConfig) -> str:
    """Native dimension and mantissas in words."""
    return f"N {config.native} with mantissas of {mantissas(config)} bits"


def mantissas(config: NpuConfig) -> str:
    """Widths of mantissas: one, or those of activations and weights."""
    act, wgt = config.act_mant, config.wgt_mant
    return str(act) if act == wgt else f"{act}/{wgt}"
