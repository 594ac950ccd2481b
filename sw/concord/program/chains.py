"""One executed chain with all of its state resolved, and the addresses it touches as index arrays.

Vectors of a chain are numbered in the order of execution: axes ``[outer, inner, rows]`` in C order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from concord.spec.config import NpuConfig
from concord.spec.formats import BlockFormat, ExponentMode, Rounding
from concord.spec.isa import MATRIX_ADDR_BITS, MATRIX_ROW_BITS, VECTOR_ADDR_BITS, Mem, MvMode, Op, PipelineStage
from concord.spec.operations import OPERANDS
from concord.spec.windows import tap_lanes
from concord.utils.arrays import Bools, Ids

VECTOR_MASK = (1 << VECTOR_ADDR_BITS) - 1
MATRIX_MASK = (1 << MATRIX_ADDR_BITS) - 1
ROW_MASK = (1 << MATRIX_ROW_BITS) - 1


@dataclass(frozen=True)
class Address:
    """Address of a vector: ``base`` (address register included) plus a stride per loop, modulo 2**14."""

    base: int
    row: int = 0
    inner: int = 0
    outer: int = 0

    def over(self, outer: int, inner: int, rows: int) -> Ids:
        """``base + r*row + i*inner + o*outer`` of all turns ``[outer, inner, rows]``, not yet modulo anything."""
        o, i, r = np.ogrid[:outer, :inner, :rows]
        return np.asarray(self.base + r * self.row + i * self.inner + o * self.outer, dtype=np.int64)


#: The first word of a memory, for addresses that a chain does not use.
ORIGIN = Address(0)


@dataclass(frozen=True)
class MatrixWrite:
    """Rows of tiles that vectors are written to: the first word of a tile, and rows counted from its first one."""

    matrix: int
    rows: Address


@dataclass(frozen=True)
class Window:
    """Two-dimensional window: ``kh * kw`` taps, address and position steps per row and column of it."""

    kh: int = 1
    kw: int = 1
    stride_y: int = 0
    stride_x: int = 0
    dil_y: int = 1
    dil_x: int = 1

    @classmethod
    def over(cls, kernel: tuple[int, int], apart: tuple[int, int], line: int, column: int) -> Window:
        """Window of ``kernel`` taps, so many positions ``apart``; rows are ``line``, columns ``column`` words apart."""
        (kh, kw), (down, right) = kernel, apart
        return cls(kh, kw, down * line, right * column, max(1, down), max(1, right))

    @property
    def taps(self) -> int:
        """Number of taps."""
        return self.kh * self.kw


@dataclass(frozen=True)
class Pad:
    """Start and steps of the window in the image; ``height`` 0 means that every tap is inside."""

    y0: int = 0
    x0: int = 0
    step_y: int = 1
    step_x: int = 1
    height: int = 0
    width: int = 0


def taps_inside(window: Window, pad: Pad, outer: int, inner: int) -> Bools:
    """True for taps ``[outer, inner, taps]`` of windows inside the image."""
    if pad.height == 0:
        return np.ones((outer, inner, window.taps), dtype=np.bool_)
    y = pad.y0 + np.arange(outer)[:, None] * pad.step_y + np.arange(window.kh) * window.dil_y
    x = pad.x0 + np.arange(inner)[:, None] * pad.step_x + np.arange(window.kw) * window.dil_x
    y_ok, x_ok = (y >= 0) & (y < pad.height), (x >= 0) & (x < pad.width)
    both = y_ok[:, None, :, None] & x_ok[None, :, None, :]
    return np.asarray(both.reshape(outer, inner, window.taps))


@dataclass(frozen=True)
class Quant:
    """Conversion to narrow."""

    mode: ExponentMode = ExponentMode.DYNAMIC
    exp: int = 0
    rounding: Rounding = Rounding.NEAREST_EVEN

    def within(self, fmt: BlockFormat) -> Quant:
        """This conversion with the nearest static exponent that a format has."""
        return replace(self, exp=min(max(self.exp, fmt.exp_min), fmt.exp_max))


@dataclass(frozen=True)
class CodeScale:
    """Codes of accumulators: where the vector of factors is, that of fractions being the next, and the shift."""

    operand: Address
    shift: int

    @property
    def operands(self) -> tuple[Address, Address]:
        """Addresses of factors and fractions."""
        return self.operand, replace(self.operand, base=(self.operand.base + 1) & VECTOR_MASK)


@dataclass(frozen=True)
class MfuOp:
    """One operation of a multifunction unit: with an operand address, a table slot, or neither."""

    op: Op
    stage: PipelineStage
    operand: Address | None = None
    table: int | None = None


class OperandRead(NamedTuple):
    """One operand of a chain: what it is for, the number of its port in :data:`OPERANDS`, and where it is."""

    op: Op
    port: int
    address: Address


@dataclass(frozen=True)
class VectorPlace:
    """Vectors in a vector memory; for integer chains wide means wide integers."""

    mem: Mem
    address: Address


@dataclass(frozen=True)
class WeightCopy:
    """A copy from the external to the matrix memory, as it is executed.

    Parameters
    ----------
    pc : int
        Address of its word.
    column : int
        First column in the external memory.
    matrix : int
        First word of its first tile.
    rows : int
        Rows of tiles.
    overlaps : bool
        Whether chains that follow run while it goes on.
    """

    pc: int
    column: int
    matrix: int
    rows: int
    overlaps: bool = False

    def columns(self, config: NpuConfig) -> int:
        """Columns that it reads."""
        return self.rows * config.row_columns

    def words(self, config: NpuConfig) -> range:
        """Words of the matrix memory of which it writes rows."""
        return range(self.matrix, self.matrix + -(-self.rows // config.rows) * config.steps)

    def tiles(self, config: NpuConfig) -> range:
        """Tiles of which it writes rows."""
        first = self.matrix // config.steps
        return range(first, first + -(-self.rows // config.rows))

    def tile_rows(self, config: NpuConfig) -> Ids:
        """Numbers of the rows of tiles that it writes, counted from the first tile of the memory."""
        return self.matrix // config.steps * config.rows + np.arange(self.rows)


@dataclass(frozen=True)
class VectorCopy:
    """A copy of vectors between the external and a vector memory, as it is executed.

    Parameters
    ----------
    pc : int
        Address of its word.
    column : int
        First column in the external memory.
    mem : Mem
        The vector memory.
    address : int
        First vector there.
    count : int
        Vectors.
    out : bool
        Whether it writes the external memory.
    """

    pc: int
    column: int
    mem: Mem
    address: int
    count: int
    out: bool

    @property
    def addresses(self) -> Ids:
        """Addresses ``[count]`` in the vector memory."""
        return self.address + np.arange(self.count) & VECTOR_MASK

    def firsts(self, config: NpuConfig) -> Ids:
        """First column ``[count]`` of each vector."""
        return self.column + np.arange(self.count) * config.vector_columns(self.mem)

    def way(self, external: Ids) -> tuple[Ids, Ids]:
        """Places of the vectors that it reads and of those that it writes; ``external`` are those beyond the memory."""
        return (self.addresses, external) if self.out else (external, self.addresses)

    def columns(self, config: NpuConfig) -> int:
        """Columns of all vectors."""
        return self.count * config.vector_columns(self.mem)


#: Copies from and to the external memory.
MemoryCopy = WeightCopy | VectorCopy


@dataclass(frozen=True)
class ChainLoops:
    """Turns of the loops of a chain, of which ``rows`` is the innermost one."""

    rows: int = 1
    inner: int = 1
    outer: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Turns in the order of execution: outer, inner, rows."""
        return self.outer, self.inner, self.rows

    @property
    def vectors(self) -> int:
        """Number of result vectors."""
        return self.outer * self.inner * self.rows

    def numbers(self, address: Address) -> Ids:
        """Addresses ``[outer, inner, rows]``, not yet modulo anything."""
        return address.over(*self.shape)

    def addresses(self, address: Address) -> Ids:
        """Addresses ``[outer, inner, rows]`` in a vector memory, modulo 2**14."""
        return self.numbers(address) & VECTOR_MASK


