"""Accesses of the host to the external memory."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.dram.native_port import NativePort
from concord_rtl.parts.component import Input, NpuUnit, Output


class DramAccess(NpuUnit):
    """Reads or writes one column at a time, and holds up the access until it is done.

    A memory that does not work takes no writes, and any column reads as what was read last.

    Parameters
    ----------
    config : NpuConfig
        Has an external memory.
    """

    chosen = Input(1, "An access goes on: address, direction and word stay until it is over.")
    we = Input(1, "It is a write.")
    addr = Input(lambda self: self.config.sdram.address_bits, "Column.")
    w_data = Input(lambda self: self.config.sdram.width, "Word of a write.")
    r_data = Output(lambda self: self.config.sdram.width, "Word that was read, from ``done`` on.")
    done = Output(1, "The access is done.")
    broken = Input(1, "The memory does not work.")
    port = Output(lambda self: NativePort(self.config.sdram), "The external memory.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        port = self.port
        m.d.comb += [
            port.cmd.p.addr.eq(self.addr),
            port.cmd.p.we.eq(self.we),
            port.wdata.p.data.eq(self.w_data),
            port.wdata.p.we.eq(~0),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.chosen & self.broken):
                    m.next = "DONE"
                with m.Elif(self.chosen):
                    m.d.comb += port.cmd.valid.eq(1)
                    with m.If(port.cmd.ready):
                        m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += port.wdata.valid.eq(self.we)
                with m.If(Mux(self.we, port.wdata.ready, port.rdata.valid)):
                    m.d.sync += self.r_data.eq(port.rdata.payload)
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                with m.If(~self.chosen):
                    m.next = "IDLE"
        return m
