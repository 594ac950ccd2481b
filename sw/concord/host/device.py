"""One NPU, whatever executes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..asm import describe
from ..image import Image, Port
from ..spec.config import NpuConfig
from ..spec.formats import Flag
from ..spec.isa import Trap
from ..spec.memmap import Reg, Region, RegionId, regions
from ..words import to_bytes, to_integers
from .errors import BadRegionError, DeviceError, TrapError
from .tensors import check_batch, present

Outputs = dict[str, NDArray[Any]]

#: Registers that :meth:`Device.counters` reports. ``CYCLES`` has 64 bits, the others wrap at 32.
COUNTERS = (Reg.CYCLES, Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.CHAINS, Reg.VECTORS, Reg.HAZARD_STALLS)


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
    def _start(self, pc: int) -> None:
        """Start a run; ``pc`` was checked."""

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
    def counters(self) -> dict[str, int | None]:
        """Counters of the last run by register name; ``None`` where the back end has no notion of it."""

    @abstractmethod
    def _read(self, region: Region, addr: int, count: int) -> bytes:
        """Words as on the link."""

    @abstractmethod
    def _write(self, region: Region, addr: int, data: bytes) -> None:
        """Write words as on the link."""

    # Memories ----------------------------------------------------------------------------------

    def read(self, region: RegionId | str, addr: int, count: int = 1) -> list[int]:
        """Return ``count`` words from ``addr`` on; the region by its number or name."""
        found = self._region(region)
        if not found.readable:
            raise BadRegionError(f"{found.id.name} cannot be read")
        self._check_span(found, addr, count)
        data = np.frombuffer(self._read(found, addr, count), dtype=np.uint8)
        return to_integers(data.reshape(-1, found.nbytes))

    def write(self, region: RegionId | str, addr: int, words: Sequence[int]) -> None:
        """Write words from ``addr`` on."""
        found = self._region(region)
        if not found.writable:
            raise BadRegionError(f"{found.id.name} cannot be written: use start() and clear_flags()")
        self._check_span(found, addr, len(words))
        for word in words:
            if not 0 <= word < 1 << found.word.width:
                raise ValueError(f"words of {found.id.name} must have {found.word.width} bits, not {word!r}")
        self._write(found, addr, to_bytes(words, found.nbytes).tobytes())

    def _region(self, region: RegionId | str) -> Region:
        if isinstance(region, str):
            if region.upper() not in RegionId.__members__:
                raise ValueError(f"region must be one of {list(RegionId.__members__)}, not {region!r}")
            region = RegionId[region.upper()]
        return self.regions[RegionId(region)]

    @staticmethod
    def _check_span(region: Region, addr: int, count: int) -> None:
        if not (0 <= addr and 0 <= count and addr + count <= region.depth):
            last = addr + count - 1
            raise ValueError(f"words of {region.id.name} must lie in 0..{region.depth - 1}, not {addr}..{last}")

    # Programs ----------------------------------------------------------------------------------

    def load(self, image: Image) -> None:
        """Fill the memories and clear the flags.

        Raises
        ------
        concord.image.ImageError
            If the image is for another configuration; the message lists the differences.
        """
        image.check(self.config)
        self.image = None
        program = self.regions[RegionId.PROGRAM]
        self._write(program, 0, to_bytes(image.program, program.nbytes).tobytes())
        for segment in image.segments:
            self._write(self.regions[segment.region], segment.start, segment.data)
        self.clear_flags()
        self.image = image

    def start(self, pc: int = 0) -> None:
        """Start a run at ``pc``."""
        if not 0 <= pc < self.config.program_depth:
            raise ValueError(f"pc must be in 0..{self.config.program_depth - 1}, not {pc!r}")
        self._start(pc)

    def run(self, inputs: ArrayLike | Mapping[str, ArrayLike], *, pc: int = 0, timeout: float | None = None) -> Any:
        """Run the program once per sample and return the outputs.

        Parameters
        ----------
        inputs : array or mapping
            ``[batch, *shape]`` by name of the input; the array alone if there is one input. Rounded to binary16.
        pc : int
            First instruction.
        timeout : float or None
            Seconds for each run.

        Returns
        -------
        array or dict
            ``[batch, *shape]`` by name of the output; the array alone if one array was given and there is one output.
        """
        image = self._loaded()
        batch, size = check_batch(image.inputs, inputs)
        return present(self._run_batch(image, batch, size, pc, timeout), not isinstance(inputs, Mapping))

    def _run_batch(self, image: Image, batch: Mapping[str, Any], size: int, pc: int, timeout: float | None) -> Outputs:
        """One run after the other."""
        results: list[Outputs] = []
        for n in range(size):
            for port in image.inputs:
                words = port.encode(batch[port.name][n], self.config)
                region = self.regions[port.region]
                self._write(region, port.address, to_bytes(words, region.nbytes).tobytes())
            self.start(pc)
            self.wait(timeout)
            results.append({port.name: self._fetch(port) for port in image.outputs})
        empty = {port.name: np.zeros((0, *port.shape), port.dtype) for port in image.outputs}
        return {name: np.stack([result[name] for result in results]) if results else empty[name] for name in empty}

    def _fetch(self, port: Port) -> NDArray[Any]:
        return port.decode(self.read(port.region, port.address, port.vectors(self.config)), self.config)

    def _loaded(self) -> Image:
        if self.image is None:
            raise DeviceError("an image must be loaded first")
        return self.image

    # State -------------------------------------------------------------------------------------

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
