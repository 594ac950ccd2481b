"""Softmax and cross-entropy that a program executes (``i_loss``, :mod:`concord.spec.integers`).

Samples are numbered in the order of execution: axes ``[outer, inner]`` in C order; a sample is ``rows`` vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.program.chains import VECTOR_MASK, Address, Index
from concord.program.rules import Broken
from concord.spec.config import NpuConfig
from concord.spec.integers import judged_per_word
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.operations import IntegerSource
from concord.spec.rules import ProgramRule


@dataclass(frozen=True)
class IntegerLoss:
    """One ``i_loss``.

    Parameters
    ----------
    pc : int
        Address of its word.
    rows, inner, outer : int
        Vectors of a sample, and samples.
    kind : IntegerSource
        Of the logits, which must be wide integers.
    source, operand, destination : Address
        Logits, labels and gradient.
    operand_mem, destination_mem : Mem
        Which memories: narrow and wide.
    tensor : int
        Tensor register.
    valid : int
        Classes in the last vector of a sample; 0: all elements are some.
    judged : int
        Wide word of what the first samples were judged.
    """

    pc: int
    rows: int
    inner: int
    outer: int
    kind: IntegerSource
    source: Address
    operand: Address
    operand_mem: Mem
    destination: Address
    destination_mem: Mem
    tensor: int
    valid: int
    judged: int

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.outer * self.inner

    @property
    def vectors(self) -> int:
        """Vectors of all samples."""
        return self.samples * self.rows

    def classes(self, config: NpuConfig) -> int:
        """Classes of a sample."""
        return (self.rows - 1) * config.native + (self.valid or config.native)

    def addresses(self, address: Address) -> Index:
        """Addresses in a vector memory ``[samples, rows]``, modulo 2**14."""
        words = address.over(self.outer, self.inner, self.rows) & VECTOR_MASK
        return words.reshape(self.samples, self.rows)

    def judged_words(self, config: NpuConfig) -> Index:
        """Wide words of what samples were judged, in order."""
        count = -(-self.samples // judged_per_word(config.native))
        return np.asarray((self.judged + np.arange(count)) & VECTOR_MASK)

    def words_read(self) -> dict[RegionId, Index]:
        """Words that it reads."""
        source = self.addresses(self.source)
        return {RegionId.WIDE: np.stack([source, source + 1]), RegionId.NARROW: self.addresses(self.operand)}

    def words_written(self, config: NpuConfig) -> Index:
        """Words of the wide memory that it writes."""
        gradient = self.addresses(self.destination)
        return np.concatenate([gradient.ravel(), gradient.ravel() + 1, self.judged_words(config)])


def broken_loss_rules(loss: IntegerLoss, config: NpuConfig) -> list[Broken]:
    """The first rule that an ``i_loss`` breaks, if there is one."""
    kinds = (loss.kind, loss.operand_mem, loss.destination_mem)
    if kinds != (IntegerSource.WIDE, Mem.NARROW, Mem.WIDE):
        message = "must have a wide source, a narrow operand and a wide destination"
        return [Broken(ProgramRule.LOSS_MEMORIES, message)]
    if loss.valid > config.native:
        message = f"must have at most {config.native} classes in a vector, not {loss.valid}"
        return [Broken(ProgramRule.LOSS_VALID, message)]
    reads, writes = loss.words_read(), loss.words_written(config)
    depths = (
        ("narrow", reads[RegionId.NARROW], config.narrow_depth),
        ("wide", reads[RegionId.WIDE], config.wide_depth),
        ("wide", writes, config.wide_depth),
    )
    for name, words, depth in depths:
        if words.max() >= depth:
            message = f"must stay below word {depth} of the {name} memory, not touch {int(words.max())}"
            return [Broken(ProgramRule.LOSS_ADDRESSES, message)]
    twice, count = np.unique(writes, return_counts=True)
    if (count > 1).any():
        return [Broken(ProgramRule.WRITTEN_TWICE, f"must not write wide {int(twice[count > 1][0])} twice")]
    # A vector may have its gradient where its logits are; otherwise nothing is read that is written.
    source, target = loss.addresses(loss.source), loss.addresses(loss.destination)
    shared = np.isin(reads[RegionId.WIDE], writes) & (source != target)
    if not shared.any():
        return []
    message = f"must not read wide {int(reads[RegionId.WIDE][shared][0])}, which it writes for something else"
    return [Broken(ProgramRule.OTHER_LOGITS, message)]
