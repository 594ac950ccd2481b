"""Cycles of an element-serial configuration: nothing overlaps, so they are the sum of all states."""

from __future__ import annotations

from concord.program.chains import Chain
from concord.program.trace import Trace
from concord.spec import timing
from concord.spec.config import SERIAL_ROWS, NpuConfig
from concord.spec.isa import Mem, Op
from concord.spec.operations import ADDRESSED, PipelineStage

#: Stages of the multifunction units: each takes a cycle, and if a chain uses it the latency of its operation besides.
_STAGES = sum(stage.name[:-1] in ("MUL", "ADD", "ACT") for stage in PipelineStage)
#: States that last a cycle: before a source is read, to store an element, to retire a vector, to take a chain.
_BEFORE_SOURCE, _STORE, _RETIRE, _TAKE = 2, 1, 1, 1


def serial_run_cycles(run: Trace, config: NpuConfig) -> int:
    """Cycles of a run that executes this trace."""
    now, chains = 0, iter(run.chains)
    for event in run.events:
        now += timing.SERIAL_WORD * event.words
        if event.chain:  # the next word is executed behind the last state of the chain, as if fetched before
            now += _TAKE + _chain(next(chains), config) + 1 - timing.SERIAL_WORD
    return now + bool(run.trap)


def _chain(chain: Chain, config: NpuConfig) -> int:
    """Cycles of the states of all vectors."""
    stages = _STAGES + sum(timing.serial_cycles(used.op) for used in chain.mfu_ops)
    narrow = any(target.mem is Mem.NARROW for target in chain.destinations)
    written = timing.SERIAL_MEMORY + 1 + (timing.SERIAL_VECTOR_END if narrow else 0) + 1
    advanced = len(ADDRESSED) * (timing.SERIAL_MEMORY + 1)
    per_vector = config.native * (stages + _STORE + written) + _RETIRE + advanced
    return chain.vectors * per_vector + _sources(chain, config)


def _sources(chain: Chain, config: NpuConfig) -> int:
    """Cycles until the sources of all elements of all vectors are there."""
    if chain.reduce is Op.MV_MUL:
        steps = chain.window.taps * chain.cols * (config.steps if chain.dense else 1)
        walks = config.native // (SERIAL_ROWS if chain.dense else 1)
        walked = walks * (_BEFORE_SOURCE + steps + timing.SERIAL_SUM)
        return chain.vectors * (walked + config.native * (timing.ACC_TO_BINARY16 + 1))
    inside = int(chain.inside().sum()) * chain.rows
    outside = chain.vectors * chain.window.taps - inside
    taps = inside * (timing.SERIAL_READ + 1) + outside * (timing.SERIAL_OUTSIDE + 1)
    reads = chain.vectors * _BEFORE_SOURCE + taps
    return config.native * reads * (config.native if chain.reduce is Op.V_REDMAX else 1)
