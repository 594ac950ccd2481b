"""The end of a vector in an element-serial configuration: its elements wait until its exponent is known."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH, ExponentMode
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, is_special
from concord_rtl.arith.block_float import BLOCK, FIELD_BITS, activations, finite
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.parts.control import QUANT_CTRL
from concord_rtl.parts.stages import Stages


class VectorEnd(wiring.Component):
    """Stores the elements of a vector, and gives them back with their codes.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    element : In(range(native))
        Number of the element.
    en, i : In
        Store ``i``; elements are stored in order.
    ctrl : In(QUANT_CTRL)
        Conversion, held while codes are wanted.
    wide : Out(16)
        The element, one cycle after its number.
    code, exp : Out
        Its mantissa and the exponent of the block, ``LATENCY`` cycles after its number.
    saturated, wild : Out(1)
        Likewise: the mantissa was limited with a static exponent; the element was not finite.
    """

    element: Signal
    en: Signal
    i: Signal
    ctrl: Any
    wide: Signal
    code: Signal
    exp: Signal
    saturated: Signal
    wild: Signal

    LATENCY = timing.SERIAL_VECTOR_END

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "element": In(range(config.native)),
                "en": In(1),
                "i": In(BINARY16_WIDTH),
                "ctrl": In(QUANT_CTRL),
                "wide": Out(BINARY16_WIDTH),
                "code": Out(activations(config).code),
                "exp": Out(activations(config).exp),
                "saturated": Out(1),
                "wild": Out(1),
            }
        )

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
