"""From a program to its counters."""

from __future__ import annotations

from collections.abc import Sequence

from concord.cycles.counts import Counts
from concord.cycles.pipe import pipe_cycles
from concord.cycles.serial import serial_cycles
from concord.program.trace import Trace, trace
from concord.spec.config import NpuConfig


def count(words: Sequence[int], config: NpuConfig, pc: int = 0) -> Counts:
    """Counters after one run of a program.

    Parameters
    ----------
    words : sequence of int
        The program.
    config : NpuConfig
        What executes it.
    pc : int
        First instruction.

    Where windows slide, ``cycles`` and ``hazard_stalls`` are estimates: exponents decide how many steps a window needs.
    """
    return counts_of(trace(words, config, pc), config)


def counts_of(found: Trace, config: NpuConfig) -> Counts:
    """Counters after a run that executes this trace, as :func:`count` gives them."""
    cycles, stalls = (serial_cycles(found, config), 0) if config.serial else pipe_cycles(found, config)
    return Counts(
        cycles=cycles,
        dense_steps=sum(chain.dense_steps(config) for chain in found.chains),
        depthwise_steps=sum(chain.depthwise_steps() for chain in found.chains),
        chains=len(found.chains),
        vectors=sum(chain.vectors for chain in found.chains),
        hazard_stalls=stalls,
    )
