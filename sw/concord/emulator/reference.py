"""The living definition of the machine: programs executed vector by vector, straight from the golden model.

It is slow and has no idea of batches; :class:`concord.emulator.Emulator` is fast and must agree with it in every bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.cycles import window_steps
from concord.emulator.integers import IntegerUnit
from concord.emulator.reference_integers import ReferenceIntegers
from concord.emulator.run import Run, ended_by, report
from concord.emulator.tiles import check_written_once
from concord.golden import accumulate, binary16, blocks, table
from concord.golden.integers import IntegerRangeError
from concord.golden.scale import scale_accumulators
from concord.image import Memories
from concord.operations import OPERATIONS
from concord.program import Chain, MfuOp, Trace, trace
from concord.program.chains import VectorCopy, WeightCopy
from concord.program.matrix_copies import write_copy
from concord.program.matrix_writes import broken_matrix_rules, row_words
from concord.program.sliding import broken_rules
from concord.program.vector_copies import ExternalVectors, write_vectors
from concord.spec.formats import BINARY16_INF, BlockFormat, Flag, Rounding
from concord.spec.isa import Mem, Op
from concord.utils.arrays import Bits, Bools, Ids, Integers, Ints

#: binary16 pattern of -inf, where maxima start.
LOWEST = 0x8000 | BINARY16_INF


class ReferenceMachine:
    """Executes the program in ``memories``, which it changes.

    Parameters
    ----------
    memories : Memories
        Contents at the start; results and flags at the end.
    """

    def __init__(self, memories: Memories):
        self.memories = memories
        self.config = memories.config
        self._integers = ReferenceIntegers(memories) if self.config.has(Op.I_RUN) else None
        self.start()

    def start(self) -> None:
        """A run begins: noise as at its start, and nothing is left of the integer chains of another."""
        self._noise = blocks.Noise(self.config.mfu_lanes)
        if self._integers is not None:
            self._integers.start()

    def run(self, pc: int = 0) -> Run:
        """One run from ``pc`` to ``halt`` or to a trap."""
        self.start()
        run = trace(self.memories.program.tolist(), self.config, pc)
        check_written_once(run, self.config)
        ExternalVectors(self.config, [run]).check()
        return self.execute(run, self._integers)

    def execute(self, run: Trace, integers: IntegerUnit | ReferenceIntegers | None) -> Run:
        """Everything that a program executes, one after the other; ``integers`` executes integer chains and steps."""
        steps = []
        for number, item in enumerate(run.items):
            match item:
                case Chain():
                    if item.sliding:
                        steps.append(self._window_steps(item))
                    self.chain(item)
                case WeightCopy():
                    write_copy(item, self.memories, self.memories.matrix_mant, self.memories.matrix_exp)
                case VectorCopy():
                    write_vectors(item, self.memories)
                case _:
                    assert integers is not None
                    try:
                        integers.execute(item)
                    except IntegerRangeError:
                        return report(ended_by(run, number), self.config, steps, integers.grown)
        return report(run, self.config, steps, () if integers is None else integers.grown)

    def clear_flags(self) -> None:
        """Clear the sticky flags."""
        self.memories.flags[:] = 0

    def chain(self, chain: Chain) -> None:
        """Execute a chain; ``ValueError`` if it breaks a rule of programs."""
        for broken in broken_rules(chain, self.config):
            raise ValueError(f"a sliding product at pc {chain.pc} {broken.message}")
        for broken in broken_matrix_rules(chain, self.config):
            raise ValueError(f"a chain at pc {chain.pc} {broken.message}")
        sources = chain.sources(self.config)
        inside = chain.inside()
        operands = [None if s.operand is None else chain.addresses(s.operand) for s in chain.mfu_ops]
        scale = [] if chain.scale is None else [chain.addresses(address) for address in chain.scale.operands]
        targets = {d.mem: chain.addresses(d.address) for d in chain.destinations}
        written = None if chain.into_matrix is None else chain.written_rows(self.config)
        matrix = chain.matrix_words(self.config) if chain.reduce is Op.MV_MUL else None
        group = chain.group(self.config)
        together: list[Any] = []  # vectors, or accumulators that become codes
        for o, i, r in np.ndindex(*chain.shape):
            if r % group == 0:  # the rows of a group read their source before any of them writes
                rows = range(r, min(r + group, chain.rows))
                together = [self._source(chain, sources[o, i, row], inside[o, i], matrix, row) for row in rows]
            x = together[r % group]
            if chain.scale is not None:
                x = self._scaled(chain, x, *(self._vector(Mem.WIDE, int(at[o, i, r])) for at in scale))
            for mfu_op, operand in zip(chain.mfu_ops, operands, strict=True):
                x = self._mfu_op(chain, mfu_op, None if operand is None else int(operand[o, i, r]), x)
            if Mem.WIDE in targets:
                self.memories.wide[self._within(Mem.WIDE, int(targets[Mem.WIDE][o, i, r]))] = x
            if Mem.NARROW in targets:
                self._write_narrow(chain, self._within(Mem.NARROW, int(targets[Mem.NARROW][o, i, r])), x)
            if written is not None:
                self._write_row(chain, int(written[o, i, r]), x)

    def _window_steps(self, chain: Chain) -> Ids:
        """Steps of the windows of a sliding product."""
        source = np.where(chain.inside(), chain.sources(self.config)[:, :, 0, :, 0], 0)
        return window_steps(chain, self.memories.narrow_exp[source].astype(np.int64), self.config)

    def _flag(self, chain: Chain, flag: Flag, raised: Any) -> None:
        if np.any(raised):
            self.memories.flags[chain.pc] |= 1 << flag

    def _within(self, mem: Mem, address: int) -> int:
        depth = self.config.wide_depth if mem is Mem.WIDE else self.config.narrow_depth
        if address >= depth:
            raise ValueError(f"addresses of {mem.name.lower()} must be below {depth}, not {address}")
        return address

    # Source ------------------------------------------------------------------------------------

    def _source(self, chain: Chain, index: Ids, inside: Bools, matrix: Ids | None, row: int) -> Any:
        if matrix is not None:
            if chain.depthwise:
                acc = self._depthwise(index, inside, matrix[row], *chain.tap_places(self.config))
            else:
                acc = self._dense(index, inside, matrix, row)
            if chain.scale is not None:
                return acc
            bits, acc_over, half_over = accumulate.acc_to_binary16(acc, self.config)
            self._flag(chain, Flag.ACC_OVERFLOW, acc_over)
            self._flag(chain, Flag.HALF_OVERFLOW, half_over)
            return bits
        vectors = [self._vector(chain.mem, int(k)) for k in index[inside, 0]]
        if chain.reduce is None:
            return vectors[0]
        result = np.full(self.config.native, LOWEST, dtype=np.uint16)
        for vector in vectors:
            result = binary16.maximum(result, vector)
        if chain.reduce is Op.V_REDMAX:
            top = result[0]
            for element in result:
                top = binary16.maximum(top, element)
            result = np.full_like(result, top)
        return result

    def _vector(self, mem: Mem, address: int) -> Bits:
        """A vector as binary16."""
        at = self._within(mem, address)
        if mem is Mem.WIDE:
            return np.array(self.memories.wide[at])
        return blocks.to_binary16(self.memories.narrow_mant[at], self.memories.narrow_exp[at])

    def _blocks(self, index: Ids, inside: Bools) -> tuple[Ints, Ints]:
        """Mantissas and exponents of the source vectors ``[taps, cols]``; zero outside the image."""
        at = np.where(inside[:, None], index, 0)
        self._within(Mem.NARROW, int(at.max()))
        mant = np.where(inside[:, None, None], self.memories.narrow_mant[at], 0)
        exp = np.where(inside[:, None], self.memories.narrow_exp[at], self.config.act_exp_min)
        return mant.astype(np.int64), exp.astype(np.int64)

    def _weights(self, words: Ids) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        if words.max() >= self.config.matrix_depth:
            raise ValueError(f"matrix addresses must be below {self.config.matrix_depth}, not {words.max()}")
        return self.memories.matrix_mant[words], self.memories.matrix_exp[words]

    def _dense(self, index: Ids, inside: Bools, matrix: Ids, row: int) -> Integers:
        """Sums over taps, columns and parts of a tile; every part is one block of L weights per row."""
        config = self.config
        mant, exp = self._blocks(index, inside)
        group, engine = divmod(row, config.engines)
        w_mant, w_exp = self._weights(matrix[group].ravel())  # [parts, T*N, L], [parts, T*N]
        rows = slice(engine * config.native, (engine + 1) * config.native)
        return accumulate.accumulate(
            mant.reshape(-1, config.lanes),
            np.repeat(exp.ravel(), config.steps),
            w_mant[:, rows].swapaxes(0, 1),
            w_exp[:, rows].swapaxes(0, 1),
            config.acc_frac,
            config.acc_register,
        )

    def _depthwise(self, index: Ids, inside: Bools, words: Ids, word: Ids, lane: Ids) -> Integers:
        """Row n: the sum over taps of weight[n, tap] * x[n], with the weights of each tap in a word and a lane."""
        config = self.config
        mant, exp = self._blocks(index, inside)
        w_mant, w_exp = self._weights(words)
        sums = [
            accumulate.accumulate(
                mant[:, 0, n, None],
                exp[:, 0],
                w_mant[word, n, lane][None, :, None],
                w_exp[word, n][None],
                config.acc_frac,
                config.acc_register,
            )[0]
            for n in range(config.native)
        ]
        return np.array([int(total) for total in sums], dtype=object)

    # Multifunction units and destinations ------------------------------------------------------

    def _mfu_op(self, chain: Chain, mfu_op: MfuOp, operand: int | None, x: Bits) -> Bits:
        if mfu_op.table is None:
            operation = OPERATIONS[mfu_op.op]
            operands = [x] if operand is None else [x, self._vector(Mem.WIDE, operand)]
            result = operation.golden(*operands)
            if operation.rounds:
                self._flag(chain, Flag.HALF_OVERFLOW, binary16.overflowed(result, *operands))
            return result
        entries, nonfinite, clamped = table.lookup(x, self.memories.table, self.memories.slot(mfu_op.table))
        self._flag(chain, Flag.NONFINITE, nonfinite)
        self._flag(chain, Flag.TABLE_CLAMPED, clamped)
        return entries

    def _scaled(self, chain: Chain, acc: Integers, factors: Bits, fractions: Bits) -> Bits:
        assert chain.scale is not None
        bits, acc_over = scale_accumulators(acc, factors, fractions, chain.scale.shift, self.config)
        self._flag(chain, Flag.ACC_OVERFLOW, acc_over)
        return bits

    def _write_row(self, chain: Chain, row: int, x: Bits) -> None:
        """A vector as a row of a tile, N/L words with the same exponent."""
        config = self.config
        block = self._quantize(chain, config.wgt, chain.quant.within(config.wgt).exp, x)
        words, row = row_words(np.asarray(row), config), int(row) % config.rows
        self.memories.matrix_mant[words, row] = block.mant.reshape(config.steps, config.lanes)
        self.memories.matrix_exp[words, row] = block.exp

    def _write_narrow(self, chain: Chain, address: int, x: Bits) -> None:
        block = self._quantize(chain, self.config.act, chain.quant.exp, x)
        self.memories.narrow_mant[address] = block.mant
        self.memories.narrow_exp[address] = block.exp

    def _quantize(self, chain: Chain, fmt: BlockFormat, exp: int, x: Bits) -> blocks.Quantized:
        """A vector as a block; ``exp`` is the static exponent."""
        quant, noise = chain.quant, None
        if quant.rounding is Rounding.STOCHASTIC:
            noise = self._noise.take(self.config.beats).ravel()
        block = blocks.quantize(x, fmt, quant.mode, exp, quant.rounding, noise)
        self._flag(chain, Flag.NONFINITE, block.nonfinite)
        self._flag(chain, Flag.SATURATED, block.saturated)
        return block
