"""Growth of the exponent of a stream of weights."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.parts.stages import delay
from concord_rtl.pipe.integers.lazy.growth_lane import GrowthLane
from concord_rtl.pipe.integers.lazy.lazy_update import check_lanes
from concord_rtl.pipe.integers.lazy.widths import LazyWidths


class LazyGrowth(Component):
    """Second pass of the lazy update, over the blocks whose exponent grows.

    One beat per cycle, ``LATENCY`` cycles later.

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
                    "places": range(self.widths.growth_max + 1),
                    **self.widths.coarser,
                    "elements": data.ArrayLayout(self.widths.element, self.lanes),
                }
            )
        ),
        "A beat: ``places``, by how much the exponent of its block grows; ``coarser``, as in the first pass; "
        "``elements``, as they come from :class:`concord_rtl.pipe.integers.lazy.lazy_update.LazyUpdate`.",
    )
    o = Output(
        lambda self: stream_of(data.ArrayLayout(self.widths.element, self.lanes)),
        "Elements in units of the new exponent.",
    )

    LATENCY = GrowthLane.LATENCY

    def __init__(self, widths: LazyWidths, lanes: int):
        check_lanes(lanes)
        self.widths = widths
        self.lanes = lanes
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        moves = Signal()
        m.d.comb += [moves.eq(self.o.ready | ~self.o.valid), self.i.ready.eq(moves)]
        inner = Module()
        m.submodules.pipe = EnableInserter(moves)(inner)
        inner.d.comb += self.o.valid.eq(delay(inner, self.i.valid, self.LATENCY, "valid", reset_less=False))
        for k in range(self.lanes):
            inner.submodules[f"lane{k}"] = lane = GrowthLane(self.widths)
            inner.d.comb += [getattr(lane, name).eq(self.i.p[name]) for name in ("places", *self.widths.coarser)]
            for name in self.widths.element.members:
                inner.d.comb += getattr(lane, name).eq(self.i.p.elements[k][name])
                inner.d.comb += self.o.p[k][name].eq(getattr(lane, f"o_{name}"))
        return m
