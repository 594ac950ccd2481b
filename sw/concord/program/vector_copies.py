"""Copies of vectors between the external and the vector memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from concord.image import Memories
from concord.image.packing import from_vector_columns, to_vector_columns
from concord.program.access import depth
from concord.program.chains import VectorCopy, WeightCopy
from concord.program.rules import Broken
from concord.program.trace import Trace
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.spec.rules import ProgramRule
from concord.utils.arrays import Ids, Ints


def write_vectors(copy: VectorCopy, memories: Memories) -> None:
    """Execute a copy on memories.

    Raises
    ------
    ValueError
        If it leaves one of the memories.
    """
    config, at = memories.config, copy.addresses
    for broken in broken_vector_copy_rules(copy, config):
        raise ValueError(f"the v_copy at pc {copy.pc} {broken.message}")
    columns = memories.dram[copy.column : copy.column + copy.columns(config)].reshape(copy.count, -1)
    arrays = memories.vectors(copy.mem)
    if copy.out:
        columns[...] = to_vector_columns(config, copy.mem, *(array[at] for array in arrays))
        return
    for array, values in zip(arrays, from_vector_columns(config, copy.mem, columns), strict=True):
        array[at] = values


def broken_vector_copy_rules(copy: VectorCopy, config: NpuConfig) -> list[Broken]:
    """Rules that a copy breaks by itself."""
    broken, words = list[Broken](), depth(config, copy.mem)
    if (outside := copy.addresses[copy.addresses >= words]).size:
        message = f"meets {copy.mem.name.lower()} {outside.min()}, beyond its {words} words"
        broken.append(Broken(ProgramRule.VECTORS_INSIDE, message))
    if (last := copy.column + copy.columns(config) - 1) >= config.sdram.columns:
        message = f"meets column {last} of the external memory, beyond its {config.sdram.columns}"
        broken.append(Broken(ProgramRule.VECTORS_INSIDE, message))
    return broken


class ExternalVectors:
    """Vectors of the external memory that runs copy, each with columns of its own.

    Parameters
    ----------
    config : NpuConfig
    runs : iterable of Trace

    Members
    -------
    firsts : dict
        By vector memory, the first columns of all vectors of its words, in order.
    """

    def __init__(self, config: NpuConfig, runs: Iterable[Trace] = ()):
        self.config, runs = config, list(runs)
        self.copies = list(dict.fromkeys(copy for run in runs for copy in run.vector_copies))
        self._weights = list(dict.fromkeys(copy for run in runs for copy in run.copies)) if self.copies else []
        self.firsts: dict[Mem, Ids] = {mem: self._firsts(mem) for mem in Mem}

    def _firsts(self, mem: Mem) -> Ids:
        parts = [copy.firsts(self.config) for copy in self.copies if copy.mem is mem]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    @cached_property
    def key(self) -> tuple[tuple[int, ...], ...]:
        """Key of the places of all vectors."""
        return tuple(tuple(self.firsts[mem].tolist()) for mem in Mem)

    def slots(self, copy: VectorCopy) -> Ids:
        """Numbers of the vectors of a copy among those of its memory."""
        return np.searchsorted(self.firsts[copy.mem], copy.firsts(self.config))

    def loaded(self, mem: Mem, memories: Memories) -> tuple[Ints, ...]:
        """Vectors of a memory as they lie in the external memory: patterns, or mantissas and exponents."""
        if not self.firsts[mem].size:
            return tuple(array[:0].astype(np.int64) for array in memories.vectors(mem))
        columns = self.firsts[mem][:, None] + np.arange(self.config.vector_columns(mem))
        return from_vector_columns(self.config, mem, memories.dram[columns])

    def collisions(self) -> Iterator[tuple[int, Broken]]:
        """Copies that meet a part of a vector, another vector or weights: address of the word, and why."""
        if not self.copies:
            return
        config = self.config
        firsts = np.concatenate([self.firsts[mem] for mem in Mem])
        ends = firsts + np.concatenate([np.full(len(self.firsts[mem]), config.vector_columns(mem)) for mem in Mem])
        order = np.argsort(firsts, kind="stable")
        firsts, ends = firsts[order], ends[order]
        split = firsts[1:][firsts[1:] < ends[:-1]]
        earlier = np.zeros(len(split), bool)
        for copy in self.copies:
            met = np.isin(split, np.arange(copy.column, copy.column + copy.columns(config)))
            if (met & earlier).any():
                column = split[met & earlier][0]
                message = f"meets column {column}, where another v_copy has a vector of another place or memory"
                yield copy.pc, Broken(ProgramRule.VECTORS_APART, message)
            earlier |= met
        for weights in self._weights:
            yield from self._weights_met(weights, firsts, ends)

    def _weights_met(self, copy: WeightCopy, firsts: Ids, ends: Ids) -> Iterator[tuple[int, Broken]]:
        last = copy.column + copy.columns(self.config)
        met = firsts[(firsts < last) & (ends > copy.column)]
        if met.size:
            message = f"reads column {max(copy.column, int(met[0]))}, where a v_copy has a vector"
            yield copy.pc, Broken(ProgramRule.VECTORS_APART, message)

    def check(self) -> None:
        """:class:`ValueError` if copies leave a memory, meet a part of a vector, or another vector or weights."""
        leaving = ((copy.pc, broken) for copy in self.copies for broken in broken_vector_copy_rules(copy, self.config))
        for pc, broken in (*leaving, *self.collisions()):
            raise ValueError(f"the copy at pc {pc} {broken.message}")
