"""Integer chains and tensor steps that a program executes, all state resolved (:mod:`concord.spec.integers`).

Vectors of a chain are numbered in the order of execution: axes ``[outer, inner, rows]`` in C order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from concord.program.chains import MATRIX_MASK, VECTOR_MASK, Address, Index, Mask, Pad, Window, taps_inside
from concord.program.rules import Broken, Check, broken_of
from concord.spec import integers
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem, Op
from concord.spec.operations import IntegerSource
from concord.spec.rules import ProgramRule


@dataclass(frozen=True)
class TensorStep:
    """A step of the tensor registers.

    Parameters
    ----------
    pc : int
        Address of its word.
    op : Op
        One of :data:`concord.spec.operations.TENSOR_OPS`.
    z : int
        Register of the result, if there is one.
    x, y : int
        Registers that are read.
    exp, bits, place, factor, accumulators, coarser : int
        As in the instruction.
    """

    pc: int
    op: Op
    z: int = 0
    x: int = 0
    y: int = 0
    exp: int = 0
    bits: int = 0
    place: int = 0
    factor: int = 0
    accumulators: int = 0
    coarser: int = 0

    @property
    def fields(self) -> dict[str, int]:
        """Everything that the word says beside its operation, by name."""
        return {name: value for name, value in vars(self).items() if name not in ("pc", "op")}


@dataclass(frozen=True)
class ProductTaps:
    """Columns and digits of a product: distances from one to the next, and which operand has digits."""

    vector: int = 0
    vector_digit: int = 0
    matrix: int = 0
    matrix_digit: int = 0
    digits: int = 1
    of: int = 0


@dataclass(frozen=True)
class Planes:
    """Words of a narrow result, and distances from one to the next at the destinations."""

    count: int = 1
    dst: int = 0
    col: int = 0


@dataclass(frozen=True)
class ChainSteps:
    """Steps that ``i_run`` asks for; names as there."""

    interval: int
    scale: int = 0
    factor: int = 0
    round0: int = 0
    add: int = 0
    peak: int = 0
    tensor: int = 0
    round1: int = 0
    relu: int = 0
    mask: int = 0
    valid: int = 0
    update: int = 0
    to_vector: int = 0
    to_column: int = 0
    to_row: int = 0


@dataclass(frozen=True)
class IntegerChain:
    """One integer chain.

    Parameters
    ----------
    pc : int
        Address of its ``i_run``.
    rows, cols, inner, outer : int
        Loops, and columns of a product.
    kind : IntegerSource
        Of the source.
    source, operand, destination : Address
        In vector memories.
    operand_mem, destination_mem : Mem
        Which ones; wide means wide integers.
    tiles : Address
        Words of the matrix memory.
    taps : ProductTaps
        Of a product.
    window, pad : Window, Pad
        Likewise.
    columns, tile_rows : Address
        Numbers of columns and rows of tiles that are written.
    planes : Planes
        Of narrow results.
    steps : ChainSteps
        What is done.
    """

    pc: int
    rows: int
    cols: int
    inner: int
    outer: int
    kind: IntegerSource
    source: Address
    operand: Address
    operand_mem: Mem
    destination: Address
    destination_mem: Mem
    tiles: Address
    taps: ProductTaps
    window: Window
    pad: Pad
    columns: Address
    tile_rows: Address
    planes: Planes
    steps: ChainSteps

    @property
    def shape(self) -> tuple[int, int, int]:
        """Turns of the loops: ``outer, inner, rows``."""
        return self.outer, self.inner, self.rows

    @property
    def vectors(self) -> int:
        """Vectors of the chain."""
        return self.outer * self.inner * self.rows

    @property
    def with_operand(self) -> bool:
        """True if an operand is read."""
        return bool(self.steps.add or self.steps.mask or self.steps.update)

    def product_steps(self, config: NpuConfig) -> int:
        """Tile steps of a vector; 0 if there is no product."""
        return (
            self.taps.digits * self.window.taps * self.cols * config.steps if self.kind is IntegerSource.PRODUCT else 0
        )

    def least_interval(self, config: NpuConfig) -> int:
        """Cycles from vector to vector that the ports of the memories need."""
        steps, count = self.steps, self.planes.count
        narrow_operand = self.with_operand and self.operand_mem is Mem.NARROW
        reads = self.product_steps(config) or self.kind is IntegerSource.NARROW
        narrow_result = steps.to_vector and self.destination_mem is Mem.NARROW
        return integers.interval(
            beats=config.beats,
            narrow_reads=reads + narrow_operand,
            narrow_writes=1 if steps.update else count * narrow_result,
            matrix_writes=count * steps.to_column + config.steps * steps.to_row,
        )

    def _numbers(self, address: Address) -> Index:
        return address.over(*self.shape)

    def addresses(self, address: Address) -> Index:
        """Addresses in a vector memory ``[outer, inner, rows]``, modulo 2**14."""
        return self._numbers(address) & VECTOR_MASK

    def source_taps(self) -> Index:
        """Addresses of the vectors of a product ``[outer, inner, rows, digits, taps, cols]``."""
        window, taps = self.window, self.taps
        p, t, c = np.ogrid[: taps.digits, : window.taps, : self.cols]
        more = t // window.kw * window.stride_y + t % window.kw * window.stride_x + c * taps.vector
        more = more + p * (0 if taps.of else taps.vector_digit)
        return np.asarray((self._numbers(self.source)[..., None, None, None] + more) & VECTOR_MASK)

    def inside(self) -> Mask:
        """True for taps of a product inside the image ``[outer, inner, taps]``."""
        return taps_inside(self.window, self.pad, self.outer, self.inner)

    def tile_words(self, config: NpuConfig) -> Index:
        """Words of its tiles ``[outer, inner, rows, digits, taps, cols, N/L]``."""
        p, t, c, h = np.ogrid[: self.taps.digits, : self.window.taps, : self.cols, : config.steps]
        more = (t * self.cols + c) * self.taps.matrix + p * (self.taps.matrix_digit if self.taps.of else 0) + h
        return np.asarray((self._numbers(self.tiles)[..., None, None, None, None] + more) & MATRIX_MASK)

    def written_columns(self) -> Index:
        """Numbers of the columns that are written ``[outer, inner, rows, planes]``."""
        return np.asarray(self._numbers(self.columns)[..., None] + np.arange(self.planes.count) * self.planes.col)

    def written_tile_rows(self) -> Index:
        """Numbers of the rows of tiles that are written ``[outer, inner, rows]``."""
        return self._numbers(self.tile_rows)

    def narrow_targets(self) -> Index:
        """Addresses of narrow results ``[outer, inner, rows, planes]``."""
        more = np.arange(self.planes.count) * self.planes.dst
        return (self._numbers(self.destination)[..., None] + more) & VECTOR_MASK


def broken_integer_rules(chain: IntegerChain, config: NpuConfig) -> list[Broken]:
    """Rules that an integer chain breaks, but for those about what several of its vectors read and write."""
    checks = (*_operand_rules(chain), *_result_rules(chain, config))
    return broken_of(checks) + _outside(chain, config)


def _operand_rules(chain: IntegerChain) -> Iterator[Check]:
    """Rules of sources and operands."""
    steps, kind = chain.steps, chain.kind
    product, narrow = kind is IntegerSource.PRODUCT, chain.operand_mem is Mem.NARROW
    kept = steps.add + steps.mask + steps.update <= 1
    message = "must have one operand: to add, to mask, or the weights of an update"
    yield ProgramRule.ONE_OPERAND, kept, message
    kept = not (steps.mask or steps.update) or narrow
    yield ProgramRule.NARROW_OPERAND, kept, "must have a narrow operand to mask or to update"
    yield ProgramRule.SCALED_PRODUCT, not (product and steps.scale), "must not scale a product"
    kept = not (product and steps.add) or narrow
    yield ProgramRule.PRODUCT_OPERAND, kept, "must have a narrow operand with a product"
    kept = kind is IntegerSource.WIDE and bool(steps.round1) and not (steps.peak or steps.relu or steps.to_vector)
    message = "must have a wide source and round1, and neither peak, relu nor to_vector, with an update"
    yield ProgramRule.UPDATE, not steps.update or kept, message


def _result_rules(chain: IntegerChain, config: NpuConfig) -> Iterator[Check]:
    """Rules of the cycles that a chain takes, and of what it writes."""
    steps, whole, least = chain.steps, chain.planes.count == 1, chain.least_interval(config)
    message = f"must have an interval of at least {least} cycles, not {steps.interval}"
    yield ProgramRule.INTERVAL, steps.interval >= least, message
    kept = not (steps.update and (steps.to_column or steps.to_row)) or whole
    yield ProgramRule.UPDATE_DIGITS, kept, "must write one word of new weights, not digits"
    kept = any((steps.to_vector, steps.to_column, steps.to_row, steps.update, steps.peak))
    yield ProgramRule.RESULT, kept, "must write something, or have a peak"
    message = f"must keep at most {config.native} elements, not {steps.valid}"
    yield ProgramRule.VALID, steps.valid <= config.native, message
    yield ProgramRule.ROW_DIGITS, not steps.to_row or whole, "must write rows of tiles as a whole, not in digits"
    kept = not (steps.to_vector and chain.destination_mem is Mem.WIDE) or whole
    yield ProgramRule.WIDE_DIGITS, kept, "must write wide integers as a whole, not in digits"


def _outside(chain: IntegerChain, config: NpuConfig) -> list[Broken]:
    """Addresses beyond the memories."""
    steps, product = chain.steps, chain.kind is IntegerSource.PRODUCT
    narrow: list[Index] = []
    wide: list[Index] = []
    matrix: list[Index] = []
    if product:
        reached = np.broadcast_to(chain.inside()[:, :, None, None, :, None], chain.source_taps().shape)
        narrow.append(np.where(reached, chain.source_taps(), 0))
        matrix.append(chain.tile_words(config))
    elif chain.kind is IntegerSource.WIDE:
        wide.append(chain.addresses(chain.source) + 1)
    else:
        narrow.append(chain.addresses(chain.source))
    if chain.with_operand:
        at = chain.addresses(chain.operand)
        (narrow if chain.operand_mem is Mem.NARROW else wide).append(at if chain.operand_mem is Mem.NARROW else at + 1)
    if steps.to_vector and chain.destination_mem is Mem.NARROW:
        narrow.append(chain.narrow_targets())
    elif steps.to_vector:
        wide.append(chain.addresses(chain.destination) + 1)
    if steps.to_column:
        matrix.append(chain.written_columns() // config.lanes)
    if steps.to_row:
        matrix.append(chain.written_tile_rows() // config.native * config.steps + config.steps - 1)
    depths = (
        ("narrow", narrow, config.narrow_depth),
        ("wide", wide, config.wide_depth),
        ("matrix", matrix, config.matrix_depth),
    )
    beyond = [
        (name, depth, most)
        for name, used, depth in depths
        if used and (most := max(int(a.max()) for a in used)) >= depth
    ]
    broken = [
        Broken(ProgramRule.INTEGER_ADDRESSES, f"must stay below word {depth} of the {name} memory, not touch {most}")
        for name, depth, most in beyond
    ]
    message = "must not write columns or rows in front of the first tile"
    return broken + [Broken(ProgramRule.FIRST_TILE, message) for used in matrix if int(used.min()) < 0]
