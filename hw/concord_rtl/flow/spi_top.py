"""The NPU as the slave of a host with the clock, as it is simulated: no other pins than those of SPI."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.operations import Op
from concord_rtl.core.top import NpuTop
from concord_rtl.dram.pins import sdram_port
from concord_rtl.link.spi_slave import SpiSlave
from concord_rtl.parts.component import Input, NpuUnit, Output


class SpiNpu(NpuUnit):
    """The NPU and its slave.

    Parameters
    ----------
    config : NpuConfig
    """

    sck = Input(1, "As of :class:`concord_rtl.link.spi_slave.SpiSlave`.")
    csn = Input(1, "Likewise.", init=1)
    copi = Input(1, "Likewise.")
    cipo = Output(1, "Likewise.")
    dropped = Output(1, "Likewise.")
    sdram = sdram_port()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.npu = npu = NpuTop(self.config)
        m.submodules.slave = slave = SpiSlave()
        wiring.connect(m, slave.o, npu.rx)
        wiring.connect(m, npu.tx, slave.i)
        if self.config.has(Op.COPY):
            wiring.connect(m, npu.sdram, wiring.flipped(self.sdram))
        m.d.comb += [slave.sck.eq(self.sck), slave.csn.eq(self.csn), slave.copi.eq(self.copi)]
        m.d.comb += [self.cipo.eq(slave.cipo), self.dropped.eq(slave.dropped)]
        return m
