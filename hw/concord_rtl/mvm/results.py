"""Queue of finished accumulators."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord.spec.config import NpuConfig, clog2


class ResultQueue(wiring.Component):
    """Takes the T*N accumulators of a job at once, gives them out by vectors of N, P at a time.

    Never stalls: whoever issues jobs keeps no more than ``slots`` of them between their first step and ``free``.
    One job may enter per cycle; a vector leaves in N/P cycles, back to back. A job that enters in cycle t is
    ``ready`` at t + 1; the first beat of a vector is on ``o`` ``LATENCY`` cycles after its ``launch``.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    slots : int
        Jobs it holds, at least 1.

    Members
    -------
    push : In(1)
        A job enters.
    acc : In(ArrayLayout(signed(acc_bits), T*N))
        Its accumulators.
    vectors : In
        Number of its vectors minus 1.
    ready : Out(1)
        A vector waits.
    launch : In(1)
        Take the vector that waits; not again for N/P cycles.
    o : Out(ArrayLayout(signed(acc_bits), P))
        Accumulators of a beat.
    free : Out(1)
        The last beat of a job has been read: its slot is free.
    """

    push: Signal
    acc: data.View
    vectors: Signal
    ready: Signal
    launch: Signal
    o: data.View
    free: Signal

    LATENCY = timing.RESULT_QUEUE

    def __init__(self, config: NpuConfig, slots: int):
        self.config = config
        self.slots = slots
        acc = signed(config.acc_bits)
        super().__init__(
            {
                "push": In(1),
                "acc": In(data.ArrayLayout(acc, config.rows)),
                "vectors": In(max(1, clog2(config.engines))),
                "ready": Out(1),
                "launch": In(1),
                "o": Out(data.ArrayLayout(acc, config.mfu_lanes)),
                "free": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        tail = Signal(range(self.slots))
        head = Signal(range(self.slots))
        waiting = Signal(range(self.slots + 1))
        engine = Signal(range(self.config.engines))
        final = Signal()
        m.d.comb += [
            self.ready.eq(waiting != 0),
            final.eq(engine == self._vectors(m, tail, head)),
        ]
        done = self.launch & final
        with m.If(self.push):
            m.d.sync += tail.eq(self._next(tail))
        with m.If(done):
            m.d.sync += [head.eq(self._next(head)), engine.eq(0)]
        with m.Elif(self.launch):
            m.d.sync += engine.eq(engine + 1)
        m.d.sync += waiting.eq(waiting + self.push - done)
        self._read_out(m, tail, head, engine, final)
        return m

    def _next(self, pointer) -> Value:
        return Mux(pointer == self.slots - 1, 0, pointer + 1)

    def _vectors(self, m, tail, head) -> Value:
        """Number of vectors of the job at ``head``, minus 1."""
        if self.config.engines == 1:
            return Const(0)
        m.submodules.vectors = queue = memory.Memory(shape=self.vectors.shape(), depth=self.slots, init=[])
        write = queue.write_port()
        read = queue.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.push),
            write.addr.eq(tail),
            write.data.eq(self.vectors),
            read.addr.eq(head),
        ]
        return read.data

    def _read_out(self, m, tail, head, engine, final):
        """Count the beats of the launched vector and register their accumulators."""
        beats = self.config.beats
        busy = Signal()
        beat = Signal(range(beats))
        slot = Signal.like(head)
        place = Signal.like(engine)
        frees = Signal()
        m.d.comb += self.free.eq(busy & (beat == beats - 1) & frees)
        with m.If(self.launch):
            m.d.sync += [busy.eq(1), beat.eq(0), slot.eq(head), place.eq(engine), frees.eq(final)]
        with m.Else():
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat == beats - 1):
                m.d.sync += busy.eq(0)

        stored = []
        for row in range(self.config.rows):
            m.submodules[f"row{row}"] = queue = memory.Memory(
                shape=signed(self.config.acc_bits), depth=self.slots, init=[]
            )
            write = queue.write_port()
            read = queue.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.push),
                write.addr.eq(tail),
                write.data.eq(self.acc[row]),
                read.addr.eq(slot),
            ]
            stored.append(read.data)
        chosen = Signal.like(self.o, reset_less=True)
        m.d.comb += self.o.eq(chosen)
        with m.Switch(Cat(beat, place)):
            for k in range(self.config.rows // self.config.mfu_lanes):
                with m.Case(k):
                    for p in range(self.config.mfu_lanes):
                        m.d.sync += chosen[p].eq(stored[k * self.config.mfu_lanes + p])
        return m
