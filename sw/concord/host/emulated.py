"""The emulator as a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..emulator import Emulator, Run
from ..emulator.lanes import VECTORS
from ..golden import half
from ..golden.blocks import to_half
from ..image import Image, Port
from ..packing import from_vectors
from ..program import Span
from ..spec.config import SPEC_VERSION, NpuConfig
from ..spec.isa import Trap
from ..spec.memmap import MAGIC, REGISTERS, Reg, Region, RegionId
from ..words import to_bytes, to_integers
from .device import COUNTERS, Device, Outputs
from .errors import DeviceError

_MASK = (1 << 32) - 1
#: What the emulator counts.
_COUNTED = {reg: reg.name.lower() for reg in (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.CHAINS, Reg.VECTORS)}


class EmulatedDevice(Device):
    """Executes whole batches at once, bit for bit as the hardware.

    Has no clock: the registers for cycles read as zero and :meth:`counters` gives ``None`` for them. A program whose
    runs depend on each other (which the verifier refuses) starts every sample of a batch from the same memories here,
    and from what the sample before left on other back ends.

    Parameters
    ----------
    config : NpuConfig
        What to emulate.
    workers : int or None
        Threads that share a batch; as many as there are processors if left out.
    """

    def __init__(self, config: NpuConfig, workers: int | None = None):
        super().__init__(config)
        self._emulator = Emulator(config, workers=workers)
        self._last = Run(Trap.NONE, 0, 0, 0, 0, 0)
        self._started = False
        self._closed = False
        #: Image and last sample of a batch, and where its run begins.
        self._pending: tuple[Image, dict[str, Any], int] | None = None

    def close(self) -> None:
        self._closed = True

    def clear_flags(self) -> None:
        self._open().clear_flags()

    def counters(self) -> dict[str, int | None]:
        values = asdict(self._last)
        return {reg.name: values[_COUNTED[reg]] if reg in _COUNTED else None for reg in COUNTERS}

    def wait(self, timeout: float | None = None) -> None:
        if self._last.trap is not Trap.NONE:
            raise self._trapped(self._last.trap, self._last.pc)

    def _start(self, pc: int) -> None:
        self._catch_up()
        self._last = self._open().run(pc)
        self._started = True

    def _read(self, region: Region, addr: int, count: int) -> bytes:
        self._catch_up()
        if region.id is RegionId.REGS:
            words = [self._register(reg) for reg in Reg][addr : addr + count]
        else:
            words = self._open().read(region.id, addr, count)
        return to_bytes(words, region.nbytes).tobytes()

    def _write(self, region: Region, addr: int, data: bytes) -> None:
        self._catch_up()
        words = to_integers(np.frombuffer(data, dtype=np.uint8).reshape(-1, region.nbytes))
        self._open().write(region.id, addr, words)

    def _run_batch(self, image: Image, batch: Mapping[str, Any], size: int, pc: int, timeout: float | None) -> Outputs:
        if not image.inputs or size < 2:
            return super()._run_batch(image, batch, size, pc, timeout)
        emulator = self._open()
        given, spans = (
            [Span(port.region, port.address, port.vectors(self.config)) for port in ports]
            for ports in (image.inputs, image.outputs)
        )
        if self._pending is not None and (self._pending[2] != pc or emulator.dependent(pc, given)):
            self._catch_up()
        numbers = {
            (VECTORS[port.region], port.address): _to_vectors(batch[port.name], port, self.config)
            for port in image.inputs
        }
        result = emulator.run_batch({}, spans, pc, numbers=numbers)
        self._last, self._started = result.run, True
        self._pending = image, {name: values[-1] for name, values in batch.items()}, pc
        self.wait()
        pairs = zip(image.outputs, result.outputs, strict=True)
        return {port.name: self._decode(port, found, size) for port, found in pairs}

    def _decode(self, port: Port, found: Any, size: int) -> NDArray[Any]:
        bits = found if port.region is RegionId.WIDE else to_half(*found)
        vectors = np.asarray(bits, dtype=np.uint16).reshape(-1, self.config.native)
        shape = (size, *(port.shape or (1,)))
        return half.decode(from_vectors(vectors, shape, self.config)).astype(port.dtype).reshape(size, *port.shape)

    def _catch_up(self) -> None:
        """Leave the memories as the last run of a batch would: only done when someone looks."""
        if self._pending is None:
            return
        (image, sample, pc), self._pending = self._pending, None
        for port in image.inputs:
            self._open().write(port.region, port.address, port.encode(sample[port.name], self.config))
        self._open().run(pc)

    def _register(self, reg: Reg) -> int:
        run, fingerprint = self._last, self.config.fingerprint
        trapped = run.trap is not Trap.NONE
        status = {"busy": 0, "done": self._started and not trapped, "trapped": trapped, "reserved": 0}
        values = {
            Reg.MAGIC: MAGIC,
            Reg.VERSION: SPEC_VERSION,
            Reg.FINGERPRINT: fingerprint & _MASK,
            Reg.FINGERPRINT_HIGH: fingerprint >> 32,
            Reg.STATUS: REGISTERS[Reg.STATUS].layout.pack(**status),
            Reg.TRAP: REGISTERS[Reg.TRAP].layout.pack(code=run.trap, reserved=0, pc=run.pc),
            Reg.FLAGS_ANY: self._open().memories.flag_union(),
        }
        return values.get(reg, getattr(run, _COUNTED[reg]) if reg in _COUNTED else 0)

    def _open(self) -> Emulator:
        if self._closed:
            raise DeviceError("the device was closed")
        return self._emulator


def _to_vectors(values: NDArray[np.float64], port: Port, config: NpuConfig) -> NDArray[np.float64]:
    """Native vectors ``[batch, count, N]`` of a port, the last dimension padded with zeros."""
    last = port.shape[-1] if port.shape else 1
    lines = values.reshape(len(values), -1, last)
    padding = -last % config.native
    if padding:
        lines = np.pad(lines, ((0, 0), (0, 0), (0, padding)))
    return lines.reshape(len(values), -1, config.native)
