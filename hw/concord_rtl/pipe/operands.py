"""Fetching of multifunction-unit operands from the wide memory."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.operations import OPERANDS
from concord_rtl.arith.helpers import delay
from concord_rtl.kept_register import KeptRegister
from concord_rtl.pipe.counters import Credits
from concord_rtl.pipe.hazard import HazardGate
from concord_rtl.pipe.layouts import count_shape, fetch_layout, vector_addr_bits
from concord_rtl.register_slice import RegisterSlice
from concord_rtl.shapes import shape_of


class OperandPort(wiring.Component):
    """Queue of operand vectors of one port, handed out in beats.

    The beats are all over the device. What moves them is known a cycle before, and is in registers of their own for
    every ``GROUP`` elements. A vector that arrives in cycle t can be on ``beat`` in t + 2; one beat per cycle.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    coming : In(1)
        ``vector`` arrives in the next cycle.
    vector : In
        A wide vector.
    reserve : In(1)
        A vector of the pipe that will take the next unreserved operand has been launched.
    available : Out(1)
        An operand is here that has not been reserved.
    soon : In(1)
        The beat on ``beat`` is consumed in the next cycle.
    beat : Out
        P elements.
    freed : Out(1)
        The last beat of a vector has left the queue: its place is free.
    """

    coming: Signal
    vector: data.View
    reserve: Signal
    available: Signal
    soon: Signal
    beat: data.View
    freed: Signal

    #: Elements of a beat that share their registers of control.
    GROUP = 2

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "coming": In(1),
                "vector": In(shape_of(config.wide_word)),
                "reserve": In(1),
                "available": Out(1),
                "soon": In(1),
                "beat": Out(data.ArrayLayout(16, config.mfu_lanes)),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        beats, depth = self.config.beats, timing.operand_places(self.config)
        push, load = Signal(), Signal()
        beat, read, write = Signal(range(beats)), Signal(range(depth)), Signal(range(depth))
        m.d.comb += self.freed.eq(load & (beat == beats - 1))
        following = {
            "push": self.coming,
            "load": self._loads(m, push, load),
            "beat": Mux(load, Mux(self.freed, 0, beat + 1), beat)[: len(beat)],
            "read": Mux(self.freed, Mux(read == depth - 1, 0, read + 1), read)[: len(read)],
            "write": Mux(push, Mux(write == depth - 1, 0, write + 1), write)[: len(write)],
        }
        for now, value in zip((push, load, beat, read, write), following.values(), strict=True):
            m.d.sync += now.eq(value)
        self._available(m, push)
        for first in range(0, self.config.mfu_lanes, self.GROUP):
            self._elements(m, first, following)
        return m

    def _loads(self, m, push, load) -> Value:
        """Whether the next cycle loads a beat: a vector is there, and the beat before is none or consumed."""
        level = Signal(range(timing.operand_places(self.config) + 1))
        some, more, full, take = Signal(), Signal(), Signal(), Signal()  # the level is not 0; not 0 or 1
        there, filled = push | Mux(self.freed, more, some), load | (full & ~take)
        m.d.sync += [take.eq(self.soon), some.eq(there), full.eq(filled), level.eq(level + push - self.freed)]
        with m.If(push & ~self.freed):
            m.d.sync += more.eq(some)
        with m.Elif(self.freed & ~push):
            m.d.sync += more.eq(more & (level != 2))
        return there & (~filled | self.soon)

    def _available(self, m, push):
        unreserved = Signal(range(timing.operand_places(self.config) + 1))
        m.d.sync += unreserved.eq(unreserved + push - self.reserve)
        with m.If(push & ~self.reserve):
            m.d.sync += self.available.eq(1)
        with m.Elif(self.reserve & ~push):
            m.d.sync += self.available.eq(unreserved != 1)

    def _elements(self, m, first, following):
        """Memory and output register of a group of elements."""
        lanes = self.config.mfu_lanes
        count = min(self.GROUP, lanes - first)
        m.submodules[f"control{first}"] = kept = KeptRegister(sum(len(value) for value in following.values()))
        m.d.comb += kept.i.eq(Cat(following.values()))
        here, at = {}, 0
        for name, value in following.items():
            here[name], at = kept.o[at : at + len(value)], at + len(value)
        m.submodules[f"store{first}"] = store = memory.Memory(
            shape=unsigned(16 * count * self.config.beats), depth=timing.operand_places(self.config), init=[]
        )
        w_port, r_port = store.write_port(), store.read_port(domain="comb")
        vector = self.vector.as_value()
        starts = [16 * (k * lanes + first) for k in range(self.config.beats)]
        m.d.comb += [
            w_port.en.eq(here["push"]),
            w_port.addr.eq(here["write"]),
            w_port.data.eq(Cat(vector[start : start + 16 * count] for start in starts)),
            r_port.addr.eq(here["read"]),
        ]
        with m.If(here["load"]):
            part = self.beat.as_value()[16 * first : 16 * (first + count)]
            m.d.sync += part.eq(r_port.data.word_select(here["beat"], 16 * count))


class OperandFetch(wiring.Component):
    """Reads the operands of each vector, one per cycle, in the order of the vectors.

    Because reads never overtake those of an older vector, a read that waits for a write can only wait for a vector
    whose own operands have all been read: there is no deadlock.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    push, i : In
        Operand reads of one vector; only if ``room`` was set in this cycle or the one before.
    room : Out(1)
        There is room for two more vectors.
    entries, head, pop : In
        From the tracker of the wide memory.
    grant : In(1)
        The wide memory's read port is free in this cycle.
    read : Out(1)
        A read of ``addr`` takes place.
    addr : Out
        Its address.
    wide_data : In
        Data of the read ``VECTOR_READ`` cycles ago.
    reserve, available, soon : In, Out, In
        One bit per port, as in :class:`OperandPort`.
    beat : Out
        P elements per port.
    stalled : Out(1)
        A read is waiting for a write.
    """

    push: Signal
    i: data.View
    room: Signal
    entries: data.View
    head: Signal
    pop: Signal
    grant: Signal
    read: Signal
    addr: Signal
    wide_data: data.View
    reserve: Signal
    available: Signal
    soon: Signal
    beat: data.View
    stalled: Signal

    def __init__(self, config: NpuConfig):
        self.config = config
        ports = len(OPERANDS)
        addr, count = vector_addr_bits(config), count_shape(config)
        super().__init__(
            {
                "push": In(1),
                "i": In(fetch_layout(config)),
                "room": Out(1),
                "entries": In(data.ArrayLayout(addr, config.inflight)),
                "head": In(count),
                "pop": In(1),
                "grant": In(1),
                "read": Out(1),
                "addr": Out(addr),
                "wide_data": In(shape_of(config.wide_word)),
                "reserve": In(ports),
                "available": Out(ports),
                "soon": In(ports),
                "beat": Out(data.ArrayLayout(data.ArrayLayout(16, config.mfu_lanes), ports)),
                "stalled": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ports = len(OPERANDS)
        m.submodules.gate = gate = HazardGate(self.config, memories=1, payload=range(ports))
        m.d.comb += [
            gate.entries[0].eq(self.entries),
            gate.head[0].eq(self.head),
            gate.pop.eq(self.pop),
            self.stalled.eq(gate.stalled),
        ]
        self._serialise(m, gate)

        # The way back from the read port ends at this register.
        m.submodules.free = free = RegisterSlice(gate.o.p.shape())
        wiring.connect(m, gate.o, free.i)
        room, port = Signal(ports), free.o.p.payload
        m.d.comb += [
            self.read.eq(free.o.valid & self.grant & room.bit_select(port, 1)),
            free.o.ready.eq(self.grant & room.bit_select(port, 1)),
            self.addr.eq(free.o.p.addr),
        ]
        for k, name in enumerate(OPERANDS):
            m.submodules[name] = unit = OperandPort(self.config)
            m.submodules[f"{name}_places"] = places = Credits(timing.operand_places(self.config))
            read = self.read & (port == k)
            m.d.sync += places.give.eq(unit.freed)
            m.d.comb += [
                places.take.eq(read),
                room[k].eq(places.room),
                unit.coming.eq(delay(m, read, timing.VECTOR_READ - 1, f"{name}_coming", reset_less=False)),
                unit.vector.eq(self.wide_data),
                unit.reserve.eq(self.reserve[k]),
                self.available[k].eq(unit.available),
                unit.soon.eq(self.soon[k]),
                self.beat[k].eq(unit.beat),
            ]
        return m

    def _serialise(self, m, gate):
        """Send the enabled reads of the vector at the head of the queue one after the other."""
        layout = fetch_layout(self.config)
        m.submodules.queue = queue = SyncFIFOBuffered(width=layout.size, depth=timing.operand_places(self.config))
        head: Any = Signal(layout)
        done = Signal(len(OPERANDS))
        left, lowest, which = Signal(len(OPERANDS)), Signal(len(OPERANDS)), Signal(range(len(OPERANDS)))
        finished = Signal()
        m.d.comb += [
            self.room.eq(queue.w_level <= queue.depth - 2),
            queue.w_en.eq(self.push & self.i.enable.any()),
            queue.w_data.eq(self.i),
            head.eq(queue.r_data),
            left.eq(head.enable & ~done),
            lowest.eq(left & (~left + 1)),
            which.eq(Mux(left[0], 0, Mux(left[1], 1, Mux(left[2], 2, 3)))),
            gate.i.valid.eq(queue.r_rdy),
            gate.i.p.addr.eq(head.addr[which]),
            gate.i.p.before.eq(head.before),
            gate.i.p.check.eq(1),
            gate.i.p.payload.eq(which),
            finished.eq(gate.i.valid & gate.i.ready & (left == lowest)),
            queue.r_en.eq(finished),
        ]
        with m.If(finished):
            m.d.sync += done.eq(0)
        with m.Elif(gate.i.valid & gate.i.ready):
            m.d.sync += done.eq(done | lowest)
