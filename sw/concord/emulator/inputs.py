"""Inputs that differ from run to run of a batch: patterns, codes or numbers of some vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from concord.emulator import kernels
from concord.emulator.fused import FusedPass
from concord.emulator.lanes import Lanes, Memory
from concord.golden import binary16, blocks
from concord.operations.float32 import round_floats
from concord.program import Quant
from concord.program.access import depth
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.spec.isa import Mem
from concord.utils.arrays import Array, Bits

#: Numbers that are converted together: what fits a second-level cache.
_PIECE = 1 << 15

Wide = Mapping[int, ArrayLike]
Narrow = Mapping[int, tuple[ArrayLike, ArrayLike]]
Numbers = Mapping[tuple[Mem, int], ArrayLike]


class _Vectors(Protocol):
    """Contents ``[batch, count, N]`` of one input."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the contents."""

    def put(self, lanes: Lanes, at: int, entries: slice, fast: bool) -> None:
        """Store some entries of the batch, one per lane, from address ``at`` on; the last one in the lanes left.

        ``fast``: with compiled kernels.
        """


@dataclass(frozen=True)
class _Patterns:
    """binary16 patterns for the wide memory."""

    bits: Bits

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape

    def put(self, lanes: Lanes, at: int, entries: slice, fast: bool) -> None:
        lanes.put_wide(slice(at, at + self.shape[1]), _filled(self.bits[entries], lanes.batch))


@dataclass(frozen=True)
class _Codes:
    """Mantissas, and exponents ``[batch, count]``, for the narrow memory."""

    mant: Array
    exp: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mant.shape

    def put(self, lanes: Lanes, at: int, entries: slice, fast: bool) -> None:
        mant, exp = (_filled(values[entries], lanes.batch) for values in (self.mant, self.exp))
        lanes.put_narrow(slice(at, at + self.shape[1]), mant, exp)


@dataclass(frozen=True)
class _Numbers:
    """Numbers for either memory, float32 or float64."""

    mem: Mem
    values: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def put(self, lanes: Lanes, at: int, entries: slice, fast: bool) -> None:
        _, count, native = self.shape
        some = self.values[entries]
        step = max(1, _PIECE // (native * lanes.batch))
        fused = None
        if fast and some.dtype == np.float32:
            words = np.arange(at, at + count)
            fused = FusedPass(lanes.config, words * native, {self.mem: words}, Quant())
        with np.errstate(all="ignore"):
            for first in range(0, count, step):
                piece = slice(first, min(first + step, count))
                place = slice(at + piece.start, at + piece.stop)
                if fused is None:
                    self._put_piece(lanes, place, some[:, piece])
                    continue
                _spread(some[:, piece], lanes.memory(self.mem)[place])
                rows, vector = lanes.rows(self.mem), first
                while (vector := fused.run(vector, lanes, rows, False, stop=piece.stop)[0]) < piece.stop:
                    special = binary16.encode(_filled(some[:, vector : vector + 1], lanes.batch))
                    self._put_special(lanes, slice(at + vector, at + vector + 1), special)
                    vector += 1

    def _put_piece(self, lanes: Lanes, at: slice, values: Array) -> None:
        pool = lanes.pool
        out = lanes.memory(self.mem)[at]
        if values.dtype == np.float32:
            _spread(values, out)
            round_floats(out, pool)
        else:
            exact = pool.take("exact", out.shape, np.float64)
            _spread(values, exact)
            kernels.round_doubles(exact, out, pool)
        if not (out.max() <= BINARY16_MAX and out.min() >= -BINARY16_MAX):
            self._put_special(lanes, at, binary16.encode(_filled(values, lanes.batch)))
        elif self.mem is Mem.NARROW:
            kernels.quantize(out, lanes.config.act, Quant(), None, out, lanes.scale[at], pool, lanes.grain[at])

    def _put_special(self, lanes: Lanes, at: slice, bits: Bits) -> None:
        """Writes vectors with values that are not finite, by the golden model."""
        if self.mem is Mem.WIDE:
            lanes.put_wide(at, bits)
        else:
            converted = blocks.quantize(bits, lanes.config.act)
            lanes.put_narrow(at, converted.mant, converted.exp)


class Inputs:
    """Vectors that differ from run to run; parameters as those of :meth:`Emulator.run_batch`.

    Members
    -------
    batch : int
        Number of runs.
    """

    def __init__(self, config: NpuConfig, wide: Wide, narrow: Narrow, numbers: Numbers):
        self._vectors: list[tuple[Mem, int, _Vectors]] = [
            *((Mem.WIDE, at, _Patterns(_patterns(values))) for at, values in wide.items()),
            *((Mem.NARROW, at, _Codes(np.asarray(mant), np.asarray(exp))) for at, (mant, exp) in narrow.items()),
            *((mem, at, _Numbers(mem, _floats(x))) for (mem, at), x in numbers.items()),
        ]
        shapes = [vectors.shape for _, _, vectors in self._vectors]
        sizes = {shape[0] for shape in shapes if len(shape) == 3 and shape[2] == config.native}
        if not shapes or len(sizes) != 1 or any(len(s) != 3 or s[2] != config.native for s in shapes):
            raise ValueError(f"inputs must be arrays [batch, count, {config.native}] of one batch, not {shapes}")
        for mem, at, vectors in self._vectors:
            limit = depth(config, mem)
            if not 0 <= at <= at + vectors.shape[1] <= limit:
                raise ValueError(f"inputs must lie in {limit} words, not at {at}..{at + vectors.shape[1] - 1}")
        self.batch = sizes.pop()
        if self.batch < 1:
            raise ValueError("inputs must have at least one entry in the batch, not 0")

    @property
    def places(self) -> tuple[tuple[Mem, int, int], ...]:
        """Memory, first address and number of the vectors of every input."""
        return tuple((mem, at, vectors.shape[1]) for mem, at, vectors in self._vectors)

    def addresses(self, mem: Memory) -> set[int]:
        """Words of a memory that are given."""
        return {word for region, at, count in self.places if region is mem for word in range(at, at + count)}

    def put(self, lanes: Lanes, first: int, fast: bool = False) -> None:
        """Load a part of the batch; the last entry is repeated where the batch ends. ``fast``: compiled kernels."""
        entries = slice(first, min(first + lanes.batch, self.batch))
        for _, at, vectors in self._vectors:
            vectors.put(lanes, at, entries, fast)


def _filled(values: Array, count: int) -> Array:
    """Entries of a batch, the last one repeated to ``count``."""
    if len(values) == count:
        return values
    return values[np.minimum(np.arange(count), len(values) - 1)]


def _spread(values: Array, out: Array) -> None:
    """Copy entries of a batch to lanes, the last one to all lanes that are left."""
    used = len(values)
    np.copyto(out[..., :used], values.transpose(1, 2, 0))
    out[..., used:] = out[..., used - 1 : used]


def _floats(values: ArrayLike) -> Array:
    array = np.asarray(values)
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def _patterns(values: ArrayLike) -> Bits:
    array = np.asarray(values)
    return array.view(np.uint16) if array.dtype == np.float16 else binary16.as_bits(array)
