"""binary16 adder, subtracter, maximum and minimum."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.formats import BINARY16_EXP_MAX, BINARY16_INF, BINARY16_NAN, BINARY16_PRECISION
from concord_rtl.arith.binary16_fields import FRACTION, MAGNITUDE, exponent, is_nan, is_special, round_up, significand
from concord_rtl.parts.bits import below, leading_zeros
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.control import AddOp
from concord_rtl.parts.stages import register

#: Greatest exponent field of a finite number.
TOP_FIELD = 2 * BINARY16_EXP_MAX
#: Bits below the last place that the far path keeps exactly; one more says whether anything was lost.
GUARDS = 2


class Binary16Add(Component):
    """Sum, difference, maximum or minimum of two binary16 numbers, subnormals included, rounded once to nearest even.

    Does not stall; every NaN result is the canonical one. One result per cycle, ``LATENCY`` cycles later. Two paths:
    *far* aligns, adds and rounds; *near* serves cancellations, where exponents differ by at most one and the result is
    exact.
    """

    a = Input(16, "First operand.")
    b = Input(16, "Second operand.")
    op = Input(AddOp, "Operation; with ``AddOp.NONE`` the result is ``a``, bit by bit.")
    o = Output(16, "Result.")
    overflow = Output(1, "Finite operands gave an infinity.")

    LATENCY = timing.BINARY16_ADD

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        less = Signal()
        m.d.comb += less.eq(self.a[:MAGNITUDE] < self.b[:MAGNITUDE])
        signs = [self.a[MAGNITUDE] ^ (self.op == AddOp.RSUB), self.b[MAGNITUDE] ^ (self.op == AddOp.SUB)]
        subtract = register(m, signs[0] ^ signs[1], "subtract")
        sign = register(m, Mux(less, signs[1], signs[0]), "sign")
        exp = register(m, Mux(less, exponent(self.b), exponent(self.a)), "exp")
        big = register(m, Mux(less, significand(self.b), significand(self.a)), "big")
        small = register(m, Mux(less, significand(self.a), significand(self.b)), "small")
        a_above, b_above = exponent(self.a) - exponent(self.b), exponent(self.b) - exponent(self.a)
        gap = register(m, Mux(less, b_above, a_above)[: len(exp)], "gap")

        special, value = self._special(m, less, subtract, sign)
        use_near, near, near_sign = self._near(m, subtract, sign, exp, big, small, gap)
        far, too_big = self._far(m, subtract, exp, big, small, gap)
        value, special = register(m, value, "value_3"), register(m, special, "special_3")
        magnitude = Mux(use_near, near, Mux(too_big, BINARY16_INF, far))[:MAGNITUDE]
        sign = Mux(use_near, near_sign, value[MAGNITUDE])
        m.d.comb += self.o.eq(register(m, Mux(special, value, Cat(magnitude, sign)), "result"))
        over = ~special & ~use_near & (too_big | is_special(far))
        m.d.comb += self.overflow.eq(register(m, over, "over"))
        return m

    def _special(self, m, less, subtract, sign):
        """Results that are not computed; otherwise the sign of the far path. Second and third cycle."""
        a, b = register(m, self.a, "a_1"), register(m, self.b, "b_1")
        op = Signal(AddOp, name="op_1", reset_less=True)
        smaller = register(m, less, "less")
        nan = register(m, is_nan(self.a) | is_nan(self.b), "nan")
        infinite = [register(m, is_special(x), f"inf_{n}") for n, x in [("a", self.a), ("b", self.b)]]
        m.d.sync += op.eq(self.op)

        order = (op == AddOp.MAX) | (op == AddOp.MIN)
        a_below_b = Mux(a[MAGNITUDE], ~b[MAGNITUDE] | ~smaller, ~b[MAGNITUDE] & smaller)
        take_b = order & (a_below_b ^ (op == AddOp.MIN))
        invalid = nan | (infinite[0] & infinite[1] & subtract & ~order)
        infinity = ~order & (infinite[0] | infinite[1])
        exact = Cat(Const(BINARY16_INF, MAGNITUDE), sign)
        value = Mux(op == AddOp.NONE, a, Mux(invalid, BINARY16_NAN, Mux(order, Mux(take_b, b, a), exact)))
        special = order | invalid | infinity | (op == AddOp.NONE)
        return register(m, special, "special_2"), register(m, value, "value_2")

    def _near(self, m, subtract, sign, exp, big, small, gap):
        """Differences that cancel at least one bit: subtract, count zeros, shift. Second to fourth cycle."""
        close = register(m, subtract & ~gap[1:].any(), "close")
        aligned = Mux(gap[0], small, Cat(Const(0, 1), small))
        difference = register(m, (Cat(Const(0, 1), big) - aligned)[: BINARY16_PRECISION + 1], "difference_2")
        limit = register(m, (exp - 1)[: len(exp)], "limit")
        exp, sign = register(m, exp, "near_exp_2"), register(m, sign, "near_sign_2")

        zeros = leading_zeros(difference)
        count = register(m, Mux(zeros < limit, zeros, limit)[: len(zeros)], "count")
        use = register(m, close & ~difference[BINARY16_PRECISION], "use_near")
        sign = register(m, sign & difference.any(), "near_sign_3")
        difference, exp = register(m, difference, "difference_3"), register(m, exp, "near_exp_3")

        shifted = (difference << count)[1 : BINARY16_PRECISION + 1]
        field = (exp - count)[: len(exp)] & shifted[FRACTION].replicate(len(exp))
        return use, Cat(shifted[:FRACTION], field), sign

    def _far(self, m, subtract, exp, big, small, gap):
        """Everything else: align, add, round. Second to fourth cycle."""
        window = (Cat(Const(0, GUARDS), small) >> gap)[: BINARY16_PRECISION + GUARDS]
        lost = (small & Cat(~below(gap, k + GUARDS + 1) for k in range(BINARY16_PRECISION))).any()
        addend = register(m, Cat(lost, window), "addend")
        big, exp, subtract = register(m, big, "big_2"), register(m, exp, "exp_2"), register(m, subtract, "subtract_2")

        fill = GUARDS + 1
        width = BINARY16_PRECISION + fill + 1
        # The lowest bit carries in the one that completes a two's complement.
        left = Cat(Const(1, 1), Const(0, fill), big)
        right = Cat(subtract, addend ^ subtract.replicate(len(addend)), subtract)
        total = (left + right)[1 : width + 1]
        carry, cancel = total[width - 1], subtract & ~total[width - 2]
        kept = Mux(carry, total[fill + 1 :], Mux(cancel, total[fill - 1 :], total[fill:]))[:FRACTION]
        field = Mux(carry, exp + 1, Mux(cancel, exp - 1, Mux(total[width - 2], exp, 0)))[: len(exp)]
        guard = Mux(carry, total[fill], Mux(cancel, total[fill - 2], total[fill - 1]))
        sticky = total[: fill - 2].any() | (~cancel & total[fill - 2]) | (carry & total[fill - 1])
        too_big = register(m, carry & (exp == TOP_FIELD), "too_big")

        kept = register(m, Cat(kept, field), "kept")
        up = round_up(kept[0], register(m, guard, "guard"), register(m, sticky, "sticky"))
        far = Signal(MAGNITUDE)
        m.d.comb += far.eq(kept + up)
        return far, too_big
