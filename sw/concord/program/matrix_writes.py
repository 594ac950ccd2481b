"""Rows of tiles that chains write into the matrix memory: where they are, and what a chain must not do."""

from __future__ import annotations

import numpy as np

from concord.program.chains import Chain
from concord.program.rules import Broken
from concord.spec.config import NpuConfig
from concord.spec.isa import Op
from concord.spec.rules import ProgramRule
from concord.utils.arrays import Ids


def row_words(rows: Ids, config: NpuConfig) -> Ids:
    """Words ``[..., N/L]`` of the matrix memory that hold rows of tiles; row ``rows % (T*N)`` of each."""
    return np.asarray(rows[..., None] // config.rows * config.steps + np.arange(config.steps))


def broken_matrix_rules(chain: Chain, config: NpuConfig) -> list[Broken]:
    """Rules that a chain breaks with the rows that it writes, or with a copy that goes on beside it."""
    return [*_broken_write_rules(chain, config), *broken_beside_rules(chain, config)]


def _broken_write_rules(chain: Chain, config: NpuConfig) -> list[Broken]:
    """Rules that a chain breaks with the rows that it writes; none if it writes no rows."""
    if chain.into_matrix is None:
        return []
    rows, broken = chain.written_rows(config), list[Broken]()
    if (outside := rows[rows >= config.matrix_rows]).size:
        message = f"writes row {outside.min()} of the tiles, beyond the {config.matrix_rows} of the matrix memory"
        broken.append(Broken(ProgramRule.ROWS_INSIDE, message))
    if chain.reduce is Op.MV_MUL:
        both = np.intersect1d(row_words(rows, config), chain.matrix_words(config))
        if both.size:
            broken.append(Broken(ProgramRule.OWN_TILES, f"reads matrix {both[0]}, which it writes itself"))
    return broken


def broken_beside_rules(chain: Chain, config: NpuConfig) -> list[Broken]:
    """Rules that a chain breaks while a copy goes on."""
    copy, broken = chain.beside, list[Broken]()
    if copy is None:
        return broken
    if chain.reduce is Op.MV_MUL and np.isin(chain.matrix_words(config), copy.words(config)).any():
        message = f"reads words of matrix that the copy at pc {copy.pc} writes, which may go on"
        broken.append(Broken(ProgramRule.COPIES_AHEAD, message))
    if chain.into_matrix is not None:
        message = f"writes rows of the matrix memory while the copy at pc {copy.pc} may go on"
        broken.append(Broken(ProgramRule.COPIES_AHEAD, message))
    return broken
