"""Bounds for every input: a compiled program executed on intervals.

Every element of the vector memories is an interval that holds what the element can be, for all inputs in a range. Every
rounding of the machine rises with what it rounds, so the rounded ends are ends again; of a dynamic exponent only the
greatest is known, and half a step of it is added. Products add up the weights times the end that suits their sign, step
by step: the norm of the weights, times the range of what they meet.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.golden import binary16
from concord.golden.rounding import round_floats
from concord.golden.scale import scaled
from concord.image import Image, Memories
from concord.operations import OPERATIONS, Ends
from concord.overflow.machine import WRITTEN
from concord.program import Chain, trace
from concord.program.access import LOWEST, VECTORS, Access, depth
from concord.program.chains import Quant, VectorCopy
from concord.program.flags import layer_of
from concord.program.vector_copies import ExternalVectors
from concord.program.weights import ProductWeights, Weights
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX, SCALED_MAX, ExponentMode, Rounding
from concord.spec.isa import Mem, Op
from concord.sums.histogram import SumStage
from concord.sums.reach import Extremes
from concord.utils.arrays import Array, FloatArray, Ids

#: Sums of magnitudes up to two to the power of this, in units of the grid, are exact in float64.
_EXACT_BITS = 52
#: Room for the rounding of sums that are not exact in float64.
_ROOM = 1.0 + 2.0**-40
_CHUNK = 1 << 18


class _Store:
    """Intervals of the vector memories, of what lies outside an image, and of vectors of the external memory.

    Members
    -------
    ends : dict
        By memory: lower and upper ends ``[depth + 2 + vectors, N]``.
    mants : pair of arrays ``[narrow_depth + 2 + vectors, N]``
        Ends of the mantissas.
    """

    def __init__(self, memories: Memories, external: ExternalVectors):
        config = memories.config
        held = {mem: external.loaded(mem, memories) for mem in Mem}
        wide = self._padded(binary16.decode(memories.wide), binary16.decode(held[Mem.WIDE][0].astype(np.uint16)))
        mant = self._padded(memories.narrow_mant, held[Mem.NARROW][0])
        exp = np.concatenate([memories.narrow_exp, np.zeros(2, np.int64), held[Mem.NARROW][1]])
        narrow = np.ldexp(mant, exp[:, None])
        for values, mem in ((wide, Mem.WIDE), (narrow, Mem.NARROW)):
            values[depth(config, mem) + LOWEST] = -np.inf
        self.ends: dict[Mem, Ends] = {Mem.WIDE: (wide, wide.copy()), Mem.NARROW: (narrow, narrow.copy())}
        self.mants: Ends = mant, mant.copy()

    @staticmethod
    def _padded(values: Array, held: Array) -> FloatArray:
        return np.concatenate([values, np.zeros((2, values.shape[1])), held]).astype(np.float64)

    def copy(self, mem: Mem, source: Ids, target: Ids) -> None:
        """Copy vectors of a memory."""
        for array in (*self.ends[mem], *(self.mants if mem is Mem.NARROW else ())):
            array[target] = array[source]


class Bounds:
    """Executes a program on intervals.

    Parameters
    ----------
    image : Image
        Program and constants.

    Members
    -------
    extremes : dict
        :class:`Extremes` by layer.
    """

    def __init__(self, image: Image):
        self.image, self.config = image, image.config
        self.memories = Memories.of(image)
        program = self.memories.program.tolist()
        self._runs = [trace(program, self.config, phase.pc) for phase in image.schedule()]
        self._external = ExternalVectors(self.config, self._runs)
        self._store = _Store(self.memories, self._external)
        self._accesses: dict[Chain, Access] = {}
        self._weights = ProductWeights(self.memories)
        self.extremes: dict[str, Extremes] = {}

    def run(self, ranges: Mapping[str, tuple[float, float]]) -> dict[str, Extremes]:
        """Execute the program, and return the extremes of every layer.

        Parameters
        ----------
        ranges : mapping of str to pair of floats
            Least and greatest value of every input port, those of padding included.

        Raises
        ------
        ValueError
            If a range is missing, or the program has instructions whose sums are not bounded.
        """
        if missing := sorted({port.name for port in self.image.inputs} - set(ranges)):
            raise ValueError(f"ranges must be of all inputs, not without {', '.join(missing)}")
        with np.errstate(all="ignore"):
            for phase, run in zip(self.image.schedule(), self._runs, strict=True):
                for part in phase.inputs:
                    port = self.image.port(part.port)
                    self._put(VECTORS[port.region], part.address, part.count, ranges[port.name])
                run.refuse_integers("have their sums bounded")
                for item in run.items:
                    if isinstance(item, Chain):
                        self._chain(item)
                    elif isinstance(item, VectorCopy):
                        external = depth(self.config, item.mem) + 2 + self._external.slots(item)
                        self._store.copy(item.mem, *item.way(external))
        return self.extremes

    def _put(self, mem: Mem, address: int, count: int, ends: tuple[float, float]) -> None:
        at = np.arange(address, address + count)
        shape = (count, self.config.native)
        values = tuple(np.full(shape, binary16.decode(binary16.encode(end))) for end in ends)
        self._write(mem, at, (values[0], values[1]), Quant())

    # Chains ------------------------------------------------------------------------------------

    def _chain(self, chain: Chain) -> None:
        if chain.into_matrix is not None:
            raise ValueError(WRITTEN)
        if chain not in self._accesses:
            self._accesses[chain] = Access.of(chain, self.config)
        access = self._accesses[chain]
        for segment in access.segments():
            ends = self._source(chain, access.source[segment.positions, segment.rows], segment.rows)
            for rows in segment.passes:
                part = slice(rows.start - segment.rows.start, rows.stop - segment.rows.start)
                some = ends[0][:, part], ends[1][:, part]
                if chain.scale is not None:
                    operands = [self._read(Mem.WIDE, index[segment.positions, rows]) for index in access.scale]
                    some = self._scaled(chain.scale.shift, some, *operands)
                for mfu_op, index in zip(chain.mfu_ops, access.operands, strict=True):
                    operand = None if index is None else self._read(Mem.WIDE, index[segment.positions, rows])
                    some = self._step(mfu_op.op, mfu_op.table, some, operand)
                for mem, index in access.targets.items():
                    self._write(mem, index[segment.positions, rows], some, chain.quant)

    def _read(self, mem: Mem, index: Ids) -> Ends:
        low, high = self._store.ends[mem]
        return low[index], high[index]

    def _source(self, chain: Chain, index: Ids, rows: slice) -> Ends:
        """Ends ``[positions, rows, N]`` of what goes into the multifunction units."""
        if chain.reduce is Op.MV_MUL:
            low, high = self._product(chain, index, rows)
            if chain.scale is not None:
                return low, high
            return binary16.decode(binary16.encode(low)), binary16.decode(binary16.encode(high))
        if chain.reduce is None:
            return self._read(chain.mem, index[..., 0])
        low, high = (end.max(axis=2) for end in self._read(chain.mem, index))
        if chain.reduce is Op.V_REDMAX:
            low, high = (np.broadcast_to(end.max(axis=-1, keepdims=True), end.shape) for end in (low, high))
        return low, high

    def _step(self, op: Op, slot: int | None, x: Ends, y: Ends | None) -> Ends:
        if slot is not None:
            return self._table(slot, x)
        ends = OPERATIONS[op].bounds(*([x] if y is None else [x, y]))
        nowhere = np.isnan(ends[0]) | np.isnan(ends[1])
        low, high = (binary16.decode(binary16.encode(end)) for end in ends)
        return np.where(nowhere, -np.inf, low), np.where(nowhere, np.inf, high)

    def _scaled(self, shift: int, sums: Ends, factors: Ends, fractions: Ends) -> Ends:
        """Ends of codes: those of the accumulators where factors and fractions are constants, else all codes."""
        words = [binary16.encode(ends[0]) for ends in (factors, fractions)]
        constant = np.all([(low == high) & np.isfinite(low) for low, high in (factors, fractions)], axis=0)
        ends = (
            scaled(np.floor(np.ldexp(end, -self.config.wgt_exp_min)), words[0], words[1].view(np.int16), shift)
            for end in sums
        )
        low, high = (np.where(constant, end, limit) for end, limit in zip(ends, (-SCALED_MAX, SCALED_MAX), strict=True))
        return low.astype(np.float64), high.astype(np.float64)

    def _table(self, number: int, x: Ends) -> Ends:
        """Least and greatest entry between the codes of both ends."""
        slot = self.memories.slot(number)
        first, last = (slot["offset"] + slot[end] for end in ("low", "high"))
        entries = binary16.decode(self.memories.table[first : last + 1])
        codes = [np.rint(np.ldexp(np.clip(end, -BINARY16_MAX, BINARY16_MAX), slot["scale"])) for end in x]
        low, high = (np.clip(code, slot["low"], slot["high"]).astype(np.int64) - slot["low"] for code in codes)
        pairs, place = np.unique(np.stack([low.ravel(), high.ravel()], axis=1), axis=0, return_inverse=True)
        extremes = [(entries[a : b + 1].min(), entries[a : b + 1].max()) for a, b in pairs]
        ends = np.array(extremes)[place.reshape(-1)].reshape(*low.shape, 2)
        return ends[..., 0], ends[..., 1]

    def _write(self, mem: Mem, index: Ids, x: Ends, quant: Quant) -> None:
        low, high = self._store.ends[mem]
        if mem is Mem.NARROW:
            x, mants = _narrow(self.config, x, quant)
            for stored, end in zip(self._store.mants, mants, strict=True):
                stored[index] = end
        low[index], high[index] = x

    # Products ----------------------------------------------------------------------------------

    def _product(self, chain: Chain, index: Ids, rows: slice) -> Ends:
        weights = self._weights.of(chain)
        extremes = self.extremes.setdefault(layer_of(self.image, chain.pc), Extremes())
        shared = chain.dense and bool((index == index[:, :1]).all())
        ends: Ends = np.empty((*index.shape[:2], self.config.native)), np.empty((*index.shape[:2], self.config.native))
        groups = [slice(0, index.shape[1])] if shared else [slice(k, k + 1) for k in range(index.shape[1])]
        for group in groups:
            columns, place = self._alike(index[:, group.start])
            rows_of_group = slice(rows.start + group.start, rows.start + group.stop)
            size = max(1, _CHUNK // (weights.mant[rows_of_group].size or 1))
            parts = [
                self._columns(chain, weights, rows_of_group, columns[k : k + size], extremes)
                for k in range(0, len(columns), size)
            ]
            for end, columns_of_end in zip(ends, zip(*parts, strict=True), strict=True):
                end[:, group] = np.concatenate(columns_of_end)[place]
        limit = 2.0 ** (self.config.acc_width - 1 - self.config.acc_frac)
        low, high = (np.clip(end, -limit, limit - 2.0**-self.config.acc_frac) for end in ends)
        return low, high

    def _alike(self, index: Ids) -> tuple[Ids, Ids]:
        """Addresses ``[columns, blocks]`` of which no two have the same intervals, and the column of each position."""
        used, inverse = np.unique(index, return_inverse=True)
        facts = np.concatenate([end[used] for end in (*self._store.ends[Mem.NARROW], *self._store.mants)], axis=1)
        kinds = np.unique(facts, axis=0, return_inverse=True)[1].reshape(-1)[inverse.reshape(index.shape)]
        _, first, place = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        return index[first], place.reshape(-1)

    def _columns(self, chain: Chain, weights: Weights, rows: slice, index: Ids, extremes: Extremes) -> Ends:
        """Ends ``[columns, rows, N]`` of the sums over some columns; takes in all stages."""
        mant = weights.mant[rows].transpose(2, 3, 0, 1).astype(np.float64)  # [steps, L, rows, N]
        power = np.ldexp(1.0, weights.exp[rows].transpose(2, 0, 1))
        x, m = (
            [self._elements(chain, end[index], mant.shape) for end in pair]
            for pair in (self._store.ends[Mem.NARROW], self._store.mants)
        )
        unit = 2.0**self.config.acc_frac
        shape = (*mant.shape[2:], len(index))
        low, high, norm = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        sides = []
        for step, (w, scale) in enumerate(zip(mant, power, strict=True)):
            nodes = _times(w, m[0][step], m[1][step])
            extremes.include(SumStage.PRODUCT, nodes[0].min(), nodes[1].max())
            if self.config.serial and len(w) > 1:
                nodes = nodes[0].cumsum(axis=0)[1:], nodes[1].cumsum(axis=0)[1:]
                extremes.include(SumStage.LANE_SUM, nodes[0].min(), nodes[1].max())
            while len(nodes[0]) > 1 and not self.config.serial:
                nodes = nodes[0][0::2] + nodes[0][1::2], nodes[1][0::2] + nodes[1][1::2]
                extremes.include(SumStage.LANE_SUM, nodes[0].min(), nodes[1].max())
            terms = _times(w * scale, x[0][step], x[1][step])
            term = terms[0].sum(axis=0), terms[1].sum(axis=0)
            norm += np.maximum(np.abs(terms[0]), np.abs(terms[1])).sum(axis=0)
            low, high = low + term[0], high + term[1]
            sides += [(SumStage.TERM, *term), (SumStage.SUM, low, high)]
        inexact = norm * unit >= 2.0**_EXACT_BITS
        room = np.where(inexact, norm * _ROOM, 0.0)
        low, high = np.where(inexact, -room, low), np.where(inexact, room, high)
        for stage, least, most in [*sides, (SumStage.OUTPUT, low, high)]:
            least, most = np.where(inexact, -room, least), np.where(inexact, room, most)
            extremes.include(stage, np.floor(least.min() * unit), np.ceil(most.max() * unit))
        return low.transpose(2, 0, 1), high.transpose(2, 0, 1)

    @staticmethod
    def _elements(chain: Chain, ends: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """Vectors ``[columns, blocks, N]`` as what meets weights ``[steps, L, rows, N]``: columns last."""
        by_block = ends.transpose(1, 2, 0)
        if chain.depthwise:
            return by_block[:, None, None]
        return by_block.reshape(shape[0], shape[1], 1, 1, -1)


def _times(weights: FloatArray, low: FloatArray, high: FloatArray) -> Ends:
    """Ends of weights ``[L, rows, N]`` times intervals."""
    a, b = weights[..., None] * low, weights[..., None] * high
    return np.minimum(a, b), np.maximum(a, b)


def _narrow(config: NpuConfig, x: Ends, quant: Quant) -> tuple[Ends, Ends]:
    """Ends of the narrow numbers and of their mantissas, of blocks ``[..., N]`` of binary16 numbers.

    Of a dynamic exponent the greatest is known, and a rounding moves a number by half a step of it at most, by a whole
    one if it is stochastic. All numbers are multiples of the least step.
    """
    act = config.act
    infinite = np.isinf(x[0]) | np.isinf(x[1])  # a NaN counts as zero
    low = np.where(infinite, np.minimum(np.clip(x[0], -BINARY16_MAX, BINARY16_MAX), 0.0), x[0])
    high = np.where(infinite, np.maximum(np.clip(x[1], -BINARY16_MAX, BINARY16_MAX), 0.0), x[1])
    if quant.mode is ExponentMode.STATIC:
        step = 2.0**quant.exp
        mants = _rounded(low / step, quant.rounding)[0], _rounded(high / step, quant.rounding)[1]
        limited = tuple(np.clip(end, -act.q_max, act.q_max) for end in mants)
        return (limited[0] * step, limited[1] * step), (limited[0], limited[1])
    peak = np.maximum(np.abs(low), np.abs(high)).max(axis=-1, keepdims=True)
    exp = np.maximum(np.frexp(peak)[1] - 1 - act.headroom, act.exp_min)
    step, least = np.ldexp(1.0, exp), 2.0**act.exp_min
    move = step if quant.rounding is Rounding.STOCHASTIC else step / 2
    ends = (
        np.where(low < 0, np.maximum(np.ceil((low - move) / least) * least, -act.q_max * step), 0.0),
        np.where(high > 0, np.minimum(np.floor((high + move) / least) * least, act.q_max * step), 0.0),
    )
    return ends, (np.where(low < 0, -float(act.q_max), 0.0), np.where(high > 0, float(act.q_max), 0.0))


def _rounded(x: FloatArray, rounding: Rounding) -> Ends:
    """Least and greatest integer that a number may be rounded to."""
    if rounding is Rounding.STOCHASTIC:
        return np.floor(x), np.ceil(x)
    nearest = round_floats(x, rounding)
    return nearest, nearest
