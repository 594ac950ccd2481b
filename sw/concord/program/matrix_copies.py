"""Copies of rows of tiles from the external to the matrix memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from concord.image import Memories
from concord.program.chains import MATRIX_MASK, WeightCopy
from concord.program.rules import Broken
from concord.spec.config import NpuConfig
from concord.spec.rules import ProgramRule
from concord.utils.arrays import Ints


def contents(copy: WeightCopy, memories: Memories) -> tuple[Ints, Ints]:
    """Mantissas ``[rows, N]`` and exponents ``[rows]`` that a copy reads.

    Raises
    ------
    ValueError
        If it reads beyond the external memory.
    """
    config = memories.config
    end = copy.column + copy.columns(config)
    if end > len(memories.dram):
        raise ValueError(f"copies must end below column {len(memories.dram)}, not {end - 1}")
    columns = memories.dram[copy.column : end].astype(np.int64).reshape(copy.rows, config.row_columns)
    bits, size = config.sdram.width // config.column_mantissas, config.wgt_mant
    codes = columns[:, 1:, None] >> bits * np.arange(config.column_mantissas)
    codes = codes.reshape(copy.rows, config.native) & (1 << size) - 1
    exp = (columns[:, 0] & (1 << config.wgt_exp_width) - 1) + config.wgt_exp_min
    return codes - (codes >> size - 1 << size), exp


def write_copy(
    copy: WeightCopy, memories: Memories, matrix_mant: NDArray[np.int16], matrix_exp: NDArray[np.int16]
) -> bool:
    """Write the rows of a copy into a matrix memory, with the external memory of ``memories``; True if any changes.

    Raises
    ------
    ValueError
        If it leaves one of the memories.
    """
    config = memories.config
    mant, exp = contents(copy, memories)
    rows = copy.tile_rows(config)
    words, row = rows[:, None] // config.rows * config.steps + np.arange(config.steps), rows[:, None] % config.rows
    if words.max() >= config.matrix_depth:
        raise ValueError(f"copies must write words below {config.matrix_depth}, not {words.max()}")
    mant = mant.reshape(len(rows), config.steps, config.lanes)
    changed = (matrix_mant[words, row] != mant).any() or (matrix_exp[words, row] != exp[:, None]).any()
    matrix_mant[words, row], matrix_exp[words, row] = mant, exp[:, None]
    return bool(changed)


def broken_copy_rules(copy: WeightCopy, config: NpuConfig) -> list[Broken]:
    """Rules that a copy breaks."""
    broken = list[Broken]()
    if (end := copy.words(config).stop) > config.matrix_depth:
        message = f"writes matrix {end - 1}, beyond its {config.matrix_depth} words"
        broken.append(Broken(ProgramRule.COPIES_INSIDE, message))
    if (last := copy.column + copy.columns(config) - 1) >= config.sdram.columns:
        message = f"reads column {last} of the external memory, beyond its {config.sdram.columns}"
        broken.append(Broken(ProgramRule.COPIES_INSIDE, message))
    return broken


def still_there(copies: Iterable[WeightCopy], latest: WeightCopy, config: NpuConfig) -> tuple[WeightCopy, ...]:
    """Copies of which rows may be left after the latest one, in order."""
    new = latest.words(config)
    whole = latest.rows % config.rows == 0
    kept = [copy for copy in copies if not (whole and _within(copy.words(config), new)) and copy != latest]
    return *kept, latest


def left_by(copies: Iterable[WeightCopy], config: NpuConfig) -> tuple[WeightCopy, ...]:
    """Copies of a run of which rows may be left at its end, in order."""
    none: tuple[WeightCopy, ...] = ()
    return reduce(lambda kept, copy: still_there(kept, copy, config), copies, none)


def read_by(copies: Iterable[WeightCopy], first: int, count: int, config: NpuConfig) -> tuple[WeightCopy, ...]:
    """Copies that write some of ``count`` words from the first one on, which are counted modulo their number."""
    pieces = [range(first, min(first + count, MATRIX_MASK + 1)), range(first + count - MATRIX_MASK - 1)]
    return tuple(copy for copy in copies if any(_meet(copy.words(config), piece) for piece in pieces))


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _meet(a: range, b: range) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)
