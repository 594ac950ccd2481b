"""Memories of a batch: one copy per lane, the lanes innermost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.emulator.kernels import decode, encode
from concord.emulator.tiles import Tiles
from concord.image import Memories
from concord.image.packing import from_vector_columns, to_vector_columns
from concord.operations.float32 import Pool
from concord.program.access import LOWEST, depth
from concord.program.chains import VectorCopy
from concord.program.vector_copies import ExternalVectors
from concord.spec.config import NpuConfig
from concord.spec.formats import BlockFormat
from concord.spec.isa import Mem
from concord.utils.arrays import Array, Bits, Float32s, Ids

#: The matrix memory among those that lanes have copies of: of it, the tiles that are their own.
MATRIX: Literal["matrix"] = "matrix"
Memory = Mem | Literal["matrix"]
COPIED: tuple[Memory, ...] = (*Mem, MATRIX)


def after(config: NpuConfig, mem: Mem) -> int:
    """Words of a vector memory in lanes: its own, and those for what lies outside an image."""
    return depth(config, mem) + 2


class BlockMemory(NamedTuple):
    """A memory of blocks.

    Parameters
    ----------
    values : float32 ``[words, N, B]``
        Values of the elements.
    rows : float32 ``[words * N, B]``
        The same memory, by element.
    scale : float32 ``[words, B]``
        Two to the power of the shared exponent.
    grain : float32 ``[words, B]``
        A power of two that the elements are multiples of, or infinity where all are zero.
    """

    values: Float32s
    rows: Float32s
    scale: Float32s
    grain: Float32s


class Lanes:
    """Wide and narrow memory of ``batch`` machines, and tiles of the matrix memory.

    Parameters
    ----------
    config : NpuConfig
    batch : int

    Members
    -------
    wide, narrow : float32 ``[words, N, B]``
        Values of the elements.
    wide_rows, narrow_rows : float32 ``[words * N, B]``
        The same memory, by element.
    scale : float32 ``[words, B]``
        Two to the power of the shared exponent.
    grain : float32 ``[words, B]``
        A power of two that the elements are multiples of: the same, or infinity where all are zero.
    narrow_blocks : BlockMemory
        The narrow memory.
    vectors : ExternalVectors
        Which vectors of the external memory there are, after the words of the vector memory that they are copied from
        and to: from ``depth + 2`` on.
    tiles : Tiles
        Which tiles there are.
    matrix : BlockMemory
        Rows of tiles, at the places of :class:`Tiles`. The scale of a row whose words have several exponents is that of
        the greatest one.
    pool : Pool
        Scratch memory of whoever works on them.
    """

    def __init__(self, config: NpuConfig, batch: int):
        self.config, self.batch = config, batch
        self.tiles: Tiles
        self.matrix: BlockMemory
        self._make_tiles(Tiles(config))
        self._make_vectors(ExternalVectors(config))
        self.pool = Pool()

    def memory(self, mem: Mem) -> Float32s:
        """Array of one memory."""
        return self.wide if mem is Mem.WIDE else self.narrow

    def rows(self, mem: Mem) -> Float32s:
        """Array of one memory, by element."""
        return self.wide_rows if mem is Mem.WIDE else self.narrow_rows

    def blocks(self, matrix: bool) -> tuple[BlockMemory, BlockFormat]:
        """The narrow memory, or the tiles, and the format of their vectors."""
        return (self.matrix, self.config.wgt) if matrix else (self.narrow_blocks, self.config.act)

    def hold(self, tiles: Tiles, vectors: ExternalVectors) -> None:
        """Have these tiles and vectors of the external memory; all contents must be loaded or written then."""
        if not all(np.array_equal(vectors.firsts[mem], self.vectors.firsts[mem]) for mem in Mem):
            self._make_vectors(vectors)
        if np.array_equal(tiles.numbers, self.tiles.numbers):
            self.tiles = tiles
        else:
            self._make_tiles(tiles)

    def _make_vectors(self, vectors: ExternalVectors) -> None:
        self.vectors, native, batch = vectors, self.config.native, self.batch
        words = {mem: after(self.config, mem) + len(vectors.firsts[mem]) for mem in Mem}
        self.wide: Float32s = np.zeros((words[Mem.WIDE], native, batch), dtype=np.float32)
        self.narrow: Float32s = np.zeros((words[Mem.NARROW], native, batch), dtype=np.float32)
        self.scale: Float32s = np.ones((words[Mem.NARROW], batch), dtype=np.float32)
        self.wide[self.config.wide_depth + LOWEST] = -np.inf
        self.narrow[self.config.narrow_depth + LOWEST] = -np.inf
        self.scale[self.config.narrow_depth :] = 2.0**self.config.act_exp_min
        self.grain = np.full_like(self.scale, np.inf)
        self.wide_rows, self.narrow_rows = (memory.reshape(-1, batch) for memory in (self.wide, self.narrow))
        self.narrow_blocks = BlockMemory(self.narrow, self.narrow_rows, self.scale, self.grain)

    def copy_vectors(self, copy: VectorCopy) -> None:
        """Execute a copy between the external and a vector memory."""
        source, target = copy.way(after(self.config, copy.mem) + self.vectors.slots(copy))
        arrays = [self.wide] if copy.mem is Mem.WIDE else [self.narrow, self.scale, self.grain]
        for array in arrays:
            array[target] = array[source]

    def _make_tiles(self, tiles: Tiles) -> None:
        self.tiles, count = tiles, len(tiles.numbers) * self.config.rows
        values = np.zeros((count, self.config.native, self.batch), dtype=np.float32)
        scale = np.full((count, self.batch), 2.0**self.config.wgt_exp_min, dtype=np.float32)
        self.matrix = BlockMemory(values, values.reshape(-1, self.batch), scale, np.full_like(scale, np.inf))

    # Exchange with the outside -----------------------------------------------------------------

    def load(self, memories: Memories, mem: Memory, at: Ids) -> None:
        """Copy the words at some addresses, or rows of tiles, into every lane."""
        if not at.size:
            return
        if mem == MATRIX:
            self._load_rows(memories, at)
            return
        inside, external = self._apart(mem, at)
        if inside.size:
            self._put(mem, inside, [array[inside] for array in memories.vectors(mem)])
        if external.size:
            columns = memories.dram[self._columns(mem, external)]
            self._put(mem, external, from_vector_columns(self.config, mem, columns))

    def _put(self, mem: Mem, at: Ids, fields: Sequence[Array]) -> None:
        """Set vectors in every lane."""
        if mem is Mem.WIDE:
            self.wide[at] = decode(fields[0])[..., None]
        else:
            self.put_narrow(at, *(values[None] for values in fields))

    def _apart(self, mem: Mem, at: Ids) -> tuple[Ids, Ids]:
        """Words of a memory, and vectors of the external memory."""
        external = at >= after(self.config, mem)
        return at[~external], at[external]

    def _columns(self, mem: Mem, at: Ids) -> Ids:
        """Columns ``[vectors, columns]`` of vectors of the external memory."""
        firsts = self.vectors.firsts[mem][at - after(self.config, mem)]
        return np.asarray(firsts[:, None] + np.arange(self.config.vector_columns(mem)))

    def _load_rows(self, memories: Memories, rows: Ids) -> None:
        words, row = self.tiles.words(rows)
        mant, exp = memories.matrix_mant[words, row], memories.matrix_exp[words, row].astype(np.int64)
        places, scale = self.tiles.places(rows), np.ldexp(np.float32(1.0), exp)
        self.matrix.values[places] = (mant * scale[..., None]).reshape(len(rows), -1, 1)
        self.matrix.scale[places] = scale.max(axis=1, keepdims=True)
        self.matrix.grain[places] = np.where(mant.any(axis=2), scale, np.inf).min(axis=1, keepdims=True)

    def store(self, memories: Memories, mem: Memory, at: Ids) -> None:
        """Copy the words at some addresses, or rows of tiles that were written, back from the first lane."""
        if not at.size:
            return
        if mem == MATRIX:
            places, place = self.tiles.places(at), self.tiles.words(at)
            scale = self.matrix.scale[places, :1]
            mant = (self.matrix.values[places, :, 0] / scale).astype(np.int16)
            memories.matrix_mant[place] = mant.reshape(*place[0].shape, -1)
            memories.matrix_exp[place] = np.frexp(scale)[1] - 1
            return
        inside, external = self._apart(mem, at)
        for array, values in zip(memories.vectors(mem), self._get(mem, inside), strict=True):
            array[inside] = values
        if external.size:
            columns = to_vector_columns(self.config, mem, *self._get(mem, external))
            memories.dram[self._columns(mem, external)] = columns

    def _get(self, mem: Mem, at: Ids) -> list[Array]:
        """Vectors of the first lane."""
        if mem is Mem.WIDE:
            return [encode(self.wide[at, :, 0])]
        return [values[0] for values in self.get_narrow(at, 1)]

    def put_wide(self, at: Ids | slice, patterns: Bits) -> None:
        """Set vectors from patterns ``[batch, count, N]``; one entry counts for all lanes."""
        self.wide[at] = decode(patterns.transpose(1, 2, 0))

    def get_wide(self, at: Ids | slice, lanes: int) -> Bits:
        """Patterns ``[lanes, count, N]``."""
        return np.ascontiguousarray(encode(self.wide[at][..., :lanes]).transpose(2, 0, 1))

    def put_narrow(self, at: Ids | slice, mant: ArrayLike, exp: ArrayLike) -> None:
        """Set vectors from mantissas ``[batch, count, N]`` and exponents ``[batch, count]``."""
        act = self.config.act
        codes, exponents = np.asarray(mant), np.asarray(exp)
        if not act.exp_min <= exponents.min() <= exponents.max() <= act.exp_max:
            raise ValueError(
                f"exponents must be in {act.exp_min}..{act.exp_max}, not {exponents.min()}..{exponents.max()}"
            )
        if np.abs(codes).max() > act.q_max:
            raise ValueError(f"mantissas must be in {-act.q_max}..{act.q_max}, not {codes.min()}..{codes.max()}")
        scale = np.ldexp(np.float32(1.0), exponents.T)
        self.scale[at] = scale
        self.grain[at] = np.where(codes.any(axis=-1).T, scale, np.inf)
        self.narrow[at] = codes.transpose(1, 2, 0) * scale[:, None]

    def get_narrow(self, at: Ids | slice, lanes: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Mantissas ``[lanes, count, N]`` and exponents ``[lanes, count]``."""
        scale = self.scale[at][..., :lanes]
        mant = self.narrow[at][..., :lanes] / scale[:, None]
        exp = np.frexp(scale)[1] - 1
        return mant.transpose(2, 0, 1).astype(np.int16), exp.T.astype(np.int16)


