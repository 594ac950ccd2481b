"""What a run reports: how it ended, and the counters of the hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from concord.cycles import Counts, counts_of
from concord.program import Trace
from concord.spec.config import NpuConfig
from concord.spec.isa import Trap


@dataclass(frozen=True)
class Run:
    """End and counters of one run, as in the registers.

    Parameters
    ----------
    trap : Trap
        ``NONE`` if the run reached ``halt``.
    pc : int
        Address of the word that trapped; 0 after ``halt``.
    dense_steps : int
        Tile steps, taps outside the image included.
    depthwise_steps : int
        Depthwise taps, those outside the image included.
    chains : int
        Chains dispatched.
    vectors : int
        Native vectors that left the pipe: one per result of a chain.
    executed : tuple of Trace and NpuConfig, or None
        What was executed, and for which hardware.
    """

    trap: Trap
    pc: int
    dense_steps: int
    depthwise_steps: int
    chains: int
    vectors: int
    executed: tuple[Trace, NpuConfig] | None = field(default=None, compare=False, repr=False)

    @property
    def cycles(self) -> int:
        """Cycles that the hardware takes for it."""
        return self._counts.cycles if self._counts else 0

    @property
    def hazard_stalls(self) -> int:
        """Cycles in which a read of the hardware waits for a write."""
        return self._counts.hazard_stalls if self._counts else 0

    @cached_property
    def _counts(self) -> Counts | None:
        """Worked out when somebody asks: that takes longer than small runs."""
        return counts_of(*self.executed) if self.executed else None


def report(trace: Trace, config: NpuConfig) -> Run:
    """Counters of a run that executed this trace; they wrap at 32 bits as the registers do."""
    chains = trace.chains
    counts = (
        sum(chain.dense_steps(config) for chain in chains),
        sum(chain.depthwise_steps() for chain in chains),
        len(chains),
        sum(chain.vectors for chain in chains),
    )
    pc = 0 if trace.trap is Trap.NONE else trace.pc
    dense, depthwise, chained, left = (count % (1 << 32) for count in counts)
    return Run(trace.trap, pc, dense, depthwise, chained, left, executed=(trace, config))
