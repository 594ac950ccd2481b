"""Multifunction unit: multiply, add or compare, activate."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH, SCALE_SHIFT_BITS
from concord.spec.operations import Op
from concord_rtl.arith.acc_scale import AccScale
from concord_rtl.arith.binary16_add import Binary16Add
from concord_rtl.arith.binary16_mul import Binary16Mul
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.control import MFU_CTRL, Act, AddOp
from concord_rtl.parts.stages import delay
from concord_rtl.vector.activations import ACTIVATIONS
from concord_rtl.vector.table import TableAccess, TableBank

UNITS = 2


def beat_of(unit) -> data.ArrayLayout:
    """P elements in binary16."""
    return data.ArrayLayout(BINARY16_WIDTH, unit.config.mfu_lanes)


def scaling_layout(config: NpuConfig) -> data.StructLayout:
    """Accumulators of a beat, whether they become codes, and by how many bits their products move down."""
    units = data.ArrayLayout(signed(config.scaled_bits), config.mfu_lanes)
    return data.StructLayout({"units": units, "on": 1, "shift": SCALE_SHIFT_BITS})


class Mfu(Component):
    """Multiplies by an operand, then adds, subtracts or compares another, then applies ReLU or a table.

    Does not stall; operands must be there when they are taken. P elements per cycle, always ``LATENCY`` cycles later.
    An operation that is left out keeps the bits of its input, also those of a NaN. A vector without a table may leave
    in front of the tables, ``EARLY`` cycles later.

    Parameters
    ----------
    config : NpuConfig
        Gives P and the size of the tables.
    unit : int
        Number of the unit in the chain, 0 or 1. All units are alike.
    table_init, slot_init : list of int
        Initial contents of the table memories and descriptors.
    """

    i = Input(beat_of, "One beat.")
    mul_operand = Input(
        beat_of,
        "Beat of the factor, used with its beat if ``ctrl.mul``.",
    )
    add_operand = Input(
        beat_of,
        "Beat of the second operand, used ``ADD_OFFSET`` cycles later.",
    )
    valid = Input(1, "A beat is there.")
    first = Input(1, "It is the first of its vector.")
    ctrl = Input(MFU_CTRL, "Operations; held during all beats of a vector.")
    leaves = Input(
        1,
        "The vector leaves early: its beats are in ``early``, and none comes out of ``o``. Held like ``ctrl``.",
    )
    early = Output(
        lambda self: data.StructLayout(
            {
                "valid": 1,
                "first": 1,
                "half_overflow": 1,
                "values": beat_of(self),
            }
        ),
        "A beat that leaves early: ``valid``, ``first``, ``half_overflow`` and ``values``.",
    )
    early_soon = Output(1, "``early.valid`` of the next cycle.")
    scaling = Input(
        lambda self: scaling_layout(self.config),
        "Codes of accumulators take the place of product and sum, whose operands are factors and fractions; held like "
        "``ctrl``, but the accumulators, which are those of ``i``. Only of unit 0 with ``vv_scale``.",
        when=lambda self: self._scales,
    )
    o = Output(beat_of, "One beat.")
    add_soon = Output(1, "``add_operand`` is used in the next cycle.")
    o_valid = Output(1, "A beat is there.")
    o_first = Output(1, "It is the first of its vector.")
    valid_soon = Output(1, "``o_valid`` of the next cycle.")
    first_soon = Output(1, "``o_first`` of the next cycle.")
    half_overflow = Output(1, "A result of the beat became infinite.")
    nonfinite = Output(1, "An element of the beat is not finite.")
    table_clamped = Output(1, "An element of the beat lay outside of its table.")
    tables = Input(lambda self: TableAccess(self.config), "As in :class:`concord_rtl.vector.table.TableBank`.")

    ADD_OFFSET, ACT_OFFSET = timing.ADD_OFFSET, timing.ACT_OFFSET
    LATENCY, EARLY = timing.MFU, timing.MFU_EARLY

    def __init__(self, config: NpuConfig, unit: int, table_init=(), slot_init=()):
        if unit not in range(UNITS):
            raise ValueError(f"unit must be in 0..{UNITS - 1}, not {unit!r}")
        self.config = config
        self.unit = unit
        self.table_init = table_init
        self.slot_init = slot_init
        super().__init__()

    @property
    def _scales(self) -> bool:
        return self.config.has(Op.VV_SCALE) and self.unit == 0

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ctrl, valid, now = {0: self.ctrl}, {0: self.valid}, 0
        leaves = delay(m, self.leaves, self.ACT_OFFSET, "leaves")
        used = (self.ACT_OFFSET - TableBank.SLOT_LEAD, self.ACT_OFFSET - 1, self.ACT_OFFSET)
        for then in sorted({self.ADD_OFFSET - 1, self.ADD_OFFSET, *used, self.LATENCY - 2, self.LATENCY - 1}):
            ctrl[then] = data.View(MFU_CTRL, delay(m, ctrl[now], then - now, f"ctrl_{then}"))
            here = valid[now] & ~leaves if now == self.ACT_OFFSET else valid[now]
            valid[then] = delay(m, here, then - now, f"valid_{then}", reset_less=False)
            now = then
        before = self.ADD_OFFSET - 1
        m.d.comb += self.add_soon.eq(valid[before] & (ctrl[before].add != AddOp.NONE))
        values, mul_over = self._multiply(m, self.i, ctrl[0])
        values, add_over = self._add(m, values, ctrl[self.ADD_OFFSET])
        over = delay(m, mul_over, Binary16Add.LATENCY, "mul_over") | add_over
        if self._scales:
            values, over = self._scale(m, values, over)
        self._activate(m, values, ctrl, valid[self.LATENCY - 1], over)
        first = delay(m, self.valid & self.first, self.ACT_OFFSET, "early_first", reset_less=False)
        m.d.comb += self.early_soon.eq(valid[self.ACT_OFFSET] & leaves)
        m.d.sync += [
            self.early.valid.eq(self.early_soon),
            self.early.first.eq(first),
            self.early.half_overflow.eq(over),
        ]
        first = delay(m, first & ~leaves, self.LATENCY - 1 - self.ACT_OFFSET, "first", reset_less=False)
        m.d.comb += [self.valid_soon.eq(valid[self.LATENCY - 1]), self.first_soon.eq(first)]
        m.d.sync += self.o_first.eq(first)
        return m

    def _multiply(self, m, values, ctrl):
        results, over = [], []
        for p, x in enumerate(values):
            m.submodules[f"mul_{p}"] = mul = Binary16Mul()
            m.d.comb += [mul.a.eq(x), mul.b.eq(self.mul_operand[p]), mul.skip.eq(~ctrl.mul)]
            results.append(mul.o)
            over.append(mul.overflow)
        return results, Cat(over).any()

    def _add(self, m, values, ctrl):
        results, over = [], []
        for p, x in enumerate(values):
            m.submodules[f"add_{p}"] = add = Binary16Add()
            m.d.comb += [add.a.eq(x), add.b.eq(self.add_operand[p]), add.op.eq(ctrl.add)]
            results.append(add.o)
            over.append(add.overflow)
        return results, Cat(over).any()

    def _scale(self, m, values, over):
        """Codes in place of sums, where they are wanted; they raise no flag."""
        scaled = delay(m, self.scaling.on, self.ACT_OFFSET, "scaled")
        results = []
        for p, value in enumerate(values):
            m.submodules[f"scale_{p}"] = scale = AccScale(self.config)
            m.d.comb += [
                scale.units.eq(self.scaling.units[p]),
                scale.factor.eq(self.mul_operand[p]),
                scale.shift.eq(self.scaling.shift),
                scale.fraction.eq(self.add_operand[p]),
            ]
            results.append(Mux(scaled, scale.o, value))
        return results, over & ~scaled

    def _activate(self, m, values, ctrl, valid, over):
        m.submodules.tables = tables = TableBank(self.config, self.table_init, self.slot_init)
        wiring.connect(m, wiring.flipped(self.tables), tables.tables)
        m.d.comb += tables.slot.eq(ctrl[self.ACT_OFFSET - TableBank.SLOT_LEAD].slot)
        late = ctrl[self.LATENCY - 1].act == Act.TABLE
        for p, x in enumerate(values):
            # The lanes are all over the device: each has registers of its own for what it does.
            soon = [ctrl[self.ACT_OFFSET - 1].act == code for code in ACTIVATIONS]
            m.submodules[f"act_{p}"] = act = KeptRegister(len(soon) + 1)
            m.d.comb += act.i.eq(Cat(*soon, ctrl[self.LATENCY - 2].act == Act.TABLE))
            *wanted, look_up = act.o
            result = x
            for want, activation in zip(wanted, ACTIVATIONS.values(), strict=True):
                result = Mux(want, activation(x), result)
            m.d.sync += self.early["values"][p].eq(result)
            around = delay(m, self.early["values"][p], TableBank.LATENCY - 1, f"around_{p}")
            m.d.comb += tables.i[p].eq(x)
            m.d.sync += self.o[p].eq(Mux(look_up, tables.o[p], around))
        m.d.sync += [
            self.o_valid.eq(valid),
            self.nonfinite.eq(valid & late & tables.nonfinite),
            self.table_clamped.eq(valid & late & tables.clamped),
            self.half_overflow.eq(valid & delay(m, over, TableBank.LATENCY, "over")),
        ]
