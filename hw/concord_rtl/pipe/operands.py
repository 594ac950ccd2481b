"""Fetching of multifunction-unit operands from the wide memory."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered

from concord.spec import timing
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.operations import OPERANDS
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.register_slice import RegisterSlice
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import delay
from concord_rtl.pipe.counters import Credits
from concord_rtl.pipe.hazard import HazardGate
from concord_rtl.pipe.layouts import count_shape, fetch_layout, vector_addr_bits
from concord_rtl.pipe.wide_queue import WideQueue


class OperandPort(NpuUnit):
    """Queue of operand vectors of one port, handed out in beats.

    A vector that arrives in cycle t can be on ``beat`` in t + 2; one beat per cycle.

    Parameters
    ----------
    config : NpuConfig
    """

    coming = Input(1, "``vector`` arrives in the next cycle.")
    vector = Input(lambda self: shape_of(self.config.wide_word), "A wide vector.")
    reserve = Input(1, "A vector of the pipe that will take the next unreserved operand has been launched.")
    available = Output(1, "An operand is here that has not been reserved.")
    soon = Input(1, "The beat on ``beat`` is consumed in the next cycle.")
    beat = Output(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "P elements.")
    freed = Output(1, "The last beat of a vector has left the queue: its place is free.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        depth = timing.operand_places(self.config)
        m.submodules.queue = queue = WideQueue(self.config.wide_word.width, depth, parts=self.config.beats)
        m.d.comb += [
            queue.coming.eq(self.coming),
            queue.word.eq(self.vector),
            queue.soon.eq(self.soon),
            self.beat.eq(queue.o),
            self.freed.eq(queue.freed),
        ]
        unreserved = Signal(range(depth + 1))
        m.d.sync += unreserved.eq(unreserved + queue.arrives - self.reserve)
        with m.If(queue.arrives & ~self.reserve):
            m.d.sync += self.available.eq(1)
        with m.Elif(self.reserve & ~queue.arrives):
            m.d.sync += self.available.eq(unreserved != 1)
        return m


class OperandFetch(NpuUnit):
    """Reads the operands of each vector, one per cycle, in the order of the vectors.

    Because reads never overtake those of an older vector, a read that waits for a write can only wait for a vector
    whose own operands have all been read: there is no deadlock.

    Parameters
    ----------
    config : NpuConfig
    """

    push = Input(1, "The reads of ``i`` are entered; only if ``room`` was set in this cycle or the one before.")
    i = Input(lambda self: fetch_layout(self.config), "Operand reads of one vector.")
    room = Output(1, "There is room for two more vectors.")
    entries = Input(
        lambda self: data.ArrayLayout(vector_addr_bits(self.config), self.config.inflight),
        "Addresses still to be written, from the tracker of the wide memory.",
    )
    head = Input(lambda self: count_shape(self.config), "Running count of writes that are done, from that tracker.")
    pop = Input(1, "The oldest write is done, as ``pop`` of that tracker.")
    grant = Input(1, "The wide memory's read port is free in this cycle.")
    read = Output(1, "A read of ``addr`` takes place.")
    addr = Output(lambda self: vector_addr_bits(self.config), "Its address.")
    wide_data = Input(lambda self: shape_of(self.config.wide_word), "Data of the read ``VECTOR_READ`` cycles ago.")
    reserve = Input(len(OPERANDS), "One bit per port, as ``reserve`` of :class:`OperandPort`.")
    available = Output(len(OPERANDS), "One bit per port, as ``available`` of :class:`OperandPort`.")
    soon = Input(len(OPERANDS), "One bit per port, as ``soon`` of :class:`OperandPort`.")
    beat = Output(
        lambda self: data.ArrayLayout(data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), len(OPERANDS)),
        "P elements per port.",
    )
    stalled = Output(1, "A read is waiting for a write.")

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
