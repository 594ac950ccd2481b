"""The fast emulator: whole batches at a time, bit for bit what the hardware computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.emulator.fused import LoadRule
from concord.emulator.inputs import Inputs, Narrow, Numbers, Wide
from concord.emulator.integers import IntegerUnit
from concord.emulator.kernels import decode
from concord.emulator.lanes import COPIED, MATRIX, Lanes, Memory, after
from concord.emulator.outputs import Outputs
from concord.emulator.phases import BatchPhase, Footprint, footprint
from concord.emulator.plan import ChainSlice, chain_slices
from concord.emulator.reference import ReferenceMachine
from concord.emulator.run import Run, report
from concord.emulator.tiles import Tiles, check_written_once
from concord.emulator.workers import available, chunk, share
from concord.golden import blocks
from concord.image import Memories
from concord.program import Chain, Span, Trace, trace
from concord.program.access import VECTORS, Access
from concord.program.chains import VectorCopy
from concord.program.matrix_copies import left_by, write_copy
from concord.program.vector_copies import ExternalVectors
from concord.program.weights import ProductWeights, Weights
from concord.spec.config import NpuConfig
from concord.spec.formats import Rounding
from concord.spec.isa import Mem, Trap
from concord.spec.memmap import INTEGER_REGIONS, RegionId
from concord.spec.operations import Op
from concord.utils.arrays import Bits, Bytes, Ids

#: Lanes that are worked on together: few enough to stay in the cache, many enough to hide the cost of a call.
LANES = 512
#: Values of an average step of a program from which on threads help: with less, they wait for the interpreter lock.
_SHARED_VALUES = 1 << 16
#: Values of vectors of the external memory that the lanes of a worker hold at the most, where one lane has fewer.
_EXTERNAL_VALUES = 1 << 25
#: Called with a piece of a chain, the memories it works on, and how many of their lanes hold samples.
Watch = Callable[[ChainSlice, Lanes, int], None]


@dataclass(frozen=True)
class Batch:
    """Results of a batch.

    Parameters
    ----------
    outputs : list
        One entry per span that was asked for: patterns ``[batch, count, N]`` of wide vectors; mantissas and exponents
        ``[batch, count]`` of narrow ones.
    run : Run
        End and counters of one run; they are the same for all, but the cycles of sliding products, which are assumed.
    """

    outputs: list[Any]
    run: Run


@dataclass(frozen=True)
class _Plan:
    """A program made ready for a number of lanes."""

    trace: Trace
    run: Run
    steps: tuple[tuple[ChainSlice | VectorCopy, Bits | None], ...]


class Emulator:
    """One NPU in software.

    It counts what the hardware counts, but no cycles, and raises ``ValueError`` where a program that was not verified
    leaves the memories.

    Parameters
    ----------
    memories : Memories or NpuConfig
        Contents at the start, or a configuration to start from zero.
    lanes : int
        Greatest number of runs of a batch that are worked on together, at least 1.
    workers : int or None
        Threads that may share a batch; as many as there are processors if left out. Results do not depend on it.
    watch : callable, optional
        Called before every piece of a chain is executed, by the threads that execute them.
    after : callable, optional
        Called after every piece; ``part.last`` says that it is the last one of its chain.
    compiled : bool or None
        Whether the kernels that Numba compiles are used (the extra ``fast``). If left out, they are
        where Numba is installed, as soon as so much was computed in batches that loading them is worth the time; a
        single run never waits for them. Results do not depend on it.

    Raises
    ------
    ModuleNotFoundError
        If ``compiled`` is true and Numba is not installed.
    """

    def __init__(
        self,
        memories: Memories | NpuConfig,
        lanes: int = LANES,
        workers: int | None = None,
        watch: Watch | None = None,
        after: Watch | None = None,
        compiled: bool | None = None,
    ):
        self.memories = Memories(memories) if isinstance(memories, NpuConfig) else memories
        self.config = self.memories.config
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers!r}")
        self._most, self._workers, self._watch, self._after = lanes, workers or available(), watch, after
        self._load_rule = LoadRule(compiled)
        self._single = Lanes(self.config, 1)
        self._shared: list[Lanes] = []
        self.changed()

    def changed(self) -> None:
        """Forget what was prepared: to be called after program, weights or tables were changed in place."""
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._tiles_of: dict[tuple[int, ...], Tiles] = {}
        self._external: dict[tuple[int, ...], ExternalVectors] = {}
        #: Tiles of the memories that runs have written.
        self._written: frozenset[int] = frozenset()
        self._traces: dict[int, Trace] = {}
        self._footprints: dict[tuple[Any, ...], Footprint] = {}
        self._whole: dict[tuple[Any, ...], Footprint] = {}
        self._divisions: dict[tuple[int, ...], tuple[int, int]] = {}
        self._values: dict[int, int] = {}
        self._accesses: dict[Chain, Access] = {}
        self._weights = ProductWeights(self.memories)
        self._integers = IntegerUnit(self.memories) if self.config.has(Op.I_RUN) else None
        self._chains = ReferenceMachine(self.memories)
        self._table = decode(self.memories.table)
        self._slots = [self.memories.slot(k) for k in range(self.config.table_slots)]

    # The device --------------------------------------------------------------------------------

    def write(self, region: RegionId, addr: int, words: Sequence[int]) -> None:
        """Store words of a region, as over the link."""
        self.memories.write(region, addr, words)
        if region not in (*VECTORS, *INTEGER_REGIONS, RegionId.FLAGS):
            self.changed()

    def read(self, region: RegionId, addr: int, count: int) -> list[int]:
        """Read words of a region, as over the link."""
        return self.memories.read(region, addr, count)

    def clear_flags(self) -> None:
        """Clear the sticky flags."""
        self.memories.flags[:] = 0

    def run(self, pc: int = 0) -> Run:
        """One run on the memories, as started over the link.

        Chains of a program with integer chains are executed as the reference machine does.

        Raises
        ------
        ValueError
            If a program with integer chains is to be watched, or leaves the memories.
        """
        if self.has_integers(pc):
            if self._watch is not None or self._after is not None:
                self._trace(pc).refuse_integers("be watched")
            return self._run_in_order(self._trace(pc))
        fast = self._load_rule.fast(1, self._count(pc))
        tiles, vectors = self._tiles([pc]), self._vectors([pc])
        lanes, plan = self._single, self._plan(1, pc, fast, tiles)
        touched = self._footprint(pc, tiles, vectors)
        lanes.hold(tiles, vectors)
        self._load(lanes, touched.live)
        steps: list[Ids] = []
        self.memories.flags |= self._execute(plan, lanes, 1, steps)
        for mem in COPIED:
            lanes.store(self.memories, mem, _sorted(touched.written[mem]))
        self._copy(plan.trace)
        if not tiles.written <= self._written:
            self._written |= tiles.written
            self._tiles_of.clear()
        return report(plan.trace, self.config, steps) if steps else plan.run

    def has_integers(self, pc: int) -> bool:
        """True if a program has integer chains or tensor steps, which are executed in single runs alone."""
        return bool(self._trace(pc).integers)

    def dependent(self, phases: Sequence[BatchPhase]) -> bool:
        """True if such a run may read words that an earlier one left in the memories."""
        return any(self._touched(phases).overwritten.values())

    def _copy(self, run: Trace) -> None:
        """Leave in the matrix memory what the copies of a run leave there."""
        memories, before = self.memories, None
        if run.copies:
            before = memories.matrix_mant.copy(), memories.matrix_exp.copy()
        for copy in left_by(run.copies, self.config):
            write_copy(copy, memories, memories.matrix_mant, memories.matrix_exp)
        after = memories.matrix_mant, memories.matrix_exp
        if before is not None and any((a != b).any() for a, b in zip(before, after, strict=True)):
            self._forget_weights()

    # Batches -----------------------------------------------------------------------------------

    def run_batch(
        self,
        wide: Wide,
        outputs: Sequence[Span],
        pc: int = 0,
        narrow: Narrow | None = None,
        numbers: Numbers | None = None,
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
            Address of the first instruction.
        narrow : mapping, optional
            Inputs: by address, mantissas ``[batch, count, N]`` and exponents ``[batch, count]``.
        numbers : mapping, optional
            Inputs: by memory and address, numbers ``[batch, count, N]``. They are rounded to binary16, and those for
            the narrow memory converted with dynamic exponents, nearest even.
        """
        inputs = Inputs(self.config, wide, narrow or {}, numbers or {})
        return self.run_phases([BatchPhase(pc, inputs, Outputs(self.config, outputs))])[0]

    def run_phases(self, phases: Sequence[BatchPhase]) -> list[Batch]:
        """Several programs in a row for every entry of a batch, each entry from the contents of the memories.

        A program finds what the one before it has left. The memories stay as they are, but for the sticky flags.

        Parameters
        ----------
        phases : sequence of BatchPhase
            The first one must have inputs.

        Returns
        -------
        list of Batch
            One per phase, up to one that traps.

        Raises
        ------
        ValueError
            If a program has integer chains, or the inputs are not of one batch.
        """
        for phase in phases:
            self._trace(phase.pc).refuse_integers("be run in batches")
        trapped = [k for k, phase in enumerate(phases) if self._trace(phase.pc).trap is not Trap.NONE]
        phases = phases[: min(trapped, default=len(phases)) + 1]
        sizes = {phase.inputs.batch for phase in phases if phase.inputs is not None}
        if len(sizes) != 1:
            raise ValueError(f"inputs must be of one batch, not of {sorted(sizes)}")
        batch = sizes.pop()
        size, workers = self._division(batch, [phase.pc for phase in phases])
        chunks = range(0, batch, size)
        fast = self._load_rule.fast(batch, sum(self._count(phase.pc) for phase in phases))
        tiles = self._tiles([phase.pc for phase in phases])
        plans = [self._plan(size, phase.pc, fast, tiles) for phase in phases]
        touched = self._touched(phases)
        vectors = self._vectors([phase.pc for phase in phases])
        lanes = self._take_lanes(size, min(workers, len(chunks)), tiles, vectors)

        def work(worker: int, starts: Iterator[int]) -> tuple[dict[int, list[list[Any]]], Bytes]:
            worker_lanes, flags, load = lanes[worker], np.zeros_like(self.memories.flags), touched.live
            results: dict[int, list[list[Any]]] = {}
            for start in starts:
                self._load(worker_lanes, load)
                load = touched.overwritten
                results[start] = []
                for phase, plan in zip(phases, plans, strict=True):
                    if phase.inputs is not None:
                        phase.inputs.put(worker_lanes, start, fast)
                    flags |= self._execute(plan, worker_lanes, min(size, batch - start))
                    results[start].append(phase.outputs.get(worker_lanes, min(size, batch - start)))
            return results, flags

        pieces: dict[int, list[list[Any]]] = {}
        for results, flags in share(work, chunks, workers):
            pieces |= results
            self.memories.flags |= flags
        return [
            Batch(phase.outputs.join([pieces[start][k] for start in chunks]), plan.run)
            for k, (phase, plan) in enumerate(zip(phases, plans, strict=True))
        ]

    # Integer chains ----------------------------------------------------------------------------

    def _run_in_order(self, run: Trace) -> Run:
        """Everything that a program executes, one after the other, on the memories themselves."""
        assert self._integers is not None
        self._integers.start()
        self._chains.start()
        self._forget_weights()
        return self._chains.execute(run, self._integers)

    def _forget_weights(self) -> None:
        """Drops all that was prepared from the weights, which are written now: the next run prepares it again."""
        self._plans.clear()
        self._tiles_of.clear()
        self._written = frozenset()
        self._weights = ProductWeights(self.memories)

    # Preparation -------------------------------------------------------------------------------

    def _division(self, batch: int, pcs: Sequence[int]) -> tuple[int, int]:
        """Lanes of a chunk, and workers, for a batch."""
        key = (batch, *pcs)
        if key not in self._divisions:
            self._divisions[key] = self._divide(batch, pcs)
        return self._divisions[key]

    def _divide(self, batch: int, pcs: Sequence[int]) -> tuple[int, int]:
        vectors = sum(map(len, self._vectors(pcs).firsts.values()))
        most = max(1, min(self._most, _EXTERNAL_VALUES // (self.config.native * max(1, vectors))))
        chains = sum(len(self._trace(pc).chains) for pc in pcs)
        values = sum(map(self._count, pcs)) / max(1, chains)
        size = chunk(batch, most, self._workers)
        if size * values >= _SHARED_VALUES:
            return size, self._workers
        return chunk(batch, most, 1), 1

    def _take_lanes(self, size: int, workers: int, tiles: Tiles, vectors: ExternalVectors) -> list[Lanes]:
        """Memories of the workers; those of the last batch if they are as large."""
        if self._shared and self._shared[0].batch != size:
            self._shared = []
        while len(self._shared) < workers:
            self._shared.append(Lanes(self.config, size))
        for lanes in self._shared:
            lanes.hold(tiles, vectors)
        return self._shared

    def _count(self, pc: int) -> int:
        """Values that the chains of a program compute."""
        if pc not in self._values:
            self._values[pc] = self.config.native * sum(chain.vectors for chain in self._trace(pc).chains)
        return self._values[pc]

    def _tiles(self, pcs: Sequence[int]) -> Tiles:
        """Tiles of the matrix memory that differ from lane to lane while these programs run."""
        key = tuple(pcs)
        if key not in self._tiles_of:
            chains = [chain for pc in pcs for chain in self._trace(pc).chains]
            self._tiles_of[key] = Tiles(self.config, chains, self._written)
        return self._tiles_of[key]

    def _vectors(self, pcs: Sequence[int]) -> ExternalVectors:
        """Vectors of the external memory that these programs copy."""
        key = tuple(pcs)
        if key not in self._external:
            self._external[key] = ExternalVectors(self.config, [self._trace(pc) for pc in pcs])
        return self._external[key]

    def _plan(self, size: int, pc: int, fast: bool, tiles: Tiles) -> _Plan:
        key = (size, pc, fast, tiles.key)
        if key not in self._plans:
            self._plans[key] = self._make_plan(size, pc, fast, tiles)
        return self._plans[key]

    def _make_plan(self, size: int, pc: int, fast: bool, tiles: Tiles) -> _Plan:
        run = self._trace(pc)
        noise = blocks.Noise(self.config.mfu_lanes)
        known: dict[Chain, list[ChainSlice]] = {}
        steps: list[tuple[ChainSlice | VectorCopy, Bits | None]] = []
        for chain in run.items:
            if isinstance(chain, VectorCopy):
                steps.append((chain, None))
            if not isinstance(chain, Chain):
                continue
            if chain not in known:
                known[chain] = chain_slices(self._access(chain), self._fetch(chain, tiles), tiles, size, fast)
            taken = None
            if chain.quant.rounding is Rounding.STOCHASTIC and chain.converts:
                taken = noise.take(chain.vectors * self.config.beats).reshape(chain.vectors, self.config.native)
            steps += [(part, taken) for part in known[chain]]
        return _Plan(run, report(run, self.config), tuple(steps))

    def _touched(self, phases: Sequence[BatchPhase]) -> Footprint:
        pcs = [phase.pc for phase in phases]
        tiles, vectors = self._tiles(pcs), self._vectors(pcs)
        key = (tiles.key, *(phase.key for phase in phases))
        if key not in self._whole:
            self._whole[key] = footprint((phase, self._footprint(phase.pc, tiles, vectors)) for phase in phases)
        return self._whole[key]

    def _footprint(self, pc: int, tiles: Tiles, vectors: ExternalVectors) -> Footprint:
        key = pc, tiles.key, vectors.key
        if key not in self._footprints:
            footprint = Footprint()
            for item in dict.fromkeys(self._trace(pc).items):
                if isinstance(item, VectorCopy):
                    source, target = item.way(after(self.config, item.mem) + vectors.slots(item))
                    footprint.read(item.mem, set(source.tolist()))
                    footprint.write(item.mem, set(target.tolist()))
                if not isinstance(item, Chain):
                    continue
                access = self._access(item)
                for mem in Mem:
                    footprint.read(mem, access.read(mem))
                if tiles.own(access.chain):
                    footprint.read(MATRIX, tiles.rows_read(access.chain))
                for mem in access.targets:
                    footprint.write(mem, access.written(mem))
                if access.rows is not None:
                    footprint.write(MATRIX, set(access.rows.ravel().tolist()))
            self._footprints[key] = footprint
        return self._footprints[key]

    def _trace(self, pc: int) -> Trace:
        if pc not in self._traces:
            self._traces[pc] = made = trace(self.memories.program.tolist(), self.config, pc)
            check_written_once(made, self.config)
            ExternalVectors(self.config, self._traces.values()).check()
        return self._traces[pc]

    def _access(self, chain: Chain) -> Access:
        if chain not in self._accesses:
            self._accesses[chain] = Access.of(chain, self.config)
        return self._accesses[chain]

    def _fetch(self, chain: Chain, tiles: Tiles) -> Weights | None:
        """Weights of a product that are the same in all lanes."""
        if not (chain.dense or chain.depthwise) or tiles.own(chain):
            return None
        return self._weights.of(chain)

    def _load(self, lanes: Lanes, addresses: Mapping[Memory, Set[int]]) -> None:
        for mem in COPIED:
            lanes.load(self.memories, mem, _sorted(addresses[mem]))

    def _execute(self, plan: _Plan, lanes: Lanes, count: int, steps: list[Ids] | None = None) -> Bytes:
        """Run a program on some lanes, the first ``count`` of which hold samples; returns the flags by address.

        ``steps`` gets the steps of the windows of every sliding product in the first lane.
        """
        flags = np.zeros_like(self.memories.flags)
        with np.errstate(all="ignore"):
            for part, noise in plan.steps:
                if isinstance(part, VectorCopy):
                    lanes.copy_vectors(part)
                    continue
                if self._watch is not None:
                    self._watch(part, lanes, count)
                raised = part.run(lanes, self._slots, self._table, noise)
                if raised:
                    flags[part.chain.pc] |= raised
                if steps is not None and part.last and part.chain.sliding:  # it has not written what it reads
                    steps.append(part.window_steps(lanes))
                if self._after is not None:
                    self._after(part, lanes, count)
        return flags


def _sorted(addresses: Set[int]) -> Ids:
    return np.array(sorted(addresses), dtype=np.int64)
