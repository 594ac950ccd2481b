"""Words that integer chains read and write, by vector of the chain: rules of programs, for whoever executes or
checks them.

A vector must not read what another vector of its chain writes: hardware reads ahead of what it writes. A vector may
write where it reads itself, as an update does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.program.chains import VECTOR_MASK, Index
from concord.program.integers import IntegerChain, TensorStep, broken_integer_rules
from concord.program.rules import Broken
from concord.program.trace import Trace
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.operations import IntegerSource, Op
from concord.spec.rules import ProgramRule

#: Words ``[vectors, words]`` by region, in words of the memory; -1 stands for none.
Words = Mapping[RegionId, Index]


def _joined(parts: Mapping[RegionId, list[Index]], vectors: int) -> dict[RegionId, Index]:
    return {
        region: np.concatenate([part.reshape(vectors, -1) for part in arrays], axis=1)
        for region, arrays in parts.items()
        if arrays
    }


def _both(first: Index) -> Index:
    """The two words of wide integers."""
    return np.stack([first, first + 1], axis=-1)


def words_read(chain: IntegerChain, config: NpuConfig, accumulators: int) -> dict[RegionId, Index]:
    """Words that a chain reads, by region ``[vectors, words]``; -1 in the place of taps outside the image.

    ``accumulators``: from a word of weights to its accumulators, as the ``t_upd`` in front of it says.
    """
    parts: dict[RegionId, list[Index]] = {RegionId.NARROW: [], RegionId.WIDE: [], RegionId.MATRIX: []}
    match chain.kind:
        case IntegerSource.PRODUCT:
            inside = chain.inside()[:, :, None, None, :, None]
            parts[RegionId.NARROW].append(np.where(inside, chain.source_taps(), -1))
            parts[RegionId.MATRIX].append(chain.tile_words(config))
        case IntegerSource.NARROW:
            parts[RegionId.NARROW].append(chain.addresses(chain.source))
        case IntegerSource.WIDE:
            parts[RegionId.WIDE].append(_both(chain.addresses(chain.source)))
    if chain.with_operand:
        at = chain.addresses(chain.operand)
        if chain.operand_mem is Mem.NARROW:
            parts[RegionId.NARROW].append(at)
        else:
            parts[RegionId.WIDE].append(_both(at))
        if chain.steps.update:
            parts[RegionId.WIDE].append((at + accumulators) & VECTOR_MASK)
    return _joined(parts, chain.vectors)


def words_written(chain: IntegerChain, config: NpuConfig, accumulators: int) -> dict[RegionId, Index]:
    """Words that a chain writes, by region ``[vectors, words]``; of the matrix memory all that it writes a part of."""
    steps = chain.steps
    parts: dict[RegionId, list[Index]] = {RegionId.NARROW: [], RegionId.WIDE: [], RegionId.MATRIX: []}
    if steps.update:
        weights = chain.addresses(chain.operand)
        parts[RegionId.NARROW].append(weights)
        parts[RegionId.WIDE].append((weights + accumulators) & VECTOR_MASK)
    if steps.to_vector and chain.destination_mem is Mem.NARROW:
        parts[RegionId.NARROW].append(chain.narrow_targets())
    elif steps.to_vector:
        parts[RegionId.WIDE].append(_both(chain.addresses(chain.destination)))
    if steps.to_column:
        parts[RegionId.MATRIX].append(chain.written_columns() // config.lanes)
    if steps.to_row:
        parts[RegionId.MATRIX].append(tile_row_words(chain.written_tile_rows(), config))
    return _joined(parts, chain.vectors)


def tile_row_words(rows: Index, config: NpuConfig) -> Index:
    """Words ``[..., N/L]`` of rows of tiles; each is row ``rows % N`` of them."""
    return np.asarray(rows[..., None] // config.native * config.steps + np.arange(config.steps))


def broken_chain_rules(chain: IntegerChain, config: NpuConfig, accumulators: int = 0) -> list[Broken]:
    """All rules that an integer chain breaks; what it reads and writes is looked at if it breaks none of the others.

    Parameters
    ----------
    chain : IntegerChain
    config : NpuConfig
    accumulators : int
        From a word of weights to its accumulators, as the latest ``t_upd`` says.
    """
    broken = broken_integer_rules(chain, config)
    terms = chain.product_steps(config) // config.steps
    if terms > config.max_terms:
        message = f"must add up at most {config.max_terms} native products, not {terms}"
        broken.append(Broken(ProgramRule.INTEGER_TERMS, message))
    if broken:
        return broken
    reads, writes = words_read(chain, config, accumulators), words_written(chain, config, accumulators)
    beyond = reads[RegionId.WIDE].max() if RegionId.WIDE in reads else -1
    if beyond >= config.wide_depth:
        message = f"must have its accumulators below word {config.wide_depth} of the wide memory, not at {beyond}"
        return [Broken(ProgramRule.INTEGER_ADDRESSES, message)]
    for region, depth in _depths(config).items():
        if region in reads and region in writes:
            broken += _overlap(reads[region], writes[region], depth, region.name.lower())
    return broken + _written_twice(chain, config)


def _depths(config: NpuConfig) -> dict[RegionId, int]:
    return {
        RegionId.NARROW: config.narrow_depth,
        RegionId.WIDE: config.wide_depth,
        RegionId.MATRIX: config.matrix_depth,
    }


def _overlap(reads: Index, writes: Index, depth: int, name: str) -> list[Broken]:
    """Words that a vector reads and another one writes."""
    vectors = len(reads)
    number = np.repeat(np.arange(vectors), writes.shape[1])
    first, last = np.full(depth + 1, -1), np.full(depth + 1, -1)  # word -1, which nothing writes, is the one at the end
    last[writes.ravel()] = number
    first[writes.ravel()[::-1]] = number[::-1]
    own = np.arange(vectors)[:, None]
    wrong = (first[reads] >= 0) & ((first[reads] != own) | (last[reads] != own))
    if not wrong.any():
        return []
    message = f"must not read {name} {int(reads[wrong].min())} in a vector, which another vector of it writes"
    return [Broken(ProgramRule.OTHER_VECTORS, message)]


def _written_twice(chain: IntegerChain, config: NpuConfig) -> list[Broken]:
    """Words of the matrix memory that are written as columns and as rows."""
    if not (chain.steps.to_column and chain.steps.to_row):
        return []
    columns = chain.written_columns() // config.lanes
    both = np.intersect1d(columns, tile_row_words(chain.written_tile_rows(), config))
    if not both.size:
        return []
    return [Broken(ProgramRule.COLUMNS_AND_ROWS, f"must not write matrix {int(both[0])} both as columns and as rows")]


def refuse_integers(run: Trace, purpose: str) -> None:
    """``ValueError`` if a run has integer chains or tensor steps, for what knows chains alone.

    Parameters
    ----------
    run : Trace
    purpose : str
        What cannot be done with such a program, such as ``"be derived"``.
    """
    if not run.integers:
        return
    item = run.integers[0]
    op = item.op if isinstance(item, TensorStep) else Op.I_RUN
    raise ValueError(f"programs must have no integer chains to {purpose}, not {op.name.lower()} at pc {item.pc}")
