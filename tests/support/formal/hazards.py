"""No read passes an older write to its address, none is lost, and none waits for anything else.

Nor does a product begin before the rows of the matrix memory that it may read are written.
"""

from __future__ import annotations

from functools import partial

from amaranth import *
from amaranth.lib import data

from concord.spec.config import clog2
from concord.spec.presets import TINY
from concord_rtl.pipe.hazard import HazardGate, HazardTracker
from concord_rtl.pipe.row_gate import RowGate

from .bench import Bench, Insides
from .mutant import Change
from .proof import Sequential
from .streams import Line, offer, stays

#: The smallest queues and memories; nothing in the units depends on more than the number of places.
SMALL = TINY.replace(inflight=4, narrow_depth=16, wide_depth=16)
#: The same with rows that programs write.
ROWS = SMALL.replace(writable_matrix=True, matrix_depth=16)
#: Bits of running counts, more than the units have.
COUNT_BITS = 6
PAYLOAD_BITS = 2
#: Requests in the gate at most, one per register.
PLACES = 3


class Writes:
    """Writes to one memory, issued and done at any time that the rules of the tracker allow.

    Attributes
    ----------
    line : Line
        Their addresses, from issue to the cycle in which they are done.
    issued, done : Signal
        Running counts.
    """

    def __init__(self, bench: Bench, tracker: HazardTracker, name: str):
        m = bench.m
        self.tracker = tracker
        push, pop = bench.free(1, f"{name}_push"), bench.free(1, f"{name}_pop")
        addr = bench.free(len(tracker.addr), f"{name}_addr")
        m.d.comb += [tracker.push.eq(push), tracker.addr.eq(addr), tracker.pop.eq(pop)]
        self.line = Line(bench, len(addr), len(tracker.entries), f"{name}_line", put=push, item=addr, take=pop)
        self.issued, self.done = Signal(COUNT_BITS, name=f"{name}_issued"), Signal(COUNT_BITS, name=f"{name}_done")
        m.d.sync += [self.issued.eq(self.issued + push), self.done.eq(self.done + pop)]
        self.pushed_before = bench.past(push, f"{name}_push")
        self.room_before = bench.past(tracker.room, f"{name}_room", init=1)
        bench.assume(tracker.room | self.room_before, given=push)
        bench.assume(self.line.level > self.pushed_before, given=pop)

    def must(self, bench: Bench, inside: Insides) -> None:
        """Every write is kept, with its address, until it is done."""
        line, tracker = self.line, self.tracker
        bench.must(~line.overrun)
        bench.must(line.level == (self.issued - self.done)[:COUNT_BITS])
        bench.must(
            (tracker.tail == self.issued[: len(tracker.tail)]) & (tracker.head == self.done[: len(tracker.head)])
        )
        bench.must(tracker.room == (line.level <= len(line.items) - 2))
        for k, item in enumerate(line.items):
            bench.must(tracker.entries[k] == item, given=k + self.pushed_before < line.level)
        # For the induction: the push that is on its way to its place.
        bench.must(inside["level"] == line.level)
        bench.must(inside["enter"] == self.pushed_before)
        bench.must(inside["place"] == 1 << (line.level - self.pushed_before)[: len(line.level)])
        last = Array(line.items)[(line.level - 1)[: len(line.items).bit_length() - 1]]
        bench.must(inside["addr"] == last, given=self.pushed_before)
        bench.must(line.level <= len(line.items) - self.room_before)


def tracker() -> Bench:
    """One tracker."""
    bench = Bench()
    dut = HazardTracker(SMALL)
    inside = bench.unit(dut, "dut")
    writes = Writes(bench, dut, "w")
    writes.must(bench, inside)
    bench.reach(writes.line.level == SMALL.inflight)
    bench.reach(dut.pop & (writes.done == 2) & (dut.entries[0] == 9))
    return bench


def _request(memories: int) -> data.StructLayout:
    """A request as the bench remembers it: ``before`` counts on."""
    addr = (SMALL.wide_depth - 1).bit_length()
    return data.StructLayout(
        {"addr": addr, "memory": range(memories), "payload": PAYLOAD_BITS, "check": 1, "before": COUNT_BITS}
    )


