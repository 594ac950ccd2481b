"""Chains prepared for a batch: which vectors go together, where they are, and in what order."""

from __future__ import annotations

import numpy as np

from concord.cycles import window_steps
from concord.emulator import kernels
from concord.emulator.fused import FusedPass, compiled, possible
from concord.emulator.kernels import DECODED, round_singles
from concord.emulator.lanes import Lanes, WordAccess
from concord.emulator.product import BlockProduct, Product
from concord.emulator.reference import LOWEST as MINUS_INFINITY
from concord.emulator.tiles import Tiles
from concord.emulator.written import WrittenProduct
from concord.golden import binary16
from concord.golden.scale import scaled
from concord.operations.float32 import from_keys, to_keys
from concord.program.access import Access, Segment
from concord.program.weights import Weights
from concord.spec.isa import Mem, Op
from concord.utils.arrays import Bits, Float32s, Ids, Ints

#: Values that one step may handle at once: few enough for the cache, many enough to hide the cost of a call.
_PART_VALUES = 1 << 19


class NumpyPass:
    """Multifunction units and destinations for some rows of a part.

    Parameters
    ----------
    access : Access
    positions, rows : slice
    tiles : Tiles
        Where rows of tiles are that it writes.
    """

    def __init__(self, access: Access, positions: slice, rows: slice, tiles: Tiles):
        self.chain, self.positions, self.rows = access.chain, positions, rows
        self.operands = [None if index is None else WordAccess(index[positions, rows]) for index in access.operands]
        self.targets = {mem: WordAccess(index[positions, rows]) for mem, index in access.targets.items()}
        written = None if access.rows is None else tiles.places(access.rows[positions, rows])
        self.matrix = None if written is None else WordAccess(written)
        self.scale_operands = [WordAccess(index[positions, rows]) for index in access.scale]

    def scale(self, lanes: Lanes, units: Ints, out: Float32s) -> None:
        """Codes of accumulators, by factors and fractions in the wide memory."""
        assert self.chain.scale is not None
        factors, fractions = (
            kernels.encode(place.read(lanes.wide, "operand", lanes.pool)) for place in self.scale_operands
        )
        np.copyto(out, scaled(units, factors, fractions.view(np.int16), self.chain.scale.shift), casting="unsafe")

    def run(
        self,
        lanes: Lanes,
        x: Float32s,
        buffers: list[Float32s],
        slots: list[dict[str, int]],
        table: Float32s,
        noise: Bits | None,
    ) -> int:
        """Go on with values ``x``, which are in one of the ``buffers`` or not to be changed; returns the flags."""
        pool, flags = lanes.pool, 0
        for mfu_op, operand in zip(self.chain.mfu_ops, self.operands, strict=True):
            out = buffers[1] if x is buffers[0] else buffers[0]
            if mfu_op.table is not None:
                flags |= kernels.look_up(x, slots[mfu_op.table], table, out, pool)
            else:
                operands = [x] if operand is None else [x, operand.read(lanes.wide, "operand", pool)]
                flags |= kernels.elementwise(mfu_op.op, operands, out, pool)
            x = out
        if not any(x is buffer for buffer in buffers):  # still in the memory that is about to be written
            buffers[0][...] = x
            x = buffers[0]
        if Mem.WIDE in self.targets:
            self.targets[Mem.WIDE].write(lanes.wide, x)
        if Mem.NARROW in self.targets:
            flags |= self._convert(lanes, x, noise, self.targets[Mem.NARROW])
        if self.matrix is not None:
            flags |= self._convert(lanes, x, noise, self.matrix)
        return flags

    def _convert(self, lanes: Lanes, x: Float32s, noise: Bits | None, place: WordAccess) -> int:
        """Write the narrow destination, or rows of tiles."""
        pool, (blocks, fmt) = lanes.pool, lanes.blocks(place is self.matrix)
        direct = place.writable(blocks.values)
        out = x if direct is None else direct
        scale, grain = (pool.take(name, (*x.shape[:2], lanes.batch)) for name in ("scale", "grain"))
        if noise is not None:
            noise = noise.reshape(-1, self.chain.rows, noise.shape[-1])[self.positions, self.rows]
        flags = kernels.quantize(x, fmt, self.chain.quant.within(fmt), noise, out, scale, pool, grain)
        if direct is None:
            place.write(blocks.values, x)
        place.write(blocks.scale, scale)
        place.write(blocks.grain, grain)
        return flags


