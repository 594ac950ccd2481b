"""Cycles of the chain pipe: when every vector passes every register that a handshake stands in front of.

Between two units a time follows from earlier ones by maxima and sums alone, so no cycle has to be looked at. Four
processes work through the vectors in order, each as far as it knows the times it depends on:

* sources: sequencer, chain walker, tap walker, hazard gate, source reads;
* the way of the operands to the read port of the wide memory;
* the launch of vectors, from which on all latencies are fixed;
* the reads of operands. They leave the port to source reads, also to those of later vectors. So the next one takes
  place only when the other processes can do nothing without it: all source reads before it are known then.
"""

from __future__ import annotations

from collections.abc import Sequence

from concord.cycles.launch import Launch
from concord.cycles.operands import Operands
from concord.cycles.sources import Sources
from concord.cycles.times import Times
from concord.program.trace import Trace
from concord.spec.config import NpuConfig
from concord.utils.arrays import Ints


def pipe_cycles(trace: Trace, config: NpuConfig, steps: Sequence[Ints], grown: Sequence[bool] = ()) -> tuple[int, int]:
    """Cycles of a run that executes this trace, and those in which a read waits for a write.

    ``steps``: for every sliding product the steps of its windows. ``grown``: for every update of an integer chain
    whether an exponent has grown.
    """
    times = Times(config)
    sources, operands, launch = Sources(trace, times, steps, grown), Operands(times), Launch(times)
    processes = sources.process(), launch.process()

    def known() -> tuple[int, ...]:
        return len(times.tokens), sources.steps, operands.known, times.launched, len(times.taken)

    while not sources.end:
        before = known()
        for process in processes:
            next(process, None)
            operands.advance()
        if known() == before and not sources.end:
            operands.read()
    return sources.end, times.stalled()
