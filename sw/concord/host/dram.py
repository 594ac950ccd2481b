"""A test of the external memory of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from concord.host.device import Device
from concord.spec.memmap import RegionId
from concord.utils.arrays import Bits

#: Columns that are written and read at a time.
_PIECE = 1 << 14
#: Prime number that scatters the pieces of a test over the memory.
_SPREAD = 2_654_435_761


@dataclass(frozen=True)
class MemoryTest:
    """Result of a test.

    Parameters
    ----------
    columns : int
        Columns that were tested.
    wrong : tuple of (int, int, int)
        Column, what was written and what was read, of the first ones that differ.
    errors : int
        Columns that differ, in all passes.
    """

    columns: int
    wrong: tuple[tuple[int, int, int], ...]
    errors: int


def memory_test(
    device: Device, columns: int, seed: int = 0, progress: Callable[[int], None] | None = None
) -> MemoryTest:
    """Write numbers to columns of every bank and row group, then read them; then the same with all bits inverted.

    A column gets a number that its address and the seed decide, and all are written before the first is read: two
    columns that are one show. Contents of the memory are lost.

    Parameters
    ----------
    device : Device
        Has an external memory that works.
    columns : int
        Columns to test: as many, in pieces all over the memory.
    seed : int
        Of the numbers.
    progress : callable, optional
        Told the columns of each piece that was written or read.
    """
    size = device.config.sdram.columns
    pieces = list(_pieces(min(columns, size), size))
    wrong, errors = list[tuple[int, int, int]](), 0
    for inverted in (0, 0xFFFF):
        for first, count in pieces:
            device.write(RegionId.DRAM, first, _numbers(first, count, seed, inverted).tolist())
            if progress is not None:
                progress(count)
        for first, count in pieces:
            want, got = _numbers(first, count, seed, inverted), np.array(device.read(RegionId.DRAM, first, count))
            different = np.flatnonzero(want != got)
            errors += len(different)
            wrong += [(first + int(k), int(want[k]), int(got[k])) for k in different[: 8 - len(wrong)]]
            if progress is not None:
                progress(count)
    return MemoryTest(sum(count for _, count in pieces), tuple(wrong), errors)


def _pieces(columns: int, size: int) -> Iterator[tuple[int, int]]:
    """First column and number of pieces that are spread over the memory: all address bits change."""
    count = -(-columns // _PIECE)
    length = -(-columns // count)
    share = size // count
    for k in range(count):
        yield k * share + k * _SPREAD % (share - length + 1), length


def _numbers(first: int, count: int, seed: int, inverted: int) -> Bits:
    """Numbers of columns: those of neighbours, and of columns whose addresses differ in a bit, differ in many bits."""
    x = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return (x >> np.uint64(40)).astype(np.uint16) ^ np.uint16(inverted)