@dataclass(frozen=True, kw_only=True)
class VectorChain(ChainLoops):
    """A chain of vectors, whatever its arithmetic.

    Parameters
    ----------
    rows, inner, outer : int
        Turns of its loops.
    pc : int
        Address of the word that begins it.
    cols : int
        Columns of a product; otherwise 1.
    source : Address
        Address of the source.
    window, pad : Window, Pad
        One tap that is inside unless there is a product or a maximum.
    """

    pc: int
    cols: int = 1
    source: Address
    window: Window = Window()
    pad: Pad = Pad()

    def inside(self) -> Bools:
        """True for taps ``[outer, inner, taps]`` inside the image."""
        return taps_inside(self.window, self.pad, self.outer, self.inner)


@dataclass(frozen=True, kw_only=True)
class Chain(VectorChain):
    """One chain of block floating point as it is dispatched; ``pc`` is that of its ``v_rd``, where flags are collected.

    Parameters
    ----------
    mem : Mem
        Source memory.
    reduce : Op or None
        ``MV_MUL``, ``V_MAX``, ``V_REDMAX`` or none.
    mode, matrix : MvMode, int
        Of the product: mode and first word in the matrix memory, address register included.
    mfu_ops : tuple of MfuOp
        Operations of the multifunction units, in order.
    destinations : tuple of VectorPlace
        Up to two, of different memories.
    quant : Quant
        Conversion of a narrow destination, or of rows of the matrix memory.
    scale : CodeScale or None
        How accumulators become codes, if they do.
    fresh : int
        Window columns of a sliding product that the window before had not; otherwise 0.
    into_matrix : MatrixWrite or None
        Rows of the matrix memory that it writes, if it does; there is no narrow destination then.
    copies : tuple of WeightCopy
        Copies from the external memory that may have written weights of the product, in order.
    beside : WeightCopy or None
        The copy that may go on while the chain runs.
    """

    mem: Mem
    reduce: Op | None
    mode: MvMode
    matrix: int
    mfu_ops: tuple[MfuOp, ...]
    destinations: tuple[VectorPlace, ...]
    quant: Quant
    scale: CodeScale | None = None
    fresh: int = 0
    into_matrix: MatrixWrite | None = None
    copies: tuple[WeightCopy, ...] = ()
    beside: WeightCopy | None = None

    @property
    def dense(self) -> bool:
        """True if the chain has a dense product."""
        return self.reduce is Op.MV_MUL and self.mode is MvMode.DENSE

    @property
    def depthwise(self) -> bool:
        """True if the chain has a depthwise product, sliding or not."""
        return self.reduce is Op.MV_MUL and self.mode is MvMode.DEPTHWISE

    @property
    def early(self) -> bool:
        """True if the chain needs neither a table nor the second multifunction unit."""
        return all(op.op is not Op.V_TBL and op.stage < PipelineStage.MUL1 for op in self.mfu_ops)

    @property
    def sliding(self) -> bool:
        """True if the chain has a sliding depthwise product."""
        return self.fresh > 0

    @property
    def skipped(self) -> int:
        """Columns on the left of the image that the first window of an inner loop of a sliding product leaves out."""
        pad, window = self.pad, self.window
        if not self.sliding or pad.height == 0 or pad.x0 >= 0:
            return 0
        return min(window.kw - 1, -(pad.x0 // window.dil_x))

    def destination(self, mem: Mem) -> Address | None:
        """Address of the destination in one memory, if there is one."""
        return next((d.address for d in self.destinations if d.mem is mem), None)

    @property
    def converts(self) -> bool:
        """True if the vectors of the chain become blocks: for the narrow memory, or for the matrix memory."""
        return self.into_matrix is not None or self.destination(Mem.NARROW) is not None

    @property
    def operands(self) -> list[OperandRead]:
        """Wide vectors that meet every vector, in the order in which they are read."""
        scale = () if self.scale is None else zip(range(2), self.scale.operands, strict=True)
        return [
            *(OperandRead(Op.VV_SCALE, port, address) for port, address in scale),
            *(
                OperandRead(op.op, OPERANDS.index(op.stage.name.lower()), op.operand)
                for op in self.mfu_ops
                if op.operand is not None
            ),
        ]

    # Addresses ---------------------------------------------------------------------------------

    def sources(self, config: NpuConfig) -> Ids:
        """Source addresses ``[outer, inner, rows, taps, cols]``, those of taps outside the image included.

        The T rows of a group of a dense product share the vectors of the group's first row.
        """
        first = self.numbers(self.source)[:, :, self._first_rows(config)]
        ky, kx = (axis.ravel() for axis in np.mgrid[: self.window.kh, : self.window.kw])
        taps = ky * self.window.stride_y + kx * self.window.stride_x
        cols = np.arange(self.cols)
        return np.asarray((first[..., None, None] + taps[:, None] + cols) & VECTOR_MASK)

    def group(self, config: NpuConfig) -> int:
        """Rows whose source is read at once, before the first of them is written: T in a dense product, else one."""
        return config.engines if self.dense else 1

    def source_order(self, config: NpuConfig) -> Ids:
        """Number of the first vector of the group of every vector ``[outer, inner, rows]``.

        Its source has seen the writes of all vectors before that one, and of no others of the chain.
        """
        return np.arange(self.vectors).reshape(self.shape)[:, :, self._first_rows(config)]

    def _first_rows(self, config: NpuConfig) -> Ids:
        """First row of the group of every row."""
        return np.arange(self.rows) // self.group(config) * self.group(config)

    def matrix_words(self, config: NpuConfig) -> Ids:
        """Matrix addresses: ``[groups, taps, cols, N/L]`` of a dense, ``[rows, words]`` of a depthwise product."""
        taps = self.window.taps
        if self.sliding:
            shape: tuple[int, ...] = (self.rows, 1)
        elif self.depthwise:
            shape = (self.rows, -(-taps // config.lanes))
        else:
            shape = (-(-self.rows // config.engines), taps, self.cols, config.steps)
        return np.asarray((self.matrix + np.arange(np.prod(shape)).reshape(shape)) & MATRIX_MASK)

    def written_rows(self, config: NpuConfig) -> Ids:
        """Numbers ``[outer, inner, rows]`` of the rows of tiles that ``m_wr`` writes, counted from the first tile."""
        assert self.into_matrix is not None
        first = self.into_matrix.matrix // config.steps * config.rows
        return np.asarray((first + self.numbers(self.into_matrix.rows)) & ROW_MASK)

    def tap_places(self, config: NpuConfig) -> tuple[Ids, Ids]:
        """Numbers of the words of all taps of a depthwise product in a row's, and the lanes of their weights."""
        taps = np.arange(self.window.taps)
        if self.sliding:
            return np.zeros_like(taps), np.array(tap_lanes((self.window.kh, self.window.kw), config.lanes))
        return taps // config.lanes, taps % config.lanes

    # What the counters add up ------------------------------------------------------------------

    def dense_steps(self, config: NpuConfig) -> int:
        """Tile steps of a dense product: one per group of T rows, tap, column and N/L-th of a tile."""
        groups = -(-self.rows // config.engines)
        return self.outer * self.inner * groups * self.window.taps * self.cols * config.steps if self.dense else 0

    def depthwise_steps(self) -> int:
        """Steps of a depthwise product: one per tap that is read."""
        if self.sliding:
            return self.outer * self.window.kh * (self.window.kw - self.skipped + (self.inner - 1) * self.fresh)
        return self.vectors * self.window.taps if self.depthwise else 0
