"""Softmax and cross-entropy of samples, from logits and labels to gradients."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.integers import JUDGED_WORD, SUM_BITS, WIDE_BITS, judged_per_word
from concord.spec.isa import TENSOR_EXP_BITS
from concord.spec.softmax import PROBABILITY_POINT
from concord_rtl.arith.block_float import activations
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.memory_ports import WritePort
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.loss.layouts import Pass, slot_layout
from concord_rtl.pipe.integers.loss.reciprocal import Reciprocal
from concord_rtl.pipe.integers.loss.sample_address import SampleAddress
from concord_rtl.pipe.integers.loss.sample_walker import SampleWalker
from concord_rtl.pipe.integers.loss.softmax_arithmetic import SHARE_BITS, SoftmaxArithmetic
from concord_rtl.pipe.integers.ports import integer_layout, loops_layout
from concord_rtl.pipe.layouts import vector_addr_bits

#: From a slot to its element, to its power and its share, and from the latter to the gradient.
ELEMENT = timing.LOSS_ELEMENT - 1
POWER = timing.LOSS_ELEMENT + SoftmaxArithmetic.POWER_LATENCY
SHARE = timing.LOSS_ELEMENT + SoftmaxArithmetic.SHARE_LATENCY
GRADIENT = SHARE + 1


class LossUnit(Component):
    """Executes ``i_loss`` (:mod:`concord.spec.integers`): a class per cycle in each of three passes over a sample.

    Powers wait for their sum in the place of the gradient. A sample takes three cycles a class and ``LOSS_SAMPLE``
    more (:func:`concord.cycles.integers.integer_cycles`).

    Parameters
    ----------
    config : NpuConfig
    """

    loops = Input(lambda self: loops_layout(self.config), "Vectors of a sample, and samples, which stay.")
    state = Input(lambda self: integer_layout(self.config), "Places, and the fields of the word, which stay.")
    load = Input(1, "Begin: ``exp`` is there.")
    exp = Input(signed(TENSOR_EXP_BITS), "Exponent of the logits.")
    narrow_en = Output(1, "The narrow memory is read.")
    narrow_addr = Output(lambda self: vector_addr_bits(self.config), "At this address.")
    narrow_data = Input(lambda self: activations(self.config).word, "Narrow word of the read of three cycles ago.")
    wide_en = Output(1, "The wide memory is read.")
    wide_addr = Output(lambda self: vector_addr_bits(self.config), "At this address.")
    wide_data = Input(lambda self: shape_of(self.config.wide_word), "Wide word, likewise.")
    wide = Output(lambda self: WritePort(vector_addr_bits(self.config), shape_of(self.config.wide_word)), "Wide words.")
    vector = Output(1, "Strobe of a vector of the gradient.")
    top = Output(SUM_BITS - 1, "Greatest magnitude of the gradient, once it is ``finished``.")
    finished = Output(1, "Everything has been written.")

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.walker = walker = SampleWalker(self.config)
        m.submodules.arithmetic = arithmetic = SoftmaxArithmetic()
        m.submodules.reciprocal = reciprocal = Reciprocal()
        m.d.comb += [
            walker.loops.eq(self.loops),
            walker.valid.eq(self.state.loss.valid),
            walker.load.eq(self.load),
            self.finished.eq(walker.finished),
        ]
        exp = Signal.like(self.exp)
        with m.If(self.load):
            m.d.sync += exp.eq(self.exp)
        shares = walker.number == Pass.SHARES
        self._reads(m, walker, shares)
        # A pass of powers or shares has the arithmetic for itself, until its last one is there.
        shares = register(m, shares, "shares")
        element, mark = self._elements(m, walker)
        layout = slot_layout(self.config)
        slots = [walker.slot]  # those of so many cycles ago
        for k in range(max(POWER, GRADIENT)):
            slots.append(layout(register(m, slots[-1], f"slot{k}")))
        compares = self._slots_of(m, walker, Pass.MAXIMUM, ELEMENT)
        greatest, guessed, labelled = self._maximum(m, compares, element, mark, slots[ELEMENT])
        m.d.comb += [
            arithmetic.divide.eq(shares),
            arithmetic.exp.eq(exp),
            arithmetic.value.eq(register(m, Mux(shares, element, greatest - element)[:WIDE_BITS], "value")),
        ]
        # Slots of the first pass are still on their way when those of the second one begin.
        power = self._slots_of(m, walker, Pass.TOTAL, POWER)
        total = self._total(m, arithmetic.power, slots[POWER], power)
        m.d.comb += [
            reciprocal.start.eq(delay(m, power & slots[POWER].last, 1, "total_ends", reset_less=False)),
            reciprocal.total.eq(total),
            arithmetic.total.eq(total),
            arithmetic.place.eq(reciprocal.place),
            arithmetic.reciprocal.eq(reciprocal.o),
        ]
        share = self._slots_of(m, walker, Pass.SHARES, SHARE)
        there = delay(m, share, GRADIENT - SHARE, "gradient_there", reset_less=False)
        marked = delay(m, mark, SHARE - ELEMENT, "marked")
        gradient, hit = self._gradient(m, arithmetic.share, slots[SHARE], share, marked, labelled)
        slot = layout(register(m, Mux(shares, slots[SHARE].as_value(), slots[POWER - 1].as_value()), "latest"))
        result = Mux(shares, gradient, Mux(slot.keep, arithmetic.power, 0))
        word = self._word(m, walker, slot, power | there, result, shares)
        self._judgement(m, word, hit, guessed, there & slots[GRADIENT].last)
        self._top(m, gradient, there)
        return m

    def _slots_of(self, m, walker, number, cycles) -> Value:
        """Bit that is set if there was a slot of a pass ``cycles`` cycles ago."""
        there = walker.active & (walker.number == number)
        return delay(m, there, cycles, f"{number.name.lower()}_slots", reset_less=False)

    def _address(self, m, name, strides, walker, *, again, advance) -> Value:
        """Address of the vectors of a sample."""
        m.submodules[name] = address = SampleAddress(vector_addr_bits(self.config))
        m.d.comb += [
            address.strides.eq(strides),
            address.load.eq(self.load),
            address.step.eq(walker.step),
            address.last.eq(walker.last),
            address.again.eq(again),
            address.advance.eq(advance),
        ]
        return address.addr

    def _reads(self, m, walker, shares):
        """Logits and labels, and in the last pass powers."""
        strobes = {"again": walker.again, "advance": walker.advance}
        source = self._address(m, "source", self.state.source, walker, **strobes)
        powers = self._address(m, "powers", self.state.target, walker, **strobes)
        m.d.comb += [
            self.wide_en.eq(walker.starts),
            self.wide_addr.eq(Mux(shares, powers, source) + walker.slot.second),
            self.narrow_en.eq(walker.starts & ~walker.slot.second),
            self.narrow_addr.eq(self._address(m, "labels", self.state.operand, walker, **strobes)),
        ]

    def _elements(self, m, walker):
        """The element of a slot, and whether it is the label."""
        wide, narrow = self.wide_data.as_value(), self.narrow_data.mant
        elements, marks = Signal(len(wide), reset_less=True), Signal(self.config.native, reset_less=True)
        starts = delay(m, walker.starts, timing.VECTOR_READ, "starts", reset_less=False)
        second = delay(m, walker.slot.second, timing.VECTOR_READ, "second")
        m.d.sync += [
            elements.eq(Mux(starts, wide, elements >> WIDE_BITS)),
            marks.eq(Mux(starts & ~second, Cat(mant > 0 for mant in narrow), marks >> 1)),
        ]
        return elements[:WIDE_BITS].as_signed(), marks[0]

    def _maximum(self, m, there, element, mark, slot):
        """The first greatest logit, whether it is the label's, and whether there is a label."""
        greatest, guessed, labelled = Signal(signed(WIDE_BITS), reset_less=True), Signal(), Signal()
        with m.If(there & slot.keep):
            with m.If(slot.first | (element > greatest)):
                m.d.sync += [greatest.eq(element), guessed.eq(mark)]
            m.d.sync += labelled.eq(mark | labelled & ~slot.first)
        return greatest, guessed, labelled

    def _total(self, m, power, slot, there):
        """The sum of the powers of a sample."""
        total = Signal(SUM_BITS, reset_less=True)
        with m.If(there & slot.keep):
            m.d.sync += total.eq(Mux(slot.first, 0, total) + power)
        return total

    def _gradient(self, m, share, slot, there, mark, labelled):
        """The gradient of an element, a cycle later, and the share of the label."""
        gradient, hit = Signal(signed(WIDE_BITS), reset_less=True), Signal(SHARE_BITS, reset_less=True)
        own = mark & slot.keep
        m.d.sync += gradient.eq(Mux(slot.keep & labelled, share - (mark << PROBABILITY_POINT), 0))
        with m.If(there & (own | slot.first)):
            m.d.sync += hit.eq(Mux(own, share, 0))
        return gradient, hit

    def _word(self, m, walker, slot, there, result, shares):
        """Words of powers, and then of the gradient, to the wide memory; those of the latter are a vector if second."""
        half = judged_per_word(self.config.native)
        word = _Places(m, half, "word")
        word.put(m, there, slot.place, result)
        writes = delay(m, there & slot.ends, 1, "word_writes", reset_less=False)
        second, last = register(m, slot.second, "word_second"), register(m, slot.last, "word_last")
        target = self._address(
            m, "target", self.state.target, walker,
            again=walker.begins | writes & last, advance=writes & second,
        )  # fmt: skip
        with m.If(writes):
            m.d.comb += [self.wide.en.eq(1), self.wide.addr.eq(target + second), self.wide.data.eq(word.value)]
        m.d.comb += self.vector.eq(writes & second & shares)
        return word

    def _judgement(self, m, word, hit, guessed, there):
        """Writes the judgements of samples, several in a word, which is written with each of them."""
        half = judged_per_word(self.config.native)
        place, address = Signal(range(half)), Signal(vector_addr_bits(self.config))
        judged = _Places(m, half, "judged")
        judged.put(m, there, place, Cat(hit, guessed))
        writes = delay(m, there, 2, "judged_writes", reset_less=False)  # behind the last word of the gradient
        with m.If(writes):
            m.d.comb += [self.wide.en.eq(1), self.wide.addr.eq(address), self.wide.data.eq(judged.value)]
            m.d.sync += place.eq(place + 1)
            with m.If(place == half - 1):
                m.d.sync += address.eq(address + 1)
        with m.If(self.load):
            m.d.sync += [place.eq(0), address.eq(self.state.loss.judged)]

    def _top(self, m, gradient, there):
        """The greatest magnitude."""
        magnitude = register(m, abs(gradient)[:SHARE_BITS] & there.replicate(SHARE_BITS), "magnitude")
        top = Signal(SHARE_BITS)
        with m.If(self.load):
            m.d.sync += top.eq(0)
        with m.Elif(magnitude > top):
            m.d.sync += top.eq(magnitude)
        m.d.comb += self.top.eq(top)


class _Places:
    """A wide word whose elements come one after the other; those after the latest one are zero.

    Parameters
    ----------
    m : Module
    count : int
        Number of elements.
    name : str
    """

    def __init__(self, m: Module, count: int, name: str):
        self.elements = [Signal(WIDE_BITS, name=f"{name}{k}", reset_less=True) for k in range(count)]

    @property
    def value(self) -> Value:
        """The word."""
        return Cat(self.elements)

    def put(self, m, there, place, element):
        """Put an element to its place; the first one clears all others."""
        for k, target in enumerate(self.elements):
            with m.If(there & (place == k)):
                m.d.sync += target.eq(element)
            with m.Elif(there & (place == 0)):
                m.d.sync += target.eq(0)


assert JUDGED_WORD.width == WIDE_BITS
