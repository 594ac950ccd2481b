"""``python -m concord_bench.npu_training``: cycles, words and bytes of steps of training on the NPU (the emulator)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import click
import numpy as np

from concord.cli.common import readable, wide_console
from concord.demo.training import DENSE_LAYERS, LAYERS
from concord.display.tables import text_table
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.train import Samples, Settings, described
from concord.train.npu import NpuTrainer, training_config
from concord_bench.last_layer import CountingDevice

#: Samples of a step, and of the shorter one at the end of an epoch.
BATCH, SHORT = 32, 8
#: Networks for images of 1x8x8, which are digits; ten classes.
_RELU = {"op": "relu"}
NETWORKS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "dense": DENSE_LAYERS,
    "convolutions": LAYERS,
    "separable": (
        {"op": "conv", "channels": 16, "pad": 1, "stride": 2}, _RELU,
        {"op": "depthwise", "pad": 1}, _RELU, {"op": "conv", "channels": 24, "kernel": 1}, _RELU,
        {"op": "depthwise", "pad": 1, "stride": 2}, _RELU, {"op": "conv", "channels": 32, "kernel": 1}, _RELU,
        {"op": "global_average"}, {"op": "dense", "outputs": 10},
    ),
}  # fmt: skip


#: The configuration of training with memory for all of them.
ROOMY = training_config().replace(name="training", narrow_depth=8192, wide_depth=8192, program_depth=2048)


@dataclass(frozen=True)
class StepFigures:
    """A step.

    Parameters
    ----------
    forward, backward : int
        Cycles of the passes.
    sent, received : int
        Bytes to the device and from it, without frames.
    narrow, wide, matrix, program : int
        Words of the memories that training needs.
    """

    forward: int
    backward: int
    sent: int
    received: int
    narrow: int
    wide: int
    matrix: int
    program: int


class _StepDevice(CountingDevice):
    """Notes the cycles of each start by itself."""

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self.starts: list[int] = []

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of a run, and note its cycles."""
        before = self.cycles
        super().wait(timeout)
        self.starts.append(self.cycles - before)


def step_figures(network: str, *, momentum: bool, loss: str = "cross_entropy") -> StepFigures:
    """A step of one of :data:`NETWORKS`, the second one of an epoch.

    Parameters
    ----------
    network : str
        Its name.
    momentum : bool
        Whether there is some.
    loss : str
        ``cross_entropy`` or ``mse``.
    """
    draw, count = np.random.default_rng(1), 2 * BATCH + SHORT
    x, classes = draw.integers(0, 17, (count, 1, 8, 8)), draw.integers(0, 10, count)
    samples = Samples(x, np.eye(10)[classes] if loss == "mse" else classes, 1 / 16)
    settings = Settings(1, BATCH, Fraction(1, 16), Fraction(9, 10) if momentum else Fraction(0), loss=loss)
    with _StepDevice(ROOMY) as device:
        trainer = NpuTrainer(device, described(NETWORKS[network], (1, 8, 8)), samples, settings, random=True)
        trainer.step()
        (_, sent, received), starts = device.counts, len(device.starts)
        trainer.step()
        _, all_sent, all_received = device.counts
        space, (forward, backward) = trainer.memory, device.starts[starts:]
        return StepFigures(
            forward,
            backward,
            all_sent - sent,
            all_received - received,
            space.used(RegionId.NARROW),
            space.used(RegionId.WIDE),
            space.used(RegionId.MATRIX),
            len(trainer.program.words),
        )


@click.command()
@readable
def main() -> None:
    """Count cycles, words and bytes of steps of training on the NPU."""
    console = wide_console()
    numbers = "forward", "backward", "step", "narrow", "wide", "matrix", "program", "sent", "read"
    names, title = ("network", "momentum", *numbers), f"A step of {BATCH} samples: cycles, words, bytes"
    table = text_table(title, names, right=numbers, whole=names)
    for network in NETWORKS:
        for momentum in (False, True):
            got = step_figures(network, momentum=momentum)
            cycles = got.forward, got.backward, got.forward + got.backward
            cells = *cycles, got.narrow, got.wide, got.matrix, got.program, got.sent, got.received
            table.add_row(network, "yes" if momentum else "", *(f"{n:,}" for n in cells))
    console.print(table)


if __name__ == "__main__":
    main()
