"""Memory of weights and accumulators that are updated where they are."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.lazy.block_updater import BlockUpdater
from concord_rtl.lazy.ports import word
from concord_rtl.lazy.widths import LazyWidths
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class UpdatedMemory(Component):
    """Weights and accumulators in block RAM, the updater of their blocks, and a port for whoever else uses them.

    Does not arbitrate: while ``host.sel`` is set the memory is the host's, and no command may be under way. A word per
    cycle, ``LATENCY`` cycles after its address.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    lanes, depth : int
        Elements of a word, a power of two, and words, at least 2.
    """

    command = Input(lambda self: stream_of(self.updater.command.p.shape()), "As ``command`` of :class:`BlockUpdater`.")
    increments = Input(
        lambda self: stream_of(self.updater.increments.p.shape()), "As ``increments`` of :class:`BlockUpdater`."
    )
    result = Output(lambda self: stream_of(self.updater.result.p.shape()), "As ``result`` of :class:`BlockUpdater`.")
    host = Input(
        lambda self: wiring.Signature(
            {
                "sel": Out(1),
                "addr": Out(range(self.depth)),
                "en": Out(self.lanes),
                "w_data": Out(word(self.widths, self.lanes)),
                "data": In(word(self.widths, self.lanes)),
            }
        ),
        "Port for whoever else uses the memory. ``sel``: it is the host's in this cycle; ``addr``: word wanted; "
        "``en``: a bit per element to write; ``w_data``: what to write; ``data``: the word.",
    )

    LATENCY = VectorMemory.LATENCY

    def __init__(self, widths: LazyWidths, lanes: int, depth: int):
        self.updater = BlockUpdater(widths, lanes, depth, self.LATENCY)
        self.widths = widths
        self.lanes = lanes
        self.depth = depth
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.updater = updater = self.updater
        for name in ("command", "increments", "result"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(updater, name))
        host, write = self.host, updater.write
        for k in range(self.lanes):
            m.submodules[f"lane{k}"] = memory = VectorMemory(self.widths.element, self.depth)
            m.d.comb += [
                memory.read.addr.eq(Mux(host.sel, host.addr, updater.read.addr)),
                memory.write.addr.eq(Mux(host.sel, host.addr, write.addr)),
                memory.write.en.eq(Mux(host.sel, host.en[k], write.en[k])),
                memory.write.data.eq(Mux(host.sel, host.w_data[k].as_value(), write.data[k].as_value())),
                updater.read.data[k].eq(memory.read.data),
                host.data[k].eq(memory.read.data),
            ]
        return m
