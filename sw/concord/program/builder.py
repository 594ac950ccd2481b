"""Programs built instruction by instruction, for compilers and for the assembler."""

from __future__ import annotations

from collections.abc import Callable

from concord.spec import isa
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode
from concord.spec.isa import Instruction, IntegerSource, Mem, MvMode, Op, PipelineStage
from concord.spec.operations import WRITE_OPS

#: Fields of chain instructions that are only given by name.
NAMED_ONLY = frozenset({"last", "unit", "mode", "sliding", "reg", "row", "inner", "outer"})

#: Names of field values, by operation and field.
_MEMORIES = {mem.name.lower(): int(mem) for mem in Mem}
VALUE_NAMES: dict[tuple[Op, str], dict[str, int]] = {
    (Op.V_RD, "mem"): _MEMORIES,
    (Op.V_WR, "mem"): _MEMORIES,
    (Op.V_COPY, "mem"): _MEMORIES,
    (Op.I_OPD, "mem"): _MEMORIES,
    (Op.I_DST, "mem"): _MEMORIES,
    (Op.I_SRC, "kind"): {kind.name.lower(): int(kind) for kind in IntegerSource},
    (Op.MV_MUL, "mode"): {mode.name.lower(): int(mode) for mode in MvMode},
    (Op.SET_QUANT, "mode"): {mode.name.lower(): int(mode) for mode in ExponentMode},
    (Op.SET_QUANT, "rounding"): {mode.name.lower(): int(mode) for mode in BLOCK_ROUNDINGS},
}


def positional(form: Instruction) -> list[str]:
    """Names of the operands that need not be named, in order."""
    names = [field.name for field in form.fields.fields]
    return [name for name in names if name not in NAMED_ONLY] if form.is_chain else names


def defaults(form: Instruction) -> dict[str, int]:
    """Values of fields that are left out: those at the start of a run; of other fields zero."""
    return dict(isa.INITIAL.get(form.op, {}))


