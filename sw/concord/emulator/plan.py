"""Chains prepared for a batch: which vectors go together, where they are, and in what order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from concord.golden import half
from concord.program import Chain
from concord.program.chains import Index
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem, Op

from . import kernels
from .kernels import DECODED, F32
from .lanes import LOWEST, ZERO, Lanes, Place, depth
from .product import Product, Weights
from .reference import LOWEST as MINUS_INFINITY

#: Values that one step may handle at once: few enough for the cache, many enough to hide the cost of a call.
_PART_VALUES = 1 << 19


class Access:
    """All addresses of a chain ``[positions, rows, ...]``, checked against the depths of the memories.

    Members
    -------
    source : Index ``[positions, rows, taps * cols]``
        Taps outside the image point to a word behind the memory.
    operands : list of Index or None
        One per step.
    targets : dict of Index
        By memory.
    """

    def __init__(self, chain: Chain, config: NpuConfig):
        self.chain, self.config = chain, config
        self.positions = chain.outer * chain.inner
        outside = depth(config, chain.mem) + (ZERO if chain.reduce is Op.MV_MUL else LOWEST)
        inside = chain.inside()[:, :, None, :, None]
        source = np.where(inside, chain.sources(config), -1)
        self._check(source, chain.mem)
        self.source = self._flat(np.where(source < 0, outside, source))
        self.operands: list[Index | None] = []
        for step in chain.steps:
            index = None if step.operand is None else self._flat(chain.addresses(step.operand))
            if index is not None:
                self._check(index, Mem.WIDE)
            self.operands.append(None if index is None else index[..., 0])
        self.targets = {d.mem: self._flat(chain.addresses(d.address))[..., 0] for d in chain.destinations}
        for mem, index in self.targets.items():
            self._check(index, mem)

    def _flat(self, index: Index) -> Index:
        return index.reshape(self.positions, self.chain.rows, -1)

    def _check(self, index: Index, mem: Mem) -> None:
        limit = depth(self.config, mem)
        if index.max() >= limit:
            raise ValueError(f"addresses of {mem.name.lower()} must be below {limit}, not {index.max()}")

    def reads(self, mem: Mem) -> list[Index]:
        """Addresses ``[positions, rows, ...]`` that are read from one memory."""
        found = [self.source] if self.chain.mem is mem else []
        if mem is Mem.WIDE:
            found += [index[..., None] for index in self.operands if index is not None]
        return [np.where(index < depth(self.config, mem), index, -1) for index in found]

    def read(self, mem: Mem) -> set[int]:
        """Words of a memory that are read."""
        return {a for index in self.reads(mem) for a in np.unique(index).tolist()} - {-1}

    def written(self, mem: Mem) -> set[int]:
        """Words of a memory that are written."""
        return set(np.unique(self.targets[mem]).tolist())

    def segments(self) -> Iterator[tuple[slice, slice]]:
        """Positions and rows in order, cut wherever a vector reads what one of the same segment writes."""
        rows = self.chain.rows
        writer = self._writers()
        if writer is None:
            yield slice(0, self.positions), slice(0, rows)
            return
        start = 0
        for vector in range(self.positions * rows):
            if vector and (writer[vector] >= start or vector % rows == 0):
                yield self._span(start, vector)
                start = vector
        yield self._span(start, self.positions * rows)

    def _span(self, start: int, stop: int) -> tuple[slice, slice]:
        position, row = divmod(start, self.chain.rows)
        return slice(position, position + 1), slice(row, row + stop - start)

    def _writers(self) -> list[int] | None:
        """For each vector the latest earlier one that writes something it reads; nothing if there are none at all."""
        count = self.positions * self.chain.rows
        order = np.arange(count).reshape(self.positions, self.chain.rows, 1)
        pairs = []
        dependent = False
        for mem, target in self.targets.items():
            first = np.full(depth(self.config, mem) + 1, count, dtype=np.int64)
            first[target.reshape(-1)[::-1]] = np.arange(count)[::-1]
            reads = self.reads(mem)
            dependent |= any(bool((first[index] < order).any()) for index in reads)
            pairs.append((target.reshape(-1).tolist(), [index.reshape(count, -1).tolist() for index in reads]))
        if not dependent:
            return None
        latest = [-1] * count
        for target_list, reads_list in pairs:
            written: dict[int, int] = {}
            for vector, target_address in enumerate(target_list):
                for addresses in reads_list:
                    latest[vector] = max(latest[vector], *(written.get(a, -1) for a in addresses[vector]))
                written[target_address] = vector
        return latest


class Part:
    """Some positions and rows of a chain, none of which depends on another.

    Parameters
    ----------
    access : Access
    positions, rows : slice
    weights : Weights or None
        Of the whole chain, if it is a product.
    """

    def __init__(self, access: Access, positions: slice, rows: slice, weights: Weights | None):
        chain = access.chain
        self.chain, self.positions, self.rows = chain, positions, rows
        source = access.source[positions, rows]
        self.shape = (*source.shape[:2], access.config.native)
        self.product: Product | None = None
        self.taps: list[Place] = []
        if weights is not None:
            shared = chain.dense and bool((source == source[:, :1]).all())
            mine = Weights(weights.mant[rows], weights.exp[rows]) if len(weights.mant) != self.shape[1] else weights
            self.product = Product(chain, source[:, :1] if shared else source, mine, access.config)
        else:
            self.taps = [Place(source[:, :, t]) for t in range(source.shape[2])]
        self.operands = [None if index is None else Place(index[positions, rows]) for index in access.operands]
        self.targets = {mem: Place(index[positions, rows]) for mem, index in access.targets.items()}

    def run(self, lanes: Lanes, slots: list[dict[str, int]], table: F32, noise: NDArray[np.uint16] | None) -> int:
        """Execute; returns the flags. ``noise`` is ``[positions * rows, N]`` of the whole chain."""
        pool = lanes.pool
        buffers = [pool.take(name, (*self.shape, lanes.batch)) for name in ("value 0", "value 1")]
        x, flags = self._source(lanes, buffers[0])
        for step, operand in zip(self.chain.steps, self.operands, strict=True):
            out = buffers[1] if x is buffers[0] else buffers[0]
            if operand is not None:
                flags |= kernels.binary(step.op, x, operand.read(lanes.wide, "operand", pool), out, pool)
            elif step.table is not None:
                flags |= kernels.look_up(x, slots[step.table], table, out, pool)
            else:
                flags |= kernels.relu(x, out)
            x = out
        if not any(x is buffer for buffer in buffers):  # still in the memory that is about to be written
            buffers[0][...] = x
            x = buffers[0]
        if Mem.WIDE in self.targets:
            self.targets[Mem.WIDE].write(lanes.wide, x)
        if Mem.NARROW in self.targets:
            flags |= self._convert(lanes, x, noise)
        return flags

    def _source(self, lanes: Lanes, out: F32) -> tuple[F32, int]:
        if self.product is not None:
            return out, self.product.run(lanes, out)
        if self.chain.reduce is None:
            return self.taps[0].read(lanes.memory(self.chain.mem), "gathered", lanes.pool), 0
        self._maximum(lanes, out)
        return out, 0

    def _maximum(self, lanes: Lanes, out: F32) -> None:
        """Maximum over the window, and over all elements."""
        pool, memory = lanes.pool, lanes.memory(self.chain.mem)
        top, key = (pool.take(name, out.shape, np.int32) for name in ("key 0", "key 1"))
        kernels.to_keys(DECODED[MINUS_INFINITY : MINUS_INFINITY + 1], top[:1, :1, :1, 0])
        top[...] = top[0, 0, 0, 0]
        special = False
        for tap in self.taps:
            x = tap.read(memory, "gathered", pool)
            special |= bool(np.isnan(x.max()))
            kernels.to_keys(x, key)
            np.maximum(top, key, out=top)
        if self.chain.reduce is Op.V_REDMAX:
            top[...] = top.max(axis=2, keepdims=True)
        kernels.from_keys(top, out)
        if special:
            self._golden_maximum(lanes, out)

    def _golden_maximum(self, lanes: Lanes, out: F32) -> None:
        """The same by the definition, for NaNs."""
        memory = lanes.memory(self.chain.mem)
        best = np.full(out.shape, MINUS_INFINITY, dtype=np.uint16)
        for tap in self.taps:
            best = half.maximum(best, kernels.encode(tap.read(memory, "gathered", lanes.pool)))
        if self.chain.reduce is Op.V_REDMAX:
            top = best[:, :, :1]
            for n in range(lanes.config.native):
                top = half.maximum(top, best[:, :, n : n + 1])
            best = np.broadcast_to(top, best.shape)
        out[...] = kernels.decode(best)

    def _convert(self, lanes: Lanes, x: F32, noise: NDArray[np.uint16] | None) -> int:
        """Write the narrow destination."""
        pool, place = lanes.pool, self.targets[Mem.NARROW]
        direct = place.writable(lanes.narrow)
        out = x if direct is None else direct
        scale, grain = (pool.take(name, (*x.shape[:2], lanes.batch)) for name in ("scale", "grain"))
        if noise is not None:
            noise = noise.reshape(-1, self.chain.rows, noise.shape[-1])[self.positions, self.rows]
        flags = kernels.quantize(x, lanes.config.act, self.chain.quant, noise, out, scale, pool, grain)
        if direct is None:
            place.write(lanes.narrow, x)
        place.write(lanes.scale, scale)
        place.write(lanes.grain, grain)
        return flags


def parts(access: Access, weights: Weights | None, batch: int) -> list[Part]:
    """A chain cut into pieces that can be executed at once, by ``batch`` lanes."""
    chain, vector = access.chain, access.config.native * batch
    found = []
    for positions, rows in access.segments():
        per_position = (rows.stop - rows.start) * vector
        if chain.reduce is Op.MV_MUL:
            per_position = max(per_position, access.source.shape[2] * vector)
        step = max(1, _PART_VALUES // per_position)
        for first in range(positions.start, positions.stop, step):
            some = slice(first, min(first + step, positions.stop))
            found.append(Part(access, some, rows, weights))
    return found
