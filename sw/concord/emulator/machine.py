"""The fast emulator: whole batches at a time, bit for bit what the hardware computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.golden import blocks, half
from concord.program import Chain, Span, Trace, trace
from concord.spec.config import NpuConfig
from concord.spec.formats import Rounding
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId

from .kernels import decode
from .lanes import Lanes
from .memories import Memories
from .plan import Part, parts
from .product import Weights, fetch
from .run import Run, report

#: Lanes that are worked on together: few enough to stay in the cache, many enough to hide the cost of a call.
LANES = 512

Narrow = tuple[NDArray[np.int16], NDArray[np.int16]]
_VECTORS = {RegionId.WIDE: Mem.WIDE, RegionId.NARROW: Mem.NARROW}


@dataclass(frozen=True)
class Batch:
    """Results of a batch.

    Parameters
    ----------
    outputs : list
        One entry per span that was asked for: patterns ``[batch, count, N]`` of wide vectors; mantissas and exponents
        ``[batch, count]`` of narrow ones.
    run : Run
        End and counters of one run; they are the same for all.
    """

    outputs: list[Any]
    run: Run


@dataclass(frozen=True)
class _Plan:
    """A program made ready for a number of lanes."""

    trace: Trace
    run: Run
    steps: tuple[tuple[Part, NDArray[np.uint16] | None], ...]
    read: dict[Mem, frozenset[int]]
    written: dict[Mem, frozenset[int]]
    live: dict[Mem, frozenset[int]]  # read before they are written


class Emulator:
    """One NPU in software.

    It counts what the hardware counts, but no cycles, and raises ``ValueError`` where a program that was not verified
    leaves the memories.

    Parameters
    ----------
    memories : Memories or NpuConfig
        Contents at the start, or a configuration to start from zero.
    lanes : int
        Runs of a batch that are worked on together.
    """

    def __init__(self, memories: Memories | NpuConfig, lanes: int = LANES):
        self.memories = Memories(memories) if isinstance(memories, NpuConfig) else memories
        self.config = self.memories.config
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self._most = lanes
        self._lanes: dict[int, Lanes] = {}
        self.changed()

    def changed(self) -> None:
        """Forget what was prepared: to be called after program, weights or tables were changed in place."""
        self._plans: dict[tuple[int, int], _Plan] = {}
        self._traces: dict[int, Trace] = {}
        self._weights: dict[tuple[Any, ...], Weights] = {}
        self._table = decode(self.memories.table)
        self._slots = [self.memories.slot(k) for k in range(self.config.table_slots)]

    # The device --------------------------------------------------------------------------------

    def write(self, region: RegionId, addr: int, words: Sequence[int]) -> None:
        """Store words of a region, as over the link."""
        self.memories.write(region, addr, words)
        if region not in _VECTORS and region is not RegionId.FLAGS:
            self.changed()

    def read(self, region: RegionId, addr: int, count: int) -> list[int]:
        """Read words of a region, as over the link."""
        return self.memories.read(region, addr, count)

    def clear_flags(self) -> None:
        """Clear the sticky flags."""
        self.memories.flags[:] = 0

    def run(self, pc: int = 0) -> Run:
        """One run on the memories, as started over the link."""
        lanes, plan = self._prepare(1, pc)
        self._load(lanes, plan, {mem: plan.read[mem] for mem in Mem})
        self._execute(plan)
        for mem in Mem:
            lanes.store(self.memories, mem, plan.written[mem])
        return plan.run

    # Batches -----------------------------------------------------------------------------------

    def run_batch(
        self,
        wide: Mapping[int, ArrayLike],
        outputs: Sequence[Span],
        pc: int = 0,
        narrow: Mapping[int, tuple[ArrayLike, ArrayLike]] | None = None,
    ) -> Batch:
        """Run a program once for every entry of a batch, each time from the contents of the memories.

        The memories stay as they are, but for the sticky flags.

        Parameters
        ----------
        wide : mapping
            Inputs: by address, binary16 patterns (or float16 numbers) ``[batch, count, N]``.
        outputs : sequence of Span
            Wide or narrow vectors to return.
        pc : int
            First instruction.
        narrow : mapping, optional
            Inputs: by address, mantissas ``[batch, count, N]`` and exponents ``[batch, count]``.
        """
        inputs = _Inputs(self.config, wide, narrow or {})
        for span in outputs:
            depth = self.memories.region(span.region).depth if span.region in _VECTORS else 0
            if not 0 <= span.addr <= span.addr + span.count <= depth:
                raise ValueError(f"outputs must be vectors inside a vector memory, not {span!r}")
        batch = inputs.batch
        size = min(self._most, 1 << max(0, batch - 1).bit_length())
        lanes, plan = self._prepare(size, pc)
        wanted = {mem: {k for s in outputs if _VECTORS[s.region] is mem for k in _range(s)} for mem in Mem}
        self._load(lanes, plan, {mem: plan.read[mem] | wanted[mem] for mem in Mem})
        results: list[list[Any]] = [[] for _ in outputs]
        for first in range(0, batch, size):
            if first:
                self._load(lanes, plan, {mem: plan.live[mem] & plan.written[mem] for mem in Mem})
            inputs.put(lanes, first)
            self._execute(plan)
            for result, span in zip(results, outputs, strict=True):
                result.append(_get(lanes, span, min(size, batch - first)))
        return Batch([_join(span, result) for span, result in zip(outputs, results, strict=True)], plan.run)

    # Preparation -------------------------------------------------------------------------------

    def _prepare(self, size: int, pc: int) -> tuple[Lanes, _Plan]:
        if size not in self._lanes:
            self._lanes[size] = Lanes(self.config, size)
        lanes = self._lanes[size]
        if (size, pc) not in self._plans:
            self._plans[size, pc] = self._plan(lanes, pc)
        return lanes, self._plans[size, pc]

    def _plan(self, lanes: Lanes, pc: int) -> _Plan:
        if pc not in self._traces:
            self._traces[pc] = trace(self.memories.program.tolist(), self.config, pc)
        run = self._traces[pc]
        noise = blocks.Noise(self.config.mfu_lanes)
        known: dict[Chain, list[Part]] = {}
        steps: list[tuple[Part, NDArray[np.uint16] | None]] = []
        read, written, live = ({mem: set[int]() for mem in Mem} for _ in range(3))
        for chain in run.chains:
            if chain not in known:
                access, known[chain] = parts(chain, lanes, self._fetch(chain))
                for mem in Mem:
                    touched = {a for index in access.reads(mem, lanes.depth(mem)) for a in np.unique(index).tolist()}
                    touched.discard(-1)
                    live[mem] |= touched - written[mem]
                    read[mem] |= touched
                for mem, index in access.targets.items():
                    written[mem] |= set(np.unique(index).tolist())
            taken = None
            if chain.quant.rounding is Rounding.STOCHASTIC and chain.destination(Mem.NARROW) is not None:
                taken = noise.take(chain.vectors * self.config.beats).reshape(chain.vectors, self.config.native)
            steps += [(part, taken) for part in known[chain]]
        frozen = [{mem: frozenset(found[mem]) for mem in Mem} for found in (read, written, live)]
        return _Plan(run, report(run, self.config), tuple(steps), *frozen)

    def _fetch(self, chain: Chain) -> Weights | None:
        if not (chain.dense or chain.depthwise):
            return None
        key = (chain.matrix, chain.rows, chain.window.taps, chain.cols, chain.mode)
        if key not in self._weights:
            self._weights[key] = fetch(chain, self.memories)
        return self._weights[key]

    def _load(self, lanes: Lanes, plan: _Plan, addresses: Mapping[Mem, Any]) -> None:
        for mem in Mem:
            lanes.load(self.memories, mem, addresses[mem])

    def _execute(self, plan: _Plan) -> None:
        flags = self.memories.flags
        with np.errstate(all="ignore"):
            for part, noise in plan.steps:
                raised = part.run(self._slots, self._table, noise)
                if raised:
                    flags[part.chain.pc] |= raised


# Inputs and outputs ------------------------------------------------------------------------------


class _Inputs:
    """Vectors that differ from run to run."""

    def __init__(
        self, config: NpuConfig, wide: Mapping[int, ArrayLike], narrow: Mapping[int, tuple[ArrayLike, ArrayLike]]
    ):
        self.wide = {at: _patterns(values) for at, values in wide.items()}
        self.narrow = {at: (np.asarray(mant), np.asarray(exp)) for at, (mant, exp) in narrow.items()}
        shapes = [v.shape for v in self.wide.values()] + [mant.shape for mant, _ in self.narrow.values()]
        sizes = {shape[0] for shape in shapes if len(shape) == 3 and shape[2] == config.native}
        if not shapes or len(sizes) != 1 or any(len(s) != 3 or s[2] != config.native for s in shapes):
            raise ValueError(f"inputs must be arrays [batch, count, {config.native}] of one batch, not {shapes}")
        for depth, group in (
            (config.wide_depth, self.wide),
            (config.narrow_depth, {a: m for a, (m, _) in self.narrow.items()}),
        ):
            for at, values in group.items():
                if not 0 <= at <= at + values.shape[1] <= depth:
                    raise ValueError(f"inputs must lie in {depth} words, not at {at}..{at + values.shape[1] - 1}")
        self.batch = sizes.pop()
        if self.batch < 1:
            raise ValueError("inputs must have at least one entry in the batch, not 0")

    def put(self, lanes: Lanes, first: int) -> None:
        """Load a part of the batch; the last entry is repeated where the batch ends."""
        size = lanes.batch
        entries = slice(first, first + size)
        if first + size > self.batch:
            which = np.minimum(np.arange(first, first + size), self.batch - 1)
            for at, values in self.wide.items():
                lanes.put_wide(slice(at, at + values.shape[1]), values[which])
            for at, (mant, exp) in self.narrow.items():
                lanes.put_narrow(slice(at, at + mant.shape[1]), mant[which], exp[which])
            return
        for at, values in self.wide.items():
            lanes.put_wide(slice(at, at + values.shape[1]), values[entries])
        for at, (mant, exp) in self.narrow.items():
            lanes.put_narrow(slice(at, at + mant.shape[1]), mant[entries], exp[entries])


def _patterns(values: ArrayLike) -> NDArray[np.uint16]:
    array = np.asarray(values)
    return array.view(np.uint16) if array.dtype == np.float16 else half.as_bits(array)


def _range(span: Span) -> range:
    return range(span.addr, span.addr + span.count)


def _get(lanes: Lanes, span: Span, count: int) -> Any:
    at = slice(span.addr, span.addr + span.count)
    return lanes.get_wide(at, count) if span.region is RegionId.WIDE else lanes.get_narrow(at, count)


def _join(span: Span, pieces: list[Any]) -> Any:
    if span.region is RegionId.WIDE:
        return np.concatenate(pieces)
    return tuple(np.concatenate(piece) for piece in zip(*pieces, strict=True))