class ProgramBuilder:
    """Builds a program instruction by instruction; every mnemonic is a method.

    ``builder.v_rd("narrow", 0, inner=2)`` appends a word and returns its address. Values are integers or the names in
    :data:`VALUE_NAMES`. Chains are checked as they are built, ``last`` and ``unit`` are filled in.
    """

    def __init__(self) -> None:
        self._words: list[int] = []
        self.stage: PipelineStage | None = None  #: of the latest instruction of an open chain
        self._source: int | None = None
        self._written: set[int] = set()
        self.restart()

    def restart(self) -> None:
        """Take the state for that at the start of a run."""
        self._state = {op: dict(values) for op, values in isa.INITIAL.items()}

    def set(self, op: Op, **fields: int) -> None:
        """Append an instruction that sets state, unless that is so already; fields left out stay as they are."""
        known = self._state.get(op)
        state = (known or {}) | fields
        if state != known:
            self.emit(op, **state)
            self._state[op] = state

    def forget(self, op: Op) -> None:
        """Append the next instruction that sets this state, whatever it was before."""
        self._state.pop(op, None)

    def forget_all(self) -> None:
        """Append every next instruction that sets state, whatever the state was before."""
        self._state = {}

    def follow(self, other: ProgramBuilder) -> None:
        """Take the state for that after another program."""
        self._state = {op: dict(values) for op, values in other._state.items()}

    def __len__(self) -> int:
        return len(self._words)

    def __getattr__(self, name: str) -> Callable[..., int]:
        form = isa.MNEMONICS.get(name)
        if form is None:
            raise AttributeError(f"mnemonic must be one of {sorted(isa.MNEMONICS)}, not {name!r}")

        def method(*operands: int | str, **fields: int | str) -> int:
            names = positional(form)
            if len(operands) > len(names):
                raise TypeError(f"operands of {form.mnemonic} must be at most {names}, not {list(operands)}")
            values = dict(zip(names, operands, strict=False))
            if twice := sorted(values.keys() & fields.keys()):
                raise TypeError(f"operands of {form.mnemonic} must be given once, not twice: {twice}")
            return self.emit(form.op, **values, **fields)

        return method

    def emit(self, op: Op, **fields: int | str) -> int:
        """Append one instruction and return its address.

        Raises
        ------
        TypeError
            If a field is unknown.
        ValueError
            If a value is not allowed, or the instruction cannot stand here.
        """
        form = isa.FORMS[op]
        values = defaults(form) | {name: _value(op, name, value) for name, value in fields.items()}
        if "last" in values:
            raise TypeError("last is set by the builder and must not be given")
        if "mem" in form.fields and "mem" not in values:
            raise TypeError(f"operands of {form.mnemonic} must include mem")
        if not form.is_chain or op is Op.V_RD:
            self._finish(form.mnemonic)
        else:
            self._place(form, values)
        self._words.append(isa.encode(op, **values))
        if op is Op.V_RD:
            self.stage, self._source, self._written = PipelineStage.READ, values["mem"], set()
        return len(self._words) - 1

    def raw(self, word: int) -> int:
        """Append a word as it is, outside chains, and return its address."""
        if not 0 <= word < 1 << isa.WORD_BITS:
            raise ValueError(f"word must be in 0..{(1 << isa.WORD_BITS) - 1:#x}, not {word!r}")
        self._finish("a raw word")
        self._words.append(word)
        return len(self._words) - 1

    def rewrite(self, address: int, op: Op, **fields: int) -> None:
        """Put another instruction in the place of one outside chains."""
        form, _ = isa.decode(self._words[address])
        if form.is_chain or isa.FORMS[op].is_chain:
            raise ValueError(
                f"instructions must be outside chains to be rewritten, not {form.mnemonic} and {op.name.lower()}"
            )
        self._words[address] = isa.encode(op, **fields)

    def words(self) -> list[int]:
        """The program; ``ValueError`` if a chain is not finished."""
        self._finish("the end of the program")
        return list(self._words)

    def _place(self, form: Instruction, values: dict[str, int]) -> None:
        """Choose the unit of a chain instruction and move on to its stage."""
        if self.stage is None:
            raise ValueError(f"{form.mnemonic} must stand in a chain, behind a v_rd")
        if form.op is Op.MV_MUL and self._source != Mem.NARROW:
            raise ValueError("mv_mul must follow a narrow v_rd, not a wide one")
        if form.op is Op.VV_SCALE and isa.decode(self._words[-1])[0].op is not Op.MV_MUL:
            raise ValueError("vv_scale must follow mv_mul")
        if form.op in WRITE_OPS:
            mem = values.get("mem", Mem.NARROW)
            if mem in self._written:
                what = "narrow vectors or rows of matrices" if mem == Mem.NARROW else "wide vectors"
                raise ValueError(f"a chain must write {what} at most once")
            self._written.add(mem)
            self.stage = PipelineStage.WRITE
            return
        chosen = form.stages if values.get("unit") is None else (form.stages[_one_bit(values["unit"])],)
        stage = next((stage for stage in chosen if stage > self.stage), None)
        if stage is None:
            raise ValueError(
                f"{form.mnemonic} must stand before {self.stage.name} in the chain: its stages are "
                f"{', '.join(s.name for s in chosen)}"
            )
        self.stage = stage
        if len(form.stages) > 1:
            values["unit"] = form.stages.index(stage)

    def _finish(self, what: str) -> None:
        """End the open chain, if there is one: its latest word gets ``last``."""
        if self.stage is None:
            return
        if self.stage is not PipelineStage.WRITE:
            raise ValueError(f"a chain must end with v_wr or m_wr, not with {what}")
        form, values = isa.decode(self._words[-1])
        self._words[-1] = isa.encode(form.op, **(values | {"last": 1}))
        self.stage = None


def _one_bit(value: int) -> int:
    if value not in (0, 1):
        raise ValueError(f"unit must be 0 or 1, not {value!r}")
    return value


def _value(op: Op, name: str, value: int | str) -> int:
    if not isinstance(value, str):
        return int(value)
    names = VALUE_NAMES.get((op, name), {})
    if value not in names:
        raise ValueError(f"{name} must be an integer{' or ' if names else ''}{', '.join(names)}, not {value!r}")
    return names[value]
