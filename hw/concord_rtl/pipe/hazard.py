"""Tracking of the writes that are still under way to one vector memory."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.config import NpuConfig
from concord_rtl.parts.component import Component, Input, NpuUnit, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.pipe.layouts import count_shape, vector_addr_bits


class HazardTracker(NpuUnit):
    """In-order queue of the addresses still to be written to one vector memory.

    It does not compare anything itself: :class:`HazardGate` does, once per read port. Writes retire in the order of
    their entry. The oldest entry is always ``entries[0]``. An entry shows in the cycle after next, its count in the
    next one: requests of later vectors take longer than that to their gate.

    Parameters
    ----------
    config : NpuConfig
    """

    push = Input(1, "A write to ``addr`` has been issued; only if ``room`` was set in this cycle or the one before.")
    addr = Input(lambda self: vector_addr_bits(self.config), "Address of the write.")
    room = Output(1, "There is room for two more entries.")
    pop = Input(
        1,
        "The oldest write is done in this cycle: a read issued in the next cycle sees it. It was not pushed in the "
        "cycle before.",
    )
    tail = Output(
        lambda self: count_shape(self.config),
        "Running count of entries ever pushed, modulo twice the capacity: what a read has to carry.",
    )
    head = Output(lambda self: count_shape(self.config), "Running count of entries ever popped.")
    entries = Output(
        lambda self: data.ArrayLayout(vector_addr_bits(self.config), self.config.inflight),
        "Addresses, oldest first; those beyond ``tail - head`` are meaningless.",
    )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        size = self.config.inflight
        level = Signal(range(size + 1))
        place = Signal(size + 1, init=1)  # one bit per number of entries
        enter, addr = Signal(), Signal.like(self.addr)
        m.d.comb += self.room.eq(level <= size - 2)
        m.d.sync += [
            level.eq(level + self.push - self.pop),
            self.tail.eq(self.tail + self.push),
            self.head.eq(self.head + self.pop),
            enter.eq(self.push),
            addr.eq(self.addr),
        ]
        with m.If(enter & ~self.pop):
            m.d.sync += place.eq(place << 1)
        with m.Elif(self.pop & ~enter):
            m.d.sync += place.eq(place >> 1)
        for k, entry in enumerate(self.entries):
            enters = enter & Mux(self.pop, place[k + 1], place[k])
            with m.If(enters | self.pop):
                m.d.sync += entry.eq(Mux(enters, addr, self.entries[k + 1]) if k + 1 < size else addr)
        return m


def request_layout(config: NpuConfig, *, memories: int, payload) -> data.StructLayout:
    """A read request in front of a :class:`HazardGate`; ``check`` 0 means that it needs no check."""
    addr, count = vector_addr_bits(config), count_shape(config)
    return data.StructLayout({"addr": addr, "memory": range(memories), "before": count, "check": 1, "payload": payload})


class HazardGate(Component):
    """Holds a read back until every older write to its address is done.

    Requests pass in order, at most one per cycle, after ``LATENCY`` cycles when nothing is in the way. ``before`` of a
    request is the tracker's ``tail`` when the vector was issued, before that vector's own write was pushed: only
    older entries count, so a vector may overwrite what it reads.

    Parameters
    ----------
    config : NpuConfig
    memories : int
        Number of trackers; a request says which one in ``memory``.
    payload : shape
        Shape of what travels along.
    """

    i = Input(
        lambda self: stream_of(self.request),
        "Requests: ``addr``, ``memory``, ``before``, ``check`` (0: needs no check) and ``payload``.",
    )
    o = Output(
        lambda self: stream_of(
            data.StructLayout(
                {"addr": vector_addr_bits(self.config), "memory": range(self.memories), "payload": self.payload}
            )
        ),
        "The requests that may go.",
    )
    entries = Input(
        lambda self: data.ArrayLayout(
            data.ArrayLayout(vector_addr_bits(self.config), self.config.inflight), self.memories
        ),
        "Addresses still to be written, from the tracker of each memory.",
    )
    head = Input(
        lambda self: data.ArrayLayout(count_shape(self.config), self.memories),
        "Running count of writes that are done, from the tracker of each memory.",
    )
    pop = Input(lambda self: self.memories, "One bit per memory: its oldest write is done, as ``pop`` of its tracker.")
    stalled = Output(1, "A request is waiting for a write.")

    LATENCY = 3

    def __init__(self, config: NpuConfig, *, memories: int, payload):
        self.config = config
        self.memories = memories
        self.payload = payload
        self.request = request_layout(config, memories=memories, payload=payload)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        first: Any
        first, first_valid = Signal(self.request), Signal()
        kept = self.o.p.shape()
        second, second_valid, second_match = Signal(kept), Signal(), Signal(self.config.inflight)
        third, third_valid, third_match = Signal(kept), Signal(), Signal(self.config.inflight)
        clear = Signal()  # no entry of the third request is left
        advance, go = Signal(), Signal()
        m.d.comb += [
            go.eq(~third_valid | (clear & self.o.ready)),
            advance.eq(~second_valid | go),
            self.i.ready.eq(~first_valid | advance),
            self.o.valid.eq(third_valid & clear),
            self.o.p.eq(third),
            self.stalled.eq(third_valid & ~clear),
        ]
        older = self._older(m, first)
        # The entries that a request waits for are found in its first cycle; from then on they move with the queue.
        first_left = self._popped(first, Mux(first.check, self._older_matches(m, first, older), 0))
        second_left, third_left = self._popped(second, second_match), self._popped(third, third_match)
        with m.If(self.i.ready):
            m.d.sync += [first_valid.eq(self.i.valid), first.eq(self.i.p)]
        with m.If(advance):
            m.d.sync += [second_valid.eq(first_valid), second_match.eq(first_left)]
            m.d.sync += [second[name].eq(first[name]) for name in kept.members]
        with m.Else():
            m.d.sync += second_match.eq(second_left)
        with m.If(go):
            m.d.sync += [third_valid.eq(second_valid), third.eq(second)]
            m.d.sync += [third_match.eq(second_left), clear.eq(~second_left.any())]
        with m.Else():
            m.d.sync += [third_match.eq(third_left), clear.eq(~third_left.any())]
        return m

    def _older(self, m, first) -> Value:
        """Number of entries that are older than the first request, which is found out when it comes."""
        older = Signal(count_shape(self.config))
        head, pop = self.head[self.i.p.memory], self.pop.bit_select(self.i.p.memory, 1)
        with m.If(self.i.ready):
            # before - head - pop in one sum
            m.d.sync += older.eq((Cat(Const(1, 1), self.i.p.before) + Cat(~pop, ~head))[1:])
        with m.Elif(self.pop.bit_select(first.memory, 1)):
            m.d.sync += older.eq(older - 1)
        return older

    def _older_matches(self, m, request, older):
        """One bit per entry: whether it is older than the request and has its address."""
        size = self.config.inflight
        equal = [
            Cat(entry == request.addr for entry in entries) & (request.memory == k).replicate(size)
            for k, entries in enumerate(self.entries)
        ]
        is_older = Signal(size)
        m.d.comb += is_older.eq(Cat(k < older for k in range(size)))
        same = equal[0]
        for other in equal[1:]:
            same = same | other
        return is_older & same

    def _popped(self, request, match):
        """``match`` after this cycle."""
        return Mux(self.pop.bit_select(request.memory, 1), match >> 1, match)
