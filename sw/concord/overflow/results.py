"""Results of an analysis as plain data: counts by width, observed and for every input."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from concord.display.terminal import counted
from concord.sums.histogram import STORAGE_WIDTHS, Histogram

#: Storages of values that are checked: the one while adding, and that after the last addition.
STORAGES = ("intermediate", "output")


@dataclass(frozen=True)
class StageFacts:
    """Values of one kind in one layer.

    Parameters
    ----------
    name : str
        ``"product"``, ``"sum"``, ``"output"`` and, of the machine, ``"lane sum"`` and ``"term"``.
    counts : tuple of int
        Entry k: values that need exactly k bits.
    bound : int
        Bits that hold what any input in the range can make.
    checked : str
        Which storage holds them: ``"intermediate"``, ``"output"``, or nothing where the format makes the width.
    """

    name: str
    counts: tuple[int, ...]
    bound: int
    checked: str = ""

    @classmethod
    def of(cls, name: str, histogram: Histogram, bound: int, checked: str = "") -> StageFacts:
        """Facts of a stage from a histogram."""
        return cls(name, tuple(histogram.counts[: histogram.bits + 1].tolist()), bound, checked)

    @cached_property
    def histogram(self) -> Histogram:
        """Values by the bits they need."""
        return Histogram(self.counts)

    @property
    def total(self) -> int:
        """Number of values."""
        return self.histogram.total

    @property
    def observed(self) -> int:
        """Bits that hold all values; 0 if there are none."""
        return self.histogram.bits

    def beyond(self, width: int) -> int:
        """Values that leave a storage of ``width`` bits."""
        return self.histogram.beyond(width)


@dataclass(frozen=True)
class Scaling:
    """Mapping of the ranges of one layer on integers, in the end.

    Parameters
    ----------
    weight_step, input_step : float
        What an integer stands for.
    weight_factor, input_factor : float
        How many times its range is mapped, of the weights and of the inputs.
    rounds : int
        Number of times that the layer was counted.
    within : bool
        Whether the count is within the threshold.
    """

    weight_step: float
    input_step: float
    weight_factor: float
    input_factor: float
    rounds: int
    within: bool


@dataclass(frozen=True)
class LayerOverflow:
    """One layer."""

    name: str
    operator: str
    stages: tuple[StageFacts, ...]
    scaling: Scaling | None = None

    def stage(self, name: str) -> StageFacts:
        """A stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def beyond(self, width: int, checked: str) -> int:
        """Values that leave a storage if it has ``width`` bits."""
        return sum(stage.beyond(width) for stage in self.stages if stage.checked == checked)

    def overflows(self, width: int, output_width: int) -> int:
        """Values that leave the storage they are in."""
        return self.beyond(width, "intermediate") + self.beyond(output_width, "output")

    def needed(self, checked: str) -> int:
        """Bits of a storage that hold everything observed."""
        return max((stage.observed for stage in self.stages if stage.checked == checked), default=0)

    def bound(self, checked: str) -> int:
        """Bits of a storage that hold what any input in the range can make."""
        return max((stage.bound for stage in self.stages if stage.checked == checked), default=0)


@dataclass(frozen=True)
class Analysis:
    """One network.

    Parameters
    ----------
    name, view : str
        Of the network; ``"machine"`` or ``"integers"``.
    storage : str
        What the widths are those of, for people.
    samples : int
        Samples that were run.
    ranges : dict
        Least and greatest value of every input that bounds hold for.
    width, output_width : int
        Bits of the intermediate and of the output storage.
    threshold : int
        Values per layer that may leave their storage.
    layers : tuple of LayerOverflow
        In the order of execution.
    """

    name: str
    view: str
    storage: str
    samples: int
    ranges: dict[str, tuple[float, float]]
    width: int
    output_width: int
    threshold: int
    layers: tuple[LayerOverflow, ...]

    def count(self, width: int, checked: str = "intermediate") -> int:
        """Values of all layers that leave a storage of some width."""
        return sum(layer.beyond(width, checked) for layer in self.layers)

    def needed(self, checked: str = "intermediate") -> int:
        """Bits of a storage that hold everything observed."""
        return max((layer.needed(checked) for layer in self.layers), default=0)

    def bound(self, checked: str = "intermediate") -> int:
        """Bits of a storage that hold what any input in the range can make."""
        return max((layer.bound(checked) for layer in self.layers), default=0)

    @property
    def overflowing(self) -> tuple[LayerOverflow, ...]:
        """Layers with more overflows than the threshold."""
        return tuple(x for x in self.layers if x.overflows(self.width, self.output_width) > self.threshold)

    @property
    def summary(self) -> str:
        """Analysis in one line."""
        parts = [
            f"{kind}: {self.needed(kind)} bits hold {counted(self.samples, 'samples')}, {self.bound(kind)} every input"
            for kind in STORAGES
        ]
        return f"{counted(len(self.layers), 'layers')}; {'; '.join(parts)}"

    def to_json(self) -> str:
        """All facts, and the count against every width of both storages by layer."""
        facts: dict[str, Any] = asdict(self)
        for layer, plain in zip(self.layers, facts["layers"], strict=True):
            for checked in STORAGES:
                plain[f"{checked}_overflows"] = {width: layer.beyond(width, checked) for width in STORAGE_WIDTHS}
                plain[f"{checked}_bits"] = {"observed": layer.needed(checked), "bound": layer.bound(checked)}
        return json.dumps(facts, indent=1) + "\n"
