"""The external memory of a core: the SDRAM for the host and for copies."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.config import NpuConfig
from concord_rtl.dram.copy_engine import CopyEngine
from concord_rtl.dram.copy_port import CopyPort
from concord_rtl.dram.host_access import DramAccess
from concord_rtl.dram.memory import SdramMemory
from concord_rtl.dram.pins import SdramPort
from concord_rtl.dram.status import DramStatus
from concord_rtl.memories.row_write import RowWrite
from concord_rtl.memories.vector_access import VectorAccess
from concord_rtl.parts.component import Component, Input, Output


class ExternalMemory(Component):
    """SDRAM with accesses of the host while no program runs, and copies of rows to the matrix memory and of vectors.

    Parameters
    ----------
    config : NpuConfig
        Has an external memory.
    phases : int
        As of :class:`~concord_rtl.dram.memory.SdramMemory`, at most ``2**(PHASE_BITS - 1)``.
    """

    copies = Input(CopyPort(), "Copies from the sequencer.")
    write = Output(lambda self: RowWrite(self.config), "Rows for the matrix memory.")
    access = Output(lambda self: VectorAccess(self.config), "The vector memories.")
    chosen = Input(1, "The host accesses a column: address, direction and word stay until that is over.")
    we = Input(1, "It writes.")
    addr = Input(lambda self: self.config.sdram.address_bits, "Column.")
    w_data = Input(lambda self: self.config.sdram.width, "Word of a write.")
    r_data = Output(lambda self: self.config.sdram.width, "Word that was read, from ``done`` on.")
    done = Output(1, "The access is done.")
    sdram = Output(lambda self: SdramPort(self.config.sdram), "Pins and clock of the memory.")
    status = Output(DramStatus(), "State of the memory.")

    def __init__(self, config: NpuConfig, phases: int):
        self.config, self.phases = config, phases
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        m.submodules.memory = memory = SdramMemory(config.sdram, config.sdram_timing, self.phases)
        m.submodules.engine = engine = CopyEngine(config)
        m.submodules.access = access = DramAccess(config)
        wiring.connect(m, memory.pins, wiring.flipped(self.sdram.pins))
        wiring.connect(m, memory.step, wiring.flipped(self.sdram.step))
        wiring.connect(m, wiring.flipped(self.copies), engine.copies)
        wiring.connect(m, engine.write, wiring.flipped(self.write))
        wiring.connect(m, engine.access, wiring.flipped(self.access))
        m.d.comb += [
            memory.restart.eq(engine.restart),
            access.broken.eq(~memory.busy & ~memory.works),
            engine.works.eq(memory.works),
            self.status.searching.eq(memory.busy),
            self.status.written.eq(self.chosen & self.we),
            *(getattr(access, name).eq(getattr(self, name)) for name in ("chosen", "we", "addr", "w_data")),
            *(getattr(self, name).eq(getattr(access, name)) for name in ("r_data", "done")),
            *(getattr(self.status, name).eq(getattr(memory, name)) for name in ("works", "late", "phase", "width")),
        ]
        copying = engine.copies.busy
        for requester, granted in ((engine.port, copying), (access.port, ~copying)):
            m.d.comb += [
                requester.cmd.ready.eq(memory.port.cmd.ready & granted),
                requester.wdata.ready.eq(memory.port.wdata.ready & granted),
                requester.rdata.payload.eq(memory.port.rdata.payload),
                requester.rdata.valid.eq(memory.port.rdata.valid & granted),
            ]
        for name in ("cmd", "wdata"):
            ours, copied, host = (getattr(unit.port, name) for unit in (memory, engine, access))
            m.d.comb += [
                ours.valid.eq(Mux(copying, copied.valid, host.valid)),
                ours.p.eq(Mux(copying, copied.p, host.p)),
            ]
        return m
