"""Matrix memory of element-serial configurations: two rows of a word at a time."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import SERIAL_ROWS, NpuConfig, clog2
from concord_rtl.arith.block_float import weights
from concord_rtl.cells.spram import Spram
from concord_rtl.families import primitives_of
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.memories.row_access import RowAccess
from concord_rtl.parts.component import Component, Input


class RowMemory(Component):
    """Rows of L mantissas and an exponent, in the order of the matrix region of the memory map.

    Does not arbitrate: while ``host.sel`` is set the address of the host is used. Two neighbouring rows per cycle,
    ``LATENCY`` cycle after their address. On a device with single-port memories (SPRAM) all is in them if it fits;
    they cannot be initialised.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    init : list
        Initial rows.
    """

    read = Input(
        lambda self: wiring.Signature(
            {"addr": Out(range(self.depth)), "data": In(data.ArrayLayout(weights(self.config).word, SERIAL_ROWS))}
        ),
        "``addr``: address of a pair of rows; ``data``: the rows.",
    )
    host = Input(lambda self: RowAccess(self.config, waits=False), "Port of the host.")

    LATENCY = 1
    HOST_LATENCY = LATENCY

    def __init__(self, config: NpuConfig, init=()):
        self.config = config
        self.depth = config.matrix_depth * config.rows // SERIAL_ROWS
        self.init = [int(row) for row in init]
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        width = self.config.matrix_row.width
        blocks = -(-width // Spram.WIDTH)
        in_spram = SERIAL_ROWS * blocks <= primitives_of(platform).single_port_rams and self.depth <= Spram.DEPTH
        if in_spram and self.init:
            raise ValueError("init must be empty in SPRAM, which cannot be initialised: load it over the link")
        m = Module()
        addr = Signal(range(self.depth))
        chosen = self.host.row[: clog2(SERIAL_ROWS)]
        m.d.comb += [
            addr.eq(Mux(self.host.sel, Cat(self.host.row[len(chosen) :], self.host.addr), self.read.addr)),
            self.host.data.eq(self.read.data.as_value().word_select(chosen, width)),
        ]
        for k in range(SERIAL_ROWS):
            enable = self.host.sel & self.host.en & (chosen == k)
            row = self.read.data[k].as_value()
            if in_spram:
                self._in_spram(m, k, addr, enable, row)
            else:
                init = self.init[k::SERIAL_ROWS]
                m.submodules[f"rows{k}"] = rows = ColumnMemory([width], self.depth, init)
                m.d.comb += [
                    rows.read.addr.eq(addr),
                    rows.write.addr.eq(addr),
                    rows.write.en.eq(enable),
                    rows.write.data.eq(self.host.w_data),
                    row.eq(rows.read.data),
                ]
        return m

    def _in_spram(self, m, k, addr, enable, row):
        """Rows whose number is ``k`` more than a multiple of those read at a time."""
        width = len(row)
        for block, start in enumerate(range(0, width, Spram.WIDTH)):
            part = slice(start, min(width, start + Spram.WIDTH))
            m.submodules[f"spram{k}_{block}"] = ram = Spram(registered=False)
            m.d.comb += [
                ram.addr.eq(addr),
                ram.w_en.eq(enable),
                ram.w_data.eq(self.host.w_data[part]),
                row[part].eq(ram.data),
            ]