class _Queue:
    """Trackers, a gate behind them, and requests of any kind."""

    def __init__(self, memories: int):
        self.bench = bench = Bench()
        m = bench.m
        self.dut = dut = HazardGate(SMALL, memories=memories, payload=PAYLOAD_BITS)
        self.inside = bench.unit(dut, "dut")
        self.writes: list[Writes] = []
        for k in range(memories):
            tracker = HazardTracker(SMALL)
            inside = bench.unit(tracker, f"tracker{k}")
            writes = Writes(bench, tracker, f"w{k}")
            writes.must(bench, inside)
            self.writes.append(writes)
            m.d.comb += [
                dut.entries[k].eq(tracker.entries), dut.head[k].eq(tracker.head), dut.pop[k].eq(tracker.pop)
            ]  # fmt: skip
        self.now = Signal(_request(memories), name="now")
        offer(bench, dut.i, "i")
        count = bench.free(COUNT_BITS, "before")
        m.d.comb += dut.o.ready.eq(bench.free(1, "ready"))
        p = dut.i.p
        m.d.comb += [self.now[name].eq(p[name]) for name in ("addr", "memory", "payload", "check")]
        m.d.comb += self.now.before.eq(count)
        bench.assume(p.before == count[: len(p.before)])
        bench.assume(p.memory < memories)
        waiting = bench.past(dut.i.valid & ~dut.i.ready, "waits")
        bench.assume(count == bench.past(count, "before"), given=waiting)
        put, self.take = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        self.put = put
        self.line = Line(bench, _request(memories), PLACES, "requests", put=put, item=self.now, take=self.take)
        bench.assume(self._possible(self.now), given=dut.i.valid)
        bench.assume(~self._overtaken(self.now), given=dut.i.valid)
        for k, item in enumerate(self.line.items):
            bench.assume(~self._overtaken(item), given=k < self.line.level)
            bench.must(self._possible(item), given=k < self.line.level)
            bench.must(item.memory < memories, given=k < self.line.level)

    def _possible(self, request) -> Value:
        """Its vector was issued, and no write of that vector or a later one is done."""
        return Cat(
            (request.memory == k)
            & ((request.before - writes.done)[:COUNT_BITS] <= (writes.issued - writes.done)[:COUNT_BITS])
            for k, writes in enumerate(self.writes)
        ).any()

    def _overtaken(self, request) -> Value:
        """In this cycle a write of its own vector or a later one is done: that cannot be before it was read."""
        return Cat(
            (request.memory == k) & writes.tracker.pop & (request.before == writes.done)
            for k, writes in enumerate(self.writes)
        ).any()

    def pending(self, request, name: str) -> Signal:
        """One bit for each place of its memory: an older write to its address is there."""
        found = Signal(SMALL.inflight, name=f"{name}_pending")
        for k, writes in enumerate(self.writes):
            older = (request.before - writes.done)[:COUNT_BITS]
            with self.bench.m.If((request.memory == k) & request.check):
                self.bench.m.d.comb += found.eq(
                    Cat(
                        (n < older) & (n < writes.line.level) & (item == request.addr)
                        for n, item in enumerate(writes.line.items)
                    )
                )
        return found


def gate(memories: int) -> Bench:
    """A gate with its trackers."""
    queue = _Queue(memories)
    bench, dut, line = queue.bench, queue.dut, queue.line
    first = line.items[0]
    waits = queue.pending(first, "first")
    bench.must(~waits.any(), given=queue.take)
    bench.must(~line.overrun)
    bench.must(line.level != 0, given=dut.o.valid)
    for name in ("addr", "memory", "payload"):
        bench.must(dut.o.p[name] == first[name], given=dut.o.valid)
    stays(bench, dut.o, "o")
    # It waits for nothing else: at most the way through the registers.
    idle = Signal(range(dut.LATENCY + 1))
    blocked = (line.level != 0) & ~waits.any() & dut.o.ready & ~queue.take
    bench.m.d.sync += idle.eq(Mux(blocked, idle + 1, 0))
    bench.must(idle < dut.LATENCY)
    _inside(queue)
    valid = [queue.inside[f"{name}_valid"] for name in ("second", "third")]
    bench.must(valid[0] | valid[1], given=idle >= 1)
    bench.must(valid[1], given=idle >= 2)
    bench.reach(dut.stalled & dut.o.ready & (line.level == PLACES))
    bench.reach(queue.take & bench.past(dut.stalled, "stalled"))
    bench.reach(queue.take & bench.past(queue.take & queue.put, "moves"))
    return bench


def _inside(queue: _Queue) -> None:
    """For the induction: which request is in which register, and what it has still to wait for."""
    bench, line, inside = queue.bench, queue.line, queue.inside
    there = [inside[f"{name}_valid"] for name in ("first", "second", "third")]
    bench.must(line.level == sum(there[1:], there[0]))
    held = data.View(queue.dut.request, inside["first"])
    kept = queue.dut.o.p.shape()
    ahead = [there[1] + there[2], there[2], Const(0, 2)]
    items = Array(Value.cast(item) for item in line.items)
    for k, name in enumerate(("first", "second", "third")):
        request = Signal(line.items[0].shape(), name=f"{name}_request")
        bench.m.d.comb += Value.cast(request).eq(items[ahead[k]])
        view = held if k == 0 else data.View(kept, inside[name])
        for field in ("addr", "memory", "payload"):
            bench.must(view[field] == request[field], given=there[k])
        if k == 0:
            bench.must(
                (held.check == request.check) & (held.before == request.before[: len(held.before)]), given=there[0]
            )
            shown = Cat(
                (request.memory == n) & ((request.before - w.done)[:COUNT_BITS] <= w.line.level - w.pushed_before)
                for n, w in enumerate(queue.writes)
            )
            bench.must(shown.any(), given=there[0])
            for n, w in enumerate(queue.writes):
                older = (request.before - w.done)[: len(held.before)]
                bench.must(inside["older"] == older, given=there[0] & (request.memory == n))
        else:
            match = inside[f"{name}_match"]
            bench.must(match == queue.pending(request, name), given=there[k])
    bench.must(inside["clear"] == ~inside["third_match"].any(), given=there[2])


