"""The end of a vector in an element-serial configuration: its elements wait until its exponent is known."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.formats import BINARY16_WIDTH, ExponentMode
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, is_special
from concord_rtl.arith.block_float import BLOCK, FIELD_BITS, activations, finite
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.control import QUANT_CTRL
from concord_rtl.parts.stages import Stages


class VectorEnd(NpuUnit):
    """Stores the elements of a vector, and gives them back with their codes.

    Parameters
    ----------
    config : NpuConfig
    """

    element = Input(lambda self: range(self.config.native), "Number of the element.")
    en = Input(1, "Store ``i``; elements are stored in order.")
    i = Input(BINARY16_WIDTH, "Element.")
    ctrl = Input(QUANT_CTRL, "Conversion, held while codes are wanted.")
    wide = Output(BINARY16_WIDTH, "The element, one cycle after its number.")
    code = Output(lambda self: activations(self.config).code, "Its mantissa, ``LATENCY`` cycles after its number.")
    exp = Output(lambda self: activations(self.config).exp, "Exponent of the block, likewise.")
    saturated = Output(1, "The mantissa was limited with a static exponent, likewise.")
    wild = Output(1, "The element was not finite, likewise.")

    LATENCY = timing.SERIAL_VECTOR_END

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        stage = Stages(m, held=True)
        config, narrow = self.config, activations(self.config)
        m.submodules.elements = elements = ColumnMemory([BINARY16_WIDTH], config.native)
        m.d.comb += [
            elements.read.addr.eq(self.element),
            elements.write.addr.eq(self.element),
            elements.write.en.eq(self.en),
            elements.write.data.eq(self.i),
            self.wide.eq(elements.read.data),
        ]
        peak, field = Signal(FIELD_BITS), finite(self.i)[FRACTION:MAGNITUDE]
        before = Mux(self.element == 0, config.act_exp_min + narrow.offset, peak)
        with m.If(self.en):
            m.d.sync += peak.eq(Mux(before < field, field, before))

        block: Any = Signal(BLOCK)
        static = self.ctrl.mode == ExponentMode.STATIC
        m.d.comb += [
            block.base.eq(Mux(static, self.ctrl.exp + narrow.offset, peak)),
            block.static.eq(static),
            block.rounding.eq(self.ctrl.rounding),
            self.wild.eq(is_special(self.wide)),
            self.exp.eq(block.base - narrow.offset),
        ]
        value = Signal(BINARY16_WIDTH)
        m.d.comb += value.eq(finite(self.wide))
        outside, code = narrow.convert(stage, 0, value, [block] * timing.CONVERT, Const(0))
        m.d.comb += [self.saturated.eq(outside & static), self.code.eq(code)]
        return m
