"""Proof that a program is sound: no address outside the memories, nothing read before it was written, and no trap but
INTEGER_RANGE, which depends on values.

A program that passes gives results that depend on its constants and inputs alone, not on earlier runs. States that stay
in the memories are inputs here, and outputs of the run before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from concord.program.access import REGIONS, broken_chain_rules, words_read, words_written
from concord.program.assembler import describe
from concord.program.chains import Chain, VectorCopy, WeightCopy
from concord.program.integers import IntegerChain, TensorStep
from concord.program.matrix_copies import broken_copy_rules
from concord.program.matrix_writes import broken_matrix_rules, row_words
from concord.program.rules import Broken
from concord.program.sliding import broken_rules
from concord.program.trace import OwnItem, trace
from concord.program.vector_copies import ExternalVectors, broken_vector_copy_rules
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTORS, TENSORS
from concord.spec.isa import Mem, Op, Trap
from concord.spec.memmap import RegionId
from concord.spec.rules import ProgramRule
from concord.utils.arrays import Bools, Ids, Ints

_LISTED = 4


@dataclass(frozen=True)
class Span:
    """``count`` words of a region from ``addr`` on; the matrix region is counted in words of T*N rows.

    ``row`` is the first row of each of these words that is meant; of other regions it is 0.
    """

    region: RegionId
    addr: int
    count: int = 1
    row: int = 0


@dataclass(frozen=True)
class Problem:
    """One finding: where, the instruction as text, what is wrong, and the rule that is broken.

    There is no rule for a trap, for a word that is read before it is written, for a constant that is overwritten, and
    for an output or a table that is missing.
    """

    pc: int
    instruction: str
    message: str
    rule: ProgramRule | None = None

    def __str__(self) -> str:
        return f"pc {self.pc}: {self.instruction}: {self.message}"


def verify(
    words: Sequence[int],
    config: NpuConfig,
    *,
    constants: Iterable[Span] = (),
    inputs: Iterable[Span] = (),
    outputs: Iterable[Span] = (),
    pc: int = 0,
) -> list[Problem]:
    """Return everything that is wrong with a program; an empty list proves it sound.

    Parameters
    ----------
    words, config, pc
        The program and where it starts.
    constants : spans
        Loaded once, before the first run: must not be overwritten.
    inputs : spans
        Written before every run.
    outputs : spans
        Must have been written, or loaded, at the end.
    """
    return verify_phases(words, config, [(pc, inputs, outputs)], constants=constants)


def verify_phases(
    words: Sequence[int],
    config: NpuConfig,
    phases: Sequence[tuple[int, Iterable[Span], Iterable[Span]]],
    *,
    constants: Iterable[Span] = (),
) -> list[Problem]:
    """Problems of a program that a run starts several times.

    Parameters
    ----------
    phases : sequence of tuples
        Of every start: where, what is written before it, and what must hold a value after it.
    """
    checker = _Checker(words, config)
    checker.load(constants, constant=True)
    runs = [trace(words, config, pc) for pc, _, _ in phases]
    for pc, broken in ExternalVectors(config, runs).collisions():
        checker.report(pc, broken.message, broken.rule)
    for run, (_, inputs, outputs) in zip(runs, phases, strict=True):
        checker.load(inputs, constant=False)
        checker.start()
        for item in run.items:
            checker.item(item)
        if run.trap is not Trap.NONE:
            checker.report(run.pc, f"traps with {run.trap.name}")
        checker.finish(run.pc, outputs)
    return checker.problems


class _Checker:
    """Words that hold a value, and words that must keep it."""

    def __init__(self, words: Sequence[int], config: NpuConfig):
        self.words, self.config = words, config
        self.problems: list[Problem] = []
        depths = {
            RegionId.NARROW: config.narrow_depth,
            RegionId.WIDE: config.wide_depth,
            RegionId.MATRIX: config.matrix_depth,
            RegionId.TABLE: config.table_depth,
            RegionId.SLOTS: config.table_slots,
        }
        if config.has(Op.COPY):
            depths[RegionId.DRAM] = config.sdram.columns
        if config.has(Op.I_RUN):
            depths |= {RegionId.TENSORS: TENSORS, RegionId.FACTORS: FACTORS}
        self.written = {region: np.zeros(depth, dtype=np.bool_) for region, depth in depths.items()}
        #: Of the matrix memory each row of a word by itself.
        self.written[RegionId.MATRIX] = np.zeros((config.matrix_depth, config.rows), dtype=np.bool_)
        self.constant = {region: np.zeros_like(written) for region, written in self.written.items()}
        #: Lanes of words of the matrix memory that columns were written to.
        self.lanes = np.zeros((config.matrix_depth, config.lanes), dtype=np.bool_)
        #: Rows of words of the matrix memory whose exponents are those of data, as ``m_wr`` has written them.
        self.of_data = np.zeros((config.matrix_depth, config.rows), dtype=np.bool_)
        #: Rows of words of the matrix memory that copies and ``m_wr`` have written.
        self.copied, self.row_written = np.zeros_like(self.of_data), np.zeros_like(self.of_data)
        self.start()

    def start(self) -> None:
        """A run begins: nothing is known of the steps and chains of the one before."""
        #: Items that were checked: sound once is sound again, as only more is written by then.
        self._checked: set[tuple[Chain | OwnItem, tuple[int, int, int]]] = set()
        #: Registers of weights and of the update, and the distance of accumulators, as the latest ``t_upd`` says.
        self._update = 0, 0, 0

    def report(self, pc: int, message: str, rule: ProgramRule | None = None) -> None:
        """Note a problem, each once."""
        text = describe(self.words[pc]) if pc < len(self.words) else "(end of program)"
        problem = Problem(pc, text, message, rule)
        if problem not in self.problems:
            self.problems.append(problem)

    def load(self, spans: Iterable[Span], constant: bool) -> None:
        """Mark what is loaded; ``ValueError`` if a span lies outside its region."""
        for span in spans:
            part = self._part(span)
            self.written[span.region][part] = True
            if constant:
                self.constant[span.region][part] = True

    def _part(self, span: Span) -> slice | tuple[slice, slice]:
        written = self.written.get(span.region, np.zeros(0))
        if not 0 <= span.addr <= span.addr + span.count <= len(written):
            raise ValueError(f"span must lie in the {len(written)} words of {span.region.name.lower()}, not {span!r}")
        words = slice(span.addr, span.addr + span.count)
        if written.ndim == 1 and span.row:
            raise ValueError(f"row must be 0 in the {span.region.name.lower()} memory, not {span.row!r}")
        return words if written.ndim == 1 else (words, slice(span.row, None))

    def finish(self, pc: int, outputs: Iterable[Span]) -> None:
        """Check the outputs at the end of the run."""
        for span in outputs:
            part = self._part(span)
            missing = np.flatnonzero(~self.written[span.region][part]) + span.addr
            if len(missing):
                self.report(pc, f"never writes the output {span.region.name.lower()} {_some(missing)}")

    def item(self, item: Chain | OwnItem) -> None:
        """Check what a run executes, and mark what it writes."""
        if isinstance(item, TensorStep) and item.op is Op.T_UPD:
            self._update = item.z, item.x, item.accumulators
        elif (item, self._update) not in self._checked:
            self._checked.add((item, self._update))
            match item:
                case Chain():
                    self.chain(item)
                case IntegerChain():
                    self._integer_chain(item)
                case TensorStep():
                    self._step(item)
                case WeightCopy():
                    self._copy(item)
                case VectorCopy():
                    self._vector_copy(item)

    def _copy(self, copy: WeightCopy) -> None:
        """A copy: the columns that it reads must have been loaded."""
        config = self.config
        if broken := broken_copy_rules(copy, config):
            self._broken(copy.pc, broken)
            return
        columns = copy.column + np.arange(copy.columns(config))
        if (unknown := columns[~self.written[RegionId.DRAM][columns]]).size:
            self.report(copy.pc, f"reads columns {_some(unknown)} of the external memory, which are not loaded")
        rows = copy.tile_rows(config)
        words, row = row_words(rows, config), rows[:, None] % config.rows
        self._both(copy.pc, words[self.row_written[words, row]])
        self.copied[words, row] = True
        self._write_matrix(copy.pc, words, row, of_data=False)

    def _vector_copy(self, copy: VectorCopy) -> None:
        """A copy of vectors: what it reads must have a value."""
        if broken := broken_vector_copy_rules(copy, self.config):
            self._broken(copy.pc, broken)
            return
        columns, region = copy.column + np.arange(copy.columns(self.config)), REGIONS[copy.mem]
        source, target = ((region, copy.addresses), (RegionId.DRAM, columns))[:: 1 if copy.out else -1]
        self._reads(copy.pc, dict([source]))
        self._write_words(copy.pc, *target)

    def _both(self, pc: int, words: Ids) -> None:
        """Words of which rows are written by copies and by ``m_wr``."""
        if words.size:
            self.report(pc, f"writes rows of matrix {_some(words)} by copy and m_wr", ProgramRule.COPIED_ROWS)

    def _broken(self, pc: int, rules: Iterable[Broken]) -> None:
        for rule, message in rules:
            self.report(pc, message, rule)

    # Integer chains ----------------------------------------------------------------------------

    def _step(self, step: TensorStep) -> None:
        """A step of the tensor registers: those that it reads must have a value."""
        reads = {Op.T_SET: (), Op.T_FIT: (step.x,), Op.T_SCALE: (step.x,)}.get(step.op, (step.x, step.y))
        self._registers(step.pc, RegionId.TENSORS, reads)
        if step.op is Op.T_SCALE:
            self._registers(step.pc, RegionId.FACTORS, (step.factor,))
        self._write_words(step.pc, RegionId.TENSORS, np.array([step.z]))

    def _registers(self, pc: int, region: RegionId, numbers: Iterable[int]) -> None:
        unknown = [number for number in numbers if not self.written[region][number]]
        if unknown:
            self.report(pc, f"reads {region.name.lower()} {_some(np.array(unknown))} before it is written")

    def _integer_chain(self, chain: IntegerChain) -> None:
        config, steps, (weights, update, distance) = self.config, chain.steps, self._update
        if broken := broken_chain_rules(chain, config, distance):
            self._broken(chain.pc, broken)
            return
        self._reads(chain.pc, words_read(chain, config, distance))
        if steps.scale:
            self._registers(chain.pc, RegionId.FACTORS, (steps.factor,))
        if steps.update:
            self._registers(chain.pc, RegionId.TENSORS, (weights, update))
        if steps.peak:
            self._registers(chain.pc, RegionId.TENSORS, (steps.tensor,))
        registers = [steps.tensor] * steps.peak + [weights] * steps.update
        self._write_words(chain.pc, RegionId.TENSORS, np.array(registers, dtype=np.int64))
        for region, words in words_written(chain, config, distance).items():
            if region is not RegionId.MATRIX:
                self._write_words(chain.pc, region, words.ravel())
        if steps.to_column:
            self._write_columns(chain.pc, chain.written_columns().ravel())
        if steps.to_row:
            rows = chain.written_tile_rows()
            self._write_matrix(chain.pc, row_words(rows, config), rows[..., None] % config.native, of_data=False)

    def _reads(self, pc: int, reads: Mapping[RegionId, Ids]) -> None:
        """Words that are read must have a value; -1 is none."""
        for region, words in reads.items():
            listed = words[words >= 0]
            known = self._whole() if region is RegionId.MATRIX else self.written[region]
            if region is RegionId.MATRIX and (rows := self.of_data[listed].any(axis=-1)).any():
                self.report(pc, f"multiplies matrix {_some(listed[rows])}, whose exponents are those of an m_wr")
            if not known[listed].all():
                self.report(pc, f"reads {region.name.lower()} {_some(listed[~known[listed]])} before it is written")

    def _whole(self) -> Bools:
        """Words of the matrix memory that were written as a whole."""
        return np.asarray(self.written[RegionId.MATRIX].all(axis=1))

    def _write_words(self, pc: int, region: RegionId, words: Ids) -> None:
        constant = words[self.constant[region][words]]
        if constant.size:
            self.report(pc, f"overwrites the constant {region.name.lower()} {_some(constant)}")
        self.written[region][words] = True

    def _write_columns(self, pc: int, columns: Ids) -> None:
        """Lanes of words; a word whose lanes were all written has a value in every row."""
        words, lanes = np.divmod(columns, self.config.lanes)
        self._constant_matrix(pc, words, np.any(self.constant[RegionId.MATRIX][words], axis=1))
        self.lanes[words, lanes] = True
        whole = words[self.lanes[words].all(axis=1)]
        self.written[RegionId.MATRIX][whole] = True
        self.of_data[whole] = False

    def _write_matrix(self, pc: int, words: Ids, rows: Ids, *, of_data: bool) -> None:
        """Rows of words; ``of_data``: with exponents that data have."""
        if of_data:
            self.lanes[words] = False
        self.of_data[words, rows] = of_data
        self._constant_matrix(pc, words, self.constant[RegionId.MATRIX][words, rows])
        self.written[RegionId.MATRIX][words, rows] = True

    def _constant_matrix(self, pc: int, words: Ids, constant: Bools) -> None:
        if constant.any():
            self.report(pc, f"overwrites the constant matrix {_some(words[constant])}")

    # One chain ---------------------------------------------------------------------------------

    def chain(self, chain: Chain) -> None:
        """Check one chain, and mark what it writes."""
        self._numbers(chain)
        order = np.arange(chain.vectors).reshape(chain.shape)
        firsts = {}
        targets = {d.mem: chain.addresses(d.address) for d in chain.destinations}
        for mem, index in targets.items():
            firsts[mem] = self._first_writes(mem, index.ravel())
        inside = np.broadcast_to(chain.inside()[:, :, None, :, None], (*chain.shape, chain.window.taps, chain.cols))
        source = chain.sources(self.config)
        when = np.broadcast_to(order[..., None, None], source.shape)
        self._read(chain.pc, chain.mem, source[inside], when[inside], firsts, "source")
        for operand in chain.operands:
            index = chain.addresses(operand.address)
            self._read(chain.pc, Mem.WIDE, index.ravel(), order.ravel(), firsts, operand.op.name.lower())
        for mfu_op in chain.mfu_ops:
            if mfu_op.table is not None and not self.written[RegionId.SLOTS][mfu_op.table]:
                self.report(chain.pc, f"uses table {mfu_op.table}, which is not loaded")
        if chain.reduce is Op.MV_MUL:
            self._matrix(chain)
        for mem, index in targets.items():
            self._write(chain.pc, mem, index)
        if chain.into_matrix is not None:
            self._write_rows(chain)

    def _numbers(self, chain: Chain) -> None:
        terms = chain.window.taps * chain.cols
        if chain.reduce is Op.MV_MUL and terms > self.config.max_terms:
            message = f"adds up {terms} native products; max_terms is {self.config.max_terms}"
            self.report(chain.pc, message, ProgramRule.TERMS)
        if chain.reduce in (Op.V_MAX, Op.V_REDMAX) and not chain.inside().any(axis=2).all():
            message = "takes the maximum of a window that lies outside the image"
            self.report(chain.pc, message, ProgramRule.SOME_TAP)
        for rule, message in broken_rules(chain, self.config):
            self.report(chain.pc, f"as a sliding product {message}", rule)
        self._broken(chain.pc, broken_matrix_rules(chain, self.config))

    def _first_writes(self, mem: Mem, index: Ids) -> Ids:
        """Number of the first vector of the chain that writes an address, for each address."""
        first = np.full(max(len(self.written[REGIONS[mem]]), int(index.max()) + 1), len(index), dtype=np.int64)
        first[index[::-1]] = np.arange(len(index))[::-1]
        return first

    def _read(self, pc: int, mem: Mem, index: Ids, when: Ids, firsts: dict[Mem, Ids], what: str) -> None:
        written = self.written[REGIONS[mem]]
        name = mem.name.lower()
        within = index < len(written)
        if not within.all():
            message = f"{what} reads {name} {_some(index[~within])}, beyond its {len(written)} words"
            self.report(pc, message, ProgramRule.ADDRESSES)
            index, when = index[within], when[within]
        unknown = ~written[index]
        if unknown.any() and mem in firsts:
            unknown &= firsts[mem][index] >= when
        if unknown.any():
            self.report(pc, f"{what} reads {name} {_some(index[unknown])} before it is written")

    def _write(self, pc: int, mem: Mem, index: Ids) -> None:
        region, name = REGIONS[mem], mem.name.lower()
        within = index < len(self.written[region])
        if not within.all():
            message = f"writes {name} {_some(index[~within])}, beyond its {len(self.written[region])} words"
            self.report(pc, message, ProgramRule.ADDRESSES)
        valid = index[within]
        if self.constant[region][valid].any():
            self.report(pc, f"overwrites the constant {name} {_some(valid[self.constant[region][valid]])}")
        self.written[region][valid] = True

    def _matrix(self, chain: Chain) -> None:
        index = chain.matrix_words(self.config).ravel()
        depth = self.config.matrix_depth
        if (outside := index[index >= depth]).size:
            message = f"reads matrix {_some(outside)}, beyond its {depth} words"
            self.report(chain.pc, message, ProgramRule.ADDRESSES)
        index = index[index < depth]
        written = self.written[RegionId.MATRIX][index, : self._rows_read(chain)]
        if (unknown := index[~written.all(axis=1)]).size:
            programs = " or written as a whole" if self.config.has(Op.M_WR) else ""
            self.report(chain.pc, f"reads matrix {_some(unknown)}, which is not loaded{programs}")

    def _rows_read(self, chain: Chain) -> int:
        """Rows of a word that a product looks at: a depthwise one those of engine 0."""
        return self.config.native if chain.depthwise else self.config.rows

    def _write_rows(self, chain: Chain) -> None:
        """Rows of tiles."""
        config, rows = self.config, chain.written_rows(self.config).ravel()
        rows = rows[rows < config.matrix_rows]
        words, row = row_words(rows, config), rows[:, None] % config.rows
        self._both(chain.pc, words[self.copied[words, row]])
        self.row_written[words, row] = True
        self._write_matrix(chain.pc, words, row, of_data=True)


def _some(addresses: Ints) -> str:
    """A few of the addresses, for a message."""
    listed = np.unique(addresses)
    text = ", ".join(str(a) for a in listed[:_LISTED])
    return text + (f", ... ({len(listed)} in all)" if len(listed) > _LISTED else "")
