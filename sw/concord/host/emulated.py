"""The emulator as a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from concord.emulator import Emulator, Run
from concord.emulator.inputs import Inputs
from concord.emulator.machine import Watch
from concord.emulator.outputs import Outputs as EmulatedOutputs
from concord.emulator.phases import BatchPhase
from concord.golden import binary16
from concord.golden.blocks import to_binary16
from concord.golden.feeder import Feeder
from concord.host.device import COUNTERS, Counters, Device, Outputs, add_counters
from concord.host.errors import BusyError, DeviceError
from concord.image import Image, Phase, Port
from concord.image.packing import from_vectors
from concord.image.words import to_bytes, to_integers
from concord.program import Span
from concord.program.access import VECTORS
from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.isa import Mem, Trap
from concord.spec.memmap import FEEDER_REGIONS, MAGIC, REGISTERS, Reg, Region, RegionId
from concord.spec.operations import Op
from concord.utils.arrays import Array

_MASK = (1 << 32) - 1


class EmulatedDevice(Device):
    """Executes whole batches at once, bit for bit as the hardware.

    Cycles are those that the hardware takes (:mod:`concord.cycles`), worked out when somebody asks; after a batch of a
    program with sliding products, its last sample is executed again for them. Runs of an image with states follow each
    other, as on other back ends. A program whose runs depend on each other otherwise (which the verifier refuses)
    starts every sample of a batch from the same memories here, and from what the sample before left on other back ends.

    Parameters
    ----------
    config : NpuConfig
        What to emulate.
    workers : int or None
        Threads that share a batch; as many as there are processors if left out.
    watch, after : callable, optional
        See :class:`Emulator`. Whoever reads memories after a batch lets its last sample be executed again.
    compiled : bool or None
        Whether compiled kernels are used, see :class:`Emulator`.
    """

    def __init__(
        self,
        config: NpuConfig,
        workers: int | None = None,
        watch: Watch | None = None,
        after: Watch | None = None,
        compiled: bool | None = None,
    ):
        super().__init__(config)
        self._emulator = Emulator(config, workers=workers, watch=watch, after=after, compiled=compiled)
        self._last = Run(Trap.NONE, 0, 0, 0, 0, 0)
        self._before: Sequence[Run] = ()  # of the phases before it
        self._started = False
        self._closed = False
        self._feeder = Feeder(config, self._word, self._set_word, self._succeeds) if config.inbox else None
        #: Image, phases and last sample of a batch.
        self._pending: tuple[Image, Sequence[Phase], dict[str, Any]] | None = None

    def close(self) -> None:
        self._closed = True

    def clear_flags(self) -> None:
        self._open().clear_flags()

    def runs(self) -> tuple[Run, ...]:
        """The run of every phase of the last sample, with exact cycles."""
        if not all(run.exact for run in (*self._before, self._last)):
            self._catch_up()
        return *self._before, self._last

    def counters(self) -> Counters:
        return reduce(add_counters, map(counters_of, self.runs()))

    def wait(self, timeout: float | None = None) -> None:
        if self._last.trap is not Trap.NONE:
            raise self._trapped(self._last.trap, self._last.pc)

    def _start(self, pc: int, adds: bool) -> None:
        self._catch_up()
        self._run(pc, adds)

    def _run(self, pc: int, adds: bool) -> None:
        self._before = (*self._before, self._last) if adds else ()
        self._last = self._open().run(pc)
        self._started = True

    def _read(self, region: Region, addr: int, count: int) -> bytes:
        if region.id is not RegionId.FLAGS:
            self._catch_up()
        if region.id in FEEDER_REGIONS and self._feeder is not None:
            words = self._feeder.read(addr, count)
        elif region.id is RegionId.REGS:
            words = [self._register(reg) for reg in Reg][addr : addr + count]
        else:
            words = self._open().read(region.id, addr, count)
        return to_bytes(words, region.nbytes).tobytes()

    def _write(self, region: Region, addr: int, data: bytes) -> None:
        self._catch_up()
        words = to_integers(np.frombuffer(data, dtype=np.uint8).reshape(-1, region.nbytes))
        if region.id not in FEEDER_REGIONS or self._feeder is None:
            self._open().write(region.id, addr, words)
            return
        if region.id is RegionId.INBOX and len(words) > self._feeder.room:
            raise BusyError(f"inbox must have room for {len(words)} bytes, not for {self._feeder.room}")
        for at, word in enumerate(words, addr):
            self._feeder.write(region.id, at, word)

    def _word(self, region: RegionId, addr: int) -> int:
        (word,) = self._open().read(region, addr, 1)
        return word

    def _set_word(self, region: RegionId, addr: int, word: int) -> None:
        self._open().write(region, addr, [word])

    def _succeeds(self, pc: int, adds: bool) -> bool:
        self._run(pc, adds)
        return self._last.trap is Trap.NONE

    def _run_batch(
        self, image: Image, schedule: Sequence[Phase], batch: Mapping[str, Any], size: int, timeout: float | None
    ) -> Outputs:
        if not schedule[0].inputs or not size or image.states:  # a run begins with what the one before has left
            return super()._run_batch(image, schedule, batch, size, timeout)
        emulator = self._open()
        if any(emulator.has_integers(phase.pc) for phase in schedule):
            return super()._run_batch(image, schedule, batch, size, timeout)
        ports = {port.name: port for port in image.outputs}
        encoded = {
            port.name: (VECTORS[port.region], _to_vectors(batch[port.name], port, self.config)) for port in image.inputs
        }
        phases = [self._phase(phase, encoded, ports) for phase in schedule]
        dependent = emulator.dependent(phases)
        if dependent and size == 1:  # the memories are needed, and would be computed once more
            return super()._run_batch(image, schedule, batch, size, timeout)
        if self._pending is not None and (dependent or self._pending[1] != schedule):
            self._catch_up()
        flags = emulator.memories.flags.copy()
        results = emulator.run_phases(phases)
        if results[-1].run.trap is not Trap.NONE:  # it ends the batch with the first sample
            emulator.memories.flags[:] = flags
            return super()._run_batch(image, schedule, batch, size, timeout)
        *self._before, self._last = (result.run for result in results)
        self._started = True
        self._pending = image, schedule, {name: values[-1].copy() for name, values in batch.items()}
        pieces: dict[str, list[tuple[int, Any]]] = {name: [] for name in ports}
        for phase, result in zip(schedule, results, strict=True):
            for part, part_outputs in zip(phase.outputs, result.outputs, strict=True):
                pieces[part.port].append((part.first, part_outputs))
        return {name: self._decode(ports[name], part_outputs, size) for name, part_outputs in pieces.items()}

    def _phase(self, phase: Phase, encoded: Mapping[str, tuple[Mem, Array]], ports: Mapping[str, Port]) -> BatchPhase:
        numbers = {}
        for part in phase.inputs:
            mem, vectors = encoded[part.port]
            numbers[mem, part.address] = vectors[:, part.first : part.first + part.count]
        spans = [Span(ports[part.port].region, part.address, part.count) for part in phase.outputs]
        inputs = Inputs(self.config, {}, {}, numbers) if numbers else None
        return BatchPhase(phase.pc, inputs, EmulatedOutputs(self.config, spans))

    def _decode(self, port: Port, parts: Sequence[tuple[int, Any]], size: int) -> Array:
        """The tensor of an output, from its parts by first vector."""
        whole = np.zeros((size, port.vectors(self.config), self.config.native), dtype=np.uint16)
        for first, values in parts:
            bits = np.asarray(values if port.region is RegionId.WIDE else to_binary16(*values), dtype=np.uint16)
            whole[:, first : first + bits.shape[1]] = bits
        vectors = whole.reshape(-1, self.config.native)
        shape = (size, *(port.shape or (1,)))
        return binary16.decode(from_vectors(vectors, shape, self.config)).astype(port.dtype).reshape(size, *port.shape)

    def _catch_up(self) -> None:
        """Leave the memories as the last run of a batch would: only done when someone looks.

        The flags of that run were collected with those of the batch, and may have been cleared since.
        """
        if self._pending is None:
            return
        flags = self._open().memories.flags.copy()
        (image, schedule, sample), self._pending = self._pending, None
        runs: list[Run] = []
        encoded = {port.name: (port.region, port.encode(sample[port.name], self.config)) for port in image.inputs}
        for phase in schedule:
            for part in phase.inputs:
                region, words = encoded[part.port]
                self._open().write(region, part.address, words[part.first : part.first + part.count])
            runs.append(self._open().run(phase.pc))
        *self._before, self._last = runs[: 1 + len(self._before)]
        self._open().memories.flags[:] = flags

    def _register(self, reg: Reg) -> int:
        run, fingerprint = self._last, self.config.fingerprint
        trapped = run.trap is not Trap.NONE
        status = dict.fromkeys((field.name for field in REGISTERS[Reg.STATUS].layout.fields), 0)
        status |= {"done": self._started and not trapped, "trapped": trapped, "dram_works": self.config.has(Op.COPY)}
        values = {
            Reg.MAGIC: MAGIC,
            Reg.VERSION: SPEC_VERSION,
            Reg.FINGERPRINT: fingerprint & _MASK,
            Reg.FINGERPRINT_HIGH: fingerprint >> 32,
            Reg.STATUS: REGISTERS[Reg.STATUS].layout.pack(**status),
            Reg.TRAP: REGISTERS[Reg.TRAP].layout.pack(code=run.trap, reserved=0, pc=run.pc),
            Reg.FLAGS_ANY: self._open().memories.flag_union(),
        }
        counter = Reg.CYCLES if reg is Reg.CYCLES_HIGH else reg
        if counter in COUNTERS:
            total: int = sum(getattr(each, counter.name.lower()) for each in (*self._before, run))
            return total >> (32 if reg is Reg.CYCLES_HIGH else 0) & _MASK
        return values.get(reg, 0)

    def _open(self) -> Emulator:
        if self._closed:
            raise DeviceError("the device was closed")
        return self._emulator


def counters_of(run: Run) -> Counters:
    """Counters by register name after a run."""
    return {reg.name: getattr(run, reg.name.lower()) for reg in COUNTERS}


def _to_vectors(values: Array, port: Port, config: NpuConfig) -> Array:
    """Native vectors ``[batch, count, N]`` of a port, the last dimension padded with zeros."""
    last = port.shape[-1] if port.shape else 1
    lines = values.reshape(len(values), -1, last)
    padding = -last % config.native
    if padding:
        lines = np.pad(lines, ((0, 0), (0, 0), (0, padding)))
    return lines.reshape(len(values), -1, config.native)
