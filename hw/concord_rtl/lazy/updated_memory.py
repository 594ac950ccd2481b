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


class UpdatedMemory(wiring.Component):
    """Weights and accumulators in block RAM, the updater of their blocks, and a port for whoever else uses them.

    Does not arbitrate: while ``host.sel`` is set the memory is the host's, and no command may be under way. A word per
    cycle, ``LATENCY`` cycles after its address.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    lanes, depth : int
        Elements of a word, a power of two, and words, at least 2.

    Members
    -------
    command, increments, result : streams
        As of :class:`concord_rtl.lazy.block_updater.BlockUpdater`.
    host.sel : In(1)
        The host has the memory in this cycle.
    host.addr, host.en, host.w_data : In
        Word wanted; a bit per element to write, and what to write.
    host.data : Out
        The word.
    """

    host: Any

    LATENCY = VectorMemory.LATENCY

    def __init__(self, widths: LazyWidths, lanes: int, depth: int):
        self.updater = BlockUpdater(widths, lanes, depth, self.LATENCY)
        self.widths = widths
        self.lanes = lanes
        self.depth = depth
        elements = word(widths, lanes)
        host = {
            "sel": Out(1),
            "addr": Out(range(depth)),
            "en": Out(lanes),
            "w_data": Out(elements),
            "data": In(elements),
        }
        streams = {name: self.updater.signature.members[name] for name in ("command", "increments", "result")}
        super().__init__({**streams, "host": In(wiring.Signature(host))})

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