class ChainSlice:
    """A segment of a chain, or some positions of one.

    Parameters
    ----------
    access : Access
    positions : slice
        Of those of the segment.
    segment : Segment
    weights : Weights or None
        Of the whole chain, if it is a product whose weights are the same in all lanes.
    tiles : Tiles
        What is different in the matrix memory.
    fast : bool
        Whether compiled kernels are used, where they have what the chain does.

    Members
    -------
    last : bool
        Whether it is the last piece of its chain.
    """

    def __init__(
        self, access: Access, positions: slice, segment: Segment, weights: Weights | None, tiles: Tiles, fast: bool
    ):
        self.last = False
        self.access, self.positions, self.tiles = access, positions, tiles
        chain, self.rows = access.chain, segment.rows
        self.chain = chain
        source = access.source[positions, self.rows]
        self.shape = (*source.shape[:2], access.config.native)
        self.product: BlockProduct | None = None
        self.taps: list[WordAccess] = []
        if chain.reduce is Op.MV_MUL:
            shared = chain.dense and bool((source == source[:, :1]).all())
            index = source[:, :1] if shared else source
            if weights is None:
                self.product = WrittenProduct(chain, index, self.rows, tiles, fast)
            else:
                few = len(weights.mant) != self.shape[1]
                own_weights = Weights(weights.mant[self.rows], weights.exp[self.rows]) if few else weights
                self.product = Product(chain, index, own_weights, access.config, fast)
        else:
            self.taps = [WordAccess(source[:, :, t]) for t in range(source.shape[2])]
        self.passes = [NumpyPass(access, positions, rows, tiles) for rows in segment.passes]
        self.fused: list[FusedPass] = []
        if fast and possible(chain):
            self._fuse(source)

    def _fuse(self, source: Ids) -> None:
        """Prepare the compiled kernels."""
        chain, config = self.chain, self.access.config
        if chain.reduce is None:
            rows = source[:, :, 0] * config.native
        else:
            rows = np.arange(self.shape[0] * self.shape[1]).reshape(self.shape[:2]) * config.native
        if chain.reduce in (Op.V_MAX, Op.V_REDMAX):
            self.tap_rows = np.ascontiguousarray(source.reshape(-1, source.shape[2])) * config.native
        for rows_pass in self.passes:
            at = (self.positions, rows_pass.rows)
            operands = [None if index is None else index[at] for index in self.access.operands]
            targets = {mem: index[at] for mem, index in self.access.targets.items()}
            pass_rows = rows[:, self._inner(rows_pass)]
            matrix = None if self.access.rows is None else self.tiles.places(self.access.rows[at])
            self.fused.append(FusedPass(config, pass_rows, targets, chain.quant, chain, operands, matrix))

    def run(self, lanes: Lanes, slots: list[dict[str, int]], table: Float32s, noise: Bits | None) -> int:
        """Execute; returns the flags. ``noise`` is ``[positions * rows, N]`` of the whole chain."""
        buffers = [lanes.pool.take(name, (*self.shape, lanes.batch)) for name in ("value 0", "value 1")]
        units, flags = self._units(lanes)
        if self.fused:
            return flags | self._run_fused(lanes, buffers, units, slots, table)
        x = buffers[0]
        if units is None:
            x, flags = self._source(lanes, buffers[0])
        for rows_pass in self.passes:
            rows = self._inner(rows_pass)
            if units is not None:
                rows_pass.scale(lanes, units[:, rows], x[:, rows])
            pass_buffers = [buffer[:, rows] for buffer in buffers]
            flags |= rows_pass.run(
                lanes, pass_buffers[0] if x is buffers[0] else x[:, rows], pass_buffers, slots, table, noise
            )
        return flags

    def _inner(self, rows_pass: NumpyPass) -> slice:
        """Rows of a pass among those of the piece."""
        return slice(rows_pass.rows.start - self.rows.start, rows_pass.rows.stop - self.rows.start)

    def _units(self, lanes: Lanes) -> tuple[Ints | None, int]:
        """Accumulators that become codes, if they do, and flags."""
        if self.chain.scale is None or self.product is None:
            return None, 0
        units = lanes.pool.take("units", (*self.shape, lanes.batch), np.int64)
        return units, self.product.units(lanes, units)

    def window_steps(self, lanes: Lanes) -> Ids:
        """Steps ``[outer, inner]`` of the windows of a sliding product, all pieces of it, in the first lane."""
        exponents = np.frexp(lanes.scale[self.access.source[:, 0], 0])[1].astype(np.int64) - 1
        return window_steps(self.chain, exponents.reshape(*self.chain.shape[:2], -1), self.access.config)

    def _run_fused(
        self,
        lanes: Lanes,
        buffers: list[Float32s],
        units: Ints | None,
        slots: list[dict[str, int]],
        table: Float32s,
    ) -> int:
        """Runs the piece with compiled kernels."""
        x, flags, sums = buffers[0].reshape(-1, lanes.batch), 0, False
        if self.product is not None:
            if units is None:
                flags, sums = self.product.add_up(lanes, buffers[0])
        elif self.chain.reduce is None:
            x = lanes.rows(self.chain.mem)
        elif compiled().maximum(lanes.rows(self.chain.mem), self.tap_rows, self.chain.reduce is Op.V_REDMAX, x):
            self._maximum(lanes, buffers[0])
        for rows_pass, fused in zip(self.passes, self.fused, strict=True):
            if units is not None:
                rows = self._inner(rows_pass)
                rows_pass.scale(lanes, units[:, rows], buffers[0][:, rows])
            vector, raised = fused.run(0, lanes, x, sums, slots, table)
            flags |= raised
            while vector < len(fused.rows):
                values = lanes.pool.take("single 0", (1, 1, self.shape[2], lanes.batch))
                np.copyto(values[0, 0], x[fused.rows[vector] :][: self.shape[2]])
                if sums:
                    flags |= round_singles(values, lanes.pool)
                flags |= self._run_alone(rows_pass, vector, lanes, values, slots, table)
                vector, raised = fused.run(vector + 1, lanes, x, sums, slots, table)
                flags |= raised
        return flags

    def _run_alone(
        self,
        rows_pass: NumpyPass,
        vector: int,
        lanes: Lanes,
        values: Float32s,
        slots: list[dict[str, int]],
        table: Float32s,
    ) -> int:
        """One vector of a pass, with values that are not finite."""
        position, row = divmod(vector, rows_pass.rows.stop - rows_pass.rows.start)
        position, row = position + self.positions.start, row + rows_pass.rows.start
        alone = NumpyPass(self.access, slice(position, position + 1), slice(row, row + 1), self.tiles)
        other = lanes.pool.take("single 1", values.shape)
        return alone.run(lanes, values, [values, other], slots, table, None)

    def _source(self, lanes: Lanes, out: Float32s) -> tuple[Float32s, int]:
        if self.product is not None:
            return out, self.product.run(lanes, out)
        if self.chain.reduce is None:
            return self.taps[0].read(lanes.memory(self.chain.mem), "gathered", lanes.pool), 0
        self._maximum(lanes, out)
        return out, 0

    def _maximum(self, lanes: Lanes, out: Float32s) -> None:
        """Maximum over the window, and over all elements."""
        pool, memory = lanes.pool, lanes.memory(self.chain.mem)
        top, key = (pool.take(name, out.shape, np.int32) for name in ("key 0", "key 1"))
        to_keys(DECODED[MINUS_INFINITY : MINUS_INFINITY + 1], top[:1, :1, :1, 0])
        top[...] = top[0, 0, 0, 0]
        special = False
        for tap in self.taps:
            x = tap.read(memory, "gathered", pool)
            special |= bool(np.isnan(x.max()))
            to_keys(x, key)
            np.maximum(top, key, out=top)
        if self.chain.reduce is Op.V_REDMAX:
            top[...] = top.max(axis=2, keepdims=True)
        from_keys(top, out)
        if special:
            self._golden_maximum(lanes, out)

    def _golden_maximum(self, lanes: Lanes, out: Float32s) -> None:
        """Maximum by the golden model, for NaNs."""
        memory = lanes.memory(self.chain.mem)
        best = np.full(out.shape, MINUS_INFINITY, dtype=np.uint16)
        for tap in self.taps:
            best = binary16.maximum(best, kernels.encode(tap.read(memory, "gathered", lanes.pool)))
        if self.chain.reduce is Op.V_REDMAX:
            top = best[:, :, :1]
            for n in range(lanes.config.native):
                top = binary16.maximum(top, best[:, :, n : n + 1])
            best = np.broadcast_to(top, best.shape)
        out[...] = kernels.decode(best)


def chain_slices(access: Access, weights: Weights | None, tiles: Tiles, batch: int, fast: bool) -> list[ChainSlice]:
    """A chain cut into pieces that can be executed at once, by ``batch`` lanes; ``fast``: with compiled kernels."""
    chain, vector = access.chain, access.config.native * batch
    slices = []
    for segment in access.segments():
        per_position = (segment.rows.stop - segment.rows.start) * vector
        if chain.reduce is Op.MV_MUL:
            per_position = max(per_position, access.source.shape[2] * vector)
        step = max(1, _PART_VALUES // per_position)
        for first in range(segment.positions.start, segment.positions.stop, step):
            some = slice(first, min(first + step, segment.positions.stop))
            slices.append(ChainSlice(access, some, segment, weights, tiles, fast))
    slices[-1].last = True
    return slices
