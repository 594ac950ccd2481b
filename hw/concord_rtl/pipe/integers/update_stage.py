"""The lazy update of the weights of an integer chain."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFO

from concord.spec import timing
from concord.spec.integers import WIDE_BITS
from concord.spec.isa import COARSER_MAX
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.stages import max_tree, register
from concord_rtl.pipe.integers.lazy.lazy_growth import LazyGrowth
from concord_rtl.pipe.integers.lazy.lazy_update import LazyUpdate
from concord_rtl.pipe.integers.lazy.update_lane import UpdateLane
from concord_rtl.pipe.integers.lazy.widths import EXPONENT, LazyWidths

#: Formats of the weights: those that training has if nothing else is said, but for the point of accumulators.
WIDTHS = LazyWidths(coarser_max=COARSER_MAX)


class UpdateStage(NpuUnit):
    """Both passes of the lazy update, P elements per cycle: weights and accumulators wait for their updates.

    Results come with the latency of :class:`LazyUpdate`, or, where the chain ``grows``, of :class:`LazyGrowth`. Does
    not stall.

    Parameters
    ----------
    config : NpuConfig
    """

    clear = Input(1, "A pass begins.")
    grows = Input(1, "It is the second one.")
    first = Input(1, "Weights and accumulators of a beat are there.")
    elements = Input(lambda self: data.ArrayLayout(WIDTHS.element, self.config.mfu_lanes), "They.")
    second = Input(1, "The updates of a beat are there.")
    changes = Input(lambda self: data.ArrayLayout(signed(WIDE_BITS), self.config.mfu_lanes), "They.")
    exp = Input(EXPONENT, "Exponent of the weights, which stays.")
    change_exp = Input(EXPONENT, "Exponent of the updates, which stays, too.")
    coarser = Input(WIDTHS.coarser["coarser"], "By how many bits the point of accumulators lies higher, which stays.")
    o_valid = Output(1, "Updated elements are there.")
    o = Output(lambda self: data.ArrayLayout(WIDTHS.element, self.config.mfu_lanes), "They.")
    need = Output(1, "The exponent has to grow, for the beats so far.")
    top = Output(WIDTHS.weight.bits, "Greatest magnitude of the new weights so far.")
    refused = Output(lambda self: range(self.config.mfu_lanes + 1), "Updates of a beat that were not taken as a whole.")
    vanished = Output(lambda self: range(self.config.mfu_lanes + 1), "Updates of a beat that have vanished.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        lanes = self.config.mfu_lanes
        m.submodules.update = update = LazyUpdate(WIDTHS, lanes)
        m.submodules.growth = growth = LazyGrowth(WIDTHS, lanes)
        m.submodules.waiting = waiting = SyncFIFO(width=len(self.elements.as_value()), depth=32)
        m.d.comb += [
            waiting.w_en.eq(self.first),
            waiting.w_data.eq(self.elements.as_value()),
            waiting.r_en.eq(self.second),
            update.o.ready.eq(1),
            growth.o.ready.eq(1),
            update.i.valid.eq(self.second & ~self.grows),
            growth.i.valid.eq(self.second & self.grows),
            update.i.p.exp.eq(self.exp),
            update.i.p.change_exp.eq(self.change_exp),
            update.i.p.coarser.eq(self.coarser),
            growth.i.p.coarser.eq(self.coarser),
            update.i.p.active.eq((1 << lanes) - 1),
            update.i.p.elements.as_value().eq(waiting.r_data),
            *(update.i.p.increments[k].change.eq(self.changes[k]) for k in range(lanes)),
            growth.i.p.places.eq(1),
            growth.i.p.elements.as_value().eq(waiting.r_data),
            self.o_valid.eq(Mux(self.grows, growth.o.valid, update.o.valid)),
            self.o.eq(Mux(self.grows, growth.o.p.as_value(), update.o.p.elements.as_value())),
        ]
        with m.If(self.clear):
            m.d.sync += self.need.eq(0)
        with m.Elif(update.o.valid & update.o.p.need.any()):
            m.d.sync += self.need.eq(1)
        for name in ("refused", "vanished"):
            bits = getattr(update.o.p, name)
            count = sum(bits[k] for k in range(lanes))
            m.d.sync += getattr(self, name).eq(Mux(update.o.valid, count, 0))
        magnitudes = [
            register(m, Mux(self.o_valid, abs(element.weight)[: WIDTHS.weight.bits], 0), f"weight_{k}")
            for k, element in enumerate(self.o)
        ]
        latest = register(m, max_tree(m, magnitudes, "weights"), "weights_top")
        with m.If(self.clear):
            m.d.sync += self.top.eq(0)
        with m.Elif(latest > self.top):
            m.d.sync += self.top.eq(latest)
        return m


assert WIDTHS.growth_max == 1  # ``places`` of the second pass
assert (1 + UpdateLane.latency(WIDTHS), LazyGrowth.LATENCY) == (timing.LAZY_UPDATE, timing.LAZY_GROWTH)
