"""State that ``i_`` words set."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import isa
from concord.spec.isa import Op
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.shapes import view
from concord_rtl.pipe.integers.ports import integer_layout

#: By operation: fields of the state, and the fields of the word that they have the values of.
PLAIN = {
    Op.I_PLANES: {"count": "count", "target_digit": "dst", "column_digit": "col"},
    Op.I_TAPS: {
        "vector_step": "vector",
        "vector_digit": "vector_digit",
        "matrix_step": "matrix",
        "matrix_digit": "matrix_digit",
        "digits": "digits",
        "of": "of",
    },
    Op.I_SRC: {"kind": "kind"},
    Op.I_OPD: {"operand_wide": "mem"},
    Op.I_DST: {"target_wide": "mem"},
}
#: By operation: an address of the state, and the field of the word with its base.
ADDRESSES = {
    Op.I_SRC: ("source", "addr"),
    Op.I_OPD: ("operand", "addr"),
    Op.I_DST: ("target", "addr"),
    Op.I_MAT: ("matrix", "matrix"),
    Op.I_COL: ("column", "first"),
    Op.I_ROW: ("tile_row", "first"),
}
#: By operation: offsets of addresses that another word sets.
OFFSETS = {Op.I_TAPS: "matrix_offset", Op.I_PLANES: "number_offset"}


class IntegerState(NpuUnit):
    """Registers of everything that describes an integer chain.

    A word takes effect in the next cycle.

    Parameters
    ----------
    config : NpuConfig
    """

    clear = Input(1, "A run begins: everything is as before the first word.")
    execute = Input(1, "``word`` takes effect.")
    word = Input(isa.WORD_BITS, "A ``t_`` or ``i_`` word.")
    offset = Input(signed(isa.MATRIX_ADDR_BITS), "The address register that it names.")
    o = Output(lambda self: integer_layout(self.config), "The state.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        opcode = self.word[: isa.OPCODE_BITS]
        for op in dict.fromkeys((*PLAIN, *ADDRESSES, *OFFSETS, Op.I_RUN)):
            fields = view(op, self.word)
            with m.If(self.execute & (opcode == op)):
                m.d.sync += [target.eq(value) for target, value in self._effects(op, fields)]
        with m.If(self.clear):
            for op in PLAIN:
                for name, field in PLAIN[op].items():
                    m.d.sync += self.o[name].eq(isa.INITIAL[op][field])
            m.d.sync += [self.o[name].as_value().eq(0) for name, _ in ADDRESSES.values()]
            m.d.sync += [self.o[name].eq(0) for name in OFFSETS.values()]
        return m

    def _effects(self, op, fields):
        """Registers that a word sets, and their values."""
        for name, field in PLAIN.get(op, {}).items():
            yield self.o[name], fields[field]
        if op in ADDRESSES:
            name, base = ADDRESSES[op]
            address = self.o[name]
            yield address.addr, fields[base] + (self.offset if "reg" in isa.FORMS[op].fields else 0)
            for stride in ("row", "inner", "outer"):
                yield address[stride], fields[stride]
        if op in OFFSETS:
            yield self.o[OFFSETS[op]], self.offset
        if op is Op.I_RUN:
            for part in isa.FORMS[op].fields.fields:
                yield self.o.run[part.name], fields[part.name]
