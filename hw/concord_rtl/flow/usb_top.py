"""The NPU with a USB port, as it is simulated: no other pins than those of the line."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.operations import Op
from concord_rtl.core.top import NpuTop
from concord_rtl.dram.pins import sdram_port
from concord_rtl.link.usb_port import UsbPort
from concord_rtl.parts.component import Input, NpuUnit, Output


class UsbNpu(NpuUnit):
    """The NPU and its USB port. The domains ``sync``, ``usb`` and ``usb_io`` come from outside.

    Parameters
    ----------
    config : NpuConfig
    """

    d_p = Input(1, "Pin D+.")
    d_n = Input(1, "Pin D-.")
    d_p_o = Output(1, "What D+ is driven to.")
    d_n_o = Output(1, "What D- is driven to.")
    oe = Output(1, "Both pins are driven.")
    pullup = Output(1, "The resistor at D+ that says that there is a device.")
    sdram = sdram_port()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.npu = npu = NpuTop(self.config)
        m.submodules.port = port = UsbPort()
        wiring.connect(m, port.o, npu.rx)
        wiring.connect(m, npu.tx, port.i)
        if self.config.has(Op.COPY):
            wiring.connect(m, npu.sdram, wiring.flipped(self.sdram))
        m.d.comb += [
            port.d_p.eq(self.d_p),
            port.d_n.eq(self.d_n),
            self.d_p_o.eq(port.d_p_o),
            self.d_n_o.eq(port.d_n_o),
            self.oe.eq(port.oe),
            self.pullup.eq(port.pullup),
        ]
        return m
