"""Cycles of integer chains and of steps of tensor registers: nothing overlaps, and nothing stalls."""

from __future__ import annotations

from concord.program.integer_loss import IntegerLoss
from concord.program.integers import IntegerChain, TensorStep
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.integers import judged_per_word
from concord.spec.operations import IntegerSource, Op


def integer_cycles(item: IntegerChain | TensorStep | IntegerLoss, config: NpuConfig, grown: bool = False) -> int:
    """Cycles from the execution of a word to that of the next one.

    Parameters
    ----------
    item : IntegerChain, TensorStep or IntegerLoss
        What the word executes.
    config : NpuConfig
        What executes it.
    grown : bool
        Whether the exponent of the weights grows, for an update: they are gone over once more.
    """
    return timing.INTEGER_WAY + _executed(item, config, grown)


def _executed(item: IntegerChain | TensorStep | IntegerLoss, config: NpuConfig, grown: bool) -> int:
    """Cycles of the engine itself."""
    if isinstance(item, TensorStep):
        return timing.TENSOR_SCALE if item.op is Op.T_SCALE else timing.TENSOR_STEP
    if isinstance(item, IntegerLoss):
        return timing.LOSS_BEGIN + item.samples * _sample(item, config)
    source = timing.INTEGER_SOURCE
    if item.kind is IntegerSource.PRODUCT:
        source = item.product_steps(config) + timing.integer_result(config)
    if item.kind is IntegerSource.TABLE:  # a beat has to wait for all its entries, one a cycle
        source = timing.INTEGER_LOOKUP + config.native - 1 - config.beats
    update = timing.LAZY_UPDATE if item.steps.update else 0
    cycles = timing.INTEGER_BEGIN + _walk(item, config, source + update) + timing.INTEGER_END
    return cycles + (1 + _walk(item, config, timing.INTEGER_SOURCE + timing.LAZY_GROWTH) if grown else 0)


def _sample(loss: IntegerLoss, config: NpuConfig) -> int:
    """Cycles of a sample: three times over its classes, a cycle for each, and at least one for every word."""
    half, last = judged_per_word(config.native), loss.valid or config.native
    words = (loss.rows - 1) * config.native + max(1, min(last, half)) + max(1, last - half)
    return 3 * words + timing.LOSS_SAMPLE


def _walk(chain: IntegerChain, config: NpuConfig, latency: int) -> int:
    """Cycles from the one in which all loops begin to the end of the interval of the last vector at its destination."""
    way = timing.INTEGER_LOOPS + latency + config.beats + timing.INTEGER_LANE + timing.INTEGER_COLLECT
    return chain.vectors * chain.steps.interval + way
