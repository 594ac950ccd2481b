"""Weights that a run copies from the external memory, and the share of its bus."""

from __future__ import annotations

from dataclasses import dataclass

from concord.cycles.dram import copy_cycles
from concord.image import Image
from concord.program import trace
from concord.spec.operations import Op

#: Share of the cycles of a run from which on copies are what limits it.
_LIMITS = 0.9


@dataclass(frozen=True)
class CopiedWeights:
    """Copies of a run.

    Parameters
    ----------
    blocks : int
        How many there are.
    nbytes : int
        Bytes that they read.
    bus_cycles : int
        Cycles in which one of them goes on.
    """

    blocks: int = 0
    nbytes: int = 0
    bus_cycles: int = 0

    def __add__(self, other: CopiedWeights) -> CopiedWeights:
        return CopiedWeights(self.blocks + other.blocks, self.nbytes + other.nbytes, self.bus_cycles + other.bus_cycles)

    def text(self, cycles: int) -> str:
        """The copies in words, beside the cycles of a run; empty if there are none."""
        if not self.nbytes:
            return ""
        share = self.bus_cycles / cycles
        return (
            f"{self.nbytes / 1e6:.3g} MB of weights come from the external memory in a run, in {self.blocks:,} blocks; "
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
        for copy in trace(image.program, config, phase.pc).copies:
            made = CopiedWeights(1, copy.columns(config) * config.sdram.width // 8, copy_cycles(copy, config))
            copies[copy.column] = copies.get(copy.column, CopiedWeights()) + made
    return copies
