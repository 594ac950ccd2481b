"""The sequencer in software: from words to the chains they dispatch, and to the trap that ends a bad program.

At each word the checks are made in this order, the first that fails decides: ``PC_RANGE``, ``BAD_OPCODE``,
``BAD_FIELD``, ``CHAIN_ORDER``, ``LOOP_STACK``. A trap carries the address of the word (of ``PC_RANGE``: the address
after the end) and discards the chain that was being collected; chains dispatched before complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from concord.program.chains import (
    MATRIX_MASK,
    VECTOR_MASK,
    Address,
    Chain,
    CodeScale,
    MatrixWrite,
    MemoryCopy,
    MfuOp,
    Pad,
    Quant,
    VectorCopy,
    VectorPlace,
    WeightCopy,
    Window,
)
from concord.program.integers import PLACES, ChainSteps, IntegerChain, Planes, ProductTaps, TensorStep
from concord.program.matrix_copies import read_by, still_there
from concord.spec import isa
from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import ExponentMode, Rounding
from concord.spec.isa import MATRIX_ADDR_BITS, IllegalInstruction, Instruction, Mem, MvMode, Op, PipelineStage, Trap
from concord.spec.operations import (
    COPY_OPS,
    INTEGER_OPS,
    INTEGER_STATE_OPS,
    NEEDS,
    TENSOR_OPS,
    WRITE_OPS,
    IntegerSource,
)

#: Words that wait until everything before them has been written.
_WAITING = frozenset({Op.HALT, Op.FENCE, *COPY_OPS, *INTEGER_OPS})

#: Fields of integer instructions that name an address register.
_REGISTERS = frozenset({"reg"})

#: Items of integer chains, and all items that a word executes by itself.
IntegerItem = IntegerChain | TensorStep
OwnItem = IntegerItem | MemoryCopy


@dataclass(frozen=True)
class Event:
    """A word that ends a piece of a run: the last one of a chain, one that waits for all chains, or the last of all.

    Parameters
    ----------
    chain : bool
        A chain is dispatched.
    waits : bool
        The word waits until everything that was dispatched has been written, and until copies are over.
    words, jumps : int
        Words executed since the event before, this one included, and jumps to the beginning of a loop.
    item : IntegerChain, TensorStep, MemoryCopy or None
        What the word executes by itself, before the next one.
    """

    chain: bool
    waits: bool
    words: int
    jumps: int
    item: OwnItem | None = None


@dataclass(frozen=True)
class Trace:
    """Chains and other items that a run executes.

    Parameters
    ----------
    chains : tuple of Chain
        In the order of dispatch.
    trap : Trap
        ``NONE`` if the run reached ``halt``.
    pc : int
        Address of the word that trapped, or of ``halt``.
    events : tuple of Event
        What the sequencer does, in order.
    items : tuple of Chain, IntegerChain, TensorStep and MemoryCopy
        Everything that is executed, in order.
    """

    chains: tuple[Chain, ...]
    trap: Trap
    pc: int
    events: tuple[Event, ...] = ()
    items: tuple[Chain | OwnItem, ...] = ()

    @property
    def integers(self) -> tuple[IntegerItem, ...]:
        """Integer chains and tensor steps, in order."""
        return tuple(item for item in self.items if isinstance(item, IntegerChain | TensorStep))

    @property
    def copies(self) -> tuple[WeightCopy, ...]:
        """Copies of weights from the external memory, in order."""
        return tuple(item for item in self.items if isinstance(item, WeightCopy))

    @property
    def vector_copies(self) -> tuple[VectorCopy, ...]:
        """Copies of vectors from and to the external memory, in order."""
        return tuple(item for item in self.items if isinstance(item, VectorCopy))

    def refuse_integers(self, purpose: str) -> None:
        """``ValueError`` if there are integer chains or tensor steps, for what knows other chains alone.

        ``purpose``: what cannot be done with such a program, such as ``"be derived"``.
        """
        if self.integers:
            item = self.integers[0]
            op = item.op if isinstance(item, TensorStep) else Op.I_RUN
            raise ValueError(
                f"programs must have no integer chains to {purpose}, not {op.name.lower()} at pc {item.pc}"
            )

    @property
    def slides(self) -> bool:
        """True if there are sliding products: the exponents of their windows decide about cycles."""
        return any(chain.sliding for chain in self.chains)


def trace(words: Sequence[int], config: NpuConfig, pc: int = 0, limit: int = 1 << 20) -> Trace:
    """Expand a program from ``pc`` to its end.

    Parameters
    ----------
    words : sequence of int
        Content of the instruction memory; the rest of it is zero, which traps.
    config : NpuConfig
        Decides its depth, the nesting of loops, tables and roundings.
    pc : int
        First instruction.
    limit : int
        Most instructions to execute; ``ValueError`` beyond.
    """
    if len(words) > config.program_depth:
        raise ValueError(f"program must have at most {config.program_depth} words, not {len(words)}")
    machine = _Sequencer(words, config, pc)
    events: list[Event] = []
    counted = chains = jumps = done = 0
    for count in range(1, limit + 1):
        waits = machine.waits()
        try:
            ended, trap = machine.step(), Trap.NONE
        except IllegalInstruction as error:
            ended, trap = True, error.trap
        chain = len(machine.chains) > chains
        if ended or chain or waits:
            last = machine.items[-1] if machine.items and len(machine.items) > done and not chain else None
            item = None if isinstance(last, Chain) else last
            events.append(Event(chain, waits, count - counted, machine.jumps - jumps, item))
            counted, chains, jumps, done = count, len(machine.chains), machine.jumps, len(machine.items)
        if ended:
            return Trace(tuple(machine.chains), trap, machine.pc, tuple(events), tuple(machine.items))
    raise ValueError(f"program must end within {limit} instructions")


class _Sequencer:
    """Decoder, state and loop stack."""

    def __init__(self, words: Sequence[int], config: NpuConfig, pc: int):
        self.words, self.config, self.pc = words, config, pc
        self.chains: list[Chain] = []
        self.items: list[Chain | OwnItem] = []
        self.copies: tuple[WeightCopy, ...] = ()  # of which rows may be left
        self.beside: WeightCopy | None = None  # that may go on
        self.jumps = 0
        self.state = {op: dict(values) for op, values in isa.INITIAL.items()}
        self.aregs = [0] * isa.ADDR_REGS
        self.loops: list[list[int]] = []
        self.collected: list[tuple[Instruction, dict[str, Any], PipelineStage]] = []
        self._decoded: dict[int, tuple[Instruction, dict[str, Any]]] = {}

    def step(self) -> bool:
        """Execute one word; whether it was ``halt``. ``IllegalInstruction`` is the trap."""
        if self.waits():
            self.beside = None
        form, values = self._fetch()
        if form.is_chain:
            self._collect(form, values)
        elif self.collected:
            raise IllegalInstruction(Trap.CHAIN_ORDER, f"{form.mnemonic} must not stand inside a chain")
        elif form.op is Op.HALT:
            return True
        elif form.op is Op.END_LOOP:
            self._end_loop()
            return False
        else:
            self._control(form.op, values)
        self.pc += 1
        return False

    def waits(self) -> bool:
        """True if the next word waits for all chains to be written and for copies, be it legal or not."""
        pc = self.pc % (1 << clog2(self.config.program_depth))
        op = (self.words[pc] if pc < len(self.words) else 0) % (1 << isa.OPCODE_BITS)
        return op in _WAITING and not lacking(op, self.config)

    def _fetch(self) -> tuple[Instruction, dict[str, Any]]:
        if not 0 <= self.pc < self.config.program_depth:
            raise IllegalInstruction(Trap.PC_RANGE, f"pc must be below {self.config.program_depth}, not {self.pc}")
        if self.pc not in self._decoded:
            word = self.words[self.pc] if self.pc < len(self.words) else 0
            check_operation(word, self.config)
            form, values = isa.decode(word)
            check_fields(form.op, values, self.config)
            self._decoded[self.pc] = form, values
        return self._decoded[self.pc]

    # Control -----------------------------------------------------------------------------------

    def _control(self, op: Op, values: dict[str, Any]) -> None:
        if op in INTEGER_STATE_OPS:
            self.state[op] = {
                name: self._register(values[name]) if name in _REGISTERS else values[name] for name in values
            }
        elif op in self.state:
            self.state[op] = values
        elif op is Op.SET_ADDR:
            self.aregs[values["reg"]] = values["value"]
        elif op is Op.INC_ADDR:
            self.aregs[values["reg"]] = (self.aregs[values["reg"]] + values["step"]) & MATRIX_MASK
        elif op in COPY_OPS:
            self._copy(op, values)
        elif op in TENSOR_OPS:
            self.items.append(TensorStep(self.pc, op, **values))
        elif op is Op.I_RUN:
            self.items.append(self._integer_chain(values))
        elif op is Op.LOOP:
            if len(self.loops) == self.config.loop_levels:
                raise IllegalInstruction(Trap.LOOP_STACK, f"loops must nest at most {len(self.loops)} deep")
            self.loops.append([self.pc + 1, values["count"]])

    def _copy(self, op: Op, values: dict[str, Any]) -> None:
        if op is Op.V_COPY:
            unit = (values["dram"] + self._register(values["reg"])) % (1 << isa.VECTOR_UNIT_BITS)
            place = Mem(values["mem"]), values["addr"], values["count"]
            self.items.append(VectorCopy(self.pc, isa.VECTOR_UNIT * unit, *place, out=bool(values["out"])))
            return
        column = isa.COPY_UNIT * ((values["dram"] + self.aregs[values["reg"]]) & MATRIX_MASK)
        copy = WeightCopy(self.pc, column, values["matrix"], values["rows"], overlaps=bool(values["ahead"]))
        self.items.append(copy)
        self.beside = copy if copy.overlaps else None
        self.copies = still_there(self.copies, copy, self.config)

    def _integer_chain(self, values: dict[str, Any]) -> IntegerChain:
        state = self.state
        own: dict[str, Any] = {**state[Op.SET_SHAPE], **state[Op.SET_ITERS]}
        for name, (op, base, register) in PLACES.items():
            first, fields = state[op][base] + state[register]["reg"], state[op]
            address = Address(first, fields["row"], fields["inner"], fields["outer"])
            own[name] = VectorPlace(Mem(fields["mem"]), address) if "mem" in fields else address
        taps, planes = ({n: v for n, v in state[op].items() if n != "reg"} for op in (Op.I_TAPS, Op.I_PLANES))
        return IntegerChain(
            pc=self.pc,
            **own,
            kind=IntegerSource(state[Op.I_SRC]["kind"]),
            taps=ProductTaps(**taps),
            window=Window(**state[Op.SET_WINDOW]),
            pad=Pad(**state[Op.SET_PAD]),
            planes=Planes(**planes),
            steps=ChainSteps(**values),
        )

    def _end_loop(self) -> None:
        if not self.loops:
            raise IllegalInstruction(Trap.LOOP_STACK, "end_loop must follow a loop")
        loop = self.loops[-1]
        loop[1] -= 1
        if loop[1]:
            self.pc = loop[0]
            self.jumps += 1
        else:
            self.loops.pop()
            self.pc += 1

    # Chains ------------------------------------------------------------------------------------

    def _collect(self, form: Instruction, values: dict[str, Any]) -> None:
        stage = form.stages[values.get("unit", 0)] if len(form.stages) > 1 else form.stages[0]
        if reason := self._misplaced(form.op, stage, values):
            raise IllegalInstruction(Trap.CHAIN_ORDER, reason)
        self.collected.append((form, values, stage))
        if values["last"]:
            self.chains.append(self._dispatch())
            self.items.append(self.chains[-1])
            self.collected = []

    def _misplaced(self, op: Op, stage: PipelineStage, values: dict[str, Any]) -> str:
        """Reason for which a chain instruction cannot stand here, or nothing."""
        name = op.name.lower()
        if op not in WRITE_OPS and values["last"]:
            return f"last must not be set in {name}"
        if not self.collected:
            return "" if op is Op.V_RD else f"{name} must stand inside a chain"
        if op is Op.V_RD:
            return "v_rd must not stand inside a chain"
        if op in WRITE_OPS:
            mem = values.get("mem", Mem.NARROW)  # rows of matrices take the place of narrow vectors
            same = any(f.op in WRITE_OPS and v.get("mem", Mem.NARROW) == mem for f, v, _ in self.collected)
            what = "narrow vectors or rows of matrices" if mem == Mem.NARROW else "wide vectors"
            return f"a chain must write {what} at most once" if same else ""
        if stage <= self.collected[-1][2]:
            return f"{name} must occupy a stage behind {self.collected[-1][2].name}, not {stage.name}"
        if op is Op.MV_MUL and self.collected[0][1]["mem"] != Mem.NARROW:
            return "mv_mul must have a narrow source"
        if op is Op.VV_SCALE and self.collected[-1][0].op is not Op.MV_MUL:
            return "vv_scale must follow mv_mul"
        return ""

    def _dispatch(self) -> Chain:
        _, first, _ = self.collected[0]
        middle = [item for item in self.collected if item[2] not in (PipelineStage.READ, PipelineStage.WRITE)]
        head = middle[0] if middle and middle[0][2] is PipelineStage.REDUCE else None
        reduce, product = (head[0].op, head[1]) if head else (None, {})
        mode = MvMode(product.get("mode", MvMode.DENSE))
        shape, iters, quant = (self.state[op] for op in (Op.SET_SHAPE, Op.SET_ITERS, Op.SET_QUANT))
        chain = Chain(
            pc=self.pc - len(self.collected) + 1,
            mem=Mem(first["mem"]),
            source=self._address(first),
            rows=shape["rows"],
            cols=shape["cols"] if reduce is Op.MV_MUL and mode is MvMode.DENSE else 1,
            inner=iters["inner"],
            outer=iters["outer"],
            window=Window(**self.state[Op.SET_WINDOW]) if reduce else Window(),
            pad=Pad(**self.state[Op.SET_PAD]) if reduce else Pad(),
            reduce=reduce,
            mode=mode,
            fresh=shape["cols"] if product.get("sliding") and mode is MvMode.DEPTHWISE else 0,
            matrix=(product["matrix"] + self.aregs[product["reg"]]) & MATRIX_MASK if "matrix" in product else 0,
            scale=next((self._scale(values) for form, values, _ in middle if form.op is Op.VV_SCALE), None),
            mfu_ops=tuple(
                self._step(form.op, values, stage)
                for form, values, stage in middle
                if stage > PipelineStage.REDUCE and form.op is not Op.VV_SCALE
            ),
            destinations=tuple(
                VectorPlace(Mem(values["mem"]), self._address(values))
                for form, values, _ in self.collected
                if form.op is Op.V_WR
            ),
            quant=Quant(ExponentMode(quant["mode"]), quant["exp"], Rounding(quant["rounding"])),
            into_matrix=next((self._rows(values) for form, values, _ in self.collected if form.op is Op.M_WR), None),
            beside=self.beside,
        )
        if not self.copies or reduce is not Op.MV_MUL:
            return chain
        count = chain.matrix_words(self.config).size
        return replace(chain, copies=read_by(self.copies, chain.matrix, count, self.config))

    def _step(self, op: Op, values: dict[str, Any], stage: PipelineStage) -> MfuOp:
        operand = self._address(values) if "addr" in values else None
        return MfuOp(op, stage, operand, values.get("table"))

    def _scale(self, values: dict[str, Any]) -> CodeScale:
        return CodeScale(self._address(values), self.state[Op.SET_SCALE]["shift"])

    def _register(self, number: int) -> int:
        """An address register as a signed number."""
        value = self.aregs[number]
        return value - (value >> MATRIX_ADDR_BITS - 1 << MATRIX_ADDR_BITS)

    def _rows(self, values: dict[str, Any]) -> MatrixWrite:
        address = Address(self._register(values["reg"]), values["row"], values["inner"], values["outer"])
        return MatrixWrite(values["matrix"], address)

    def _address(self, values: dict[str, Any]) -> Address:
        base = (values["addr"] + self.aregs[values["reg"]]) & VECTOR_MASK
        return Address(base, values["row"], values["inner"], values["outer"])


def check_operation(word: int, config: NpuConfig) -> None:
    """Refuse operations and modes that a configuration does not have, whatever their other fields.

    Raises
    ------
    IllegalInstruction
        With the trap ``BAD_OPCODE``: the bits of a mode that is not there are reserved.
    """
    code = word % (1 << isa.OPCODE_BITS)
    if name := lacking(code, config):
        raise IllegalInstruction(Trap.BAD_OPCODE, f"{Op(code).name.lower()} needs a configuration with {name}")
    if code == Op.MV_MUL and not config.window_taps and isa.FORMS[Op.MV_MUL].layout.unpack(word)["sliding"]:
        raise IllegalInstruction(Trap.BAD_OPCODE, "sliding must be 0 in a configuration without window_taps, not 1")


def lacking(op: int, config: NpuConfig) -> str:
    """The parameter without which a configuration does not have an operation; empty if it has that."""
    return "" if config.has(op) else NEEDS[op]


def check_fields(op: Op, values: dict[str, Any], config: NpuConfig) -> None:
    """The limits of fields that depend on the configuration: ``IllegalInstruction`` with the trap."""
    if op is Op.SET_QUANT and not config.act.exp_min <= values["exp"] <= config.act.exp_max:
        limits = f"{config.act.exp_min}..{config.act.exp_max}"
        raise IllegalInstruction(Trap.BAD_FIELD, f"exp must be in {limits}, not {values['exp']}")
    if op is Op.SET_QUANT and values["rounding"] == Rounding.STOCHASTIC and not config.stochastic:
        raise IllegalInstruction(Trap.BAD_FIELD, "rounding must not be stochastic in a configuration without noise")
    if op in (Op.M_WR, Op.COPY) and values["matrix"] % config.steps:
        raise IllegalInstruction(
            Trap.BAD_FIELD, f"matrix must be a multiple of {config.steps}, the words of a tile, not {values['matrix']}"
        )
    if op is Op.V_TBL and values["table"] >= config.table_slots:
        raise IllegalInstruction(Trap.BAD_FIELD, f"table must be below {config.table_slots}, not {values['table']}")
