"""One NPU, whatever executes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from concord.host.dram_state import DramState
from concord.host.errors import BadRegionError, DeviceError, TrapError
from concord.host.tensors import check_batch, unwrap_outputs
from concord.image import Image, MemorySegment, Phase
from concord.image.columns import columns_of
from concord.image.validation import check_words
from concord.image.words import to_bytes, to_integers
from concord.program.assembler import describe
from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.spec.isa import Trap
from concord.spec.memmap import REGISTERS, Reg, Region, RegionId, regions
from concord.spec.operations import Op
from concord.utils.arrays import Array

Outputs = dict[str, Array]

#: Registers that :meth:`Device.counters` reports. ``CYCLES`` has 64 bits, the others wrap at 32.
COUNTERS = (Reg.CYCLES, Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.CHAINS, Reg.VECTORS, Reg.HAZARD_STALLS)

Counters = dict[str, int | None]
#: Reads of STATUS in which the search of a device comes to its end: it takes some milliseconds, a read less than one.
_SEARCH_READS = 10_000


def add_counters(counters: Counters, more: Counters) -> Counters:
    """Sums of counters by register name, ``None`` where one of them is unknown."""
    return {name: _sum(value, more.get(name, 0)) for name, value in counters.items()}


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


class Device(ABC):
    """The calls that all back ends have; a context manager that closes the device.

    Parameters
    ----------
    config : NpuConfig
        Configuration of the device.

    Members
    -------
    regions : dict
        Its memories and registers.
    image : Image or None
        What was loaded last.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.regions = regions(config)
        self.image: Image | None = None
        #: Told when the first sample of a batch begins, and how many more of them have ended.
        self.begun: Callable[[], None] | None = None
        self.ended: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def fingerprint(self) -> int:
        """64-bit hash of the configuration."""
        return self.config.fingerprint

    # What a back end has to provide --------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Let go of the device."""

    @abstractmethod
    def _start(self, pc: int, adds: bool) -> None:
        """Start the program; ``pc`` was checked."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> None:
        """Return when the run has ended.

        Raises
        ------
        TrapError
            If it ended with a trap.
        RunTimeout
            If it has not ended after ``timeout`` seconds.
        """

    @abstractmethod
    def clear_flags(self) -> None:
        """Clear all sticky flags."""

    @abstractmethod
    def _read(self, region: Region, addr: int, count: int) -> bytes:
        """Words as on the link."""

    @abstractmethod
    def _write(self, region: Region, addr: int, data: bytes) -> None:
        """Write words as on the link."""

    # Memories ----------------------------------------------------------------------------------

    def read(self, region: RegionId | str, addr: int, count: int = 1) -> list[int]:
        """Return ``count`` words from ``addr`` on; the region by its number or name."""
        area = self._region(region)
        if not area.readable:
            raise BadRegionError(f"{area.id.name} cannot be read")
        self._check_span(area, addr, count)
        data = np.frombuffer(self._read(area, addr, count), dtype=np.uint8)
        return to_integers(data.reshape(-1, area.nbytes))

    def write(self, region: RegionId | str, addr: int, words: Sequence[int]) -> None:
        """Write words from ``addr`` on.

        Raises
        ------
        ValueError
            If they lie beyond the region or do not fit in its words; :class:`concord.image.validation.WordError` if
            they hold what is no code of its format. Nothing is written then.
        """
        area = self._region(region)
        if not area.writable:
            raise BadRegionError(f"{area.id.name} cannot be written: use start() and clear_flags()")
        self._check_span(area, addr, len(words))
        for word in words:
            if not 0 <= word < 1 << area.word.width:
                raise ValueError(f"words of {area.id.name} must have {area.word.width} bits, not {word!r}")
        data = to_bytes(words, area.nbytes)
        check_words(area, addr, data, self.config)
        self._write(area, addr, data.tobytes())

    def _region(self, region: RegionId | str) -> Region:
        names = {area.name: area for area in self.regions}
        if isinstance(region, str):
            if region.upper() not in names:
                raise ValueError(f"region must be one of {list(names)}, not {region!r}")
            region = names[region.upper()]
        if region not in self.regions:
            raise ValueError(f"region must be one of {list(names)}, not {region!r}")
        return self.regions[RegionId(region)]

    @staticmethod
    def _check_span(region: Region, addr: int, count: int) -> None:
        if region.id is RegionId.OUTBOX:
            return  # its addresses have two parts
        if not (0 <= addr and 0 <= count and addr + count <= region.depth):
            last = addr + count - 1
            raise ValueError(f"words of {region.id.name} must lie in 0..{region.depth - 1}, not {addr}..{last}")

    # Programs ----------------------------------------------------------------------------------

    def load(self, image: Image) -> None:
        """Fill the memories and clear the flags.

        Raises
        ------
        concord.image.ImageError
            If the image is for another configuration; the message lists the differences. If it holds what is no code of
            a format; the message names region and address.
        """
        image.check(self.config)
        self.image = None
        columns = columns_of(image)
        if columns:
            self._check_dram()
        program = self.regions[RegionId.PROGRAM]
        self._write(program, 0, to_bytes(image.program, program.nbytes).tobytes())
        self._write_segments(segment for segment in image.segments if segment.region is not RegionId.DRAM)
        self._load_columns(columns)
        self.clear_flags()
        self.image = image

    def _load_columns(self, segments: Sequence[MemorySegment]) -> None:
        """Fill the external memory."""
        self._write_segments(segments)

    def _write_segments(self, segments: Iterable[MemorySegment]) -> None:
        for segment in segments:
            self._write(self.regions[segment.region], segment.start, segment.data)

    def dram_state(self) -> DramState:
        """State of the external memory, when the search for the phase of its clock has come to its end.

        Raises
        ------
        DeviceError
            If there is no external memory, or its search does not end.
        """
        if not self.config.has(Op.COPY):
            raise DeviceError(f"{self.config.name} has no external memory")
        for _ in range(_SEARCH_READS):
            (word,) = self.read(RegionId.REGS, Reg.STATUS)
            status = REGISTERS[Reg.STATUS].layout.unpack(word)
            if not status["dram_searching"]:
                return DramState.of(status)
        raise DeviceError("the external memory of the device must end the search for its clock phase")

    def _check_dram(self) -> None:
        """:class:`DeviceError` if the external memory does not work."""
        state = self.dram_state()
        if not state.works:
            raise DeviceError(f"the network copies weights from the external memory, which {state.text}")

    def start(self, pc: int = 0, *, adds: bool = False) -> None:
        """Start a run at ``pc``; after the end of the instruction memory it traps with ``PC_RANGE``.

        With ``adds`` the counters go on from those of the run before.
        """
        field = REGISTERS[Reg.CONTROL].layout["pc"]
        if not field.low <= pc <= field.high:
            raise ValueError(f"pc must be in {field.low}..{field.high}, not {pc!r}")
        self._start(pc, adds)

    def run(self, inputs: ArrayLike | Mapping[str, ArrayLike], *, pc: int = 0, timeout: float | None = None) -> Any:
        """Run the program once per sample, all of its phases, and return the outputs.

        Parameters
        ----------
        inputs : array or mapping
            ``[batch, *shape]`` by name of the input; the array alone if there is one input. Rounded to binary16.
        pc : int
            First instruction; 0 for an image in phases, which says where each begins.
        timeout : float or None
            Seconds for each start of the program.

        Returns
        -------
        array or dict
            ``[batch, *shape]`` by name of the output; the array alone if one array was given and there is one output.
        """
        image = self._loaded()
        schedule = image.schedule(pc)
        batch, size = check_batch(image.inputs, inputs)
        outputs = image.feeding.trim(self._run_batch(image, schedule, batch, size, timeout))
        return unwrap_outputs(outputs, not isinstance(inputs, Mapping))

    def _run_batch(
        self, image: Image, schedule: Sequence[Phase], batch: Mapping[str, Any], size: int, timeout: float | None
    ) -> Outputs:
        """Run one sample after the other."""
        self.report_begun()
        results: list[Outputs] = []
        for n in range(size):
            results.append(
                self._run_sample(image, schedule, {name: values[n] for name, values in batch.items()}, timeout)
            )
            self.report_progress(1)
        empty = {port.name: np.zeros((0, *port.shape), port.dtype) for port in image.outputs}
        return {name: np.stack([result[name] for result in results]) if results else empty[name] for name in empty}

    def report_begun(self) -> None:
        """Tell a progress bar that the first sample begins: the device has all that a batch needs."""
        if self.begun is not None:
            self.begun()

    def report_progress(self, samples: int) -> None:
        """Samples of a batch have ended."""
        if self.ended is not None and samples:
            self.ended(samples)

    def _run_sample(
        self, image: Image, schedule: Sequence[Phase], sample: Mapping[str, Any], timeout: float | None
    ) -> Outputs:
        """All phases of one run."""
        inputs = {port.name: port.encode(sample[port.name], self.config) for port in image.inputs}
        outputs = {port.name: [0] * port.vectors(self.config) for port in image.outputs}
        places = {port.name: port.region for port in image.inputs}, {port.name: port.region for port in image.outputs}
        for k, phase in enumerate(schedule):
            for part in phase.inputs:
                region = self.regions[places[0][part.port]]
                words = inputs[part.port][part.first : part.first + part.count]
                self._write(region, part.address, to_bytes(words, region.nbytes).tobytes())
            self.start(phase.pc, adds=k > 0)
            self.wait(timeout)
            for part in phase.outputs:
                words = self.read(places[1][part.port], part.address, part.count)
                outputs[part.port][part.first : part.first + part.count] = words
        return {port.name: port.decode(outputs[port.name], self.config) for port in image.outputs}

    def _loaded(self) -> Image:
        if self.image is None:
            raise DeviceError("an image must be loaded first")
        return self.image

    def reset_states(self) -> None:
        """Begin a new sequence: states of the network have their first values again, as after :meth:`load`."""
        for state in self._loaded().states:
            self.write(state.port.region, state.port.address, state.first_words(self.config))

    # State -------------------------------------------------------------------------------------

    @abstractmethod
    def counters(self) -> Counters:
        """Counters of the last run by register name, the sums over its phases; ``None`` for what is not counted."""

    def flags(self) -> dict[int, tuple[Flag, ...]]:
        """Sticky flags by the address of the ``v_rd`` of the chain that raised them, none left out."""
        words = self.read(RegionId.FLAGS, 0, self.config.program_depth)
        return {pc: tuple(flag for flag in Flag if word >> flag & 1) for pc, word in enumerate(words) if word}

    def _trapped(self, trap: Trap, pc: int) -> TrapError:
        """The exception for a run that has trapped."""
        if not 0 <= pc < self.config.program_depth:
            return TrapError(trap, pc, None, "")
        (word,) = self.read(RegionId.PROGRAM, pc)
        return TrapError(trap, pc, word, describe(word))
