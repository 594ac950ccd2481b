"""Two matrix rows of a tile engine that share their multipliers."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.multipliers import lanes_in_logic
from concord_rtl.block_float import activations, weights
from concord_rtl.dsp import PairMultiplier
from concord_rtl.mvm.row import RowSum


class ProductRow(RowSum):
    """A row without multipliers: products come in.

    Parameters
    ----------
    config : NpuConfig
        Configuration.

    Members
    -------
    products : In(ArrayLayout(signed(act_mant + wgt_mant - 1), L))
        Products of the lanes.
    wgt_exp : In
        Exponent of the weights, as early as the operands of the products.
    exp, clear, acc
        As in :class:`concord_rtl.mvm.row.Row`.
    """

    products: data.View
    wgt_exp: Signal

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "products": In(data.ArrayLayout(signed(config.act_mant + config.wgt_mant - 1), config.lanes)),
                "wgt_exp": In(weights(config).exp),
                "exp": In(range(config.act.exp_max - config.act_exp_min + 1)),
                "clear": In(1),
                "acc": Out(signed(config.acc_bits)),
            }
        )

    def _exponent(self) -> Value:
        return self.wgt_exp

    def _products(self, m) -> list[Signal]:
        return list(self.products)


class RowPair(wiring.Component):
    """Two rows whose lanes multiply the same element by a weight of each.

    In depthwise mode the elements differ. There two neighbouring lanes work for the tap: the lane that has its weights
    for one row, the other one for the other row, with the weight of its neighbour. Everything else is as in
    :class:`concord_rtl.mvm.row.Row`.

    Parameters
    ----------
    config : NpuConfig
        Configuration with an even number of lanes.

    Members
    -------
    dense : In(ArrayLayout(signed(act_mant), L))
        Elements for the lanes; zeros in depthwise mode.
    own : In(ArrayLayout(signed(act_mant), 2))
        In depthwise mode the element for the even lanes and the one for the odd lanes: those with the numbers of the
        rows, exchanged with ``odd``.
    pick : In(L / 2)
        The two lanes that take ``own``; zero in dense mode.
    depthwise, odd : In(1)
        The mode, and, in depthwise mode only, that the weights of the tap are in an odd lane.
    w : In(ArrayLayout(matrix_row, 2))
        Weights and exponents of both rows.
    exp, clear
        As in :class:`concord_rtl.mvm.row.Row`.
    acc : Out(ArrayLayout(signed(acc_bits), 2))
        Sums of both rows.
    """

    dense: data.View
    own: data.View
    pick: Any
    depthwise: Signal
    odd: Signal
    w: data.View
    exp: Signal
    clear: Signal
    acc: data.View

    def __init__(self, config: NpuConfig):
        self.config = config
        code = activations(config).code
        super().__init__(
            {
                "dense": In(data.ArrayLayout(code, config.lanes)),
                "own": In(data.ArrayLayout(code, 2)),
                "pick": In(config.lanes // 2),
                "depthwise": In(1),
                "odd": In(1),
                "w": In(data.ArrayLayout(weights(config).word, 2)),
                "exp": In(range(config.act.exp_max - config.act_exp_min + 1)),
                "clear": In(1),
                "acc": Out(data.ArrayLayout(signed(config.acc_bits), 2)),
            }
        )

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
        for lane in range(self.config.lanes):
            m.submodules[f"mul{lane}"] = mul = PairMultiplier(*widths, in_logic=lane < logic)
            m.d.comb += [
                mul.a.eq(self.dense[lane] | Mux(self.pick[lane // 2], self.own[lane % 2], 0)),
                Cat(mul.b).eq(Cat(*self._weights(lane))),
                *(row.products[lane].eq(product) for row, product in zip(rows, mul.o, strict=True)),
            ]
        return m

    def _weights(self, lane) -> tuple[Value, Value]:
        """Weights of both rows in a lane; in depthwise mode that of one row, the other one zero."""
        first, second = (self.w[k].mant for k in range(2))
        here = self.odd if lane % 2 else ~self.odd  # the tap is in this lane, and not in its neighbour
        kept = Mux(self.depthwise & ~here, 0, first[lane])
        moved = Mux(here, 0, second[lane ^ 1])
        return kept, Mux(self.depthwise, moved, second[lane])
