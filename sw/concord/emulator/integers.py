"""Integer chains, each executed as a whole with arrays (:mod:`concord.spec.integers`).

A chain reads everything before it writes anything, and raises before it writes: no vector reads what another one
writes (:mod:`concord.program.access`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.emulator.integer_machine import IntegerMachine
from concord.golden.integers import IntegerRangeError, digits, rounded, within
from concord.golden.lazy_update import Updated, lazy_update
from concord.golden.rounding import round_shift
from concord.golden.tensor_registers import TensorRegisters
from concord.image import Memories
from concord.program.access import both_words, broken_chain_rules
from concord.program.chains import VECTOR_MASK
from concord.program.integers import IntegerChain, TensorStep
from concord.program.matrix_writes import row_words
from concord.spec.config import NpuConfig
from concord.spec.integers import DIGIT_BITS, SUM_BITS, WIDE_BITS
from concord.spec.isa import ACCUMULATOR_POINT, Mem
from concord.spec.operations import IntegerSource
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN, AccumulatorFormat, TrainingFormat
from concord.spec.widths import largest
from concord.sums.exact import exact_type
from concord.utils.arrays import Bools, Ids, Ints

#: Formats of the weights and of the accumulators that chains update.
WEIGHT, ACCUMULATOR_BITS = TrainingFormat(8), 16


@dataclass(frozen=True)
class _Product:
    """Vectors of a product, put together by the tiles that they are multiplied by.

    Parameters
    ----------
    order : Ids ``[vectors]``
        Vectors, those with equal tiles one after the other.
    ends : Ids ``[groups]``
        Where groups end in it.
    source : Ids ``[vectors, D, terms]``
        Addresses of vectors in that order; D is 1 where the tiles have the digits.
    inside : Bools ``[vectors, terms]`` or None
        Which terms count; ``None``: all.
    tiles : Ids ``[groups, D, terms, N/L]``
        Words of the matrix memory; D is 1 where the vectors have the digits.
    """

    order: Ids
    ends: Ids
    source: Ids
    inside: Bools | None
    tiles: Ids


@dataclass(frozen=True)
class _Access:
    """Addresses of a chain, by vector.

    Parameters
    ----------
    product : _Product or None
        Of the source, if it is a product.
    source, operand, accumulators, wide : Ids ``[vectors]``
        Addresses of vectors; of wide integers those of the first word.
    narrow, columns : Ids ``[vectors, planes]``
        Narrow results, and numbers of columns.
    cleared : tuple of Ids ``[words]``
        Words that columns are written to, and the bits of their stored exponents that these clear.
    tile_rows : Ids ``[vectors]``
        Numbers of rows of tiles.
    last : Bools ``[vectors]``
        Whether the vector is one of the last row of vectors.
    """

    product: _Product | None
    source: Ids
    operand: Ids
    accumulators: Ids
    narrow: Ids
    wide: Ids
    columns: Ids
    cleared: tuple[Ids, Ids]
    tile_rows: Ids
    last: Bools

    @classmethod
    def of(cls, chain: IntegerChain, config: NpuConfig, accumulators: int) -> _Access:
        """The addresses; ``ValueError`` if the chain breaks a rule."""
        if broken := broken_chain_rules(chain, config, accumulators):
            raise ValueError(f"an integer chain at pc {chain.pc} {broken[0].message}")
        operand, count = chain.addresses(chain.operand.address).ravel(), chain.planes.count
        columns = chain.written_columns().reshape(-1, count)
        rows = np.broadcast_to(np.arange(chain.rows), chain.shape)
        return cls(
            _grouped(chain, config) if chain.kind is IntegerSource.PRODUCT else None,
            chain.addresses(chain.source).ravel(),
            operand,
            (operand + accumulators) & VECTOR_MASK,
            chain.narrow_targets().reshape(-1, count),
            chain.addresses(chain.destination.address).ravel(),
            columns,
            _cleared(columns, config) if chain.steps.to_column else (columns[:0, 0], columns[:0, 0]),
            chain.written_tile_rows().ravel(),
            (rows == chain.rows - 1).ravel(),
        )


def _grouped(chain: IntegerChain, config: NpuConfig) -> _Product:
    """Vectors whose tiles begin at the same word have the same tiles."""
    taps = chain.source_taps()
    every = taps.shape[3:]
    words = chain.tile_words(config).reshape(chain.vectors, *every, config.steps)
    first = words[:, 0, 0, 0, 0]
    order = np.argsort(first, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(first[order])) + 1, chain.vectors)
    inside = np.broadcast_to(chain.inside()[:, :, None, :, None], (*chain.shape, *every[1:]))
    inside = inside.reshape(chain.vectors, -1)
    source = taps.reshape(chain.vectors, every[0], -1)
    tiles = words.reshape(chain.vectors, every[0], -1, config.steps)[order[ends - 1]]
    digits_of_tiles = bool(chain.taps.of)
    return _Product(
        order,
        ends,
        np.where(inside[:, None], source, 0)[order, : 1 if digits_of_tiles else None],
        None if inside.all() else inside[order],
        tiles if digits_of_tiles else tiles[:, :1],
    )


def _cleared(columns: Ids, config: NpuConfig) -> tuple[Ids, Ids]:
    """Words that hold columns, and by word the bits of exponents that lie beside these."""
    words, place = np.unique(columns // config.lanes, return_inverse=True)
    bits = np.zeros(len(words), dtype=np.int64)
    np.bitwise_or.at(bits, place.ravel(), np.int64(1) << (columns % config.lanes).ravel())
    return words, bits


class IntegerUnit(IntegerMachine):
    """Tensor registers and integer chains of one NPU.

    Parameters
    ----------
    memories : Memories
        Of a configuration with integer chains; they are changed.

    Members
    -------
    registers : TensorRegisters
        Those of the memories, and what steps of the run have left for its chains.
    grown : list of bool
        For every update of the run, in order, whether the exponent of the weights has grown.
    """

    def __init__(self, memories: Memories):
        self.memories, self.config = memories, memories.config
        self._accesses: dict[tuple[IntegerChain, int], _Access] = {}
        self.start()

    def start(self) -> None:
        """A run begins: nothing is rounded, moved or updated yet. Registers keep what they have."""
        memories = self.memories
        self.registers = TensorRegisters(
            memories.tensor_top, memories.tensor_exp, memories.factor_mant, memories.factor_exp
        )
        self.grown: list[bool] = []

    def step(self, step: TensorStep) -> None:
        """Execute a tensor step; :class:`IntegerRangeError` is the trap."""
        self.registers.step(step.op, **step.fields)

    def chain(self, chain: IntegerChain) -> None:
        """Execute an integer chain.

        Raises
        ------
        ValueError
            If it breaks a rule of :func:`concord.program.access.broken_chain_rules`, or multiplies tiles whose
            exponent is not the least one.
        IntegerRangeError
            The trap; nothing was written then.
        """
        steps, registers = chain.steps, self.registers
        accumulators = registers.update[2] if steps.update else 0
        key = chain, accumulators
        if key not in self._accesses:
            self._accesses[key] = _Access.of(chain, self.config, accumulators)
        access = self._accesses[key]
        values = self._source(chain, access)
        operand = self._operand(chain, access) if chain.with_operand else values
        if steps.scale:
            values = within(values * registers.mant[steps.factor])
        if steps.round0:
            values = rounded(values, *registers.rounding[0])
        if steps.add:
            first, second = registers.moves
            values = within(_moved(values, first) + _moved(operand, second))
        top = int(np.abs(values).max())
        if steps.round1:
            values = rounded(values, *registers.rounding[1])
        if steps.relu:
            values = np.maximum(values, 0)
        if steps.mask:
            values = np.where(operand > 0, values, 0)
        if steps.valid:
            values = np.where(access.last[:, None] & (np.arange(self.config.native) >= steps.valid), 0, values)
        if steps.update:
            values = self._update(access, operand, values)
        self._write(chain, access, values)
        if steps.peak:
            registers.top[steps.tensor] = max(top, int(registers.top[steps.tensor]))

    # Sources -----------------------------------------------------------------------------------

    def _source(self, chain: IntegerChain, access: _Access) -> Ints:
        """Integers ``[vectors, N]``."""
        if access.product is not None:
            return self._product(chain, access.product)
        if chain.kind is IntegerSource.WIDE:
            return wide_integers(self.memories, access.source)
        return self.memories.narrow_mant[access.source].astype(np.int64)

    def _operand(self, chain: IntegerChain, access: _Access) -> Ints:
        if chain.operand.mem is Mem.WIDE:
            return wide_integers(self.memories, access.operand)
        return self.memories.narrow_mant[access.operand].astype(np.int64)

    def _product(self, chain: IntegerChain, product: _Product) -> Ints:
        config, memories = self.config, self.memories
        n = config.native
        terms = product.source.shape[2] * n
        dtype = exact_type(terms << 2 * (config.act_mant - 1))  # all that fit in the memories are exact in float64
        exps = memories.matrix_exp[product.tiles]
        if (exps != config.wgt_exp_min).any():
            raise ValueError(
                f"an integer chain at pc {chain.pc} must multiply tiles with the exponent {config.wgt_exp_min}, "
                f"not {exps.max()}"
            )
        vectors = memories.narrow_mant[product.source].astype(dtype)  # [vectors, D, terms, N]
        if product.inside is not None:
            vectors = np.where(product.inside[:, None, :, None], vectors, dtype(0))
        vectors = vectors.reshape(*vectors.shape[:2], terms)
        tiles = memories.matrix_mant[product.tiles].astype(dtype)  # [groups, D, terms, N/L, N, L]
        matrix = np.moveaxis(tiles, 4, 2).reshape(*tiles.shape[:2], n, terms)
        weights = np.int64(1) << DIGIT_BITS * np.arange(chain.taps.digits, dtype=np.int64)
        sums = np.empty((len(product.order), n), dtype=np.int64)
        starts = np.append(0, product.ends[:-1])
        for start, end, tile in zip(starts.tolist(), product.ends.tolist(), matrix, strict=True):
            part = np.matmul(vectors[start:end].swapaxes(0, 1), tile.swapaxes(-1, -2))  # [digits, vectors, N]
            sums[product.order[start:end]] = np.tensordot(weights, part.astype(np.int64), 1)
        return within(sums)

    # Updates -----------------------------------------------------------------------------------

    def _update(self, access: _Access, weight: Ints, change: Ints) -> Ints:
        """Update weights and their accumulators; the new weights ``[vectors, N]``."""
        memories, registers = self.memories, self.registers
        z, x, _, coarser = registers.update
        acc = memories.wide[access.accumulators].view(np.int16).astype(np.int64)
        within(weight, WEIGHT.bits), within(acc, ACCUMULATOR_BITS)
        block = weight.reshape(1, -1), acc.reshape(1, -1), change.reshape(1, -1)
        after = updated(*block, registers, z, x, coarser)
        _training_exponent(int(after.exp[0]))
        self.grown.append(bool(after.grown[0]))
        new = after.weight.reshape(weight.shape)
        memories.narrow_mant[access.operand] = new
        memories.narrow_exp[access.operand] = 0
        memories.wide[access.accumulators] = after.acc.reshape(weight.shape).astype(np.int16).view(np.uint16)
        registers.exp[z], registers.top[z] = after.exp[0], np.abs(new).max()
        counts = (after.refused.sum(), after.vanished.sum(), int(after.grown[0] > 0))
        memories.updates[:] = (memories.updates + counts) % (1 << 32)
        return new

    # Destinations ------------------------------------------------------------------------------

    def _write(self, chain: IntegerChain, access: _Access, values: Ints) -> None:
        """Write to the destinations; of all of them it is checked first that they can hold the integers."""
        steps, memories, config = chain.steps, self.memories, self.config
        wide = steps.to_vector and chain.destination.mem is Mem.WIDE
        narrow = steps.to_vector and not wide
        if wide or narrow or steps.to_column or steps.to_row:
            within(values, WIDE_BITS)
        planes = digits(values, chain.planes.count) if narrow or steps.to_column or steps.to_row else values[None]
        if wide:
            self._write_wide(access.wide, values)
        results = np.moveaxis(planes, 0, 1)  # [vectors, planes, N]
        if narrow:
            memories.narrow_mant[access.narrow] = results
            memories.narrow_exp[access.narrow] = 0
        if steps.to_column:
            word, lane = np.divmod(access.columns, config.lanes)
            memories.matrix_mant[word, :, lane] = results
            words, bits = access.cleared
            stored = memories.matrix_exp[words] - config.wgt_exp_min
            memories.matrix_exp[words] = (stored & ~bits[:, None]) + config.wgt_exp_min
        if steps.to_row:
            words, row = row_words(access.tile_rows, config), access.tile_rows[:, None] % config.native
            memories.matrix_mant[words, row] = results[:, 0].reshape(*words.shape, config.lanes)
            memories.matrix_exp[words, row] = config.wgt_exp_min

    def _write_wide(self, first: Ids, values: Ints) -> None:
        """Wide integers ``[vectors, N]``; of a word that is written twice the latest value stays."""
        words = values.astype("<i4").view("<u2").reshape(len(values), 2, self.config.native)
        self.memories.wide[both_words(first)] = words


def wide_integers(memories: Memories, first: Ids) -> Ints:
    """Wide integers ``[..., N]`` whose first words are at ``first``."""
    words = memories.wide[both_words(first)]
    return np.asarray(words.reshape(*first.shape, -1).astype("<u2").view("<i4"), dtype=np.int64)


def updated(
    weight: Ints, acc: Ints, change: Ints, registers: TensorRegisters, z: int, x: int, coarser: int = 0
) -> Updated:
    """The lazy update of one block ``[1, elements]`` whose exponents are in registers; ``coarser`` as in ``t_upd``.

    Raises
    ------
    IntegerRangeError
        If one of the exponents is none of training.
    """
    for register in (z, x):
        _training_exponent(int(registers.exp[register]))
    # Exponents as differences to that of the weights: the block grows as it must, wherever the greatest exponent is.
    apart = np.array([int(registers.exp[x]) - int(registers.exp[z])])
    accumulator = AccumulatorFormat(ACCUMULATOR_BITS, ACCUMULATOR_POINT - coarser)
    after = lazy_update(weight, acc, np.zeros(1, dtype=np.int64), change, apart, WEIGHT, accumulator)
    return after._replace(exp=after.exp + registers.exp[z])


def _training_exponent(exp: int) -> None:
    if not TRAIN_EXP_MIN <= exp <= TRAIN_EXP_MAX:
        raise IntegerRangeError(f"exponents of an update must be in {TRAIN_EXP_MIN}..{TRAIN_EXP_MAX}, not {exp}")


def _moved(values: Ints, right: int) -> Ints:
    """Integers moved to the grid of a sum, halves away from zero; exact to the left."""
    if right < 0:
        limit = largest(SUM_BITS) >> min(-right, SUM_BITS)
        if np.abs(values).max() > limit:
            raise IntegerRangeError(f"integers must have at most {SUM_BITS} bits on the grid of their sum")
        return values << min(-right, SUM_BITS)
    return round_shift(values, right)
