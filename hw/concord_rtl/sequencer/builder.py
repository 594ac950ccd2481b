"""Assembly of chain descriptors from chain instructions and the state that control instructions set."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import isa
from concord.spec.config import clog2
from concord.spec.isa import Op, PipelineStage
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.control import ACTS, Act, AddOp
from concord_rtl.parts.shapes import stream_of, view
from concord_rtl.pipe.layouts import Reduction, chain_layout
from concord_rtl.sequencer.decode import decoded_layout

#: Operation of the add stage that an instruction stands for.
ADD_OPS = {
    Op.VV_ADD: AddOp.ADD,
    Op.VV_SUB: AddOp.SUB,
    Op.VV_RSUB: AddOp.RSUB,
    Op.VV_MAX: AddOp.MAX,
    Op.VV_MIN: AddOp.MIN,
}
REDUCTIONS = {Op.MV_MUL: Reduction.PRODUCT, Op.V_MAX: Reduction.MAX, Op.V_REDMAX: Reduction.MAX_ALL}
#: State of a descriptor that a control instruction sets and chains leave alone.
STATE_OPS = (Op.SET_SHAPE, Op.SET_ITERS, Op.SET_WINDOW, Op.SET_PAD, Op.SET_QUANT, Op.SET_SCALE)


class ChainBuilder(NpuUnit):
    """Takes one legal instruction per cycle and presents the descriptor after the last one of a chain.

    The descriptor itself holds shapes, iterations, window, padding and conversion from one chain to the next, so no
    instruction may be executed while it waits to be taken (``chains.valid``).

    Parameters
    ----------
    config : NpuConfig
    """

    clear = Input(1, "Start of a run: initial state.")
    execute = Input(1, "``word`` takes effect in this cycle.")
    legal = Input(
        1,
        "It is a legal word. What an illegal one changes does not matter, as long as no chain is dispatched.",
    )
    word = Input(lambda self: decoded_layout(self.config), "Instruction.")
    misplaced = Output(1, "``word`` cannot stand here: trap ``CHAIN_ORDER``.")
    chains = Output(lambda self: stream_of(chain_layout(self.config)), "Finished descriptors.")
    offset = Output(
        isa.MATRIX_ADDR_BITS,
        "The address register that ``word`` names. Only with integer chains or copies.",
        when=lambda self: self.config.has(Op.I_RUN) or self.config.has(Op.COPY),
    )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        chain = self.chains.p
        opcode = Signal(isa.OPCODE_BITS)
        m.d.comb += opcode.eq(self.word.word[: isa.OPCODE_BITS])
        with m.If(self.chains.ready):
            m.d.sync += self.chains.valid.eq(0)
        self._order(m, opcode, chain)
        register = self._address_registers(m, opcode)
        if self.config.has(Op.I_RUN) or self.config.has(Op.COPY):
            m.d.comb += self.offset.eq(register)
        with m.If(self.execute):
            for op in self._state_ops:
                with m.If(opcode == op):
                    self._set_state(m, op, chain)
            with m.If(self.word.is_chain):
                self._add(m, opcode, chain, register)
        with m.If(self.clear):
            for op in self._state_ops:
                m.d.sync += [target.eq(isa.INITIAL[op][name]) for name, target in self._targets(op, chain)]
            m.d.sync += self.chains.valid.eq(0)
        return m

    @property
    def _state_ops(self):
        """Operations of :data:`STATE_OPS` that the configuration has."""
        return [op for op in STATE_OPS if self.config.has(op)]

    def _view(self, op):
        """The fields of the word, if it is this instruction."""
        return view(op, self.word.word)

    def _order(self, m, opcode, chain):
        """Place in a chain, and a bit that is set if the word may follow."""
        word = self.word
        open_, stage = Signal(), Signal.like(word.stage)
        last = self._view(Op.V_WR)["last"]
        wide = self._view(Op.V_WR)["mem"]
        if self.config.has(Op.M_WR):
            wide = wide & (opcode == Op.V_WR)
        taken = Mux(wide, chain.to_wide, chain.to_narrow)
        follows = open_ & ((word.stage > stage) | (word.write & (stage == PipelineStage.WRITE) & ~taken))
        if self.config.has(Op.VV_SCALE):
            behind_product = Signal()  # the word before was the product of this chain
            with m.If(self.execute):
                m.d.sync += behind_product.eq(word.product)
            follows = follows & ((opcode != Op.VV_SCALE) | behind_product)
        with m.If(word.is_chain):
            m.d.comb += self.misplaced.eq(Mux(word.read, open_, ~follows) | (word.product & chain.wide_source))
        with m.Else():
            m.d.comb += self.misplaced.eq(open_)
        with m.If(self.execute & word.is_chain):
            m.d.sync += [open_.eq(~last), stage.eq(word.stage)]
            with m.If(last & self.legal):
                m.d.sync += self.chains.valid.eq(1)
        with m.If(self.clear):
            m.d.sync += open_.eq(0)

    def _address_registers(self, m, opcode):
        """The registers, and the value of the one that the word names."""
        registers = [Signal(isa.MATRIX_ADDR_BITS, name=f"areg_{k}") for k in range(1, isa.ADDR_REGS)]
        selected, number = Signal(isa.MATRIX_ADDR_BITS), self.word.reg
        m.d.comb += selected.eq(Array([Const(0, isa.MATRIX_ADDR_BITS), *registers])[number])
        for k, register in enumerate(registers, start=1):
            with m.If(self.execute & (number == k)):
                with m.If(opcode == Op.SET_ADDR):
                    m.d.sync += register.eq(self._view(Op.SET_ADDR)["value"])
                with m.Elif(opcode == Op.INC_ADDR):
                    m.d.sync += register.eq(selected + self._view(Op.INC_ADDR)["step"])
            with m.If(self.clear):
                m.d.sync += register.eq(0)
        return selected

    def _targets(self, op, chain):
        """Fields of a control instruction and where the descriptor keeps them."""
        for field in isa.FORMS[op].fields.fields:
            if op == Op.SET_QUANT:
                yield field.name, chain.quant[field.name]
            elif field.name in chain.window.shape().members:
                yield field.name, chain.window[field.name]
            else:
                yield field.name, chain[field.name]

    def _set_state(self, m, op, chain):
        fields = self._view(op)
        m.d.sync += [target.eq(fields[name]) for name, target in self._targets(op, chain)]

    def _address(self, m, name, op, register):
        """Resolve the address of a vector operand."""
        fields, target = self._view(op), self.chains.p[name]
        m.d.sync += target.addr.eq(fields["addr"] + register)
        m.d.sync += [target[name].eq(fields[name]) for name in ("row", "inner", "outer")]

    def _add(self, m, opcode, chain, register):
        """Effect of one chain instruction."""
        units = (chain.unit0, chain.unit1)
        with m.Switch(opcode):
            with m.Case(Op.V_RD):
                m.d.sync += [
                    chain.pc.eq(self.word.pc),
                    chain.wide_source.eq(self._view(Op.V_RD)["mem"]),
                    chain.reduction.eq(Reduction.NONE),
                    chain.depthwise.eq(0),
                    *([chain.sliding.eq(0)] if self.config.window_taps else []),
                    *([chain.scale.eq(0)] if self.config.has(Op.VV_SCALE) else []),
                    chain.to_wide.eq(0),
                    chain.to_narrow.eq(0),
                    *([chain.to_matrix.eq(0)] if self.config.has(Op.M_WR) else []),
                    *(Value.cast(unit).eq(0) for unit in units),
                ]
                self._address(m, "source", Op.V_RD, register)
            for op, reduction in REDUCTIONS.items():
                with m.Case(op):
                    m.d.sync += chain.reduction.eq(reduction)
                    if op == Op.MV_MUL:
                        fields = self._view(op)
                        m.d.sync += chain.depthwise.eq(fields["mode"])
                        if self.config.window_taps:
                            m.d.sync += chain.sliding.eq(fields["sliding"] & fields["mode"])
                        m.d.sync += chain.matrix.eq(fields["matrix"] + register)
            with m.Case(Op.VV_MUL):
                self._operand(m, chain, Op.VV_MUL, "mul", 1, register)
            if self.config.has(Op.VV_SCALE):
                with m.Case(Op.VV_SCALE):
                    self._scale(m, chain, register)
            for op, add in ADD_OPS.items():
                with m.Case(op):
                    self._operand(m, chain, op, "add", add, register)
            for op, act in ACTS.items():
                with m.Case(op):
                    self._unit(m, chain, op, act=act)
            with m.Case(Op.V_TBL):
                self._unit(m, chain, Op.V_TBL, act=Act.TABLE, slot=self._view(Op.V_TBL)["table"])
            with m.Case(Op.V_WR):
                self._destination(m, chain, register)
            if self.config.has(Op.M_WR):
                with m.Case(Op.M_WR):
                    self._rows(m, chain, register)

    def _unit(self, m, chain, op, **values):
        """Set controls of the unit that the word names."""
        for number, unit in enumerate((chain.unit0, chain.unit1)):
            with m.If(self._view(op)["unit"] == number):
                m.d.sync += [unit[name].eq(value) for name, value in values.items()]

    def _operand(self, m, chain, op, stage, value, register):
        self._unit(m, chain, op, **{stage: value})
        for number in range(2):
            with m.If(self._view(op)["unit"] == number):
                self._address(m, f"{stage}{number}", op, register)

    def _scale(self, m, chain, register):
        """Factors are the operand of the multiplication of unit 0, fractions that of its addition."""
        m.d.sync += [chain.scale.eq(1), chain.unit0.mul.eq(1), chain.unit0.add.eq(AddOp.ADD)]
        for name, follows in (("mul0", 0), ("add0", 1)):
            self._address(m, name, Op.VV_SCALE, register + follows)

    def _destination(self, m, chain, register):
        for mem, name in ((isa.Mem.WIDE, "wide"), (isa.Mem.NARROW, "narrow")):
            with m.If(self._view(Op.V_WR)["mem"] == mem):
                m.d.sync += chain[f"to_{name}"].eq(1)
                self._address(m, name, Op.V_WR, register)

    def _rows(self, m, chain, register):
        """Rows of tiles: they take the place of a narrow destination, and their numbers that of its addresses."""
        fields, target = self._view(Op.M_WR), chain.narrow
        first = Cat(Const(0, clog2(self.config.rows)), fields["matrix"][clog2(self.config.steps) :])
        m.d.sync += [
            chain.to_narrow.eq(1),
            chain.to_matrix.eq(1),
            target.addr.eq(first + register.as_signed()),
            *(target[name].eq(fields[name]) for name in ("row", "inner", "outer")),
        ]
