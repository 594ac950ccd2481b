"""Bytes that a run copies from the external memory and to it, and the share of its bus."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from concord.cycles.dram import copy_cycles
from concord.image import Image
from concord.program import trace
from concord.program.chains import MemoryCopy, WeightCopy
from concord.spec.operations import Op

#: Share of the cycles of a run from which on copies are what limits it.
_LIMITS = 0.9


@dataclass(frozen=True)
class CopiedWeights:
    """Copies of a run.

    Parameters
    ----------
    blocks : int
        How many of weights there are.
    nbytes : int
        Bytes of weights that they read.
    bus_cycles : int
        Cycles in which one of them goes on.
    vector_bytes : int
        Bytes of vectors that they read and write.
    """

    blocks: int = 0
    nbytes: int = 0
    bus_cycles: int = 0
    vector_bytes: int = 0

    def __add__(self, other: CopiedWeights) -> CopiedWeights:
        return CopiedWeights(*(sum(pair) for pair in zip(astuple(self), astuple(other), strict=True)))

    def text(self, cycles: int) -> str:
        """The copies in words, beside the cycles of a run; empty if there are none."""
        parts = []
        if self.nbytes:
            parts.append(f"{self.nbytes / 1e6:.3g} MB of weights in {self.blocks:,} blocks")
        if self.vector_bytes:
            parts.append(f"{self.vector_bytes / 1e6:.3g} MB of tensors")
        if not parts:
            return ""
        share, directions = self.bus_cycles / cycles, "from and to" if self.vector_bytes else "from"
        return (
            f"{' and '.join(parts)} are copied {directions} the external memory in a run; "
            f"copies go on during {self.bus_cycles:,} cycles, {share:.0%} of all"
            + (": its bus limits" if share >= _LIMITS else "")
        )


def copied_weights(image: Image) -> CopiedWeights:
    """The copies of all phases of a run."""
    return sum(copies_by_column(image).values(), CopiedWeights())


def copies_by_column(image: Image) -> dict[int, CopiedWeights]:
    """The copies of all phases of a run by the column that they begin with."""
    config, copies = image.config, dict[int, CopiedWeights]()
    if not config.has(Op.COPY):
        return copies
    for phase in image.schedule():
        run = trace(image.program, config, phase.pc)
        every: tuple[MemoryCopy, ...] = (*run.copies, *run.vector_copies)
        for copy in every:
            nbytes, cycles = copy.columns(config) * config.sdram.width // 8, copy_cycles(copy, config)
            weights = isinstance(copy, WeightCopy)
            made = CopiedWeights(1, nbytes, cycles) if weights else CopiedWeights(0, 0, cycles, nbytes)
            copies[copy.column] = copies.get(copy.column, CopiedWeights()) + made
    return copies
