"""Matrix memory: all rows of a word at once for the tile engines, one row at a time for the host."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.multipliers import paired
from concord_rtl.arith.helpers import delay
from concord_rtl.block_float import weights
from concord_rtl.families import primitives_of
from concord_rtl.kept_register import KeptRegister
from concord_rtl.memories.spram import Spram
from concord_rtl.memories.vector_memory import VectorMemory


class MatrixMemory(wiring.Component):
    """Words of T*N rows: L mantissas and an exponent each.

    Does not arbitrate: while ``host.sel`` is set the address of the host is used and ``read.data`` belongs to the host.
    One word per cycle, ``LATENCY`` cycles after its address; one row for the host, ``HOST_LATENCY`` cycles after its
    address. A read of the host directly after a write gives the new row.

    On a device with single-port memories (SPRAM) the mantissas are put into them as far as they go; they cannot be
    initialised.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    init : list
        Rows as in the matrix region of the memory map: address = word * T*N + row.

    Members
    -------
    read.addr : In(range(matrix_depth))
        Word address of the tile engines.
    read.data : Out(ArrayLayout(matrix_row, T*N))
        The word; anything while the host has the memory.
    host.sel : In(1)
        The host has the memory in this cycle.
    host.addr, host.row : In
        Word and row the host wants.
    host.en : In(1)
        Write ``host.w_data`` to the row; only with ``host.sel``.
    host.w_data : In(matrix_row.width)
        Row to write.
    host.data : Out(matrix_row.width)
        Row read.
    """

    read: Any
    host: Any

    #: The block RAMs are all over the device: requests are registered twice on their way, per group and per row.
    LATENCY = 2 + VectorMemory.LATENCY
    #: Rows that share a register on the way to them, and that are merged in one cycle on the way to the host.
    GROUP = 4

    def __init__(self, config: NpuConfig, init=()):
        self.config = config
        self.init = [int(row) for row in init]
        if len(self.init) > config.matrix_depth * config.rows:
            raise ValueError(f"init must have at most {config.matrix_depth * config.rows} rows, not {len(self.init)}")
        addr = range(config.matrix_depth)
        width = config.matrix_row.width
        word = data.ArrayLayout(weights(config).word, config.rows)
        host = {
            "sel": Out(1),
            "addr": Out(addr),
            "row": Out(range(config.rows)),
            "en": Out(1),
            "w_data": Out(width),
            "data": In(width),
        }
        super().__init__(
            {
                "read": In(wiring.Signature({"addr": Out(addr), "data": In(word)})),
                "host": In(wiring.Signature(host)),
            }
        )

    @property
    def together(self) -> int:
        """Rows that are side by side on the device: they share their requests, and meet on the way to the host."""
        return 2 if paired(self.config) else 1

    @property
    def HOST_LATENCY(self) -> int:
        """Cycles from the address to the row for the host."""
        levels, rows = self.together - 1, self.config.rows // self.together
        while rows > 1:
            levels, rows = levels + 1, -(-rows // self.GROUP)
        return self.LATENCY + levels

    def elaborate(self, platform: Any) -> Module:
        spare = primitives_of(platform).single_port_rams if self.config.matrix_depth <= Spram.DEPTH else 0
        if spare and self.init:
            raise ValueError("init must be empty in SPRAM, which cannot be initialised: load it over the link")
        m = Module()
        # Rows that meet on the way to the host are gated there, so that nothing stands before the multipliers.
        gates = self.together > 1
        words: list[Value] = []
        addr = Mux(self.host.sel, self.host.addr, self.read.addr)
        for first in range(0, self.config.rows, self.GROUP):
            rows = range(first, min(first + self.GROUP, self.config.rows))
            mine = Cat(self.host.row == row for row in rows)
            to_read = mine | (~self.host.sel).replicate(len(rows))
            to_write = mine & (self.host.sel & self.host.en).replicate(len(rows))
            common = Cat(addr, self.host.w_data)
            group = self._kept(m, f"group{first}", Cat(common, to_read, to_write))
            enables = group[len(common) :]
            for k in range(0, len(rows), self.together):
                own = enables[k : k + self.together], enables[len(rows) + k :][: self.together]
                request = self._kept(m, f"request{rows[k]}", Cat(group[: len(common)], *own))
                for n, row in enumerate(rows[k : k + self.together]):
                    r_en, w_en = request[len(common) :][n :: self.together]
                    read_here = Const(1) if gates else r_en
                    spare -= self._row(m, row, Cat(request[: len(common)], read_here, w_en), spare)
                    words.append(self._gated(m, row, r_en) if gates else self.read.data[row].as_value())
        self._collect(m, words, gates)
        return m

    def _gated(self, m, row, r_en) -> Value:
        """The word of a row for the host, zero if not ``r_en`` at its address."""
        return Mux(delay(m, r_en, VectorMemory.LATENCY, f"enabled{row}"), self.read.data[row].as_value(), 0)

    @staticmethod
    def _kept(m, name, value) -> Value:
        m.submodules[name] = register = KeptRegister(len(value))
        m.d.comb += register.i.eq(value)
        return register.o

    def _collect(self, m, words, gates):
        """Reading for the host, all rows but one are zero: OR them, a register per level."""
        while len(words) > 1:
            size = self.together if gates and len(words) == self.config.rows else self.GROUP
            groups = [words[k : k + size] for k in range(0, len(words), size)]
            words = [Signal.like(self.host.data, name=f"of{len(groups)}_{k}") for k in range(len(groups))]
            m.d.sync += [word.eq(reduce(or_, group)) for word, group in zip(words, groups, strict=True)]
        m.d.comb += self.host.data.eq(words[0])

    def _row(self, m, row, request, spare) -> int:
        """Build the memory of one row with at most ``spare`` SPRAMs; return how many it took."""
        width, bits = self.config.matrix_row.width, len(self.read.addr)
        addr, w_data = request[:bits], request[bits : bits + width]
        r_en, w_en = request[bits + width :]
        blocks = min(spare, width // Spram.WIDTH)
        out = []
        for k in range(blocks):
            m.submodules[f"row{row}_{k}"] = ram = Spram()
            piece = w_data.word_select(k, Spram.WIDTH)
            m.d.comb += [ram.addr.eq(addr), ram.r_en.eq(r_en), ram.w_en.eq(w_en), ram.w_data.eq(piece)]
            out.append(ram.data)
        if rest := width - blocks * Spram.WIDTH:
            init = self.init[row :: self.config.rows]
            m.submodules[f"row{row}"] = rows = VectorMemory(rest, self.config.matrix_depth, init)
            m.d.comb += [
                rows.read.addr.eq(addr),
                rows.write.addr.eq(addr),
                rows.read.en.eq(r_en),
                rows.write.en.eq(w_en),
                rows.write.data.eq(w_data[blocks * Spram.WIDTH :]),
            ]
            out.append(rows.read.data)
        m.d.comb += self.read.data[row].as_value().eq(Cat(out))
        return blocks
