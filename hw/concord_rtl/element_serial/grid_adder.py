"""Sums of binary16 numbers on the accumulator grid."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_FRAC, BINARY16_INF, BINARY16_NAN, BINARY16_PRECISION, BINARY16_WIDTH
from concord_rtl.arith.acc_to_binary16 import AccToBinary16
from concord_rtl.arith.binary16_fields import MAGNITUDE, exponent, is_nan, is_special, significand
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.control import AddOp


class GridAdder(Component):
    """Sum, difference, maximum or minimum of two binary16 numbers, and the accumulator as binary16.

    Every binary16 number is on the grid of an element-serial configuration, so a sum is two terms in the accumulator,
    exact until it is rounded as every accumulator is. What is not finite is decided here. All inputs are held for
    ``LATENCY`` cycles after both terms are in the accumulator.

    Parameters
    ----------
    config : NpuConfig
    """

    a = Input(BINARY16_WIDTH, "First operand.")
    b = Input(BINARY16_WIDTH, "Second operand.")
    op = Input(AddOp, "Operation, any but ``AddOp.NONE``.")
    second = Input(1, "``term`` is that of ``b``, not that of ``a``.")
    term = Output(signed(BINARY16_PRECISION + 1), "``term << shift`` is to be added to the accumulator.")
    shift = Output(lambda self: range(self.max_shift + 1), "Places by which ``term`` is shifted.")
    acc = Input(lambda self: signed(self.config.acc_bits), "Accumulator.")
    sum = Output(BINARY16_WIDTH, "The accumulator as binary16.")
    acc_overflow = Output(1, "The sum left the accumulator.")
    half_overflow = Output(1, "The sum became infinite.")
    o = Output(BINARY16_WIDTH, "Result of the operation.")
    overflow = Output(1, "Finite operands gave an infinity.")

    LATENCY = AccToBinary16.LATENCY

    def __init__(self, config: NpuConfig):
        self.config = config
        self.max_shift = config.acc_frac - BINARY16_FRAC + 2 ** (MAGNITUDE - BINARY16_PRECISION + 1) - 2
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.convert = convert = AccToBinary16(self.config, held=True)
        m.d.comb += [
            convert.acc.eq(self.acc),
            self.sum.eq(convert.o),
            self.acc_overflow.eq(convert.acc_overflow),
            self.half_overflow.eq(convert.half_overflow),
        ]
        a, b = self.a, self.b
        # Signs of the terms.
        minus_a, minus_b = a[MAGNITUDE] ^ (self.op == AddOp.RSUB), b[MAGNITUDE] ^ (self.op == AddOp.SUB)
        chosen, minus = Signal(MAGNITUDE), Signal()
        m.d.comb += [chosen.eq(Mux(self.second, b, a)), minus.eq(Mux(self.second, minus_b, minus_a))]
        magnitude = significand(chosen)
        m.d.comb += [
            self.term.eq(
                (magnitude ^ minus.replicate(BINARY16_PRECISION)) + Cat(minus) - (minus << BINARY16_PRECISION)
            ),
            self.shift.eq(exponent(chosen) + (self.config.acc_frac - BINARY16_FRAC - 1)),
        ]
        self._result(m, minus_a, minus_b)
        return m

    def _result(self, m, minus_a, minus_b):
        a, b = self.a, self.b
        special = [is_special(x) for x in (a, b)]
        nan = Signal()
        order = (self.op == AddOp.MAX) | (self.op == AddOp.MIN)
        m.d.comb += nan.eq(is_nan(a) | is_nan(b) | (special[0] & special[1] & (minus_a ^ minus_b) & ~order))
        less = a[:MAGNITUDE] < b[:MAGNITUDE]
        a_below_b = Mux(a[MAGNITUDE], ~b[MAGNITUDE] | ~less, ~b[MAGNITUDE] & less)
        take_b = a_below_b ^ (self.op == AddOp.MIN)
        both_minus = ~(a[:MAGNITUDE].any() | b[:MAGNITUDE].any()) & minus_a & minus_b  # the sum is -0
        with m.If(nan):
            m.d.comb += self.o.eq(BINARY16_NAN)
        with m.Elif(order):
            m.d.comb += self.o.eq(Mux(take_b, b, a))
        with m.Elif(special[0] | special[1]):
            m.d.comb += self.o.eq(Cat(Const(BINARY16_INF, MAGNITUDE), Mux(special[0], minus_a, minus_b)))
        with m.Else():
            m.d.comb += [
                self.o.eq(Cat(self.sum[:MAGNITUDE], self.sum[MAGNITUDE] | both_minus)),
                self.overflow.eq(self.half_overflow),
            ]
