"""Decoding of instruction words: operation, fields, legality."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import isa, timing
from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import Rounding
from concord.spec.isa import Op, PipelineStage, Trap
from concord.spec.operations import COPY_OPS, INTEGER_OPS, WRITE_OPS
from concord_rtl.parts.bits import at_least
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import view
from concord_rtl.parts.stages import register

#: Groups of operations that get a bit of their own, so that nothing after the decoder has to compare an opcode first.
GROUPS = {
    "halt": (Op.HALT,),
    "waits": (Op.HALT, Op.FENCE, *COPY_OPS, *INTEGER_OPS),
    "loop": (Op.LOOP,),
    "end": (Op.END_LOOP,),
    "read": (Op.V_RD,),
    "write": WRITE_OPS,
    "product": (Op.MV_MUL,),
}
#: Those of configurations with integer chains.
INTEGER_GROUPS = {"integer": INTEGER_OPS}
#: Those of configurations with an external memory.
COPY_GROUPS = {"copy": COPY_OPS, "vectors": (Op.V_COPY,)}


def groups_of(config: NpuConfig) -> dict[str, tuple[Op, ...]]:
    """Groups that words of a configuration are told apart by."""
    integers = INTEGER_GROUPS if config.has(Op.I_RUN) else {}
    return {**GROUPS, **integers, **(COPY_GROUPS if config.has(Op.COPY) else {})}


def decoded_layout(config: NpuConfig) -> data.StructLayout:
    """A word, its address and what follows from it alone.

    ``trap``: why the word is illegal wherever it stands, or ``NONE``. ``is_chain``: it belongs to a chain. ``stage``:
    stage it occupies, with the ``unit`` bit taken into account; meaningless for control instructions. ``reg``:
    address register it names. One bit for each of :func:`groups_of`.
    """
    return data.StructLayout(
        {
            "pc": 16,
            "word": isa.WORD_BITS,
            "trap": range(max(Trap) + 1),
            "is_chain": 1,
            "stage": range(max(PipelineStage) + 1),
            "reg": isa.ADDR_REG_BITS,
            **dict.fromkeys(groups_of(config), 1),
        }
    )


class Decoder(Component):
    """Check of one word against the instruction table. It does not know about open chains or loops.

    One word per cycle.

    Parameters
    ----------
    config : NpuConfig
    registered : bool
        The output comes ``LATENCY`` cycles after the word; in the same cycle if not.
    """

    pc = Input(16, "Address of the instruction word, which may lie beyond the program memory.")
    word = Input(isa.WORD_BITS, "Instruction word.")
    o = Output(lambda self: decoded_layout(self.config), "What follows.")

    LATENCY = timing.DECODER

    def __init__(self, config: NpuConfig, *, registered: bool = True):
        self.config = config
        self.registered = registered
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        word, pc = self._staged(m, self.word, "word"), self._staged(m, self.pc, "pc")
        beyond = self._staged(m, self.pc >= self.config.program_depth, "beyond")
        opcode = word[: isa.OPCODE_BITS]
        o = self.o
        known, reserved, bad, early = (Cat(faults).any() for faults in zip(*self._all_faults(m), strict=True))
        m.d.comb += [
            o.pc.eq(pc),
            o.word.eq(word),
            *(
                o[name].eq(Cat(opcode == op for op in ops if self.config.has(op)).any())
                for name, ops in groups_of(self.config).items()
            ),
        ]
        with m.If(beyond):
            m.d.comb += o.trap.eq(Trap.PC_RANGE)
        with m.Elif(~known | reserved):
            m.d.comb += o.trap.eq(Trap.BAD_OPCODE)
        with m.Elif(bad):
            m.d.comb += o.trap.eq(Trap.BAD_FIELD)
        with m.Elif(early):
            m.d.comb += o.trap.eq(Trap.CHAIN_ORDER)
        with m.Switch(opcode):
            for form in self._forms:
                with m.Case(form.op):
                    self._stage(m, form, view(form.op, word))
        return m

    @property
    def _forms(self) -> list[isa.Instruction]:
        """The instructions of the configuration."""
        return [form for form in isa.INSTRUCTIONS if self.config.has(form.op)]

    def _all_faults(self, m):
        """For each form bits that say: the word has it; with reserved bits set; with fields out of range; with
        the mark of the last instruction of a chain, which only a write may bear.
        """
        for form in self._forms:
            here = self.word[: isa.OPCODE_BITS] == form.op
            reserved, bad = self._faults(form)
            early = view(form.op, self.word)["last"] if form.is_chain and form.op not in WRITE_OPS else Const(0, 1)
            faults = {"known": Const(1, 1), "reserved": reserved, "bad": bad, "early": early}
            yield [self._staged(m, here & fault, f"{form.op.name}_{name}") for name, fault in faults.items()]

    def _staged(self, m, value, name):
        """``value`` in the cycle of the output."""
        return register(m, value, name) if self.registered else value

    def _limits(self, form: isa.Instruction) -> tuple[dict[str, int], dict[str, int]]:
        """Least and greatest field values on this configuration."""
        least, most = dict(form.least), dict(form.most)
        if form.op == Op.V_TBL:
            most["table"] = self.config.table_slots - 1
        if form.op == Op.SET_QUANT:
            least["exp"], most["exp"] = self.config.act.exp_min, self.config.act.exp_max
            if not self.config.stochastic:
                most["rounding"] = Rounding.STOCHASTIC - 1
        return least, most

    def _faults(self, form: isa.Instruction) -> tuple[Value, Value]:
        """Two bits: reserved bits are set, and a field is out of range, if the word has this form."""
        fields = view(form.op, self.word)
        least, most = self._limits(form)
        bad = [self._less(fields[name], low) for name, low in least.items()]
        bad += [self._more(fields[name], high) for name, high in most.items() if high < form.fields[name].high]
        if form.op in (Op.M_WR, Op.COPY):
            bad.append(fields["matrix"][: clog2(self.config.steps)].any())
        if form.op == Op.MV_MUL and not self.config.window_taps:
            return self.word[fields.shape()["sliding"].offset :].any(), Cat(bad).any()
        reserved = fields["reserved"].any() if "reserved" in form.layout else Const(0, 1)
        return reserved, Cat(bad).any()

    def _less(self, value, limit):
        """Bit that is set if a field is less than a constant; next to a memory, which is slow, without carry chain."""
        if self.registered:
            return value < limit
        return ~at_least(value, limit)

    def _more(self, value, limit):
        """Bit that is set if a field is greater than a constant; next to a memory without a carry chain."""
        return value > limit if self.registered else at_least(value, limit + 1)

    def _stage(self, m, form: isa.Instruction, fields) -> None:
        """Drives the outputs of this form for the builder."""
        if form.is_chain:
            m.d.comb += [self.o.is_chain.eq(1), self.o.stage.eq(form.stages[0])]
            if len(form.stages) > 1:
                m.d.comb += self.o.stage.eq(Mux(fields["unit"], form.stages[1], form.stages[0]))
        if "reg" in form.fields:
            m.d.comb += self.o.reg.eq(fields["reg"])
