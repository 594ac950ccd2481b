"""Operations on one element between source and destination in an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_INF, BINARY16_WIDTH
from concord_rtl.arith.binary16_mul import Binary16Mul
from concord_rtl.arith.block_float import activations
from concord_rtl.arith.narrow_to_binary16 import NarrowToBinary16
from concord_rtl.element_serial.grid_adder import GridAdder
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.control import SLOT_BITS, AddOp, Take
from concord_rtl.vector.activations import ACTIVATIONS
from concord_rtl.vector.table import TableAccess, TableBank

#: binary16 pattern of -inf, where maxima start.
LOWEST = 1 << BINARY16_WIDTH - 1 | BINARY16_INF


class ElementUnit(Component):
    """One element in a register, and all operations that it can go through.

    All inputs are held for as many cycles before the cycle of ``en`` as the operation takes, the element is held too.

    Parameters
    ----------
    config : NpuConfig
    table_init, slot_init : list of int
        Initial contents of the table memory and of the table descriptors.
    """

    en = Input(1, "The element becomes what ``take`` says.")
    take = Input(Take, "Source of the element.")
    acc = Input(lambda self: signed(self.config.acc_bits), "Sum of a product.")
    mant = Input(lambda self: activations(self.config).code, "Mantissa of an element of a narrow vector.")
    exp = Input(lambda self: activations(self.config).exp, "Exponent of its block.")
    other = Input(BINARY16_WIDTH, "Element of a wide vector.")
    narrow = Input(1, "The narrow element stands for ``other``.")
    add = Input(AddOp, "Operation of ``Take.ADD``, as in :class:`concord_rtl.element_serial.grid_adder.GridAdder`.")
    second = Input(1, "Second operand of the sum, likewise.")
    term = Output(lambda self: self.adder.term.shape(), "Term for the accumulator, likewise.")
    shift = Output(lambda self: self.adder.shift.shape(), "Places by which it is shifted, likewise.")
    slot = Input(SLOT_BITS, "Table.")
    o = Output(BINARY16_WIDTH, "The element.")
    acc_overflow = Output(1, "A sum left the accumulator, in the cycle of ``en``.")
    half_overflow = Output(1, "A result became infinite, in the cycle of ``en``.")
    nonfinite = Output(1, "An element was not finite, in the cycle of ``en``.")
    table_clamped = Output(1, "An element lay outside of its table, in the cycle of ``en``.")
    tables = Input(lambda self: TableAccess(self.config), "As in :class:`concord_rtl.vector.table.TableBank`.")

    def __init__(self, config: NpuConfig, *, table_init=(), slot_init=()):
        self.config = config
        self.bank = TableBank(config, table_init, slot_init, held=True)
        self.adder = GridAdder(config)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.narrow = narrow = NarrowToBinary16(self.config, held=True)
        m.submodules.mul = mul = Binary16Mul(held=True)
        m.submodules.adder = add = self.adder
        m.submodules.tables = tables = self.bank
        wiring.connect(m, wiring.flipped(self.tables), tables.tables)
        other = Signal(BINARY16_WIDTH, reset_less=True)
        m.d.sync += other.eq(Mux(self.narrow, narrow.o, self.other))
        m.d.comb += [
            add.acc.eq(self.acc),
            add.second.eq(self.second),
            self.term.eq(add.term),
            self.shift.eq(add.shift),
            narrow.mant.eq(self.mant),
            narrow.exp.eq(self.exp),
            mul.a.eq(self.o),
            mul.b.eq(other),
            add.a.eq(self.o),
            add.b.eq(other),
            add.op.eq(self.add),
            tables.i[0].eq(self.o),
            tables.slot.eq(self.slot),
        ]
        looked_up = [self.nonfinite.eq(tables.nonfinite), self.table_clamped.eq(tables.clamped)]
        choices = {
            Take.LOWEST: (LOWEST, []),
            Take.SUM: (add.sum, [self.acc_overflow.eq(add.acc_overflow), self.half_overflow.eq(add.half_overflow)]),
            Take.SOURCE: (other, []),
            Take.MUL: (mul.o, [self.half_overflow.eq(mul.overflow)]),
            Take.ADD: (add.o, [self.half_overflow.eq(add.overflow)]),
            **{Take[act.name]: (activation(self.o), []) for act, activation in ACTIVATIONS.items()},
            Take.TABLE: (tables.o[0], looked_up),
        }
        with m.If(self.en), m.Switch(self.take):
            for take, (value, flags) in choices.items():
                with m.Case(take):
                    m.d.sync += self.o.eq(value)
                    m.d.comb += flags
        return m
