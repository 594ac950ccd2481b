"""Growth of the exponent of a block in a memory."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.lazy.growth_lane import GrowthLane
from concord_rtl.lazy.ports import lanes_in_use, read_port, write_port
from concord_rtl.lazy.widths import EXPONENT, LazyWidths
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay


class SecondPass(Component):
    """Reads the words of one block, moves their elements to a greater exponent and writes them back.

    Does not stall; one word per cycle, written ``LATENCY`` cycles after its address.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    lanes, depth, read_latency : int
        Elements of a word, words of the memory, cycles from an address to its word.
    """

    start = Input(1, "Begin; only while not ``busy``.")
    base = Input(
        lambda self: range(self.depth),
        "First word of the block. Held from ``start`` to the end of ``busy``, as the next three are.",
    )
    final = Input(lambda self: range(self.depth * self.lanes), "Elements of the block less one.")
    places = Input(lambda self: range(self.widths.growth_max + 1), "By how much its exponent grows.")
    exp = Input(EXPONENT, "The new exponent.")
    read = Output(read_port, "Read port of the memory.")
    write = Output(write_port, "Write port of the memory.")
    busy = Output(1, "From the cycle after ``start`` until the last word has been written.")

    def __init__(self, widths: LazyWidths, lanes: int, depth: int, read_latency: int):
        self.widths = widths
        self.lanes = lanes
        self.depth = depth
        self.read_latency = read_latency
        super().__init__()

    @staticmethod
    def latency(read_latency: int) -> int:
        """``LATENCY`` with a memory."""
        return read_latency + GrowthLane.LATENCY

    @property
    def LATENCY(self):
        """Cycles from the address of a word to its write."""
        return self.latency(self.read_latency)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        inner = self.lanes.bit_length() - 1
        walks, addr, left = Signal(), Signal.like(self.base), Signal(len(self.final) - inner)
        with m.If(walks):
            m.d.sync += [addr.eq(addr + 1), left.eq(left - 1), walks.eq(left != 0)]
        with m.If(self.start):
            m.d.sync += [addr.eq(self.base), left.eq(self.final[inner:]), walks.eq(1)]
        flight = Signal(self.LATENCY)
        m.d.sync += flight.eq(Cat(walks, flight[:-1]))
        active = Cat(lanes_in_use(delay(m, left == 0, self.LATENCY, "last"), self.final[:inner], self.lanes))
        m.d.comb += [
            self.busy.eq(walks | flight.any()),
            self.read.addr.eq(addr),
            self.write.en.eq(active & flight[-1].replicate(self.lanes)),
            self.write.addr.eq(delay(m, addr, self.LATENCY, "w_addr")),
            self.write.exp.eq(self.exp),
        ]
        for k in range(self.lanes):
            m.submodules[f"lane{k}"] = lane = GrowthLane(self.widths)
            m.d.comb += lane.places.eq(self.places)
            for name in self.widths.element.members:
                m.d.comb += getattr(lane, name).eq(self.read.data[k][name])
                m.d.comb += self.write.data[k][name].eq(getattr(lane, f"o_{name}"))
        return m
