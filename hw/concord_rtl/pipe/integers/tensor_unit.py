"""Tensor registers, and the steps that compute with them."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory

from concord.spec import timing
from concord.spec.integers import (
    FACTOR_MANT_BITS,
    FACTOR_WORD,
    FACTORS,
    GRID_BITS,
    SUM_BITS,
    TENSOR_WORD,
    TENSORS,
)
from concord.spec.isa import FACTOR_BITS, TENSOR_BITS, TENSOR_EXP_BITS
from concord.spec.operations import Op
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.memory_ports import WritePort
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import register
from concord_rtl.pipe.integers.highest_bit import HighestBit
from concord_rtl.pipe.integers.layouts import (
    LIMIT_BITS,
    MAGNITUDE_BITS,
    MOVES,
    PLACE_BITS,
    PLACES_MAX,
    ROUNDING,
    STEP,
    UPDATE,
)
from concord_rtl.pipe.integers.magnitude_rounder import MagnitudeRounder

TENSOR, FACTOR = shape_of(TENSOR_WORD), shape_of(FACTOR_WORD)
#: Exponents before it is checked that they are in range.
EXP = signed(TENSOR_EXP_BITS + 2)
#: Limit of numbers that are not rounded.
NO_LIMIT = (1 << LIMIT_BITS) - 1

#: Cycles of a step by their number: the words of ``x`` and ``y`` are there, the highest bits of both are known (the one
#: of ``y`` from then on), a product is made, the result is written.
X, Y, HIGHEST_X, HIGHEST_Y = 1, 2, 2 + HighestBit.LATENCY, 3 + HighestBit.LATENCY
MULTIPLY = HIGHEST_Y
LAST = timing.TENSOR_STEP - 1


class TensorUnit(Component):
    """Tensor registers and factors, and the steps of :class:`concord.golden.tensor_registers.TensorRegisters`.

    A step takes ``TENSOR_STEP`` cycles from ``start`` to the first one in which it is not ``busy``, ``t_scale``
    ``TENSOR_SCALE`` (:mod:`concord.spec.timing`). ``start``, ``peak``, ``updated``, host writes must not
    come together, and not while it is busy. What a step leaves for the chains that follow stays until another step
    changes it, or ``reset``; exponents of an update follow their registers.
    """

    reset = Input(1, "Strobe: a run starts; nothing is rounded, moved or updated.")
    start = Input(1, "Strobe: execute ``step``.")
    step = Input(STEP, "The step, with ``start``.")
    busy = Output(1, "A step is being executed.")
    trap = Output(1, "In the last cycle of a step, or with ``updated``: out of range, nothing is written.")

    round0 = Output(ROUNDING, "Rounding of place 0.")
    round1 = Output(ROUNDING, "Rounding of place 1.")
    moves = Output(MOVES, "Moves of source and operand of a sum.")
    update = Output(UPDATE, "What ``t_upd`` has named.")
    factor_number = Input(FACTOR_BITS, "Factor of the chain.")
    factor = Output(signed(FACTOR_MANT_BITS), "Its mantissa, a cycle later if no step is executed.")

    peak = Input(1, "Strobe: write a greatest magnitude.")
    peak_tensor = Input(TENSOR_BITS, "Its register.")
    updated = Input(1, "Strobe: weights have been updated.")
    grown = Input(1, "Their exponent has grown by one.")
    top = Input(MAGNITUDE_BITS, "Greatest magnitude with ``peak`` or ``updated``.")

    host_addr = Input(TENSOR_BITS, "Register that the host reads.")
    host_data = Output(TENSOR, "What it holds, ``HOST_LATENCY`` cycles later, if no step is executed.")
    write = Input(lambda self: WritePort(TENSOR_BITS, TENSOR), "The host writes a tensor register.")
    factor_write = Input(lambda self: WritePort(FACTOR_BITS, FACTOR), "The host writes a factor.")

    HOST_LATENCY = ColumnMemory.LATENCY

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.tensors = tensors = ColumnMemory([SUM_BITS, TENSOR_EXP_BITS], TENSORS)
        step: Any = Signal(STEP, reset_less=True)
        phase = Signal(range(LAST + 1))
        m.d.comb += self.busy.eq(phase.any())
        word: Any = Signal(TENSOR)
        x: Any = Signal(TENSOR, reset_less=True)
        y: Any = Signal(TENSOR, reset_less=True)
        m.d.comb += [Value.cast(word).eq(tensors.read.data), Value.cast(self.host_data).eq(tensors.read.data)]
        with m.If(phase == X):
            m.d.sync += x.eq(word)
        with m.If(phase == Y):
            m.d.sync += y.eq(word)

        self._address(m, tensors.read.addr, step)
        factor = self._factor(m, step)
        product, over, done = self._product(m, phase, x, factor)
        self._advance(m, step, phase, done)

        fitted, rounding, top, bad_fit = self._fit(m, step, phase, x, word)
        grid, moves, bad_bias = self._align(m, step, phase, x, y)
        exp = Signal(EXP, reset_less=True)
        with m.Switch(step.op):
            for op, value in (
                (Op.T_SET, step.exp),
                (Op.T_MUL, x.exp + y.exp),
                (Op.T_FIT, fitted),
                (Op.T_SCALE, x.exp + factor.exp),
            ):
                with m.Case(op):
                    m.d.sync += exp.eq(value)
            with m.Default():
                m.d.sync += exp.eq(grid)
        top = Mux(step.op == Op.T_FIT, top, Mux(step.op == Op.T_SCALE, product, 0))
        bad_exp = (exp >= 1 << TENSOR_EXP_BITS - 1) | (exp < -1 << TENSOR_EXP_BITS - 1)
        only_leaves = step.op == Op.T_UPD  # and writes no register
        bad = Mux(only_leaves, 0, bad_exp | bad_fit | bad_bias | (step.op == Op.T_SCALE) & over)
        last, good = phase == LAST, Signal()
        m.d.comb += good.eq(last & ~bad)

        grown = self.update.exp + self.grown
        too_great = grown > TRAIN_EXP_MAX
        m.d.comb += self.trap.eq(last & bad | self.updated & too_great)
        stored = good & ~only_leaves
        self._write(m, tensors.write, step, stored, (top, exp), self.updated & ~too_great, grown)
        self._leave(m, step, good, rounding, moves)
        self._follow(m, tensors.write, step, good, word, x, y)
        return m

    def _address(self, m, addr, step):
        """The register that is read: ``x``, then ``y``, or the weights ``z`` of an update."""
        with m.If(self.start):
            m.d.comb += addr.eq(self.step.x)
        with m.Elif(self.busy):
            m.d.comb += addr.eq(Mux(step.op == Op.T_UPD, step.z, step.y))
        with m.Elif(~self.reset):
            m.d.comb += addr.eq(self.host_addr)

    def _advance(self, m, step, phase, done):
        """Number of the cycle of a step; ``t_scale`` stays where it multiplies until that is done."""
        with m.If(self.start):
            m.d.sync += [step.eq(self.step), phase.eq(1)]
        with m.Elif(phase == LAST):
            m.d.sync += phase.eq(0)
        with m.Elif(self.busy & ((phase != MULTIPLY) | (step.op != Op.T_SCALE) | done)):
            m.d.sync += phase.eq(phase + 1)

    def _factor(self, m, step):
        """The factor of the step, or else of the chain, a cycle after its number."""
        m.submodules.factors = factors = memory.Memory(shape=unsigned(FACTOR_WORD.width), depth=FACTORS, init=[])
        read, write = factors.read_port(), factors.write_port()
        word: Any = Signal(FACTOR)
        m.d.comb += [
            read.addr.eq(Mux(self.start, self.step.factor, Mux(self.busy, step.factor, self.factor_number))),
            Value.cast(word).eq(read.data),
            self.factor.eq(word.mant),
            write.en.eq(self.factor_write.en),
            write.addr.eq(self.factor_write.addr),
            write.data.eq(self.factor_write.data),
        ]
        return word

    def _product(self, m, phase, x, factor):
        """Magnitudes of ``x`` and the factor multiplied, bit by bit, whether that is out of range, and done."""
        mant, left = Signal(FACTOR_MANT_BITS, reset_less=True), Signal(range(FACTOR_MANT_BITS + 1), reset_less=True)
        product, over = Signal(MAGNITUDE_BITS, reset_less=True), Signal(reset_less=True)
        following = (product << 1) + (x.top & mant[-1].replicate(SUM_BITS))
        with m.If(phase == X):
            m.d.sync += [mant.eq(abs(factor.mant)), left.eq(FACTOR_MANT_BITS), product.eq(0), over.eq(0)]
        with m.Elif((phase == MULTIPLY) & left.any()):
            m.d.sync += [
                mant.eq(mant << 1),
                left.eq(left - 1),
                product.eq(following),
                over.eq(over | following[MAGNITUDE_BITS:].any()),
            ]
        return product, over, ~left.any()

    def _fit(self, m, step, phase, x, word):
        """Exponent, rounding and greatest magnitude of ``x`` with fewer bits, and whether it is out of range.

        Notes the highest bit of ``x`` for :meth:`_align`, too.
        """
        m.submodules.highest = highest = HighestBit()
        m.d.comb += highest.i.eq(register(m, word.top, "latest"))  # a block RAM is slow
        excess = highest.place - highest.single + 2 - step.bits
        right, some = Signal(PLACE_BITS, reset_less=True), Signal(reset_less=True)
        with m.If(phase == HIGHEST_X):
            m.d.sync += [right.eq(Mux(excess > 0, excess, 0)), some.eq(highest.some)]

        limit = register(m, Cat(k + 1 < step.bits for k in range(LIMIT_BITS)), "limit")
        m.submodules.rounder = rounder = MagnitudeRounder(SUM_BITS)
        m.d.comb += [rounder.i.eq(x.top), rounder.right.eq(right), rounder.limit.eq(limit)]

        wanted = Signal(EXP, reset_less=True)
        m.d.sync += wanted.eq(x.exp + right)
        low, high = wanted <= TRAIN_EXP_MIN, wanted > TRAIN_EXP_MAX
        fitted = register(m, Mux(low, TRAIN_EXP_MIN, Mux(high, TRAIN_EXP_MAX, wanted)), "fitted").as_signed()
        bad = register(m, (step.op == Op.T_FIT) & some & (low | high), "bad_fit")
        return fitted, Cat(right, limit), rounder.o, bad

    def _align(self, m, step, phase, x, y):
        """Exponent of the grid of a sum, how both terms move to it, and whether a bias has too many bits there.

        Cycles from the one that knows the highest bit of ``y``: least exponents of both, their maximum, the grid,
        the moves.
        """
        highest = m.submodules.highest
        least = [Signal(EXP, name=f"least_{k}", reset_less=True) for k in "xy"]
        some = [Signal(name=f"some_{k}", reset_less=True) for k in "xy"]
        with m.If(phase == HIGHEST_X):
            m.d.sync += [least[0].eq(x.exp + highest.place + 1 - GRID_BITS), some[0].eq(highest.some)]
        m.d.sync += [least[1].eq(y.exp + highest.place + 1 - GRID_BITS), some[1].eq(highest.some)]

        less = register(m, x.exp < y.exp, "less")
        finest = register(m, Mux(some[1] & ~(some[0] & less), y.exp, x.exp), "finest").as_signed()
        least_x = some[0] & (~some[1] | (least[0] > least[1]))
        most = register(m, Mux(least_x, *least), "most").as_signed()
        any_some = register(m, some[0] | some[1], "any_some")
        bad = register(m, (step.op == Op.T_BIAS) & some[1] & (least[1] > x.exp), "bad_bias")

        coarser = (step.op == Op.T_ADD) & any_some & (most > finest)
        grid = register(m, Mux(step.op == Op.T_BIAS, x.exp, Mux(coarser, most, finest)), "grid").as_signed()
        moves = []
        for name, own, there in zip(MOVES.members, (x.exp, y.exp), some, strict=True):
            right = grid - own
            moves.append(register(m, Mux(there, Mux(right > PLACES_MAX, PLACES_MAX, right), 0)[:8], f"move_{name}"))
        return grid, Cat(moves), bad

    def _write(self, m, port, step, stored, result, updated, grown):
        """Writes to the registers: of a step, of a chain, of the host."""
        word: Any = Signal(TENSOR)
        m.d.comb += Value.cast(port.data).eq(Value.cast(word))
        with m.If(self.busy):
            m.d.comb += [port.en.eq(stored.replicate(2)), port.addr.eq(step.z)]
            m.d.comb += [word.top.eq(result[0]), word.exp.eq(result[1])]
        with m.Elif(self.peak):
            m.d.comb += [port.en.eq(1), port.addr.eq(self.peak_tensor), word.top.eq(self.top)]
        with m.Elif(self.updated):
            m.d.comb += [port.en.eq(updated.replicate(2)), port.addr.eq(self.update.weights)]
            m.d.comb += [word.top.eq(self.top), word.exp.eq(grown)]
        with m.Else():
            m.d.comb += [port.en.eq(self.write.en.replicate(2)), port.addr.eq(self.write.addr)]
            m.d.comb += word.eq(self.write.data)

    def _leave(self, m, step, good, rounding, moves):
        """Keeps the values of the latest steps that a chain reads."""
        roundings: list[Any] = [Signal(ROUNDING, name=f"rounding_{k}", init={"limit": NO_LIMIT}) for k in range(2)]
        kept = Signal(MOVES)
        for place, (port, latest) in enumerate(zip((self.round0, self.round1), roundings, strict=True)):
            m.d.comb += port.eq(latest)
            with m.If(self.reset):
                m.d.sync += [latest.right.eq(0), latest.limit.eq(NO_LIMIT)]
            with m.Elif(good & (step.op == Op.T_FIT) & (step.place == place)):
                m.d.sync += Value.cast(latest).eq(rounding)
        m.d.comb += self.moves.eq(kept)
        with m.If(self.reset):
            m.d.sync += Value.cast(kept).eq(0)
        with m.Elif(good & ((step.op == Op.T_ADD) | (step.op == Op.T_BIAS))):
            m.d.sync += Value.cast(kept).eq(moves)

    def _follow(self, m, port, step, good, word, x, y):
        """Registers of an update, whose exponents are those that the tensor registers have."""
        named: Any = Signal(UPDATE)
        change = Signal(TENSOR_BITS)
        m.d.comb += self.update.eq(named)
        exp = port.data[SUM_BITS:]
        with m.If(register(m, self.reset, "loads")):
            m.d.sync += [named.exp.eq(word.exp), named.change_exp.eq(word.exp)]
        with m.If(port.en[1] & (port.addr == named.weights)):
            m.d.sync += named.exp.eq(exp)
        with m.If(port.en[1] & (port.addr == change)):
            m.d.sync += named.change_exp.eq(exp)
        with m.If(good & (step.op == Op.T_UPD)):
            m.d.sync += [named.weights.eq(step.z), named.exp.eq(y.exp)]
            m.d.sync += [getattr(named, name).eq(getattr(step, name)) for name in ("accumulators", "coarser")]
            m.d.sync += [change.eq(step.x), named.change_exp.eq(x.exp)]
        with m.If(self.reset):
            m.d.sync += [x.eq(0) for x in (named.weights, change, named.accumulators, named.coarser)]
