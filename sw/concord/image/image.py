"""Images: everything that is loaded into an NPU, with the configuration it is for, in one versioned file.

The words of a segment are kept as the host link sends them: little endian, ``Layout.nbytes`` each. The file is
described in :mod:`concord.image.container`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from concord.image.container import ImageError, read_file, write_file
from concord.image.feeder_layout import Feeding
from concord.image.phases import Phase, PortRange, full_ranges
from concord.image.ports import Port, State
from concord.image.validation import WordError, check_words
from concord.image.words import to_bytes, to_integers
from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.memmap import RegionId, regions
from concord.spec.stored import compile_again
from concord.utils.arrays import Array, Bytes

#: Regions that segments may fill; the program is separate.
LOADABLE = (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE, RegionId.SLOTS, RegionId.DRAM)


@dataclass(frozen=True)
class MemorySegment:
    """Consecutive words of one region.

    Parameters
    ----------
    region : RegionId
        One of :data:`LOADABLE`.
    start : int
        Address of the first word.
    nbytes : int
        Bytes per word.
    data : bytes
        The words, little endian.
    """

    region: RegionId
    start: int
    nbytes: int
    data: bytes

    @classmethod
    def from_words(cls, region: RegionId, start: int, words: Iterable[int], config: NpuConfig) -> MemorySegment:
        """A segment of integer words; ``ValueError`` if one does not fit in a word of the region."""
        layout = regions(config)[region].word
        listed = [int(word) for word in words]
        for word in listed:
            if word < 0 or word >> layout.width:
                raise ValueError(f"words of {region.name} must have {layout.width} bits, not {word:#x}")
        return cls(region, start, layout.nbytes, to_bytes(listed, layout.nbytes).tobytes())

    @property
    def count(self) -> int:
        """Number of words."""
        return len(self.data) // self.nbytes

    def array(self) -> Bytes:
        """The words as ``[count, nbytes]``."""
        return np.frombuffer(self.data, dtype=np.uint8).reshape(-1, self.nbytes)

    def words(self) -> list[int]:
        """The words as integers."""
        return to_integers(self.array())


@dataclass(frozen=True)
class Image:
    """A program with the contents of all memories.

    Parameters
    ----------
    config : NpuConfig
        What it was made for.
    program : tuple of int
        Instruction words, from address 0.
    segments : tuple of MemorySegment
        Contents of the other memories; later ones win.
    inputs, outputs : tuple of Port
        Where the driver places and fetches tensors.
    states : tuple of State
        Tensors that stay in the memories from a run to the next one. Their first values are among the segments.
    phases : tuple of Phase
        The starts of the program that a run is made of, in order. None: one start, with all of the ports.
    feeding : Feeding
        How a feeder lays out raw inputs; of no inputs if it cannot.
    metadata : dict
        Anything JSON can hold, for reports.
    """

    config: NpuConfig
    program: tuple[int, ...]
    segments: tuple[MemorySegment, ...] = ()
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    phases: tuple[Phase, ...] = ()
    feeding: Feeding = field(default_factory=Feeding)
    metadata: dict[str, Any] = field(default_factory=dict)
    states: tuple[State, ...] = ()

    @property
    def carried(self) -> Image:
        """Image with states that the host carries: each is an input and an output of a run."""
        if not self.states:
            return self
        inputs = *self.inputs, *(state.port for state in self.states)
        outputs = *self.outputs, *(state.output for state in self.states)
        return replace(self, inputs=inputs, outputs=outputs, states=(), feeding=Feeding())

    def port(self, name: str) -> Port:
        """An input or output by name."""
        for port in (*self.inputs, *self.outputs):
            if port.name == name:
                return port
        raise ValueError(f"port must be one of {[p.name for p in (*self.inputs, *self.outputs)]}, not {name!r}")

    def schedule(self, pc: int = 0) -> tuple[Phase, ...]:
        """The phases of a run; without any in the image, one that begins at ``pc``.

        Raises
        ------
        ValueError
            If ``pc`` is not 0, but the image says where its phases begin.
        """
        if self.phases and pc:
            raise ValueError(f"pc must be 0 for an image in phases, not {pc!r}")
        return self.phases or (
            Phase(pc, full_ranges(self.inputs, self.config), full_ranges(self.outputs, self.config)),
        )

    def check(self, config: NpuConfig | None = None) -> None:
        """Raise :class:`ImageError` unless everything fits its own configuration, and that is ``config`` (if given).

        That includes the words of the segments, see :func:`concord.image.validation.check_words`.
        """
        if config is not None and config.fingerprint != self.config.fingerprint:
            raise ImageError(
                f"the image is for another configuration: fingerprint {self.config.fingerprint:#018x}, not "
                f"{config.fingerprint:#018x}; image / NPU: {self.config.difference(config)}"
            )
        table = regions(self.config)
        if len(self.program) > self.config.program_depth:
            raise ImageError(f"program must have at most {self.config.program_depth} words, not {len(self.program)}")
        if any(not 0 <= word < 1 << 64 for word in self.program):
            raise ImageError("program words must have 64 bits")
        for part in self.segments:
            region = table[part.region]
            if part.region not in LOADABLE:
                raise ImageError(f"segments must not be in {part.region.name}")
            if part.nbytes != region.nbytes or len(part.data) % region.nbytes:
                raise ImageError(f"words of {part.region.name} must have {region.nbytes} bytes, not {part.nbytes}")
            self._in_range(f"a segment of {part.region.name}", part.start, part.count, region.depth)
            try:
                check_words(region, part.start, part.array(), self.config)
            except WordError as error:
                raise ImageError(str(error)) from error
        for phase in self.schedule():
            if not 0 <= phase.pc < self.config.program_depth:
                raise ImageError(f"phases must begin in 0..{self.config.program_depth - 1}, not at {phase.pc}")
        self._check_states()
        self._check_parts(self.inputs, [part for phase in self.schedule() for part in phase.inputs], "written")
        self._check_parts(self.outputs, [part for phase in self.schedule() for part in phase.outputs], "read")
        try:
            self.feeding.check(self.inputs, self.outputs, self.config)
        except ValueError as error:
            raise ImageError(str(error)) from error

    def _check_states(self) -> None:
        """Check that states lie inside their memories, and are begun and ended by the same run."""
        if self.states and self.phases:
            raise ImageError("an image with states must not have phases")
        for state in self.states:
            count = state.port.vectors(self.config)
            self._in_range(state.port.name, state.port.address, count, regions(self.config)[state.port.region].depth)
        names = [port.name for port in (*self.carried.inputs, *self.carried.outputs)]
        if self.states and len(names) != len(set(names)):
            raise ImageError(f"inputs, outputs and states must have names of their own, not {names}")

    def _check_parts(self, ports: tuple[Port, ...], parts: list[PortRange], done: str) -> None:
        """Check that parts lie inside their memories and cover the ports."""
        named = {port.name: port for port in ports}
        for part in parts:
            if part.port not in named:
                raise ImageError(f"parts that are {done} must be of {sorted(named)}, not of {part.port!r}")
            port = named[part.port]
            self._in_range(part.port, part.address, part.count, regions(self.config)[port.region].depth)
            self._in_range(f"a part of {part.port}", part.first, part.count, port.vectors(self.config))
        for port in ports:
            end = 0  # all vectors before it are there
            for first, count in sorted((part.first, part.count) for part in parts if part.port == port.name):
                end = max(end, first + count) if first <= end else end
            if end < port.vectors(self.config):
                raise ImageError(f"every vector of {port.name} must be {done} in some phase, but {end} is not")

    @staticmethod
    def _in_range(what: str, start: int, count: int, depth: int) -> None:
        if start < 0 or start + count > depth:
            raise ImageError(f"{what} must lie in 0..{depth - 1}, not {start}..{start + count - 1}")

    def loaded(self) -> dict[RegionId, tuple[int, int]]:
        """Words that are loaded, and words that there are, by memory.

        Counted as programs address them: a word of the matrix memory is one of all tile engines together. The external
        memory is left out if nothing is loaded into it.
        """
        counts = {RegionId.PROGRAM: len(self.program)}
        for part in self.segments:
            counts[part.region] = counts.get(part.region, 0) + part.count
        shares = {}
        for region, memory in regions(self.config).items():
            if region is RegionId.DRAM and region not in counts:
                continue
            unit = self.config.rows if region is RegionId.MATRIX else 1
            shares[region] = counts.get(region, 0) // unit, memory.depth // unit
        return shares

    def memory(self, region: RegionId) -> list[int]:
        """Initial contents of a whole region, zero where nothing is loaded."""
        words = [0] * regions(self.config)[region].depth
        if region == RegionId.PROGRAM:
            words[: len(self.program)] = self.program
        for part in self.segments:
            if part.region == region:
                words[part.start : part.start + part.count] = part.words()
        return words

    def save(self, path: str | Path) -> None:
        """Write the image to a file; the same image gives the same bytes."""
        self.check()
        parts = [{"region": part.region.name, "start": part.start, "nbytes": part.nbytes} for part in self.segments]
        header = {
            "spec": SPEC_VERSION,
            "fingerprint": f"{self.config.fingerprint:#018x}",
            "config": self.config.to_dict(),
            "segments": parts,
            "inputs": [_port_header(port) for port in self.inputs],
            "outputs": [_port_header(port) for port in self.outputs],
            "phases": [asdict(phase) for phase in self.phases],
            "feeding": asdict(self.feeding),
            "metadata": self.metadata,
            "states": [_port_header(state.port) | {"result": state.result} for state in self.states],
        }
        arrays: dict[str, Array] = {f"segment_{k}": part.array() for k, part in enumerate(self.segments)}
        write_file(path, header, {"program": np.array(self.program, dtype="<u8"), **arrays})

    @classmethod
    def load(cls, path: str | Path, config: NpuConfig | None = None, data: bytes | None = None) -> Image:
        """Read an image; :class:`ImageError` if it is damaged, of another version, or not for ``config`` (if given).

        ``data`` are the contents of the file, if they have been read.
        """
        header, arrays = read_file(path, data=data)
        if header.get("spec") != SPEC_VERSION:
            reason = f"must be for specification version {SPEC_VERSION}, not {header.get('spec')!r}"
            raise ImageError(f"{path} {reason}; {_again(path, header)}")
        if "program" in arrays and arrays["program"].dtype != np.dtype("<u8"):
            raise ImageError(f"{path} must have a program of words, not of {arrays['program'].dtype}")
        try:
            image = cls(
                config=_config(path, header),
                program=tuple(int(word) for word in arrays["program"]),
                segments=tuple(
                    MemorySegment(
                        RegionId[part["region"]], part["start"], part["nbytes"], arrays[f"segment_{k}"].tobytes()
                    )
                    for k, part in enumerate(header["segments"])
                ),
                inputs=tuple(_port(fields) for fields in header["inputs"]),
                outputs=tuple(_port(fields) for fields in header["outputs"]),
                phases=tuple(_phase(fields) for fields in header["phases"]),
                feeding=Feeding.from_dict(header["feeding"]),
                metadata=header["metadata"],
                states=tuple(_state(fields) for fields in header["states"]),
            )
            stored = int(header["fingerprint"], 16)
        except ImageError:
            raise
        except (TypeError, AttributeError, ArithmeticError) as error:
            raise ImageError(f"{path} has contents that are not valid here") from error
        except (LookupError, ValueError) as error:
            raise ImageError(f"{path} has contents that are not valid here: {error}") from error
        if stored != image.config.fingerprint:
            raise ImageError(f"{path} must have fingerprint {image.config.fingerprint:#018x}, not {stored:#018x}")
        image.check(config)
        return image


def _again(path: str | Path, header: dict[str, Any]) -> str:
    """Advice for an image that cannot be read any more, in the folder of its network or alone."""
    config = header.get("config")
    name, board = (str(config.get(key) or "") for key in ("name", "board")) if isinstance(config, dict) else ("", "")
    return f"make it again: {compile_again(Path(path), name, board)}"


def _config(path: str | Path, header: dict[str, Any]) -> NpuConfig:
    """The configuration; :class:`ImageError` with advice if there is no such NPU any more."""
    try:
        return NpuConfig.from_dict(header["config"])
    except ValueError as error:
        raise ImageError(f"{path} is for an NPU that there is not: {error}; {_again(path, header)}") from error


def _port_header(port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "region": port.region.name,
        "address": port.address,
        "shape": list(port.shape),
        "dtype": port.dtype,
    }


def _port(fields: dict[str, Any]) -> Port:
    return Port(**fields | {"region": RegionId[fields["region"]], "shape": tuple(fields["shape"])})


def _state(fields: dict[str, Any]) -> State:
    port = dict(fields)
    result = port.pop("result")
    return State(_port(port), result)


def _phase(fields: dict[str, Any]) -> Phase:
    return Phase(fields["pc"], *(tuple(PortRange(**part) for part in fields[key]) for key in ("inputs", "outputs")))


def hex_files(image: Image, config: NpuConfig | None = None, *, banks: bool = True) -> dict[str, str]:
    """Initial contents of the memories of the generated design, as text for ``$readmemh``, one word per line.

    One file per memory, each exactly as long as the memory: ``program``, ``narrow``, ``wide``, ``table``, ``slots``,
    and ``matrix_00`` and following, one for each of the T*N rows; or without ``banks`` a single ``matrix`` in the order
    of host addresses. The external memory has none, as it is outside the design.
    """
    image.check(config)
    table = regions(image.config)
    files: dict[str, str] = {}
    for region_id in (RegionId.PROGRAM, *(region for region in LOADABLE if region is not RegionId.DRAM)):
        digits = -(-table[region_id].word.width // 4)
        lines = [f"{word:0{digits}x}\n" for word in image.memory(region_id)]
        if region_id == RegionId.MATRIX and banks:
            rows = image.config.rows
            files |= {f"matrix_{row:02}": "".join(lines[row::rows]) for row in range(rows)}
        else:
            files[region_id.name.lower()] = "".join(lines)
    return files