def row_gate() -> Bench:
    """Chains, and rows of any tile; one tile is watched."""
    bench = Bench()
    m, dut = bench.m, RowGate(ROWS)
    inside = bench.unit(dut, "dut")
    for name in ("start", "issued", "row", "written", "load", "product", "matrix"):
        port = getattr(dut, name)
        m.d.comb += port.eq(bench.free(port.shape(), name))
    tile, first = dut.row[clog2(ROWS.rows) :], dut.matrix[clog2(ROWS.steps) :]
    watched = bench.constant(len(tile), "watched")
    count = Signal(range(4 * ROWS.inflight + 1))  # rows under way
    bench.assume(count < 4 * ROWS.inflight, given=dut.issued)
    bench.assume(count != 0, given=dut.written)
    bench.assume((count == 0) & ~dut.issued, given=dut.start)
    m.d.sync += count.eq(count + dut.issued - dut.written)
    # In this run: a row of the watched tile was issued; one of a later tile was.
    hit, beyond = Signal(), Signal()
    hit_now, beyond_now = hit | dut.issued & (tile == watched), beyond | dut.issued & (tile > watched)
    m.d.sync += [hit.eq(hit_now & ~dut.start), beyond.eq(beyond_now & ~dut.start)]
    # Of the chain that was taken: it may read the watched tile after a row of it; it reads later tiles than all rows.
    reads, behind, product = Signal(), Signal(), Signal()
    older = Signal.like(count)  # rows under way of chains before it
    with m.If(dut.load):
        m.d.sync += [
            reads.eq(dut.product & (first <= watched) & hit_now),
            behind.eq((first > watched) & ~beyond_now),
            product.eq(dut.product),
            older.eq(count + dut.issued - dut.written),
        ]
    with m.Elif(dut.written & (older != 0)):
        m.d.sync += older.eq(older - 1)
    bench.must(dut.waits, given=reads & (older != 0))
    bench.must(~dut.waits, given=~product | behind)
    bench.must(bench.past(count != 0, "count") | bench.past(dut.issued, "issued"), given=dut.waits)
    # For the induction.
    bench.must(inside["left"] == count)
    bench.must(older <= count)
    bench.must(inside["last"] >= watched, given=hit)
    bench.must(inside["last"] <= watched, given=~beyond)
    bench.reach(dut.waits & (older == 2) & (watched == 2))
    bench.reach(~dut.waits & bench.past(dut.waits, "waits") & reads)
    bench.reach(behind & product & (older != 0) & (watched == 3))
    return bench


_HAZARD = "concord_rtl.pipe.hazard"
_ROW_GATE = "concord_rtl.pipe.row_gate"
_GATE_CHANGES = (
    Change(_HAZARD, "Cat(k < older for k", "Cat(k + 1 < older for k"),
    Change(_HAZARD, "match >> 1, match", "match, match"),
    Change(_HAZARD, "(clear & self.o.ready)", "self.o.ready"),
    Change(_HAZARD, "self.o.valid.eq(third_valid & clear)", "self.o.valid.eq(third_valid)"),
    Change(_HAZARD, "is_older & same", "same"),
)

PROOFS = (
    Sequential(
        "hazard tracker", "each write is kept with its address until it is done; never overrun",
        tracker, depth=6, steps=1, fast=True, reach=10,
        changes=(
            Change(_HAZARD, "Mux(self.pop, place[k + 1], place[k])", "place[k]"),
            Change(_HAZARD, "level <= size - 2", "level <= size - 1"),
        ),
    ),
    Sequential(
        "hazard gate, 1 memory", "no read before an older write to its address; in order; waits for nothing else",
        partial(gate, 1), depth=5, steps=1, fast=True, reach=10, changes=_GATE_CHANGES,
    ),
    Sequential(
        "hazard gate, 2 memories", "the same with both trackers",
        partial(gate, 2), depth=4, steps=1, reach=10,
        changes=(
            *_GATE_CHANGES,
            Change(_HAZARD, "self.pop.bit_select(request.memory, 1)", "self.pop[0]"),
            Change(_HAZARD, "self.head[self.i.p.memory]", "self.head[0]"),
        ),
    ),
    Sequential(
        "row gate", "no product before older rows that it may read; products behind all rows wait for nothing",
        row_gate, depth=6, steps=1, fast=True, reach=10,
        changes=(
            Change(_ROW_GATE, "tile > last", "tile < last"),
            Change(_ROW_GATE, "first > last", "first >= last"),
            Change(_ROW_GATE, "& ~(self.issued & (first <= tile))", ""),
            Change(_ROW_GATE, "(self.issued | (left != 0))", "(left != 0)"),
            Change(_ROW_GATE, "self.waits & (left != 0)", "self.waits & (left > 1)"),
            Change(_ROW_GATE, "self.product & ~above", "~above"),
        ),
    ),
)  # fmt: skip
