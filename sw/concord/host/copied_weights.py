"""Weights that a run copies from the external memory, and the share of its bus."""

from __future__ import annotations

from dataclasses import dataclass

from concord.cycles.dram import copy_cycles
from concord.image import Image
from concord.program import trace
from concord.spec.operations import Op


@dataclass(frozen=True)
class CopiedWeights:
    """Copies of a run.

    Parameters
    ----------
    nbytes : int
        Bytes that they read.
    bus_cycles : int
        Cycles in which one of them goes on.
    """

    nbytes: int
    bus_cycles: int

    def text(self, cycles: int) -> str:
        """The copies in words, beside the cycles of a run; empty if there are none."""
        if not self.nbytes:
            return ""
        share = f"{self.bus_cycles / cycles:.0%}"
        return (
            f"{self.nbytes / 1e6:.3g} MB of weights come from the external memory in a run; copies go on during "
            f"{self.bus_cycles:,} cycles, {share} of all"
        )


def copied_weights(image: Image) -> CopiedWeights:
    """The copies of all phases of a run."""
    config = image.config
    if not config.has(Op.COPY):
        return CopiedWeights(0, 0)
    copies = [copy for phase in image.schedule() for copy in trace(image.program, config, phase.pc).copies]
    columns = sum(copy.columns(config) for copy in copies)
    return CopiedWeights(columns * config.sdram.width // 8, sum(copy_cycles(copy, config) for copy in copies))
