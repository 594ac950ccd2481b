"""The emulator as a device whose batches the workers of an engine share: the same results and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from concord.host.device import Outputs
from concord.host.emulated import EmulatedDevice
from concord.image import Image, Phase
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.utils.parallel import Engine, task_slices

#: Samples of a task: enough for the emulator to be near its full speed, few enough for workers to end together.
LEAST, MOST = 16, 256


def emulator(config: NpuConfig, engine: Engine | None = None) -> EmulatedDevice:
    """An emulator in this process, or one whose batches are shared."""
    return EmulatedDevice(config) if engine is None else SharedDevice(config, engine)


class SharedDevice(EmulatedDevice):
    """An emulator that has its batches computed by workers.

    Samples know nothing of each other, so it does not matter which worker runs which. The last sample runs here once
    more: memories and counters are what they would be without workers.

    Parameters
    ----------
    config : NpuConfig
        What to emulate.
    engine : Engine
        The workers.
    """

    def __init__(self, config: NpuConfig, engine: Engine):
        super().__init__(config)
        self._engine, self._there = engine, None

    def load(self, image: Image) -> None:
        super().load(image)
        self._there = self._engine.broadcast(image)

    def _run_batch(
        self, image: Image, schedule: Sequence[Phase], batch: Mapping[str, Any], size: int, timeout: float | None
    ) -> Outputs:
        if size < 2:
            return super()._run_batch(image, schedule, batch, size, timeout)
        pc = 0 if image.phases else schedule[0].pc
        shares = [{name: values[part] for name, values in batch.items()} for part in task_slices(size, LEAST, MOST)]
        results = self._engine.map(_run, [(self._there, share, pc) for share in shares])
        last = {name: values[-1:] for name, values in batch.items()}
        super()._run_batch(image, schedule, last, 1, timeout)
        for _, words in results:
            self._emulator.memories.flags |= words
        return {name: np.concatenate([outputs[name] for outputs, _ in results]) for name in results[0][0]}


def _run(image: Image, batch: Mapping[str, Any], pc: int) -> tuple[Outputs, Any]:
    """A task: outputs and words of the flags."""
    with EmulatedDevice(image.config, workers=1) as device:
        device.load(image)
        outputs: Outputs = device.run(batch, pc=pc)
        return outputs, np.array(device.read(RegionId.FLAGS, 0, image.config.program_depth), dtype=np.uint8)
