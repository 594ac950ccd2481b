"""Images: everything that is loaded into an NPU, with the configuration it is for, in one versioned file.

The words of a segment are kept as the host link sends them: little endian, ``Layout.nbytes`` each. The file is
described in :mod:`concord.container`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .container import ImageError, read_file, write_file
from .golden import half
from .golden.blocks import quantize, to_half
from .packing import from_vectors, to_vectors
from .packing import pack_depthwise as pack_depthwise
from .packing import pack_matrix as pack_matrix
from .packing import pack_vectors as pack_vectors
from .spec.config import SPEC_VERSION, NpuConfig
from .spec.memmap import RegionId, regions
from .words import pack_words, to_bytes, to_integers, unpack_words

#: Regions that segments may fill; the program is separate.
LOADABLE = (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE, RegionId.SLOTS)


@dataclass(frozen=True)
class Segment:
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
    def from_words(cls, region: RegionId, start: int, words: Iterable[int], config: NpuConfig) -> Segment:
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

    def array(self) -> NDArray[np.uint8]:
        """The words as ``[count, nbytes]``."""
        return np.frombuffer(self.data, dtype=np.uint8).reshape(-1, self.nbytes)

    def words(self) -> list[int]:
        """The words as integers."""
        return to_integers(self.array())


@dataclass(frozen=True)
class Port:
    """An input or output tensor in a vector memory.

    The last dimension of ``shape`` is padded to native vectors, which follow each other in the order of the other
    dimensions.

    Parameters
    ----------
    name : str
        Name of the tensor.
    region : RegionId
        ``WIDE`` or ``NARROW``.
    address : int
        Address of the first vector.
    shape : tuple of int
        Shape of the tensor.
    dtype : str
        numpy type of the tensor on the host's side.
    """

    name: str
    region: RegionId
    address: int
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.region not in (RegionId.WIDE, RegionId.NARROW):
            raise ValueError(f"region of {self.name} must be WIDE or NARROW, not {self.region!r}")
        if any(size < 1 for size in self.shape):
            raise ValueError(f"shape of {self.name} must have positive dimensions, not {self.shape}")
        np.dtype(self.dtype)

    @property
    def elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    def vectors(self, config: NpuConfig) -> int:
        """Native vectors in memory."""
        last = self.shape[-1] if self.shape else 1
        return self.elements // last * -(-last // config.native)

    def encode(self, values: ArrayLike, config: NpuConfig) -> list[int]:
        """Words to write for a tensor; a narrow port converts with dynamic exponents, nearest even."""
        given = np.asarray(values, dtype=np.float64)
        if given.shape != self.shape:
            raise ValueError(f"{self.name} must have shape {self.shape}, not {given.shape}")
        vectors = to_vectors(half.encode(given), config)
        if self.region == RegionId.WIDE:
            return to_integers(pack_words(config.wide_word, elem=vectors))
        blocks = quantize(vectors, config.act)
        return to_integers(pack_words(config.narrow_word, mant=blocks.mant, exp=blocks.exp))

    def decode(self, words: list[int], config: NpuConfig) -> NDArray[Any]:
        """The tensor held by words that were read."""
        layout = config.wide_word if self.region == RegionId.WIDE else config.narrow_word
        values = unpack_words(layout, to_bytes(words, layout.nbytes))
        bits = values["elem"].astype(np.uint16) if "elem" in values else to_half(values["mant"], values["exp"])
        return half.decode(from_vectors(bits, self.shape, config)).astype(self.dtype)


@dataclass(frozen=True)
class Image:
    """A program with the contents of all memories.

    Parameters
    ----------
    config : NpuConfig
        What it was made for.
    program : tuple of int
        Instruction words, from address 0.
    segments : tuple of Segment
        Contents of the other memories; later ones win.
    inputs, outputs : tuple of Port
        Where the driver places and fetches tensors.
    metadata : dict
        Anything JSON can hold, for reports.
    """

    config: NpuConfig
    program: tuple[int, ...]
    segments: tuple[Segment, ...] = ()
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    def port(self, name: str) -> Port:
        """An input or output by name."""
        for port in (*self.inputs, *self.outputs):
            if port.name == name:
                return port
        raise ValueError(f"port must be one of {[p.name for p in (*self.inputs, *self.outputs)]}, not {name!r}")

    def check(self, config: NpuConfig | None = None) -> None:
        """Raise :class:`ImageError` unless everything fits its own configuration, and that is ``config`` (if given)."""
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
            unused = 8 * region.nbytes - region.word.width
            if part.count and unused and np.any(part.array()[:, -1] >> 8 - unused):
                raise ImageError(f"unused bits of words of {part.region.name} must be zero")
        for port in (*self.inputs, *self.outputs):
            self._in_range(port.name, port.address, port.vectors(self.config), table[port.region].depth)

    @staticmethod
    def _in_range(what: str, start: int, count: int, depth: int) -> None:
        if start < 0 or start + count > depth:
            raise ImageError(f"{what} must lie in 0..{depth - 1}, not {start}..{start + count - 1}")

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
            "metadata": self.metadata,
        }
        arrays: dict[str, NDArray[Any]] = {f"segment_{k}": part.array() for k, part in enumerate(self.segments)}
        write_file(path, header, {"program": np.array(self.program, dtype="<u8"), **arrays})

    @classmethod
    def load(cls, path: str | Path, config: NpuConfig | None = None) -> Image:
        """Read an image; :class:`ImageError` if it is damaged, of another version, or not for ``config`` (if given)."""
        header, arrays = read_file(path)
        if header.get("spec") != SPEC_VERSION:
            raise ImageError(f"{path} must be for specification version {SPEC_VERSION}, not {header.get('spec')!r}")
        try:
            image = cls(
                config=NpuConfig.from_dict(header["config"]),
                program=tuple(int(word) for word in arrays["program"]),
                segments=tuple(
                    Segment(RegionId[part["region"]], part["start"], part["nbytes"], arrays[f"segment_{k}"].tobytes())
                    for k, part in enumerate(header["segments"])
                ),
                inputs=tuple(_port(fields) for fields in header["inputs"]),
                outputs=tuple(_port(fields) for fields in header["outputs"]),
                metadata=header["metadata"],
            )
            stored = int(header["fingerprint"], 16)
        except (KeyError, TypeError, ValueError) as error:
            raise ImageError(f"{path} has contents that are not valid here: {error}") from error
        if stored != image.config.fingerprint:
            raise ImageError(f"{path} must have fingerprint {image.config.fingerprint:#018x}, not {stored:#018x}")
        image.check(config)
        return image


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


def hex_files(image: Image, config: NpuConfig | None = None, *, banks: bool = True) -> dict[str, str]:
    """Initial contents of the memories of the generated design, as text for ``$readmemh``, one word per line.

    One file per memory, each exactly as long as the memory: ``program``, ``narrow``, ``wide``, ``table``, ``slots``,
    and ``matrix_00`` and following, one for each of the T*N rows; or without ``banks`` a single ``matrix`` in the order
    of host addresses.
    """
    image.check(config)
    table = regions(image.config)
    files: dict[str, str] = {}
    for region_id in (RegionId.PROGRAM, *LOADABLE):
        digits = -(-table[region_id].word.width // 4)
        lines = [f"{word:0{digits}x}\n" for word in image.memory(region_id)]
        if region_id == RegionId.MATRIX and banks:
            rows = image.config.rows
            files |= {f"matrix_{row:02}": "".join(lines[row::rows]) for row in range(rows)}
        else:
            files[region_id.name.lower()] = "".join(lines)
    return files