class WordAccess:
    """Some words of a memory: a view where the addresses are regular, gathered or scattered otherwise.

    Parameters
    ----------
    index : Index
        Addresses, any shape.
    """

    def __init__(self, index: Ids):
        self.shape = index.shape
        self.flat = np.ascontiguousarray(index).reshape(-1)
        self.base = int(self.flat[0])
        self.steps = _steps(index)

    @cached_property
    def _last(self) -> Ids | None:
        """Numbers of the last words written to each address, which stay; None if no two words have the same address."""
        last = len(self.flat) - 1 - np.unique(self.flat[::-1], return_index=True)[1]
        return None if len(last) == len(self.flat) else np.sort(last)

    def view(self, array: Array) -> Array | None:
        """The words ``[*shape, ...]`` of a memory ``[depth, ...]``, if the addresses are regular."""
        if self.steps is None:
            return None
        strides = [step * array.strides[0] for step in self.steps]
        return np.ndarray(
            (*self.shape, *array.shape[1:]),
            array.dtype,
            array,
            self.base * array.strides[0],
            (*strides, *array.strides[1:]),
        )

    def writable(self, array: Array) -> Array | None:
        """A view that can be written as a whole, if there is one."""
        return self.view(array) if self._last is None else None

    def read(self, array: Array, name: str, pool: Pool) -> Array:
        """The words; not to be changed. What is gathered stays valid until ``name`` is used again."""
        view = self.view(array)
        if view is not None:
            return view
        out = pool.take(name, (len(self.flat), *array.shape[1:]), array.dtype)
        np.take(array, self.flat, axis=0, out=out, mode="clip")
        return out.reshape(*self.shape, *array.shape[1:])

    def write(self, array: Array, values: Array) -> None:
        """Store words, in order; ``values`` must not overlap the memory."""
        target = self.writable(array)
        if target is not None:
            target[...] = values
            return
        words = values.reshape(len(self.flat), *array.shape[1:])
        if self._last is None:
            array[self.flat] = words
        else:
            array[self.flat[self._last]] = words[self._last]


def _steps(index: Ids) -> tuple[int, ...] | None:
    """Steps between addresses along every axis, if each is an arithmetic progression."""
    base = int(index.flat[0])
    steps = []
    expected: Any = base
    for axis, size in enumerate(index.shape):
        origin = [0] * index.ndim
        origin[axis] = min(1, size - 1)
        step = int(index[tuple(origin)]) - base
        steps.append(step)
        expected = expected + step * np.arange(size).reshape([-1 if k == axis else 1 for k in range(index.ndim)])
    return tuple(steps) if np.array_equal(expected, index) else None
