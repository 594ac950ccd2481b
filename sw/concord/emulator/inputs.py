"""What differs from run to run of a batch: patterns, codes or numbers of some vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.emulator import kernels
from concord.emulator.lanes import Lanes, depth
from concord.golden import binary16, blocks
from concord.program import Quant
from concord.program.chains import Index
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.spec.isa import Mem

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

    def put(self, lanes: Lanes, at: int, entries: Index | slice) -> None:
        """Store some entries of the batch, one per lane, from address ``at`` on."""


@dataclass(frozen=True)
class _Patterns:
    """binary16 patterns for the wide memory."""

    bits: NDArray[np.uint16]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape

    def put(self, lanes: Lanes, at: int, entries: Index | slice) -> None:
        lanes.put_wide(slice(at, at + self.shape[1]), self.bits[entries])


@dataclass(frozen=True)
class _Codes:
    """Mantissas, and exponents ``[batch, count]``, for the narrow memory."""

    mant: NDArray[Any]
    exp: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mant.shape

    def put(self, lanes: Lanes, at: int, entries: Index | slice) -> None:
        lanes.put_narrow(slice(at, at + self.shape[1]), self.mant[entries], self.exp[entries])


@dataclass(frozen=True)
class _Numbers:
    """float64 numbers for either memory."""

    mem: Mem
    values: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def put(self, lanes: Lanes, at: int, entries: Index | slice) -> None:
        _, count, native = self.shape
        some = self.values[entries]
        step = max(1, _PIECE // (native * lanes.batch))
        with np.errstate(all="ignore"):
            for first in range(0, count, step):
                piece = some[:, first : first + step]
                self._put_piece(lanes, slice(at + first, at + first + piece.shape[1]), piece)

    def _put_piece(self, lanes: Lanes, at: slice, values: NDArray[np.float64]) -> None:
        pool = lanes.pool
        exact = pool.take("exact", (values.shape[1], values.shape[2], lanes.batch), np.float64)
        np.copyto(exact, values.transpose(1, 2, 0))
        out = lanes.memory(self.mem)[at]
        kernels.round_doubles(exact, out, pool)
        if not (out.max() <= BINARY16_MAX and out.min() >= -BINARY16_MAX):
            self._put_special(lanes, at, binary16.encode(values))
        elif self.mem is Mem.NARROW:
            kernels.quantize(out, lanes.config.act, Quant(), None, out, lanes.scale[at], pool, lanes.grain[at])

    def _put_special(self, lanes: Lanes, at: slice, bits: NDArray[np.uint16]) -> None:
        """The same by the definition, for what is not finite."""
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
            *((mem, at, _Numbers(mem, np.asarray(x, dtype=np.float64))) for (mem, at), x in numbers.items()),
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

    def addresses(self, mem: Mem) -> set[int]:
        """Words of a memory that are given."""
        spans = [range(at, at + vectors.shape[1]) for found, at, vectors in self._vectors if found is mem]
        return {address for span in spans for address in span}

    def put(self, lanes: Lanes, first: int) -> None:
        """Load a part of the batch; the last entry is repeated where the batch ends."""
        stop = first + lanes.batch
        entries: Index | slice = slice(first, stop)
        if stop > self.batch:
            entries = np.minimum(np.arange(first, stop), self.batch - 1)
        for _, at, vectors in self._vectors:
            vectors.put(lanes, at, entries)


def _patterns(values: ArrayLike) -> NDArray[np.uint16]:
    array = np.asarray(values)
    return array.view(np.uint16) if array.dtype == np.float16 else binary16.as_bits(array)
