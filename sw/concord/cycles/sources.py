"""The way of sources: sequencer, chain walker, tap walker, hazard gate, source reads."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from concord.cycles.dram import copy_cycles
from concord.cycles.gate import Gate
from concord.cycles.integers import integer_cycles
from concord.cycles.places import Places, entry
from concord.cycles.times import Request, Times, Token
from concord.cycles.windows import Windows
from concord.program.chains import VECTOR_MASK, Chain, VectorCopy, WeightCopy
from concord.program.integers import IntegerChain, TensorStep
from concord.program.trace import Trace
from concord.spec import timing
from concord.spec.isa import Mem, Op
from concord.utils.arrays import Ids


@dataclass(frozen=True)
class Reads:
    """Source reads of a chain, job by job.

    Parameters
    ----------
    chain : Chain
        The chain.
    addresses : array
        ``[jobs, reads]``, -1 for taps outside the image.
    repeat : int
        Steps of every read.
    writes : array or None
        Writes that the reads wait for, if the chain itself writes none of them.
    steps : array or None
        Of a sliding product, the steps of every window.
    """

    chain: Chain
    addresses: Ids
    repeat: int
    writes: Ids | None
    steps: Ids | None


class Sources:
    """Sequencer, walkers and source reads.

    Parameters
    ----------
    found : Trace
        What the run executes.
    times : Times
        What is known.
    steps : sequence of array
        For every sliding product the steps of its windows, ``[outer, inner]``.
    grown : sequence of bool
        For every update of an integer chain whether an exponent has grown; those that are left out have not.

    Attributes
    ----------
    end : int
        Cycle in which the run ends; 0 as long as that is not known.
    steps : int
        Source reads so far.
    """

    def __init__(self, trace: Trace, times: Times, steps: Sequence[Ids], grown: Sequence[bool] = ()):
        self.trace, self.times, self._window_steps, self._grown = trace, times, iter(steps), iter(grown)
        self.end = self.steps = 0
        self._gate = Gate(times.stalls)
        self._taps = Places(timing.TAPS)
        self._receivers = [times.jobs, *times.writes.values(), times.fetches, times.retiring]
        self._issued = self._stepped = self._loaded = 0
        self._products = 0
        #: Rows of the matrix memory that are written so far, and the last tile among them.
        self._rows, self._last_tile = 0, -1
        self._windows = Windows()
        config = times.config
        self._slots, self._queue = timing.result_places(config), timing.source_places(config)
        #: From a read to the result of the product that it ends.
        self._to_engines = 1 + timing.VECTOR_READ + timing.MATRIX_DELAY + timing.sum_latency(config)
        #: Number of the latest write to every address, by memory.
        self._written = {mem: np.full(VECTOR_MASK + 1, -1) for mem in Mem}

    def process(self) -> Iterator[None]:
        """Follow the program; yields when nothing more is known."""
        now, chains = timing.LOOP_JUMP - 1, iter(self.trace.chains)  # the first word comes as behind a jump
        copied = 0  # cycle in which the latest copy is over
        for event in self.trace.events:
            now += event.words + (timing.LOOP_JUMP - 1) * event.jumps
            if event.waits:
                yield from self._drain()
                now = max(now, self.times.retired + 2, copied)
            match event.item:
                case WeightCopy() | VectorCopy():
                    copied = now + copy_cycles(event.item, self.times.config)
                    overlaps = isinstance(event.item, WeightCopy) and event.item.overlaps
                    now = now if overlaps else copied - 1
                case IntegerChain() | TensorStep():
                    updates = isinstance(event.item, IntegerChain) and event.item.steps.update
                    grown = bool(updates) and next(self._grown, False)
                    now += integer_cycles(event.item, self.times.config, grown) - 1
            if event.chain:
                now = max(now + 1, self._issued)
                yield from self._chain(next(chains), now)
        if self.trace.trap:
            yield from self._drain()
            now = max(now + 1, self.times.retired + 2, copied)
        self.end = now

    def _drain(self) -> Iterator[None]:
        while self.times.launched < len(self.times.tokens):
            yield

    # Chain walker ------------------------------------------------------------------------------------------------

    def _chain(self, chain: Chain, taken: int) -> Iterator[None]:
        """All vectors of a chain that the walker takes at ``taken``."""
        begin = (yield from self._rows_written(chain)) + 2
        reads = self._reads(chain)
        group = chain.group(self.times.config)
        operands = [(read.port, chain.addresses(read.address).ravel()) for read in chain.operands]
        targets = [(d.mem, chain.addresses(d.address).ravel()) for d in chain.destinations]
        enters = tuple(any(mem is target for target, _ in targets) for mem in self.times.writes)
        job = -1
        for n in range(chain.vectors):
            row = n % chain.rows
            begins = row % group == 0
            job += begins
            earliest = max(taken, self._issued) + 1 + (0 if n % chain.inner else chain.skipped)
            earliest = max(earliest, begin)
            while (issue := entry(self._receivers, self._issued, earliest)) is None:
                yield
            self._issued = issue
            for places, there in zip(self._receivers, (begins, *enters, bool(operands), True), strict=True):
                places.enter(there)
            self._send(chain, n, operands)
            if begins:
                yield from self._job(reads, job)
            for mem, addresses in targets:
                self._written[mem][addresses[n]] = self.times.writes[mem].entered - 1

    def _rows_written(self, chain: Chain) -> Generator[None, None, int]:
        """Cycle in which the rows of the matrix memory that a product waits for are written."""
        times, config = self.times, self.times.config
        written = -2
        near = chain.matrix // config.steps <= self._last_tile or config.matrix_wraps
        if chain.reduce is Op.MV_MUL and near and self._rows:
            while len(times.rows) < self._rows:
                yield
            written = times.rows[-1]
        if chain.into_matrix is not None:
            self._rows += chain.vectors
            self._last_tile = max(self._last_tile, int(chain.written_rows(config).max()) // config.rows)
        return written

    def _send(self, chain: Chain, n: int, operands: list[tuple[int, Ids]]) -> None:
        """Puts the requests and the token of the vector that was issued into the queues of the other units."""
        times, row = self.times, n % chain.rows
        product = chain.reduce is Op.MV_MUL
        group = chain.group(times.config)
        if product and row % group == 0:
            self._products += 1
        for k, (port, addresses) in enumerate(operands, 1):
            write = int(self._written[Mem.WIDE][addresses[n]])
            ready = self._issued + timing.BUFFERED_QUEUE
            times.requests.append(Request(ready, port, write, k == len(operands)))
        times.tokens.append(
            Token(
                ready=self._issued + timing.BUFFERED_QUEUE + 1,
                job=self._products - 1 if product else -1,
                ends_job=product and (row % group == group - 1 or row == chain.rows - 1),
                trips=chain.window.taps,
                broadcast=chain.reduce is Op.V_REDMAX,
                ports=tuple(port for port, _ in operands),
                wide=any(target.mem is Mem.WIDE for target in chain.destinations),
                narrow=any(target.mem is Mem.NARROW for target in chain.destinations),
                early=chain.early,
                row=chain.into_matrix is not None,
            )
        )

    # Tap walker --------------------------------------------------------------------------------------------------

    def _reads(self, chain: Chain) -> Reads:
        config = self.times.config
        addresses = chain.sources(config)[:, :, :: chain.group(config)]
        inside = chain.inside()[:, :, None, :, None]
        addresses = np.where(inside, addresses, -1).reshape(-1, chain.window.taps * chain.cols)
        if chain.sliding:  # column by column
            kh, kw = chain.window.kh, chain.window.kw
            addresses = addresses.reshape(-1, kh, kw).swapaxes(1, 2).reshape(-1, kh * kw)
        own = chain.destination(chain.mem)
        apart = own is None or not np.isin(chain.addresses(own), addresses).any()
        writes = self._writes(chain, addresses) if apart else None
        steps = next(self._window_steps).reshape(-1) if chain.sliding else None
        return Reads(chain, addresses, config.steps if chain.dense else 1, writes, steps)

    def _writes(self, chain: Chain, addresses: Ids) -> Ids:
        """Numbers of the writes that reads of these addresses wait for."""
        return np.where(addresses < 0, -1, self._written[chain.mem][addresses])

    def _job(self, reads: Reads, job: int) -> Iterator[None]:
        """All steps of a job."""
        times, product, windows = self.times, reads.chain.reduce is Op.MV_MUL, self._windows
        writes = self._writes(reads.chain, reads.addresses[job]) if reads.writes is None else reads.writes[job]
        if reads.chain.sliding:
            columns = reads.chain.fresh if job % reads.chain.inner else reads.chain.window.kw - reads.chain.skipped
            writes = writes[-columns * reads.chain.window.kh :]
        ends = times.writes[reads.chain.mem].left
        # A job is taken in the last step of the one before, or when it is there.
        self._loaded = max(self._issued + timing.BUFFERED_QUEUE, self._loaded + 1, self._stepped)
        times.jobs.left.append(self._loaded)
        latest, total, at, steady = int(writes.max()), len(writes) * reads.repeat, 0, False
        while at < total:
            if steady and latest < len(ends) and (latest < 0 or ends[latest] <= self._gate.second):
                self._repeat(total - at)
                break
            write = int(writes[at // reads.repeat])
            while write >= len(ends):
                yield
            full, releases = (
                (self._products - 1 - self._slots, times.freed)
                if product
                else (len(times.sources) - self._queue, times.taken)
            )
            while full >= len(releases) and not (product and at):
                yield
            free = releases[full] + 1 if full >= 0 and not (product and at) else 0
            if product and job == at == 0:  # a chain waits until all windows before it are done
                free = max(free, windows.ends + 1)
            if reads.steps is not None:
                free = max(free, windows.place())
            alike = self._step(ends[write] if write >= 0 else -1, free)
            steady = alike and product and at > 0 and reads.steps is None
            at += 1
            if not product:
                self._source(reads.chain.mem)
            elif reads.steps is not None:
                windows.enter(self._gate.out + 1 + timing.VECTOR_READ)
        if reads.steps is not None:
            windows.complete(int(reads.steps[job]))
            times.results.append(windows.ends - 1 - timing.VECTOR_READ + self._to_engines)
        elif product:
            times.results.append(self._gate.out + self._to_engines)

    def _source(self, mem: Mem) -> None:
        """The latest read goes to the source queue."""
        self.times.sources.append(self._gate.out + 1 + timing.VECTOR_READ)
        if mem is Mem.WIDE:
            self.times.wide_sources.add(self._gate.out + 1)

    def _step(self, written: int, free: int) -> bool:
        """A step that waits for a write until ``written``, and whose receiver has room from ``free`` on.

        Returns True if everything happened a cycle later than in the step before: if nothing holds it up, the next step
        takes a cycle, too.
        """
        gate, taps = self._gate, self._taps
        before = gate.total + self._stepped
        step = entry([taps], self._stepped, max(self._loaded, self._stepped) + 1)
        assert step is not None  # the requests in front have left the queue
        entered, passed = gate.enter(step + timing.QUEUE, written)
        taps.enter(True)
        taps.left.append(entered)
        gate.leave(max(passed + timing.REGISTER_SLICE, gate.out + 1, free))
        self._stepped = step
        self.steps += 1
        alike = gate.total + step == before + Gate.TIMES + 1 and len(taps.left) > timing.TAPS
        return alike and entered - taps.left[-1 - timing.TAPS] == timing.TAPS

    def _repeat(self, count: int) -> None:
        """``count`` steps, each a cycle after the one before."""
        self._gate.shift(count)
        entered = self._taps.left[-1]
        self._taps.left.extend(range(entered + 1, entered + count + 1))
        self._taps.entered += count
        self._stepped += count
        self.steps += count
