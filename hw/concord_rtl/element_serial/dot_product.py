"""Two matrix rows of an element-serial configuration: two elements of a product at a time."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import SERIAL_ROWS, NpuConfig, clog2
from concord_rtl.arith.block_float import activations, weights
from concord_rtl.cells.dsp import DualMultiplier
from concord_rtl.element_serial.grid_shift import GridShift
from concord_rtl.parts.component import Component, Input, Output


class DotProduct(Component):
    """For each of two rows L products, their sum, its place on the grid, an accumulator.

    Never stalls. A step is in both accumulators ``LATENCY`` cycles later, another term is in the first one
    ``TERM_LATENCY`` cycles later.

    Parameters
    ----------
    config : NpuConfig
    term, shift : shape
        Of terms that are not products.
    """

    valid = Input(1, "A step to be added; the other inputs belong to it.")
    depthwise = Input(1, "``lane`` alone takes ``own``; else every lane takes its element of ``part``.")
    lane = Input(lambda self: clog2(self.config.lanes), "Lane of a depthwise product.")
    part = Input(lambda self: clog2(self.config.steps), "Part of the tile of a dense product.")
    own = Input(lambda self: activations(self.config).code, "Element of that lane.")
    x = Input(lambda self: activations(self.config).word, "Vector.")
    w = Input(lambda self: data.ArrayLayout(weights(self.config).word, SERIAL_ROWS), "Two rows of weights.")
    term_valid = Input(1, "Add ``term << shift`` to the first accumulator; no step is under way.")
    term = Input(lambda self: self.term_shape, "What is added.")
    shift = Input(lambda self: self.shift_shape, "Places by which it is shifted to the left.")
    clear = Input(SERIAL_ROWS, "Begin a sum, one bit for each row; nothing is under way.")
    second = Input(1, "The accumulator of the second row is wanted.")
    acc = Output(lambda self: signed(self.config.acc_bits), "Sum.")

    TERM_LATENCY, LATENCY = timing.SERIAL_TERM, timing.SERIAL_SUM

    def __init__(self, config: NpuConfig, *, term, shift):
        self.config = config
        self.term_shape, self.shift_shape = term, shift
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        rows = [
            self._accumulate(m, row, total, self.x.exp - self.config.act_exp_min + self.w[row].exp)
            for row, total in enumerate(self._products(m))
        ]
        m.d.comb += self.acc.eq(Mux(self.second, rows[1], rows[0]))
        return m

    def _products(self, m):
        """Dot products of both rows."""
        config = self.config
        mant = self.x.mant.as_value()
        elements = mant.word_select(self.part, config.act_mant * config.lanes)
        operands = []
        for lane in range(config.lanes):
            taken = Mux(self.depthwise, self.own, elements.word_select(lane, config.act_mant))
            counts = self.valid & (~self.depthwise | (self.lane == lane))
            operands.append(Mux(counts, taken, 0)[: config.act_mant].as_signed())
        totals = []
        for row in range(SERIAL_ROWS):
            total: Any = 0
            for lane in range(0, config.lanes, 2):
                m.submodules[f"mul{row}_{lane}"] = mul = DualMultiplier(config.act_mant, config.wgt_mant)
                for k, operand in enumerate(operands[lane : lane + 2]):
                    m.d.comb += [mul.a[k].eq(operand), mul.b[k].eq(self.w[row].mant[lane + k])]
                    total = total + mul.o[k]
            totals.append(total)
        return totals

    def _accumulate(self, m, row, total, shift):
        """The sum of a row, to which the first one can add another term."""
        config = self.config
        max_shift = max(config.max_shift, (1 << len(self.shift)) - 1)
        m.submodules[f"align{row}"] = align = GridShift(max(config.lane_dot_bits, len(self.term)), max_shift)
        for k in range(DualMultiplier.LATENCY):
            late = Signal.like(align.shift, name=f"shift{row}_{k}", reset_less=True)
            m.d.sync += late.eq(shift)
            shift = late
        m.d.comb += [align.i.eq(total), align.shift.eq(shift)]
        if row == 0:
            with m.If(self.term_valid):
                m.d.comb += [align.i.eq(self.term), align.shift.eq(self.shift)]
        acc = Signal.like(self.acc, name=f"acc{row}")
        m.d.sync += acc.eq(acc + align.o)
        with m.If(self.clear[row]):
            m.d.sync += acc.eq(0)
        return acc
