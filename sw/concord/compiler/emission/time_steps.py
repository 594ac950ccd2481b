"""Instructions of a recurrent block: chains of its cell, in a loop over the time steps."""

from __future__ import annotations

from collections.abc import Callable

from concord.compiler.emission.chains import Chains
from concord.compiler.emission.copied_weights import WeightBlock
from concord.compiler.ir.layers import Recurrent
from concord.compiler.ir.table_specs import Functions
from concord.compiler.memory.copies import Copy
from concord.spec.isa import INITIAL, Mem, Op

#: Address registers: offset of the input of a step, and of its state.
X_REG, STATE_REG = 1, 2


class StepBlock:
    """Emits one block; every chain method returns the block, so that a chain reads from left to right."""

    def __init__(self, chains: Chains, block: Recurrent, temporaries: dict[str, Copy]):
        self.chains, self.block, self.temporaries = chains, block, temporaries
        self.builder = chains.builder
        self.position, self.move = block.before
        #: Instructions of the chain that is being written, each for the result vectors from a number on.
        self._steps: list[Callable[[int], object]] = []
        self._weights, self._cols = "", 1

    def run(self) -> None:
        """The whole block."""
        block, cell, builder = self.block, self.block.cell, self.builder
        for op in (Op.SET_WINDOW, Op.SET_PAD, Op.SET_ITERS, Op.SET_QUANT):
            builder.set(op, **INITIAL[op])
        self._initial_states()
        builder.set_addr(X_REG, 0)
        builder.set_addr(STATE_REG, 0)
        self._shape(block.source.tiles)
        for chain in cell.independent(self):
            chain()
        if block.time_steps > 1:
            self.chains.end_copies()
            builder.loop(block.time_steps - 1)
            self._step(last=False)
            self.chains.end_copies()
            builder.end_loop()
            # In the loop the state before an instruction is also what its end leaves.
            builder.forget(Op.SET_SHAPE)
        self._step(last=True)

    def _step(self, last: bool) -> None:
        cell = self.block.cell
        self.builder.forget(Op.SET_SHAPE)
        for chain in cell.first(self):
            chain()
        independent = [] if last else cell.independent(self)
        if not last:
            stride = self.block.source.in_root().stride
            self.builder.inc_addr(X_REG, -stride if self.block.backward else stride)
        # The first of them gives the last chain before the result time to leave the pipe.
        for chain in independent[:1]:
            chain()
        cell.result(self)
        for chain in independent[1:]:
            chain()
        if not last and self.move:
            target = self.block.target
            self.builder.inc_addr(STATE_REG, self.move * (target.vector(target.tiles) - target.vector(0)))

    # Chains ------------------------------------------------------------------------------------

    def input_part(self, gate: str) -> None:
        """Product of the input with the weights of a gate, and its bias."""
        walk = self.block.source.in_root()
        start = walk.start + ((self.block.time_steps - 1) * walk.stride if self.block.backward else 0)
        addr = self.chains.plan.addr(walk.storage, Mem.NARROW, start)
        self._begin(lambda _: self.builder.v_rd(int(Mem.NARROW), addr, reg=X_REG))
        self._weights, self._cols = f"weight.{self.block.name}.w_{gate}", self.block.source.tiles
        self._constant(Op.VV_ADD, f"bias_{gate}")
        self.write(f"p_{gate}")

    def product(self, gate: str, source: str = "") -> StepBlock:
        """Product of the state, or of a narrow temporary, with the weights of a gate."""
        if source:
            self._begin(lambda _: self.builder.v_rd(int(Mem.NARROW), self.temporaries[source].addr))
        else:
            state = self._state(Mem.NARROW, self.position)
            self._begin(lambda _: self.builder.v_rd(int(Mem.NARROW), state, reg=STATE_REG))
        self._weights, self._cols = f"weight.{self.block.name}.r_{gate}", self.block.tiles
        return self

    def read(self, name: str) -> StepBlock:
        """Start with a temporary."""
        addr = self._wide(name)
        self._begin(lambda first: self.builder.v_rd(int(Mem.WIDE), addr + first, row=1))
        return self

    def add(self, name: str) -> StepBlock:
        """Add a temporary or a constant."""
        return self._operand(Op.VV_ADD, name)

    def mul(self, name: str) -> StepBlock:
        """Multiply by a temporary or a constant."""
        return self._operand(Op.VV_MUL, name)

    def mul_state(self) -> StepBlock:
        """Multiply by the state of the step before."""
        return self._with_state(Op.VV_MUL)

    def rsub_state(self) -> StepBlock:
        """Subtract from the state of the step before."""
        return self._with_state(Op.VV_RSUB)

    def _with_state(self, op: Op) -> StepBlock:
        """Operation with the state of the step before."""
        addr = self._state(Mem.WIDE, self.position)
        self._steps.append(lambda first: self.builder.emit(op, addr=addr + first, reg=STATE_REG, row=1))
        return self

    def apply(self, functions: Functions) -> StepBlock:
        """Apply functions, by a table."""
        self._steps.append(lambda _: self.chains.activation((functions, None)))
        return self

    def write(self, name: str, narrow: bool = False) -> None:
        """End with a temporary."""
        mem, addr = (Mem.NARROW, self.temporaries[name].addr) if narrow else (Mem.WIDE, self._wide(name))
        self._steps.append(lambda first: self.builder.v_wr(int(mem), addr + first, row=1))
        self._end()

    def write_state(self) -> None:
        """End with the state of this step."""
        for mem in (Mem.WIDE, Mem.NARROW):
            if self.chains.plan.copy(self.block.target, mem) is not None:
                self._write_part(mem, self._state(mem, self.position + self.move))
        self._end()

    def _write_part(self, mem: Mem, addr: int) -> None:
        self._steps.append(lambda first: self.builder.v_wr(int(mem), addr + first, reg=STATE_REG, row=1))

    # Blocks of weights -------------------------------------------------------------------------

    def _begin(self, read: Callable[[int], object]) -> None:
        """Begin a chain with what it reads."""
        self._steps, self._weights = [read], ""

    def _end(self) -> None:
        """Write the chain, once for every block of its weights."""
        blocks: tuple[WeightBlock, ...] = (WeightBlock(0, self.block.tiles),)
        matrix, (read, *others) = 0, self._steps
        if self._weights:
            blocks = self.chains.data_section.blocks(self._weights, self.block.tiles)
            self._shape(self._cols)
        for block in blocks:
            if self._weights:
                matrix = self.chains.copy(block, self._weights)
            if self._weights and block.unit is not None:
                self.builder.set(Op.SET_SHAPE, rows=block.count, cols=self._cols)
            read(block.first)
            if self._weights:
                self.builder.mv_mul(matrix)
            for step in others:
                step(block.first)
            self.chains.copy_used(block)
        if blocks[-1].unit is not None:
            self._shape(self._cols)

    # Places ------------------------------------------------------------------------------------

    def _shape(self, cols: int) -> None:
        self.builder.set(Op.SET_SHAPE, rows=self.block.tiles, cols=cols)

    def _operand(self, op: Op, name: str) -> StepBlock:
        if name == "inner_h" or name.startswith("peephole_"):
            self._constant(op, name)
        else:
            addr = self._wide(name)
            self._steps.append(lambda first: self.builder.emit(op, addr=addr + first, row=1))
        return self

    def _constant(self, op: Op, name: str) -> None:
        addr = self.chains.allocator[f"constant.{self.block.name}.{name}"]
        self._steps.append(lambda first: self.builder.emit(op, addr=addr + first, row=1))

    def _wide(self, name: str) -> int:
        if name == "c":
            assert self.block.c is not None
            return self.chains.plan.addr(self.block.c, Mem.WIDE, 0)
        return self.temporaries[name].addr

    def _state(self, mem: Mem, position: int) -> int:
        return self.chains.plan.addr(self.block.target, mem, position * self.block.tiles)

    def _initial_states(self) -> None:
        """States before the first step: given, constant or zero."""
        plan, allocator, block = self.chains.plan, self.chains.allocator, self.block
        self._shape(block.tiles)
        for key, storage, vector in (("h", block.target, self.position * block.tiles), ("c", block.c, 0)):
            if storage is None:
                continue
            if key in block.initial:
                walk = block.initial[key]
                self.builder.v_rd(int(Mem.WIDE), plan.addr(walk.storage, Mem.WIDE, walk.start), row=1)
            elif key in block.constants:
                self.builder.v_rd(int(Mem.WIDE), allocator[f"constant.{block.name}.initial_{key}"], row=1)
            else:
                self.builder.v_rd(int(Mem.WIDE), allocator["zero"])
            for mem in (Mem.WIDE, Mem.NARROW):
                if plan.copy(storage, mem) is not None:
                    self.builder.v_wr(int(mem), plan.addr(storage, mem, vector), row=1)
