"""One element of an integer chain, from its source to its result."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.integers import FACTOR_MANT_BITS, SUM_BITS, WIDE_BITS
from concord_rtl.cells.dsp import Multiplier
from concord_rtl.families import primitives_of
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.layouts import LIMIT_BITS, MAGNITUDE_BITS, MOVES, PLACE_BITS, ROUNDING
from concord_rtl.pipe.integers.magnitude_rounder import MagnitudeRounder, shift_left, shift_right

#: Bits of the lower part of an element that is scaled; the two parts have a multiplier each.
LOW_BITS = 17


class IntegerLane(Component):
    """The steps of an integer chain for one element: scale, round0, add, peak, round1, relu and mask.

    Does not stall. One element per cycle, ``LATENCY`` cycles later; its magnitude for the peak comes ``PEAK_LATENCY``
    cycles later. All inputs but ``value``, ``operand``, ``factor``, ``keep`` and ``valid`` belong to the chain:
    they must stay the same from its first element on until its last result.

    An element that is scaled must have at most 32 bits. Of two moves one must be from -46 to 1, and the other from 0 to
    63, as those are that :class:`concord_rtl.pipe.integers.tensor_unit.TensorUnit` gives: a grid is at most one place
    above the greater exponent.

    What is beyond its range is reported, and its result is undefined. Source, product with the factor, either term of
    a sum and the sum itself must have at most 48 bits, and the result 32, all in the symmetric range.
    """

    value = Input(signed(SUM_BITS), "The source.")
    operand = Input(signed(WIDE_BITS), "Operand to add, or mask.")
    keep = Input(1, "The element is not zero by its place; the peak is of all.")
    valid = Input(1, "There is an element.")

    scale = Input(1, "Multiply by the factor.")
    factor = Input(signed(FACTOR_MANT_BITS), "Mantissa of the factor.")
    round0_on = Input(1, "Round in front of the sum.")
    round0 = Input(ROUNDING, "How.")
    add = Input(1, "Add the operand.")
    moves = Input(MOVES, "How source and operand move.")
    round1_on = Input(1, "Round behind the sum.")
    round1 = Input(ROUNDING, "How.")
    relu = Input(1, "Zero where negative.")
    mask = Input(1, "Zero where the operand is not above zero.")
    written = Input(1, "The results are used, so that they must fit.", init=1)

    o = Output(signed(WIDE_BITS), "Result.")
    over = Output(1, "Something of this element was beyond its range.")
    magnitude = Output(MAGNITUDE_BITS, "Magnitude behind the sum, zero if not ``valid``; ``PEAK_LATENCY``.")

    #: Cycles from the source to what is scaled, to its rounded magnitude, and to both terms of the sum.
    SCALED = Multiplier.LATENCY + 1
    ROUNDED = SCALED + 1 + MagnitudeRounder.LATENCY
    MOVED = ROUNDED + 3
    PEAK_LATENCY = timing.INTEGER_PEAK
    LATENCY = timing.INTEGER_LANE

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cells = primitives_of(platform)
        source, over_source = self._source(m, cells, self._scaled(m))
        *terms, lost = self._terms(m, source, self._operand(m, cells))
        negative, magnitude, over_sum = self._sum(m, cells, *terms)
        over = delay(m, over_source, self.MOVED - self.SCALED - 1, "over_source") | lost
        over = delay(m, over, self.PEAK_LATENCY - self.MOVED, "over_term") | over_sum
        valid = delay(m, self.valid, self.PEAK_LATENCY, "valid")
        m.d.comb += self.magnitude.eq(magnitude & valid.replicate(MAGNITUDE_BITS))
        self._result(m, cells, negative, magnitude, over & valid, valid)
        return m

    def _scaled(self, m):
        """Three cycles: the source, or its product with the factor."""
        m.submodules.low = low = Multiplier(LOW_BITS + 1, FACTOR_MANT_BITS)
        m.submodules.high = high = Multiplier(WIDE_BITS - LOW_BITS, FACTOR_MANT_BITS)
        m.d.comb += [
            low.a.eq(self.value[:LOW_BITS]),
            high.a.eq(self.value[LOW_BITS:WIDE_BITS].as_signed()),
            low.b.eq(self.factor),
            high.b.eq(self.factor),
        ]
        value = delay(m, self.value, Multiplier.LATENCY, "value")
        scaled = Signal(signed(SUM_BITS + 1), reset_less=True)
        m.d.sync += scaled.eq(Mux(self.scale, (high.o << LOW_BITS) + low.o, value))
        return scaled

    def _source(self, m, cells, scaled):
        """Five cycles: sign and rounded magnitude of the source; after one, whether it is out of range."""
        magnitude = register(m, _magnitude(m, cells, "source_sum", scaled, SUM_BITS), "source")
        m.submodules.first = rounder = MagnitudeRounder(MAGNITUDE_BITS)
        self._set(m, rounder, self.round0_on, self.round0, MAGNITUDE_BITS)
        m.d.comb += rounder.i.eq(magnitude)
        negative = delay(m, scaled[-1], self.ROUNDED - self.SCALED, "source_negative")
        return (negative, rounder.o), magnitude[MAGNITUDE_BITS]

    def _set(self, m, rounder, on, rounding, bits):
        """A rounding of the chain; without it ``bits`` are the limit."""
        limit = Cat(rounding.limit | (~on).replicate(LIMIT_BITS), (~on).replicate(bits - LIMIT_BITS))
        m.d.comb += [rounder.right.eq(rounding.right & on.replicate(PLACE_BITS)), rounder.limit.eq(limit)]

    def _operand(self, m, cells):
        """Sign and magnitude of what is added, as late as the source is rounded."""
        operand = delay(m, self.operand, self.ROUNDED - 1, "operand")
        magnitude = register(m, _magnitude(m, cells, "operand_sum", operand, WIDE_BITS, self.add), "operand_magnitude")
        return register(m, operand[-1], "operand_negative"), magnitude

    def _terms(self, m, source, operand):
        """Three cycles: both terms as signs and magnitudes in halves, and whether one is out of range.

        The one that moves less to the right, which has the greater exponent, moves to the left in halves.
        """
        swap, left, right = Signal(), Signal(PLACE_BITS), Signal(PLACE_BITS)
        first, second = self.moves.first, self.moves.second
        less = second < first
        m.d.sync += [
            swap.eq(less),
            left.eq(Mux(self.add, 1 - Mux(less, second, first), 1)),
            right.eq(Mux(self.add, Mux(less, first, second), 0)),
        ]
        pairs = zip(source, operand, strict=True)
        crossed = [(Mux(swap, b, a), Mux(swap, a, b)) for a, b in pairs]
        (upper_sign, lower_sign), (upper, lower) = crossed
        upper, lower = register(m, upper, "upper"), register(m, lower, "lower")
        upper, lost = shift_left(m, Cat(upper, Const(0, 1)), left, "upper_halves")
        lower = shift_right(m, Cat(Const(0, 1), lower), right, "lower_halves")
        upper_sign, lower_sign = delay(m, upper_sign, 3, "upper_sign"), delay(m, lower_sign, 3, "lower_sign")
        return (upper_sign, upper), (lower_sign, lower), lost

    def _sum(self, m, cells, upper, lower):
        """Three cycles: sign and magnitude of the sum, and whether it is out of range."""
        upper = register(m, _signed(m, cells, "upper_sum", *upper), "rounded")
        negative, halves = (register(m, x, f"lower_{k}") for k, x in enumerate(lower))
        total = Signal(signed(SUM_BITS + 1), reset_less=True)
        m.d.sync += total.eq(_signed(m, cells, "both_sum", negative, halves, Cat(upper, upper[-1])))
        magnitude = register(m, _magnitude(m, cells, "magnitude_sum", total, SUM_BITS), "sum")
        return register(m, total[-1], "sum_negative"), magnitude[:MAGNITUDE_BITS], magnitude[MAGNITUDE_BITS]

    def _result(self, m, cells, negative, magnitude, over, valid):
        """Five cycles: the result, and whether anything was out of range."""
        m.submodules.second = rounder = MagnitudeRounder(MAGNITUDE_BITS)
        self._set(m, rounder, self.round1_on, self.round1, LIMIT_BITS)
        m.d.comb += rounder.i.eq(magnitude)
        positive = delay(m, self.operand > 0, self.PEAK_LATENCY, "positive")
        keep = delay(m, self.keep, self.PEAK_LATENCY, "keep")
        keep = keep & ~(self.relu & negative) & ~(self.mask & ~positive)

        late = MagnitudeRounder.LATENCY
        keep, negative = delay(m, keep, late, "kept"), delay(m, negative & keep, late, "negative")
        terms = (Cat(rounder.o[:LIMIT_BITS], 0), keep.replicate(WIDE_BITS), negative.replicate(WIDE_BITS))
        m.d.sync += self.o.eq(
            cells.sum_of_function(m, "result_sum", lambda bit, keep, sign: bit & keep ^ sign, terms, negative)
        )
        beyond = rounder.limited & ~self.round1_on & self.written & keep & delay(m, valid, late, "valid_late")
        m.d.sync += self.over.eq(delay(m, over, late, "over") | beyond)


def _magnitude(m, cells, name, value, bits, on=None):
    """The last bits of the magnitude of a signed value, zero if not ``on``."""
    on = Const(1) if on is None else on
    terms = (value[:bits], value[-1].replicate(bits), on.replicate(bits))
    return cells.sum_of_function(m, name, lambda bit, sign, on: (bit ^ sign) & on, terms, value[-1] & on)


def _signed(m, cells, name, negative, halves, first=None):
    """A number of halves as a signed number, to the nearest, away from zero, and ``first`` added to it."""
    bits = SUM_BITS if first is None else len(first)
    terms = (Cat(halves[1:], Const(0, bits))[:bits], negative.replicate(bits))
    return cells.sum_of_function(m, name, lambda bit, sign: bit ^ sign, terms, halves[0] ^ negative, first)
