"""Cycles of integer chains and of steps of tensor registers: nothing overlaps, and nothing stalls."""

from __future__ import annotations

from concord.program.integers import IntegerChain, TensorStep
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.operations import IntegerSource, Op


def integer_cycles(item: IntegerChain | TensorStep, config: NpuConfig, grown: bool = False) -> int:
    """Cycles from the execution of a word to that of the next one.

    Parameters
    ----------
    item : IntegerChain or TensorStep
        What the word executes.
    config : NpuConfig
        What executes it.
    grown : bool
        Whether the exponent of the weights grows, for an update: they are gone over once more.
    """
    return timing.INTEGER_WAY + _executed(item, config, grown)


def _executed(item: IntegerChain | TensorStep, config: NpuConfig, grown: bool) -> int:
    """Cycles of the engine itself."""
    if isinstance(item, TensorStep):
        return timing.TENSOR_SCALE if item.op is Op.T_SCALE else timing.TENSOR_STEP
    source = timing.INTEGER_SOURCE
    if item.kind is IntegerSource.PRODUCT:
        source = item.product_steps(config) + timing.integer_result(config)
    update = timing.LAZY_UPDATE if item.steps.update else 0
    cycles = timing.INTEGER_BEGIN + _walk(item, config, source + update) + timing.INTEGER_END
    return cycles + (1 + _walk(item, config, timing.INTEGER_SOURCE + timing.LAZY_GROWTH) if grown else 0)


def _walk(chain: IntegerChain, config: NpuConfig, latency: int) -> int:
    """Cycles from the one in which all loops begin to the end of the interval of the last vector at its destination."""
    way = timing.INTEGER_LOOPS + latency + config.beats + timing.INTEGER_LANE + timing.INTEGER_COLLECT
    return chain.vectors * chain.steps.interval + way
