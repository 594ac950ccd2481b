"""The reference machine as a device."""

from __future__ import annotations

import numpy as np

from concord.emulator import ReferenceMachine
from concord.emulator.run import Run
from concord.host.device import Counters, Device, add_counters
from concord.host.dram_state import UNTIMED, DramState
from concord.host.emulated import counters_of
from concord.image import Memories
from concord.image.words import to_bytes, to_integers
from concord.spec.config import NpuConfig
from concord.spec.isa import Trap
from concord.spec.memmap import Region


class ReferenceDevice(Device):
    """Executes vector by vector, straight from the golden model: slow, without a clock and without registers.

    Parameters
    ----------
    config : NpuConfig
    """

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self._memories = Memories(config)
        self._run = Run(Trap.NONE, 0, 0, 0, 0, 0)
        self._counted = counters_of(self._run)

    def close(self) -> None:
        """Do nothing: the reference machine holds nothing."""

    def clear_flags(self) -> None:
        self._memories.flags[:] = 0

    def dram_state(self) -> DramState:
        return UNTIMED

    def wait(self, timeout: float | None = None) -> None:
        if self._run.trap is not Trap.NONE:
            raise self._trapped(self._run.trap, self._run.pc)

    def _start(self, pc: int, adds: bool) -> None:
        counted = self._counted if adds else {}
        with np.errstate(all="ignore"):
            self._run = ReferenceMachine(self._memories).run(pc)
        self._counted = add_counters(counters_of(self._run), counted)

    def counters(self) -> Counters:
        return self._counted

    def _read(self, region: Region, addr: int, count: int) -> bytes:
        return to_bytes(self._memories.read(region.id, addr, count), region.nbytes).tobytes()

    def _write(self, region: Region, addr: int, data: bytes) -> None:
        words = to_integers(np.frombuffer(data, dtype=np.uint8).reshape(-1, region.nbytes))
        self._memories.write(region.id, addr, words)
