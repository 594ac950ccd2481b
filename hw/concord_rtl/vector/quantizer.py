"""Conversion of wide vectors to narrow ones."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH, ExponentMode
from concord.spec.operations import Op
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, is_special
from concord_rtl.arith.block_float import BLOCK, FIELD_BITS, activations, finite
from concord_rtl.parts.bits import at_least
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.control import QUANT_CTRL
from concord_rtl.parts.stages import delay, max_tree, register
from concord_rtl.vector.block_converter import BlockConverter


class Quantizer(Component):
    """Converts native vectors of binary16 numbers to blocks with one exponent.

    Does not stall, and does not check that a static exponent is within the activation format. The beats of a vector
    arrive in successive cycles, vectors back to back or with gaps. While one vector is collected and its greatest
    exponent found, the one before is converted, P elements per cycle. ``LATENCY`` cycles pass from the last beat in to
    ``done``. Without ``config.stochastic`` stochastic rounding rounds to nearest even.

    Parameters
    ----------
    config : NpuConfig
        Gives N, P and the activation format.
    """

    i = Input(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "One beat.")
    valid = Input(1, "A beat is there.")
    first = Input(1, "It is the first of its vector.")
    ctrl = Input(QUANT_CTRL, "Exponent mode, static exponent and rounding; held during all beats of a vector.")
    to_matrix = Input(
        1,
        "The exponent is limited to those of weights; held as well. Only with ``m_wr``.",
        when=lambda self: self.config.has(Op.M_WR),
    )
    reset_noise = Input(1, "Return the noise to the start of a run.")
    word = Output(lambda self: activations(self.config).word, "The block, valid in the cycle of ``done`` only.")
    done = Output(1, "Strobe.")
    nonfinite = Output(1, "An element of the vector was not finite, valid with ``done``.")
    saturated = Output(
        1, "A mantissa was limited with a static exponent, or with one that was limited, valid with ``done``."
    )

    def __init__(self, config: NpuConfig):
        self.config = config
        self.format = activations(config)
        super().__init__()

    @property
    def LATENCY(self):
        """Cycles from the last beat of a vector to ``done``."""
        return timing.quantizer_latency(self.config)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        collect = 1 + timing.max_tree(config.mfu_lanes)
        valid = delay(m, self.valid, collect, "valid", reset_less=False)
        first = delay(m, self.valid & self.first, collect, "first", reset_less=False)
        lanes = [register(m, finite(x), f"finite_{p}") for p, x in enumerate(self.i)]
        wild = register(m, Cat(is_special(x) for x in self.i).any(), "wild_1")
        peak = max_tree(m, [x[FRACTION:MAGNITUDE] for x in lanes], "peak")

        last = delay(m, first, config.beats - 1, "last", reset_less=False)
        wild = delay(m, wild, collect - 1, "wild_peak")
        ctrl = delay(m, self.ctrl, collect, "ctrl")
        to_matrix = delay(m, self.to_matrix, collect, "to_matrix") if config.has(Op.M_WR) else None
        block = self._block(m, valid, first, last, peak, wild, data.View(QUANT_CTRL, ctrl), to_matrix)

        m.submodules.converter = converter = BlockConverter(config)
        m.d.comb += [
            converter.i[p].eq(delay(m, x, collect + config.beats - 2, f"wait_{p}")) for p, x in enumerate(lanes)
        ]
        m.d.comb += [
            converter.valid.eq(delay(m, valid, config.beats - 1, "converting", reset_less=False)),
            converter.first.eq(last),
            converter.block.eq(block),
            converter.reset_noise.eq(self.reset_noise),
            self.word.eq(converter.word),
            self.done.eq(converter.done),
            self.nonfinite.eq(converter.wild),
            self.saturated.eq(converter.saturated),
        ]
        return m

    def _block(self, m, valid, first, last, peak, wild, ctrl, to_matrix):
        """Exponent and special values of a block after its last beat, held while it is converted."""
        config, offset = self.config, self.format.offset
        best, seen = Signal(FIELD_BITS), Signal()
        floor: Any = config.act_exp_min + offset
        if config.has(Op.M_WR):
            floor = Mux(to_matrix, config.wgt_exp_min + offset, floor)
        before = Mux(first, floor, best)
        greatest = Mux(before < peak, peak, before)
        any_wild = wild | (seen & ~first)
        with m.If(valid):
            m.d.sync += [best.eq(greatest), seen.eq(any_wild)]
        block: Any = Signal(BLOCK)
        static = ctrl.mode == ExponentMode.STATIC
        base = Mux(static, ctrl.exp + offset, greatest)
        if config.has(Op.M_WR):
            base = base[:FIELD_BITS]
            # No exponent is above the greatest one of activations.
            least, most = config.wgt_exp_min, min(config.wgt_exp_max, config.act.exp_max)
            above = to_matrix & at_least(base, most + offset + 1)
            below = to_matrix & ~at_least(base, least + offset)
            base = Mux(above, most + offset, Mux(below, least + offset, base))
            static = static | above
        with m.If(last):
            m.d.sync += [
                block.base.eq(base),
                block.static.eq(static),
                block.rounding.eq(ctrl.rounding),
                block.wild.eq(any_wild),
            ]
        return block
