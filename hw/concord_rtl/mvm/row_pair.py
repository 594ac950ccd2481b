"""Two matrix rows of a tile engine that share their multipliers."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.multipliers import lanes_in_logic
from concord_rtl.arith.block_float import activations, weights
from concord_rtl.cells.dsp import PairMultiplier
from concord_rtl.mvm.row import RowSum, WindowPorts, exponent_shape
from concord_rtl.mvm.window_registers import WindowRegisters
from concord_rtl.parts.component import Input, Output


class ProductRow(RowSum):
    """A row without multipliers: products come in.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    """

    products = Input(
        lambda self: data.ArrayLayout(signed(self.config.act_mant + self.config.wgt_mant - 1), self.config.lanes),
        "Products of the lanes.",
    )
    wgt_exp = Input(
        lambda self: weights(self.config).exp, "Exponent of the weights, as early as the operands of the products."
    )

    def _exponent(self) -> Value:
        return self.wgt_exp

    def _products(self, m) -> list[Signal]:
        return list(self.products)


class RowPair(WindowPorts):
    """Two rows whose lanes multiply the same element by a weight of each.

    In depthwise mode the elements differ. There two neighbouring lanes work for the tap: the lane that has its weights
    for one row, the other one for the other row, with the weight of its neighbour. Everything else is as in
    :class:`concord_rtl.mvm.row.Row`.

    Of the places of two neighbouring lanes in ``take`` only one is taken at a time, with ``depthwise`` and without
    ``odd``.

    Parameters
    ----------
    config : NpuConfig
        Configuration with an even number of lanes.
    """

    dense = Input(
        lambda self: data.ArrayLayout(activations(self.config).code, self.config.lanes),
        "Elements for the lanes; zeros in depthwise mode.",
    )
    own = Input(
        lambda self: data.ArrayLayout(activations(self.config).code, 2),
        "In depthwise mode the element for the even lanes and the one for the odd lanes: those with the numbers of "
        "the rows, exchanged with ``odd``.",
    )
    pick = Input(lambda self: self.config.lanes // 2, "The two lanes that take ``own``; zero in dense mode.")
    depthwise = Input(1, "Depthwise mode.")
    odd = Input(1, "In depthwise mode only: the weights of the tap are in an odd lane.")
    w = Input(lambda self: data.ArrayLayout(weights(self.config).word, 2), "Weights and exponents of both rows.")
    exp = Input(lambda self: exponent_shape(self.config), "As in :class:`concord_rtl.mvm.row.Row`.")
    clear = Input(1, "As in :class:`concord_rtl.mvm.row.Row`.")
    acc = Output(lambda self: data.ArrayLayout(signed(self.config.acc_bits), 2), "Sums of both rows.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.row0, m.submodules.row1 = rows = ProductRow(self.config), ProductRow(self.config)
        for k, row in enumerate(rows):
            m.d.comb += [
                row.wgt_exp.eq(self.w[k].exp),
                row.exp.eq(self.exp),
                row.clear.eq(self.clear),
                self.acc[k].eq(row.acc),
            ]
        widths = self.config.act_mant, self.config.wgt_mant
        logic = lanes_in_logic(self.config)
        kept = self._windows(m) if self.config.window_taps else []
        for lane in range(self.config.lanes):
            m.submodules[f"mul{lane}"] = mul = PairMultiplier(*widths, in_logic=lane < logic)
            taken = self.dense[lane] | Mux(self.pick[lane // 2], self.own[lane % 2], 0)
            if kept:
                taken = taken | kept[lane]
            m.d.comb += [
                mul.a.eq(taken),
                Cat(mul.b).eq(Cat(*self._weights(lane))),
                *(row.products[lane].eq(product) for row, product in zip(rows, mul.o, strict=True)),
            ]
        return m

    def _weights(self, lane) -> tuple[Value, Value]:
        """Weights of both rows in a lane; in depthwise mode that of one row, the other one zero."""
        first, second = (self.w[k].mant for k in range(2))
        odd, place = self.odd, lane // 2 + self.config.lanes // 2
        if place < self.config.window_taps:
            odd = odd | self.take[place]
        here = odd if lane % 2 else ~odd  # the tap is in this lane, and not in its neighbour
        kept = Mux(self.depthwise & ~here, 0, first[lane])
        moved = Mux(here, 0, second[lane ^ 1])
        return kept, Mux(self.depthwise, moved, second[lane])

    def _windows(self, m) -> list[Value]:
        """Element of a window that each lane takes, or zero, by lane: two lanes take a place, one for each row."""
        taps, lanes = self.config.window_taps, self.config.lanes
        windows = [WindowRegisters(self.config) for _ in range(2)]
        for k, window in enumerate(windows):
            m.submodules[f"window{k}"] = window
            m.d.comb += [window.i.eq(self.own[k]), window.push.eq(self.push), window.copy.eq(self.copy)]
        taken: list[Value] = []
        for lane in range(lanes):
            # The even lane has the weights of a place of the first half, the odd lane those of one of the second.
            element: Value = Const(0, 1)
            for place in (lane // 2, lane // 2 + lanes // 2):
                if place < taps:
                    row = lane % 2 ^ (place >= lanes // 2)
                    element = element | Mux(self.take[place], windows[row].o[place], 0)
            taken.append(element)
        return taken
