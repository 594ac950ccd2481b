"""From a program to its counters."""

from __future__ import annotations

from collections.abc import Sequence

from concord.cycles.counts import Counts
from concord.cycles.pipe import pipe_cycles
from concord.cycles.serial import serial_run_cycles
from concord.cycles.windows import assumed_steps
from concord.program.integers import IntegerChain, TensorStep
from concord.program.trace import Trace, trace
from concord.spec.config import NpuConfig
from concord.utils.arrays import Ints


def count(words: Sequence[int], config: NpuConfig, pc: int = 0, steps: Sequence[Ints] | None = None) -> Counts:
    """Counters after one run of a program.

    Parameters
    ----------
    words : sequence of int
        The program.
    config : NpuConfig
        What executes it.
    pc : int
        Address of the first instruction.
    steps : sequence of array, optional
        For every sliding product of the run, in order, the steps of its windows (:func:`window_steps`). If left out,
        they are :data:`ASSUMED_STEPS` each, and cycles and hazard stalls are those of such a run.
    """
    return counts_of(trace(words, config, pc), config, steps)


def counts_of(
    trace: Trace, config: NpuConfig, steps: Sequence[Ints] | None = None, grown: Sequence[bool] = ()
) -> Counts:
    """Counters after a run that executes this trace, as :func:`count` gives them.

    ``grown``: for every update of an integer chain whether an exponent has grown; those left out have not.
    """
    integers = [item for item in trace.integers if not isinstance(item, TensorStep)]
    if config.serial:
        cycles, stalls = serial_run_cycles(trace, config), 0
    else:
        cycles, stalls = pipe_cycles(trace, config, assumed_steps(trace) if steps is None else steps, grown)
    return Counts(
        cycles=cycles,
        dense_steps=sum(chain.dense_steps(config) for chain in trace.chains)
        + sum(item.vectors * item.product_steps(config) for item in integers if isinstance(item, IntegerChain)),
        depthwise_steps=sum(chain.depthwise_steps() for chain in trace.chains),
        chains=len(trace.chains) + len(integers),
        vectors=sum(chain.vectors for chain in trace.chains) + sum(item.vectors for item in integers),
        hazard_stalls=stalls,
    )
