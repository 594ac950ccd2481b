"""Memory for element-serial configurations: whole words are read, columns of them are written."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord_rtl.parts.component import Component, Input


class ColumnMemory(Component):
    """Words of several columns in block RAM without output registers: one read port, one write port.

    Does not forward: a read in the cycle of a write to the same address gives an undefined word. Data appears
    ``LATENCY`` cycle after its address, one word per cycle, and a write is seen by reads from the next cycle on.

    Parameters
    ----------
    columns : list of int
        Bits of each column, the least significant first.
    depth : int
        Number of words.
    init : list
        Initial words, as integers; zeros beyond its end.
    """

    read = Input(
        lambda self: wiring.Signature({"addr": Out(range(self.depth)), "data": In(sum(self.columns))}),
        "Address, and the word ``LATENCY`` cycle later.",
    )
    write = Input(
        lambda self: wiring.Signature(
            {"en": Out(len(self.columns)), "addr": Out(range(self.depth)), "data": Out(sum(self.columns))}
        ),
        "Writes the columns of ``data`` whose bit of ``en`` is set at the edge.",
    )

    LATENCY = timing.COLUMN_MEMORY

    def __init__(self, columns, depth, init=()):
        if len(init) > depth:
            raise ValueError(f"init must have at most depth={depth} words, not {len(init)}")
        self.columns = list(columns)
        self.depth = depth
        self.init = [int(word) for word in init]
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        at = 0
        for k, width in enumerate(self.columns):
            column = slice(at, at + width)
            init = [word >> at & (1 << width) - 1 for word in self.init]
            m.submodules[f"store{k}"] = store = memory.Memory(
                shape=unsigned(width), depth=self.depth, init=init, attrs={"ram_style": "block"}
            )
            read, write = store.read_port(), store.write_port()
            m.d.comb += [
                read.addr.eq(self.read.addr),
                self.read.data[column].eq(read.data),
                write.en.eq(self.write.en[k]),
                write.addr.eq(self.write.addr),
                write.data.eq(self.write.data[column]),
            ]
            at += width
        return m
