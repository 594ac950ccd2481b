"""Lazy update of a stream of weights."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import *
from amaranth.lib import data

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.lazy.steps import growth_limit, limited_places, raw_places
from concord_rtl.pipe.integers.lazy.update_lane import UpdateLane
from concord_rtl.pipe.integers.lazy.widths import EXPONENT, LazyWidths


def check_lanes(lanes):
    """Refuse a number of lanes that is no positive integer."""
    if not isinstance(lanes, int) or lanes < 1:
        raise ValueError(f"lanes must be a positive integer, not {lanes!r}")


class LazyUpdate(Component):
    """First pass of the lazy update over blocks of weights: the update itself.

    A block is done where the bits of ``need`` of all its beats together are zero. Otherwise its exponent grows by as
    many places as bits are set, but not beyond the greatest exponent, and everything that came out for the block goes
    through a :class:`concord_rtl.pipe.integers.lazy.lazy_growth.LazyGrowth`. One beat per cycle, ``LATENCY`` cycles
    later. Does not keep blocks apart: the exponents come with every beat.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    lanes : int
        Elements of a beat.
    """

    i = Input(
        lambda self: stream_of(
            data.StructLayout(
                {
                    "exp": EXPONENT,
                    "change_exp": EXPONENT,
                    **self.widths.coarser,
                    "active": self.lanes,
                    "elements": data.ArrayLayout(self.widths.element, self.lanes),
                    "increments": data.ArrayLayout(self.widths.increment, self.lanes),
                }
            )
        ),
        "A beat: ``exp`` and ``change_exp``, the exponents of the weights and of the update; ``coarser``, by how many "
        "bits the point of the accumulators lies higher, if it may; ``active``, a bit per "
        "lane that holds an element; ``elements``, weights and accumulators; ``increments``, updates and their "
        "noise.",
    )
    o = Output(
        lambda self: stream_of(
            data.StructLayout(
                {
                    "elements": data.ArrayLayout(self.widths.element, self.lanes),
                    "refused": self.lanes,
                    "vanished": self.lanes,
                    "need": self.widths.growth_max,
                }
            )
        ),
        "``elements``, the new ones; those of lanes that are not active mean nothing. ``refused``, ``vanished``: a "
        "bit per lane. ``need``: bit k, that the block must grow by more than k for this beat.",
    )

    def __init__(self, widths: LazyWidths, lanes: int):
        check_lanes(lanes)
        self.widths = widths
        self.lanes = lanes
        super().__init__()

    @property
    def LATENCY(self):
        """Cycles from a beat to its result: one more than a lane, for the exponents."""
        return 1 + UpdateLane.latency(self.widths)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        moves = Signal()
        m.d.comb += [moves.eq(self.o.ready | ~self.o.valid), self.i.ready.eq(moves)]
        m.submodules.pipe = EnableInserter(moves)(self._pipe())
        return m

    def _pipe(self):
        """Everything that stands still while the receiver does."""
        m = Module()
        beat, widths, wait = self.i.p, self.widths, 1 + UpdateLane.WAIT
        m.d.comb += self.o.valid.eq(delay(m, self.i.valid, self.LATENCY, "valid", reset_less=False))
        coarser = beat.coarser if widths.coarser_max else 0
        raw = register(m, raw_places(widths, beat.exp, beat.change_exp, coarser), "raw")
        places = register(m, limited_places(widths, raw), "places")
        limit = delay(m, growth_limit(widths, beat.exp), wait, "limit")
        lifts = delay(m, coarser, wait, "coarser") if widths.coarser_max else None
        needs = []
        for k in range(self.lanes):
            m.submodules[f"lane{k}"] = lane = UpdateLane(widths)
            if widths.coarser_max:
                m.d.comb += lane.coarser.eq(lifts)
            for name in widths.increment.members:
                m.d.comb += getattr(lane, name).eq(register(m, beat.increments[k][name], f"{name}_{k}"))
            for name in widths.element.members:
                m.d.comb += getattr(lane, name).eq(delay(m, beat.elements[k][name], wait, f"{name}_{k}"))
                m.d.comb += self.o.p.elements[k][name].eq(getattr(lane, f"o_{name}"))
            m.d.comb += [
                lane.active.eq(register(m, beat.active[k], f"active_{k}")),
                lane.places.eq(places),
                lane.limit.eq(limit),
                self.o.p.refused[k].eq(lane.refused),
                self.o.p.vanished[k].eq(lane.vanished),
            ]
            needs.append(lane.need)
        m.d.comb += self.o.p.need.eq(reduce(or_, needs))
        return m
