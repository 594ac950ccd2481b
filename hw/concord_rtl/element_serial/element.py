"""What happens to one element between source and destination in an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_INF, BINARY16_NAN, BINARY16_WIDTH
from concord_rtl.arith.binary16_fields import is_nan
from concord_rtl.arith.binary16_mul import Binary16Mul
from concord_rtl.arith.block_float import activations
from concord_rtl.arith.narrow_to_binary16 import NarrowToBinary16
from concord_rtl.element_serial.grid_adder import GridAdder
from concord_rtl.parts.control import SLOT_BITS, AddOp
from concord_rtl.vector.table import TableAccess, TableBank

#: binary16 pattern of -inf, where maxima start.
LOWEST = 1 << BINARY16_WIDTH - 1 | BINARY16_INF


class Take(enum.Enum, shape=3):
    """What the element becomes."""

    LOWEST = 0  #: -inf
    SUM = 1  #: the accumulator
    SOURCE = 2  #: ``other``, or the narrow element
    MUL = 3  #: its product with ``other``
    ADD = 4  #: its sum, difference, maximum or minimum with ``other``, or with the narrow element
    RELU = 5
    TABLE = 6


class ElementUnit(wiring.Component):
    """One element in a register, and all operations that it can go through.

    All inputs are held for as many cycles before the cycle of ``en`` as the operation takes, the element is held too.

    Parameters
    ----------
    config : NpuConfig
    table_init, slot_init : list of int
        Initial contents of the table memory and of the table descriptors.

    Members
    -------
    en, take : In
        The element becomes what ``take`` says.
    acc : In(signed(acc_bits))
        Sum of a product.
    mant, exp : In
        Element of a narrow vector.
    other : In(16)
        Element of a wide vector.
    narrow : In(1)
        The narrow element stands for ``other``.
    add, second, term, shift : In, In, Out, Out
        Operation of ``Take.ADD``, and its terms, as in :class:`concord_rtl.element_serial.grid_adder.GridAdder`.
    slot : In
        Table.
    o : Out(16)
        The element.
    acc_overflow, half_overflow, nonfinite, table_clamped : Out(1)
        Flags, in the cycle of ``en``.
    tables : In(TableAccess)
        As in :class:`concord_rtl.vector.table.TableBank`.
    """

    en: Signal
    take: Any
    acc: Signal
    mant: Signal
    exp: Signal
    other: Signal
    narrow: Signal
    add: Any
    second: Signal
    term: Any
    shift: Any
    slot: Signal
    o: Signal
    acc_overflow: Signal
    half_overflow: Signal
    nonfinite: Signal
    table_clamped: Signal
    tables: Any

    def __init__(self, config: NpuConfig, *, table_init=(), slot_init=()):
        self.config = config
        self.bank = TableBank(config, table_init, slot_init, held=True)
        self.adder = GridAdder(config)
        super().__init__(
            {
                "en": In(1),
                "take": In(Take),
                "acc": In(signed(config.acc_bits)),
                "mant": In(activations(config).code),
                "exp": In(activations(config).exp),
                "other": In(BINARY16_WIDTH),
                "narrow": In(1),
                "add": In(AddOp),
                "second": In(1),
                "term": Out(self.adder.term.shape()),
                "shift": Out(self.adder.shift.shape()),
                "slot": In(SLOT_BITS),
                "o": Out(BINARY16_WIDTH),
                "acc_overflow": Out(1),
                "half_overflow": Out(1),
                "nonfinite": Out(1),
                "table_clamped": Out(1),
                "tables": In(TableAccess(config)),
            }
        )

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
        rectified = Mux(is_nan(self.o), BINARY16_NAN, Mux(self.o[-1], 0, self.o))
        looked_up = [self.nonfinite.eq(tables.nonfinite), self.table_clamped.eq(tables.clamped)]
        choices = {
            Take.LOWEST: (LOWEST, []),
            Take.SUM: (add.sum, [self.acc_overflow.eq(add.acc_overflow), self.half_overflow.eq(add.half_overflow)]),
            Take.SOURCE: (other, []),
            Take.MUL: (mul.o, [self.half_overflow.eq(mul.overflow)]),
            Take.ADD: (add.o, [self.half_overflow.eq(add.overflow)]),
            Take.RELU: (rectified, []),
            Take.TABLE: (tables.o[0], looked_up),
        }
        with m.If(self.en), m.Switch(self.take):
            for take, (value, flags) in choices.items():
                with m.Case(take):
                    m.d.sync += self.o.eq(value)
                    m.d.comb += flags
        return m
