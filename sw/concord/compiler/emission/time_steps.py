"""Instructions of a recurrent block: chains of its cell, in a loop over the time steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from concord.compiler.emission.chains import Chains
from concord.compiler.emission.copied_weights import WeightBlock
from concord.compiler.ir.layers import Recurrent
from concord.compiler.ir.table_specs import Functions
from concord.compiler.memory.copies import Copy
from concord.spec.isa import INITIAL, Mem, Op

#: Address registers: offset of the input of a step, of its state, and of its input parts.
X_REG, STATE_REG, PART_REG = 1, 2, 3


class StepBlock:
    """Emits one block; every chain method returns the block, so that a chain reads from left to right.

    The input parts of a step, products of its input with the weights of every gate, are computed while the result of
    the step before is. Where the plan has room for those of several steps, a *chunk*, they are computed for all of
    these with each block of weights that is copied, and the steps of the chunk follow.
    """

    def __init__(self, chains: Chains, block: Recurrent, temporaries: dict[str, Copy]):
        self.chains, self.block, self.temporaries = chains, block, temporaries
        self.builder = chains.builder
        self.position, self.move = block.before
        #: Instructions of the chain that is being written, each for the result vectors from a number on.
        self._steps: list[Callable[[int], object]] = []
        self._weights, self._cols = "", 1
        #: Steps of a chunk.
        self._chunk = temporaries[f"p_{block.cell.gates[0]}"].storage.width

    def run(self) -> None:
        """The whole block."""
        block, builder = self.block, self.builder
        for op in (Op.SET_WINDOW, Op.SET_PAD, Op.SET_ITERS, Op.SET_QUANT):
            builder.set(op, **INITIAL[op])
        self._initial_states()
        builder.set_addr(X_REG, 0)
        builder.set_addr(STATE_REG, 0)
        if self._chunk > 1:
            self._in_chunks()
            return
        self._shape(block.source.tiles)
        for chain in self._independent():
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
        independent = [] if last else self._independent()
        if not last:
            self._next_input(1)
        # The first of them gives the last chain before the result time to leave the pipe.
        for chain in independent[:1]:
            chain()
        cell.result(self)
        for chain in independent[1:]:
            chain()
        if not last:
            self._next_state()

    def _independent(self) -> list[Callable[[], None]]:
        cell = self.block.cell
        return [*(partial(self._input_part, gate) for gate in cell.gates), *cell.independent(self)]

    def _next_input(self, steps: int) -> None:
        stride = self.block.source.in_root().stride
        self.builder.inc_addr(X_REG, steps * (-stride if self.block.backward else stride))

    def _next_state(self) -> None:
        if self.move:
            target = self.block.target
            self.builder.inc_addr(STATE_REG, self.move * (target.vector(target.tiles) - target.vector(0)))

    # Chunks of steps ---------------------------------------------------------------------------

    def _in_chunks(self) -> None:
        """All steps; the last chunk has the rest of them."""
        chunks, rest = divmod(self.block.time_steps, self._chunk)
        self._loop(chunks, partial(self._steps_of_chunk, self._chunk))
        if rest:
            self._steps_of_chunk(rest)

    def _loop(self, count: int, body: Callable[[], None]) -> None:
        """A loop, if ``count`` is more than one; each turn has copies of its own."""
        if count == 1:
            body()
            return
        self.chains.end_copies()
        self.builder.loop(count)
        self.builder.forget(Op.SET_SHAPE)
        body()
        self.chains.end_copies()
        self.builder.end_loop()
        # In the loop the state before an instruction is also what its end leaves.
        self.builder.forget(Op.SET_SHAPE)

    def _steps_of_chunk(self, steps: int) -> None:
        self.builder.set_addr(PART_REG, 0)
        for gate in self.block.cell.gates:
            self._input_part(gate, steps)
        self._next_input(steps)
        self._loop(steps, self._step_of_chunk)

    def _step_of_chunk(self) -> None:
        cell = self.block.cell
        self._shape(self.block.tiles)
        for chain in (*cell.independent(self), *cell.first(self)):
            chain()
        cell.result(self)
        self._next_state()
        self.builder.inc_addr(PART_REG, self.block.tiles)

    # Chains ------------------------------------------------------------------------------------

    def _input_part(self, gate: str, steps: int = 1) -> None:
        """Product of the inputs of so many steps with the weights of a gate, and its bias."""
        walk = self.block.source.in_root()
        start = walk.start + ((self.block.time_steps - 1) * walk.stride if self.block.backward else 0)
        addr = self.chains.plan.addr(walk.storage, Mem.NARROW, start)
        self._begin(lambda _: self.builder.v_rd(int(Mem.NARROW), addr, reg=X_REG))
        self._weights, self._cols = f"weight.{self.block.name}.w_{gate}", self.block.source.tiles
        self._constant(Op.VV_ADD, f"bias_{gate}")
        self._write_temporary(f"p_{gate}")
        self._end(steps)

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
        addr, reg = self._wide(name)
        self._begin(lambda first: self.builder.v_rd(int(Mem.WIDE), addr + first, reg=reg, row=1))
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
        self._write_temporary(name, narrow)
        self._end()

    def _write_temporary(self, name: str, narrow: bool = False) -> None:
        mem, (addr, reg) = (Mem.NARROW, (self.temporaries[name].addr, 0)) if narrow else (Mem.WIDE, self._wide(name))
        self._steps.append(lambda first: self.builder.v_wr(int(mem), addr + first, reg=reg, row=1))

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

    def _end(self, steps: int = 1) -> None:
        """Write the chain, once for every block of its weights, and for the inputs of so many steps with each."""
        blocks: tuple[WeightBlock, ...] = (WeightBlock(0, self.block.tiles),)
        if self._weights:
            blocks = self.chains.data_section.blocks(self._weights, self.block.tiles)
            self._shape(self._cols)
        for block in blocks:
            matrix = self.chains.copy(block, self._weights) if self._weights else None
            if matrix is not None:
                self.builder.set(Op.SET_SHAPE, rows=block.count, cols=self._cols)
            if steps == 1:
                self._chain(block, matrix)
            else:
                self.builder.loop(steps)
                self._chain(block, matrix)
                self._next_input(1)
                self.builder.inc_addr(PART_REG, self.block.tiles)
                self.builder.end_loop()
                self._next_input(-steps)
                self.builder.inc_addr(PART_REG, -steps * self.block.tiles)
            self.chains.copy_used(block)
        if blocks[-1].unit is not None:
            self._shape(self._cols)

    def _chain(self, block: WeightBlock, matrix: int | None) -> None:
        """The chain for the result vectors of a block."""
        read, *others = self._steps
        read(block.first)
        if matrix is not None:
            self.builder.mv_mul(matrix)
        for step in others:
            step(block.first)

    # Places ------------------------------------------------------------------------------------

    def _shape(self, cols: int) -> None:
        self.builder.set(Op.SET_SHAPE, rows=self.block.tiles, cols=cols)

    def _operand(self, op: Op, name: str) -> StepBlock:
        if name == "inner_h" or name.startswith("peephole_"):
            self._constant(op, name)
        else:
            addr, reg = self._wide(name)
            self._steps.append(lambda first: self.builder.emit(op, addr=addr + first, reg=reg, row=1))
        return self

    def _constant(self, op: Op, name: str) -> None:
        addr = self.chains.allocator[f"constant.{self.block.name}.{name}"]
        self._steps.append(lambda first: self.builder.emit(op, addr=addr + first, row=1))

    def _wide(self, name: str) -> tuple[int, int]:
        """Address of wide vectors, and the register that is added to it."""
        if name == "c":
            assert self.block.c is not None
            return self.chains.plan.addr(self.block.c, Mem.WIDE, 0), 0
        return self.temporaries[name].addr, PART_REG if self._chunk > 1 and name.startswith("p_") else 0

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
