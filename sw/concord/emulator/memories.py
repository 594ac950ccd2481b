"""The contents of every memory of one NPU, as arrays and as words of the link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.spec.memmap import Region, RegionId, regions


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
    slots : int64 ``[table_slots, 4]``
        Fields of the descriptors in the order of ``NpuConfig.table_slot``.
    flags : uint8 ``[program_depth]``
        Sticky flags, bit numbers as in :class:`Flag`.
    """

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
        self.wide: NDArray[np.uint16] = np.zeros((config.wide_depth, n), dtype=np.uint16)
        self.table: NDArray[np.uint16] = np.zeros(config.table_depth, dtype=np.uint16)
        self.slots: NDArray[np.int64] = np.zeros((config.table_slots, len(config.table_slot.fields)), dtype=np.int64)
        self.flags: NDArray[np.uint8] = np.zeros(config.program_depth, dtype=np.uint8)
        self._regions = regions(config)

    def slot(self, number: int) -> dict[str, int]:
        """Descriptor of one table."""
        names = [field.name for field in self.config.table_slot.fields]
        return dict(zip(names, self.slots[number].tolist(), strict=True))

    def flag_union(self) -> int:
        """All sticky flags together."""
        return int(np.bitwise_or.reduce(self.flags))

    def copy(self) -> Memories:
        """An independent copy."""
        other = Memories(self.config)
        for name, array in self.arrays().items():
            other.arrays()[name][...] = array
        return other

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def differences(self, other: Memories) -> list[str]:
        """Readable list of the places where two contents differ."""
        found = []
        for name, mine in self.arrays().items():
            for index in np.argwhere(mine != other.arrays()[name]).tolist():
                theirs = other.arrays()[name][tuple(index)]
                found.append(f"{name}{index}: {mine[tuple(index)]:#x} / {theirs:#x}")
        return found

    # Words of the link -------------------------------------------------------------------------

    def write(self, region: RegionId, addr: int, words: Sequence[int]) -> None:
        """Store words of a region; ``ValueError`` if they do not fit or hold what no converter produces."""
        at = self._span(region, addr, len(words))
        layout = self._regions[region].word
        if region is RegionId.PROGRAM:
            self.program[at] = words
        elif region in _PACKERS:
            fields = [layout.unpack(word) for word in words]
            if fields:
                _PACKERS[region](self, at, fields)
        else:
            raise ValueError(f"region must be a memory, not {region.name}")

    def read(self, region: RegionId, addr: int, count: int) -> list[int]:
        """Words of a region as they travel on the link."""
        at = self._span(region, addr, count)
        layout = self._regions[region].word
        if region is RegionId.PROGRAM:
            return [int(word) for word in self.program[at]]
        if region not in _UNPACKERS:
            raise ValueError(f"region must be a memory, not {region.name}")
        return [layout.pack(**fields) for fields in _UNPACKERS[region](self, at)]

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

    def _rows(self) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """The matrix memory as rows, in the order of the link."""
        return self.matrix_mant.reshape(-1, self.config.lanes), self.matrix_exp.reshape(-1)


Fields = list[dict[str, Any]]


def _put_matrix(memories: Memories, at: slice, fields: Fields) -> None:
    mant, exp = memories._rows()
    mant[at] = [f["mant"] for f in fields]
    exp[at] = np.array([f["exp"] for f in fields]) + memories.config.wgt_exp_min


def _get_matrix(memories: Memories, at: slice) -> Fields:
    mant, exp = memories._rows()
    codes = exp[at] - memories.config.wgt_exp_min
    return [{"mant": m, "exp": e} for m, e in zip(mant[at].tolist(), codes.tolist(), strict=True)]


def _put_narrow(memories: Memories, at: slice, fields: Fields) -> None:
    memories.narrow_mant[at] = [f["mant"] for f in fields]
    memories.narrow_exp[at] = [f["exp"] for f in fields]


def _get_narrow(memories: Memories, at: slice) -> Fields:
    pairs = zip(memories.narrow_mant[at].tolist(), memories.narrow_exp[at].tolist(), strict=True)
    return [{"mant": m, "exp": e} for m, e in pairs]


def _put_slots(memories: Memories, at: slice, fields: Fields) -> None:
    memories.slots[at] = [list(f.values()) for f in fields]


def _get_slots(memories: Memories, at: slice) -> Fields:
    return [memories.slot(k) for k in range(at.start, at.stop)]


def _scalar(
    array: str, name: str
) -> tuple[Callable[[Memories, slice, Fields], None], Callable[[Memories, slice], Fields]]:
    def put(memories: Memories, at: slice, fields: Fields) -> None:
        getattr(memories, array)[at] = [f[name] for f in fields]

    def get(memories: Memories, at: slice) -> Fields:
        return [{name: value} for value in getattr(memories, array)[at].tolist()]

    return put, get


_PAIRS = {
    RegionId.MATRIX: (_put_matrix, _get_matrix),
    RegionId.NARROW: (_put_narrow, _get_narrow),
    RegionId.WIDE: _scalar("wide", "elem"),
    RegionId.TABLE: _scalar("table", "value"),
    RegionId.SLOTS: (_put_slots, _get_slots),
    RegionId.FLAGS: _scalar("flags", "flags"),
}
_PACKERS = {region: pair[0] for region, pair in _PAIRS.items()}
_UNPACKERS = {region: pair[1] for region, pair in _PAIRS.items()}

assert max(Flag) < 8
