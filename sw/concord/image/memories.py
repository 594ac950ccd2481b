"""The contents of every memory of one NPU, as arrays and as words of the link."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from concord.image.image import Image
from concord.image.words import pack_words, to_bytes, to_integers, unpack_words
from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.spec.integers import FACTORS, TENSORS, UPDATE_COUNTERS
from concord.spec.memmap import Region, RegionId, regions
from concord.spec.operations import Mem, Op
from concord.utils.arrays import Array, Bits, Bytes, Ints


class Memories:
    """Arrays that hold what the memories of the hardware hold; everything is zero at first.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    program : uint64 ``[program_depth]``
    matrix_mant, matrix_exp : int16 ``[matrix_depth, T*N, L]`` and ``[matrix_depth, T*N]``
        Weights; the exponents are the true ones.
    narrow_mant, narrow_exp : int16 ``[narrow_depth, N]`` and ``[narrow_depth]``
    wide : uint16 ``[wide_depth, N]``
        binary16 patterns.
    table : uint16 ``[table_depth]``
    slots : int64 ``[table_slots, 6]``
        Fields of the descriptors in the order of ``NpuConfig.table_slot``.
    flags : uint8 ``[program_depth]``
        Sticky flags, bit numbers as in :class:`Flag`.
    tensor_top, tensor_exp : int64 ``[TENSORS]``
        Tensor registers: greatest magnitudes and exponents. These and what follows are there with integer chains
        alone.
    factor_mant, factor_exp : int64 ``[FACTORS]``
        Factor registers.
    updates : int64 ``[3]``
        Counters of updates, in the order of :data:`concord.spec.integers.UPDATE_COUNTERS`, modulo ``2**32``.
    dram : uint16 ``[columns]``
        Columns of the external memory, if there is one.
    """

    tensor_top: Ints
    tensor_exp: Ints
    factor_mant: Ints
    factor_exp: Ints
    updates: Ints
    dram: Bits

    def __init__(self, config: NpuConfig):
        self.config = config
        n = config.native
        self.program: NDArray[np.uint64] = np.zeros(config.program_depth, dtype=np.uint64)
        self.matrix_mant: NDArray[np.int16] = np.zeros((config.matrix_depth, config.rows, config.lanes), dtype=np.int16)
        self.matrix_exp: NDArray[np.int16] = np.full(
            (config.matrix_depth, config.rows), config.wgt_exp_min, dtype=np.int16
        )
        self.narrow_mant: NDArray[np.int16] = np.zeros((config.narrow_depth, n), dtype=np.int16)
        self.narrow_exp: NDArray[np.int16] = np.zeros(config.narrow_depth, dtype=np.int16)
        self.wide: Bits = np.zeros((config.wide_depth, n), dtype=np.uint16)
        self.table: Bits = np.zeros(config.table_depth, dtype=np.uint16)
        self.slots: Ints = np.zeros((config.table_slots, len(config.table_slot.fields)), dtype=np.int64)
        self.flags: Bytes = np.zeros(config.program_depth, dtype=np.uint8)
        if config.has(Op.I_RUN):
            self.tensor_top, self.tensor_exp = (np.zeros(TENSORS, dtype=np.int64) for _ in range(2))
            self.factor_mant, self.factor_exp = (np.zeros(FACTORS, dtype=np.int64) for _ in range(2))
            self.updates = np.zeros(len(UPDATE_COUNTERS), dtype=np.int64)
        if config.has(Op.COPY):
            self.dram = np.zeros(config.sdram.columns, dtype=np.uint16)
        self._regions = regions(config)

    @classmethod
    def of(cls, image: Image) -> Memories:
        """Memories with what an image loads."""
        memories = cls(image.config)
        memories.write(RegionId.PROGRAM, 0, image.program)
        for segment in image.segments:
            memories.write(segment.region, segment.start, segment.words())
        return memories

    def slot(self, number: int) -> dict[str, int]:
        """Descriptor of one table."""
        names = [field.name for field in self.config.table_slot.fields]
        return dict(zip(names, self.slots[number].tolist(), strict=True))

    def vectors(self, mem: Mem) -> list[Array]:
        """Arrays of a vector memory: patterns, or mantissas and exponents."""
        return [self.wide] if mem is Mem.WIDE else [self.narrow_mant, self.narrow_exp]

    def flag_union(self) -> int:
        """All sticky flags together."""
        return int(np.bitwise_or.reduce(self.flags))

    def copy(self) -> Memories:
        """An independent copy."""
        other = Memories(self.config)
        for name, array in self.arrays().items():
            other.arrays()[name][...] = array
        return other

    def arrays(self) -> dict[str, Array]:
        """All arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def differences(self, other: Memories) -> list[str]:
        """Readable list of the places where two contents differ."""
        lines = []
        for name, array in self.arrays().items():
            for index in np.argwhere(array != other.arrays()[name]).tolist():
                theirs = other.arrays()[name][tuple(index)]
                lines.append(f"{name}{index}: {array[tuple(index)]:#x} / {theirs:#x}")
        return lines

    # Words of the link -------------------------------------------------------------------------

    def write(self, region: RegionId, addr: int, words: Sequence[int]) -> None:
        """Store words of a region; ``ValueError`` if they do not fit."""
        at = self._span(region, addr, len(words))
        layout = self._regions[region].word
        data = to_bytes(words, layout.nbytes)
        if region is RegionId.PROGRAM:
            self.program[at] = data.view("<u8")[:, 0]
            return
        fields = unpack_words(layout, data)
        for array, values in zip(self._arrays_of(region), fields.values(), strict=True):
            array[at] = values
        if region is RegionId.MATRIX:
            self._arrays_of(region)[1][at] += self.config.wgt_exp_min

    def read(self, region: RegionId, addr: int, count: int) -> list[int]:
        """Words of a region as they travel on the link."""
        at = self._span(region, addr, count)
        if region is RegionId.PROGRAM:
            return [int(word) for word in self.program[at]]
        layout = self._regions[region].word
        values = [array[at] for array in self._arrays_of(region)]
        if region is RegionId.MATRIX:
            values[1] = values[1] - self.config.wgt_exp_min
        names = [field.name for field in layout.fields]
        return to_integers(pack_words(layout, **dict(zip(names, values, strict=True))))

    def region(self, region: RegionId) -> Region:
        """Description of a region."""
        return self._regions[region]

    def _span(self, region: RegionId, addr: int, count: int) -> slice:
        depth = self._regions[region].depth
        if not 0 <= addr <= addr + count <= depth:
            raise ValueError(
                f"words must lie in the {depth} of {region.name.lower()}, not at {addr}..{addr + count - 1}"
            )
        return slice(addr, addr + count)

    def _arrays_of(self, region: RegionId) -> tuple[Array, ...]:
        """Views by address of the link, one for each field of a word."""
        match region:
            case RegionId.MATRIX:
                return self.matrix_mant.reshape(-1, self.config.lanes), self.matrix_exp.reshape(-1)
            case RegionId.NARROW:
                return self.narrow_mant, self.narrow_exp
            case RegionId.WIDE:
                return (self.wide,)
            case RegionId.TABLE:
                return (self.table,)
            case RegionId.SLOTS:
                return tuple(self.slots.T)
            case RegionId.FLAGS:
                return (self.flags,)
            case RegionId.TENSORS:
                return self.tensor_top, self.tensor_exp
            case RegionId.FACTORS:
                return self.factor_mant, self.factor_exp
            case RegionId.UPDATES:
                return (self.updates,)
            case RegionId.DRAM:
                return (self.dram,)
        raise ValueError(f"region must be a memory, not {region.name}")


assert max(Flag) < 8
