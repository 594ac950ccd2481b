"""From a block mantissa to binary16."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MIN
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE
from concord_rtl.arith.block_float import activations
from concord_rtl.parts.bits import leading_zeros
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import Stages


class NarrowToBinary16(Component):
    """The number ``mant * 2**exp`` as binary16: exact for every code of an activation format.

    Does not stall, and does not check that ``exp`` is within the format. One number per cycle, ``LATENCY`` cycles
    later.

    Parameters
    ----------
    config : NpuConfig
        Gives the activation format.
    held : bool
        Inputs are held for ``LATENCY`` cycles and until the result has been used.
    """

    mant = Input(lambda self: activations(self.config).code, "Mantissa.")
    exp = Input(lambda self: activations(self.config).exp, "Exponent.")
    o = Output(16, "Result; a mantissa of zero gives +0.")

    LATENCY = timing.NARROW_TO_BINARY16

    def __init__(self, config: NpuConfig, *, held: bool = False):
        self.config = config
        self.held = held
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        stage = Stages(m, held=self.held)
        width = self.config.act_mant - 1
        field_bits = MAGNITUDE - FRACTION
        negative = stage.register(self.mant[-1], "negative")
        positive = (self.mant ^ self.mant[-1].replicate(width + 1)) + self.mant[-1]
        magnitude = stage.register(positive[:width], "magnitude")
        # Zeros that may be shifted out before the number is subnormal; never negative within the format.
        limit = stage.register((self.exp + (width - 1 - BINARY16_EXP_MIN))[:field_bits], "limit")

        zeros = leading_zeros(magnitude)
        count = stage.register(Mux(zeros < limit, zeros, limit)[: len(zeros)], "count")
        magnitude, limit = stage.register(magnitude, "magnitude_2"), stage.register(limit, "limit_2")
        sign = stage.register(stage.register(negative, "negative_2"), "sign")

        shifted = (magnitude << count)[:width]
        field = (limit + 1 - count)[:field_bits] & shifted[width - 1].replicate(field_bits)
        fraction = Cat(Const(0, FRACTION - (width - 1)), shifted[: width - 1])
        m.d.comb += self.o.eq(Cat(stage.register(Cat(fraction, field), "result"), sign))
        return m
