"""Matrix memory of element-serial configurations: one row of a word at a time."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord_rtl.block_float import weights
from concord_rtl.families import primitives_of
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.memories.spram import Spram


class RowMemory(wiring.Component):
    """Rows of L mantissas and an exponent, in the order of the matrix region of the memory map.

    Does not arbitrate: while ``host.sel`` is set the address of the host is used. One row per cycle, ``LATENCY``
    cycle after its address. On a device with single-port memories (SPRAM) all is in them if it fits; they cannot
    be initialised.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    init : list
        Initial rows.

    Members
    -------
    read.addr : In(range(matrix_depth * rows))
        Address of a row.
    read.data : Out(matrix_row)
        The row.
    host : In
        As in :class:`concord_rtl.memories.matrix_memory.MatrixMemory`.
    """

    read: Any
    host: Any

    LATENCY = 1
    HOST_LATENCY = LATENCY

    def __init__(self, config: NpuConfig, init=()):
        self.config = config
        self.depth = config.matrix_depth * config.rows
        self.init = [int(row) for row in init]
        width = config.matrix_row.width
        host = {
            "sel": Out(1),
            "addr": Out(range(config.matrix_depth)),
            "row": Out(range(config.rows)),
            "en": Out(1),
            "w_data": Out(width),
            "data": In(width),
        }
        super().__init__(
            {
                "read": In(wiring.Signature({"addr": Out(range(self.depth)), "data": In(weights(config).word)})),
                "host": In(wiring.Signature(host)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        width = self.config.matrix_row.width
        blocks = -(-width // Spram.WIDTH)
        in_spram = blocks <= primitives_of(platform).single_port_rams and self.depth <= Spram.DEPTH
        if in_spram and self.init:
            raise ValueError("init must be empty in SPRAM, which cannot be initialised: load it over the link")
        m = Module()
        addr = Signal(range(self.depth))
        enable = self.host.sel & self.host.en
        m.d.comb += [
            addr.eq(Mux(self.host.sel, Cat(self.host.row, self.host.addr), self.read.addr)),
            self.host.data.eq(self.read.data),
        ]
        if in_spram:
            for k in range(blocks):
                m.submodules[f"spram{k}"] = ram = Spram(registered=False)
                part = slice(k * Spram.WIDTH, min(width, (k + 1) * Spram.WIDTH))
                m.d.comb += [
                    ram.addr.eq(addr),
                    ram.w_en.eq(enable),
                    ram.w_data.eq(self.host.w_data[part]),
                    self.read.data.as_value()[part].eq(ram.data),
                ]
            return m
        m.submodules.rows = rows = ColumnMemory([width], self.depth, self.init)
        m.d.comb += [
            rows.read.addr.eq(addr),
            rows.write.addr.eq(addr),
            rows.write.en.eq(enable),
            rows.write.data.eq(self.host.w_data),
            self.read.data.as_value().eq(rows.read.data),
        ]
        return m
