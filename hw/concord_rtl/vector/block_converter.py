"""Conversion of binary16 elements whose block is known."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH, NOISE_BITS, Rounding
from concord_rtl.arith.block_float import BLOCK, activations
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.noise import Noise
from concord_rtl.parts.stages import Stages, delay, register


class BlockConverter(Component):
    """Shifts, rounds and limits the elements of a vector, P per cycle, and makes a word of them.

    Does not stall. The beats of a vector arrive in successive cycles, vectors back to back or with gaps. ``LATENCY``
    cycles pass from the last beat in to ``done``. Without ``config.stochastic`` stochastic rounding rounds to nearest
    even.

    Parameters
    ----------
    config : NpuConfig
        Gives N, P and the activation format.
    """

    i = Input(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "One beat of finite elements.")
    valid = Input(1, "A beat is there; only stochastic rounding asks for it.")
    first = Input(1, "Strobe: it is the first of its vector.")
    block = Input(BLOCK, "The block that the beat of the cycle before belongs to.")
    reset_noise = Input(1, "Return the noise to the start of a run.")
    word = Output(lambda self: activations(self.config).word, "The block, valid in the cycle of ``done`` only.")
    done = Output(1, "Strobe.")
    wild = Output(1, "``block.wild`` of the vector, valid with ``done``.")
    saturated = Output(1, "A mantissa was limited with a static exponent, valid with ``done``.")

    #: Cycles from the last beat of a vector to ``done``.
    LATENCY = timing.CONVERT + 1

    def __init__(self, config: NpuConfig):
        self.config = config
        self.format = activations(config)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # The elements meet their block one cycle later each; it has moved on by then, so it is passed along.
        blocks: list[Any] = [self.block]
        for k in (1, 2, 3):
            blocks.append(data.View(BLOCK, register(m, blocks[-1], f"block_{k}")))
        noise = self._noise(m, blocks[1])
        stage = Stages(m, held=False)
        codes = [self.format.convert(stage, p, x, blocks, noise[p]) for p, x in enumerate(self.i)]
        begin = delay(m, self.first, timing.CONVERT, "begin", reset_less=False)
        end = delay(m, begin, self.config.beats - 1, "end", reset_less=False)
        self._emit(m, codes, begin, end, blocks[-1])
        return m

    def _noise(self, m, block):
        if not self.config.stochastic:
            return [Const(0, NOISE_BITS)] * self.config.mfu_lanes
        active = delay(m, self.valid, 2, "active", reset_less=False)
        m.submodules.noise = noise = Noise(self.config.mfu_lanes)
        m.d.comb += noise.reset.eq(self.reset_noise)
        m.d.comb += noise.step.eq(active & (block.rounding == Rounding.STOCHASTIC))
        return noise.noise

    def _emit(self, m, codes, begin, end, block):
        """Collect the mantissas; the last beat completes the word."""
        native, lanes = self.config.native, self.config.mfu_lanes
        outside = Cat(over for over, _ in codes).any() & block.static
        word: Any = Signal(self.format.word, reset_less=True)
        mant = word.mant
        m.d.comb += self.word.eq(word)
        m.d.sync += [mant[k].eq(mant[k + lanes]) for k in range(native - lanes)]
        m.d.sync += [mant[native - lanes + p].eq(code) for p, (_, code) in enumerate(codes)]
        m.d.sync += [word.exp.eq(block.base - self.format.offset), self.wild.eq(block.wild)]
        m.d.sync += [self.saturated.eq(outside | (self.saturated & ~begin)), self.done.eq(end)]
