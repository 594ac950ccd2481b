"""Decoding of instruction words: operation, fields, legality."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.formats import Rounding

from ..shapes import shape_of


def view(op: isa.Op, word: Value) -> data.View:
    """The fields of an instruction in a word."""
    return data.View(shape_of(isa.FORMS[op].layout), word)


class Decoder(wiring.Component):
    """Combinational check of one word against the instruction table.

    It does not know about chains or loops; the sequencer does.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    word : In
        Instruction word.
    trap : Out
        ``BAD_OPCODE``, ``BAD_FIELD`` or ``NONE``.
    is_chain : Out(1)
        The operation belongs to a chain.
    stage : Out
        Station it occupies, with the ``unit`` bit taken into account; meaningless for control instructions.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "word": In(isa.WORD_BITS),
                "trap": Out(range(max(isa.Trap) + 1)),
                "is_chain": Out(1),
                "stage": Out(range(max(isa.Stage) + 1)),
            }
        )

    def _limits(self, form: isa.Instruction) -> tuple[dict[str, int], dict[str, int]]:
        """Least and greatest field values on this configuration."""
        least, most = dict(form.least), dict(form.most)
        if form.op == isa.Op.V_TBL:
            most["table"] = self.config.table_slots - 1
        if form.op == isa.Op.SET_QUANT:
            least["exp"], most["exp"] = self.config.act.exp_min, self.config.act.exp_max
            if not self.config.stochastic:
                most["rounding"] = Rounding.STOCHASTIC - 1
        return least, most

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.trap.eq(isa.Trap.BAD_OPCODE)
        with m.Switch(self.word[: isa.OPCODE_BITS]):
            for form in isa.INSTRUCTIONS:
                with m.Case(form.op):
                    self._form(m, form)
        return m

    def _form(self, m, form: isa.Instruction) -> None:
        fields = view(form.op, self.word)
        reserved = fields["reserved"] if "reserved" in form.layout else Const(0, 1)
        least, most = self._limits(form)
        bad = Const(0, 1)
        for name, low in least.items():
            bad = bad | (fields[name] < low)
        for name, high in most.items():
            if high < form.fields[name].high:
                bad = bad | (fields[name] > high)
        m.d.comb += self.trap.eq(Mux(reserved.any(), isa.Trap.BAD_OPCODE, Mux(bad, isa.Trap.BAD_FIELD, isa.Trap.NONE)))
        if form.is_chain:
            m.d.comb += [self.is_chain.eq(1), self.stage.eq(form.stages[0])]
            if len(form.stages) > 1:
                m.d.comb += self.stage.eq(Mux(fields["unit"], form.stages[1], form.stages[0]))
