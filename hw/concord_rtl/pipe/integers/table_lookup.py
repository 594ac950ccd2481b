"""Tables of functions in the wide memory, looked up element by element."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.isa import TENSOR_EXP_BITS
from concord.spec.lookup import BINADE_MIN, BINADES_BITS
from concord_rtl.arith.block_float import activations
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.layouts import vector_addr_bits


class TableLookup(Component):
    """Entries for the elements of a vector, one per cycle (:mod:`concord.spec.lookup`).

    Does not stall. A vector may come every N cycles. Its first entry is there ``LATENCY`` cycles after ``start``, and P
    of them in each P-th cycle from then on.

    Parameters
    ----------
    config : NpuConfig
    """

    start = Input(1, "A vector is there.")
    codes = Input(lambda self: activations(self.config).word, "The vector.")
    exp = Input(signed(TENSOR_EXP_BITS), "Its exponent, which stays for the chain, as does the table.")
    base = Input(lambda self: vector_addr_bits(self.config), "First word of the table.")
    binades = Input(BINADES_BITS, "Its binades, at least one.")
    read_en = Output(1, "The wide memory is read.")
    read_addr = Output(lambda self: vector_addr_bits(self.config), "At this address.")
    data = Input(lambda self: shape_of(self.config.wide_word), "Wide word of the read of three cycles ago.")
    o = Output(
        lambda self: data.ArrayLayout(signed(BINARY16_WIDTH), self.config.mfu_lanes),
        "The latest P entries, the last one at the end.",
    )
    beyond = Output(lambda self: self.config.mfu_lanes, "Of each: the element is not one of the symmetric range.")

    LATENCY = timing.LOOKUP
    #: Registers between an element and the address of its entry.
    ADDRESS = LATENCY - 1 - timing.VECTOR_READ - 1

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, size = self.config, self.config.act_mant
        left, codes = Signal(range(config.native + 1)), Signal(config.native * size, reset_less=True)
        with m.If(self.start):
            m.d.sync += [left.eq(config.native), codes.eq(self.codes.mant.as_value())]
        with m.Elif(left.any()):
            m.d.sync += [left.eq(left - 1), codes.eq(codes >> size)]
        number, least = self._number(m, codes[:size])
        place_bits = clog2(config.native)
        places, words = number[:place_bits], number[place_bits:]
        m.d.comb += [
            self.read_en.eq(delay(m, left.any(), self.ADDRESS, "reads", reset_less=False)),
            self.read_addr.eq(register(m, (self.base + words)[: len(self.read_addr)], "addr")),
        ]
        place = delay(m, places, 1 + timing.VECTOR_READ, "place")
        least = delay(m, least, 1 + timing.VECTOR_READ, "least")
        entry = self.data.as_value().word_select(place, BINARY16_WIDTH)
        latest = Cat(self.o.as_value()[BINARY16_WIDTH:], entry)
        m.d.sync += [self.o.as_value().eq(latest), self.beyond.eq(Cat(self.beyond[1:], least))]
        return m

    def _number(self, m, code):
        """Three cycles: the number of an entry, and whether the element is the least one of two's complement."""
        top = len(code) - 1
        negative, magnitude = code[-1], (code ^ code[-1].replicate(len(code)))[:top] + code[-1]
        least = register(m, code[-1] & ~code[:-1].any(), "least_0")
        negative, magnitude = register(m, negative, "negative_0"), register(m, magnitude[:top], "magnitude")

        place, fraction = Signal(range(top)), Signal(top - 1)  # of the highest bit, and what is below it
        for k in range(top):  # the last assignment counts
            with m.If(magnitude[k]):
                m.d.comb += [place.eq(k), fraction.eq(magnitude << top - 1 - k)]
        some, place = register(m, magnitude.any(), "some"), register(m, place, "place_of_bit")
        fraction = register(m, fraction, "fraction_0")

        binade = self.exp + place - BINADE_MIN
        last = self.binades - 1
        inside = Mux((binade < 0) | ~some, 0, Mux(binade > last, last, binade))
        number = Cat(
            register(m, fraction, "fraction_1"),
            delay(m, negative, 2, "negative"),
            register(m, inside[:BINADES_BITS], "binade"),
        )
        return number, delay(m, least, 2, "least_late")
