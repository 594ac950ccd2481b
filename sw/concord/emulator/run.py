"""What a run reports: how it ended, and the counters of the hardware."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    trap: Trap
    pc: int
    dense_steps: int
    depthwise_steps: int
    chains: int
    vectors: int


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
    return Run(trace.trap, pc, *(count % (1 << 32) for count in counts))
