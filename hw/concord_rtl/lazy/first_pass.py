"""The update itself, over a memory."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import *
from amaranth.lib import data

from concord_rtl.lazy.block_tally import BlockTally
from concord_rtl.lazy.ports import read_port, write_port
from concord_rtl.lazy.steps import growth_limit, limited_places, raw_places
from concord_rtl.lazy.update_lane import UpdateLane
from concord_rtl.lazy.widths import EXPONENT, LazyWidths
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay, register


class FirstPass(Component):
    """Reads words, updates their elements and writes them back; sums up what has come of each block.

    Does not stall. One word per cycle; a word is written ``LATENCY`` cycles after its increments came. The next block
    may follow at once, as it shares no words with the one before.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    lanes, depth, read_latency : int
        Elements of a word, words of the memory, cycles from an address to its word.
    """

    step = Input(1, "A word is to be updated.")
    addr = Input(lambda self: range(self.depth), "Address of the word.")
    increments = Input(lambda self: data.ArrayLayout(self.widths.increment, self.lanes), "Its updates.")
    active = Input(lambda self: self.lanes, "Lanes with elements.")
    last = Input(1, "It is the last word of its block.")
    exp = Input(EXPONENT, "Exponent of the block.")
    raw = Input(
        lambda self: raw_places(self.widths, Signal(EXPONENT), Signal(EXPONENT)).shape(),
        "Places by which updates are shifted (:func:`concord_rtl.lazy.steps.raw_places`).",
    )
    read = Output(read_port, "Read port of the memory.")
    write = Output(write_port, "Write port of the memory.")
    idle = Output(1, "Nothing is under way.")
    done = Output(1, "Strobe: the last word of a block has been written; the next three belong to this block.")
    refused = Output(lambda self: range(self._most + 1), "Number of refused elements of the block.")
    vanished = Output(lambda self: range(self._most + 1), "Number of vanished elements of the block.")
    need = Output(
        lambda self: self.widths.growth_max, "Bit k: a weight of the block is out of range if the block grows by k."
    )

    def __init__(self, widths: LazyWidths, lanes: int, depth: int, read_latency: int):
        self.widths = widths
        self.lanes = lanes
        self.read_latency = read_latency
        self.depth = depth
        self._most = depth * lanes
        super().__init__()

    @property
    def _wait(self):
        """Cycles by which increments wait for a memory that is slower than they are."""
        return max(0, self.read_latency - UpdateLane.WAIT)

    @classmethod
    def latency(cls, widths: LazyWidths, read_latency: int) -> int:
        """``LATENCY`` with some formats and a memory."""
        return max(0, read_latency - UpdateLane.WAIT) + UpdateLane.latency(widths)

    @property
    def LATENCY(self):
        """Cycles from increments to the write of their word."""
        return self.latency(self.widths, self.read_latency)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        flight = Signal(self.LATENCY)
        m.d.sync += flight.eq(Cat(self.step, flight[:-1]))
        before_read = self._wait + UpdateLane.WAIT - self.read_latency
        addr = delay(m, self.addr, before_read, "addr")
        active = delay(m, self.active, self.LATENCY, "active")
        m.d.comb += [
            self.idle.eq(~flight.any()),
            self.read.addr.eq(addr),
            self.write.en.eq(active & flight[-1].replicate(self.lanes)),
            self.write.addr.eq(delay(m, addr, self.LATENCY - before_read, "w_addr")),
            self.write.exp.eq(delay(m, self.exp, self.LATENCY, "exp")),
        ]
        m.submodules.tally = tally = BlockTally(self.lanes, self._most, self.widths.growth_max)
        m.d.comb += [tally.valid.eq(flight[-1]), tally.last.eq(delay(m, self.last, self.LATENCY, "last"))]
        self._lanes(m, tally)
        m.d.comb += [
            self.done.eq(tally.done),
            self.refused.eq(tally.o_refused),
            self.vanished.eq(tally.o_vanished),
            self.need.eq(tally.o_need),
        ]
        return m

    def _lanes(self, m, tally):
        widths, wait = self.widths, self._wait
        places = delay(m, register(m, limited_places(widths, self.raw), "places"), wait, "places_late")
        limit = delay(m, growth_limit(widths, self.exp), wait + UpdateLane.WAIT, "limit")
        active = delay(m, self.active, wait, "active_early")
        needs = []
        for k in range(self.lanes):
            m.submodules[f"lane{k}"] = lane = UpdateLane(widths)
            for name in widths.increment.members:
                m.d.comb += getattr(lane, name).eq(delay(m, self.increments[k][name], wait, f"{name}_{k}"))
            for name in widths.element.members:
                m.d.comb += getattr(lane, name).eq(self.read.data[k][name])
                m.d.comb += self.write.data[k][name].eq(getattr(lane, f"o_{name}"))
            m.d.comb += [lane.active.eq(active[k]), lane.places.eq(places), lane.limit.eq(limit)]
            m.d.comb += [tally.refused[k].eq(lane.refused), tally.vanished[k].eq(lane.vanished)]
            needs.append(lane.need)
        m.d.comb += tally.need.eq(reduce(or_, needs))
