"""Vector memories of a batch: one copy per lane, the lanes innermost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike, NDArray

from concord.program.chains import Index
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem

from .kernels import F32, Pool, decode, encode
from .memories import Memories


class Lanes:
    """Wide and narrow memory of ``batch`` machines.

    Parameters
    ----------
    config : NpuConfig
    batch : int

    Members
    -------
    wide, narrow : float32 ``[depth + 2, N, B]``
        Values of the elements.
    scale : float32 ``[narrow_depth + 2, B]``
        Two to the power of the shared exponent.
    zero, lowest : int
        Offsets behind the memory of a vector of zeros and of one of -inf, for what lies outside an image.
    """

    zero, lowest = 0, 1

    def __init__(self, config: NpuConfig, batch: int):
        self.config, self.batch = config, batch
        self.wide: F32 = np.zeros((config.wide_depth + 2, config.native, batch), dtype=np.float32)
        self.narrow: F32 = np.zeros((config.narrow_depth + 2, config.native, batch), dtype=np.float32)
        self.scale: F32 = np.ones((config.narrow_depth + 2, batch), dtype=np.float32)
        self.wide[config.wide_depth + self.lowest] = -np.inf
        self.narrow[config.narrow_depth + self.lowest] = -np.inf
        self.scale[config.narrow_depth :] = 2.0**config.act_exp_min
        self.pool = Pool()

    def memory(self, mem: Mem) -> F32:
        """Array of one memory."""
        return self.wide if mem is Mem.WIDE else self.narrow

    def depth(self, mem: Mem) -> int:
        """Words of one memory."""
        return self.config.wide_depth if mem is Mem.WIDE else self.config.narrow_depth

    # Exchange with the outside -----------------------------------------------------------------

    def load(self, memories: Memories, mem: Mem, addresses: Iterable[int]) -> None:
        """Copy words into every lane."""
        at = np.fromiter(addresses, dtype=np.int64)
        if not at.size:
            return
        if mem is Mem.WIDE:
            self.wide[at] = decode(memories.wide[at])[..., None]
        else:
            self.put_narrow(at, memories.narrow_mant[at][None], memories.narrow_exp[at][None])

    def store(self, memories: Memories, mem: Mem, addresses: Iterable[int]) -> None:
        """Copy words of the first lane back."""
        at = np.fromiter(addresses, dtype=np.int64)
        if mem is Mem.WIDE:
            memories.wide[at] = encode(self.wide[at, :, 0])
        else:
            mant, exp = self.get_narrow(at, 1)
            memories.narrow_mant[at], memories.narrow_exp[at] = mant[0], exp[0]

    def put_wide(self, at: Index | slice, patterns: NDArray[np.uint16]) -> None:
        """Set vectors from patterns ``[batch, count, N]``; one entry counts for all lanes."""
        self.wide[at] = decode(patterns.transpose(1, 2, 0))

    def get_wide(self, at: Index | slice, lanes: int) -> NDArray[np.uint16]:
        """Patterns ``[lanes, count, N]``."""
        return np.ascontiguousarray(encode(self.wide[at][..., :lanes]).transpose(2, 0, 1))

    def put_narrow(self, at: Index | slice, mant: ArrayLike, exp: ArrayLike) -> None:
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
        self.narrow[at] = codes.transpose(1, 2, 0) * scale[:, None]

    def get_narrow(self, at: Index | slice, lanes: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Mantissas ``[lanes, count, N]`` and exponents ``[lanes, count]``."""
        scale = self.scale[at][..., :lanes]
        mant = self.narrow[at][..., :lanes] / scale[:, None]
        exp = np.frexp(scale)[1] - 1
        return mant.transpose(2, 0, 1).astype(np.int16), exp.T.astype(np.int16)


class Place:
    """Some words of an array: a view where the addresses are regular, gathered or scattered otherwise.

    Parameters
    ----------
    array : ndarray ``[depth, ...]``
    index : Index
        Addresses, any shape.
    pool : Pool
        For what is gathered.
    """

    def __init__(self, array: NDArray[Any], index: Index, pool: Pool):
        self.array, self.pool = array, pool
        self.shape = (*index.shape, *array.shape[1:])
        self.flat = np.ascontiguousarray(index).reshape(-1)
        self.view = _strided(array, index)
        # Of vectors that are written to the same address, the last one counts.
        last = len(self.flat) - 1 - np.unique(self.flat[::-1], return_index=True)[1]
        self.keep = None if len(last) == len(self.flat) else np.sort(last)

    @property
    def writable(self) -> NDArray[Any] | None:
        """A view that can be written as a whole, if there is one."""
        return self.view if self.keep is None else None

    def read(self, name: str) -> NDArray[Any]:
        """The words; not to be changed. What is gathered stays valid until ``name`` is used again."""
        if self.view is not None:
            return self.view
        out = self.pool.take(name, (len(self.flat), *self.array.shape[1:]), self.array.dtype)
        np.take(self.array, self.flat, axis=0, out=out, mode="clip")
        return out.reshape(self.shape)

    def write(self, values: NDArray[Any]) -> None:
        """Store words, in order; ``values`` must not overlap the array."""
        target = self.writable
        if target is not None:
            target[...] = values
            return
        words = values.reshape(len(self.flat), *self.array.shape[1:])
        if self.keep is None:
            self.array[self.flat] = words
        else:
            self.array[self.flat[self.keep]] = words[self.keep]


def _strided(array: NDArray[Any], index: Index) -> NDArray[Any] | None:
    """A view of ``array[index]`` if every axis of the addresses is an arithmetic progression."""
    base = int(index.flat[0])
    steps = []
    expected: Any = base
    for axis, size in enumerate(index.shape):
        origin = [0] * index.ndim
        origin[axis] = min(1, size - 1)
        step = int(index[tuple(origin)]) - base
        steps.append(step)
        expected = expected + step * np.arange(size).reshape([-1 if k == axis else 1 for k in range(index.ndim)])
    if not np.array_equal(expected, index):
        return None
    strides = [step * array.strides[0] for step in steps]
    return as_strided(array[base:], (*index.shape, *array.shape[1:]), (*strides, *array.strides[1:]))
