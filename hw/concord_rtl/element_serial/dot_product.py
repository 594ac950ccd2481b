"""The matrix row of an element-serial configuration: one element of a product after the other."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord.spec.config import NpuConfig, clog2
from concord_rtl.block_float import activations, weights
from concord_rtl.dsp import Multiplier
from concord_rtl.mvm.align import Align


class DotProduct(wiring.Component):
    """L multipliers, sum, alignment, accumulator.

    Never stalls. A step is in ``acc`` ``LATENCY`` cycles later, another term ``TERM_LATENCY`` cycles later.

    Parameters
    ----------
    config : NpuConfig
    term, shift : shape
        Of terms that are not products.

    Members
    -------
    valid : In(1)
        A step to be added; the other inputs belong to it.
    depthwise, lane, own, half : In
        Whether ``lane`` alone takes ``own``, or every lane its element of part ``half``.
    x : In(narrow_word)
        Vector.
    w : In(matrix_row)
        Row of weights.
    term_valid, term, shift : In
        Add ``term << shift``; no step is under way.
    clear : In(1)
        Begin a sum; nothing is under way.
    acc : Out(signed(acc_bits))
        Sum.
    """

    valid: Signal
    depthwise: Signal
    lane: Signal
    half: Signal
    own: Signal
    x: data.View
    w: data.View
    term_valid: Signal
    term: Any
    shift: Any
    clear: Signal
    acc: Signal

    TERM_LATENCY, LATENCY = timing.SERIAL_TERM, timing.SERIAL_SUM

    def __init__(self, config: NpuConfig, *, term, shift):
        self.config = config
        super().__init__(
            {
                "valid": In(1),
                "depthwise": In(1),
                "lane": In(clog2(config.lanes)),
                "half": In(clog2(config.steps)),
                "own": In(activations(config).code),
                "x": In(activations(config).word),
                "w": In(weights(config).word),
                "term_valid": In(1),
                "term": In(term),
                "shift": In(shift),
                "clear": In(1),
                "acc": Out(signed(config.acc_bits)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        max_shift = max(config.max_shift, (1 << len(self.shift)) - 1)
        m.submodules.align = align = Align(max(config.lane_dot_bits, len(self.term)), max_shift)
        mant = self.x.mant.as_value()
        part = mant.word_select(self.half, config.act_mant * config.lanes)
        total = 0
        for lane in range(config.lanes):
            m.submodules[f"mul{lane}"] = mul = Multiplier(config.act_mant, config.wgt_mant)
            taken = Mux(self.depthwise, self.own, part.word_select(lane, config.act_mant))
            counts = self.valid & (~self.depthwise | (self.lane == lane))
            m.d.comb += [mul.a.eq(Mux(counts, taken, 0)), mul.b.eq(self.w.mant[lane])]
            total = total + mul.o
        shift = self.x.exp - config.act_exp_min + self.w.exp
        for k in range(Multiplier.LATENCY):
            late = Signal.like(align.shift, name=f"shift{k}", reset_less=True)
            m.d.sync += late.eq(shift)
            shift = late
        m.d.comb += [
            align.i.eq(Mux(self.term_valid, self.term, total)),
            align.shift.eq(Mux(self.term_valid, self.shift, shift)),
        ]
        m.d.sync += self.acc.eq(self.acc + align.o)
        with m.If(self.clear):
            m.d.sync += self.acc.eq(0)
        return m
