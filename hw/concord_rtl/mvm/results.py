"""Queue of finished accumulators."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, memory

from concord.spec import timing
from concord.spec.config import NpuConfig, clog2
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.parts.component import Component, Input, Output


class ResultQueue(Component):
    """Takes the T*N accumulators of a job at once, gives them out by vectors of N, P at a time.

    Never stalls: whoever issues jobs keeps no more than ``slots`` of them between their first step and ``free``.
    One job may enter per cycle; a vector leaves in N/P cycles, back to back. A job that enters in cycle t is
    ``ready`` at t + 1; the first beat of a vector is on ``o`` ``LATENCY`` cycles after its ``launch``. The rows are all
    over the device: each has registers of its own for where it writes and reads, and so has each of the P outputs.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    slots : int
        Number of jobs that it holds, at least 1.
    """

    coming = Input(1, "A job enters in the next cycle.")
    acc = Input(
        lambda self: data.ArrayLayout(signed(self.config.acc_bits), self.config.rows),
        "Its accumulators, in the cycle in which it enters.",
    )
    vectors = Input(lambda self: max(1, clog2(self.config.engines)), "Number of its vectors minus 1, likewise.")
    ready = Output(1, "A vector waits.")
    launch = Input(1, "Take the vector that waits; not again for N/P cycles.")
    o = Output(
        lambda self: data.ArrayLayout(signed(self.config.acc_bits), self.config.mfu_lanes),
        "Accumulators of a beat.",
    )
    free = Output(1, "The last beat of a job has been read: its slot is free.")

    LATENCY = timing.RESULT_QUEUE

    def __init__(self, config: NpuConfig, slots: int):
        self.config = config
        self.slots = slots
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        push = Signal()
        tail = Signal(range(self.slots))
        following = Mux(push, self._next(tail), tail)[: len(tail)]
        m.d.sync += [push.eq(self.coming), tail.eq(following)]
        head = Signal(range(self.slots))
        waiting = Signal(range(self.slots + 1))
        engine = Signal(range(self.config.engines))
        final = Signal()
        m.d.comb += final.eq(engine == self._vectors(m, push, tail, head))
        done = self.launch & final
        with m.If(done):
            m.d.sync += [head.eq(self._next(head)), engine.eq(0)]
        with m.Elif(self.launch):
            m.d.sync += engine.eq(engine + 1)
        m.d.sync += waiting.eq(waiting + push - done)
        with m.If(push & ~done):
            m.d.sync += self.ready.eq(1)
        with m.Elif(done & ~push):
            m.d.sync += self.ready.eq(waiting != 1)
        self._read_out(m, Cat(self.coming, following), head, engine, final)
        return m

    def _next(self, pointer) -> Value:
        return Mux(pointer == self.slots - 1, 0, pointer + 1)

    def _vectors(self, m, push, tail, head) -> Value:
        """Number of vectors of the job at ``head``, minus 1."""
        if self.config.engines == 1:
            return Const(0)
        m.submodules.vectors = queue = memory.Memory(shape=self.vectors.shape(), depth=self.slots, init=[])
        write = queue.write_port()
        read = queue.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(push),
            write.addr.eq(tail),
            write.data.eq(self.vectors),
            read.addr.eq(head),
        ]
        return read.data

    def _read_out(self, m, writes, head, engine, final):
        """Count the beats of the launched vector and register their accumulators.

        ``writes`` is whether the next cycle writes, and the slot.
        """
        beats = self.config.beats
        busy = Signal()
        beat = Signal(range(beats))
        slot = Signal.like(head)
        place = Signal.like(engine)
        frees = Signal()
        following_slot = Mux(self.launch, head, slot)[: len(slot)]
        following = Mux(self.launch, Cat(Const(0, len(beat)), engine), Cat((beat + 1)[: len(beat)], place))
        m.d.comb += self.free.eq(busy & (beat == beats - 1) & frees)
        m.d.sync += [slot.eq(following_slot), Cat(beat, place).eq(following)]
        with m.If(self.launch):
            m.d.sync += [busy.eq(1), frees.eq(final)]
        with m.Elif(beat == beats - 1):
            m.d.sync += busy.eq(0)

        stored = []
        for row in range(self.config.rows):
            m.submodules[f"row{row}"] = queue = memory.Memory(
                shape=signed(self.config.acc_bits), depth=self.slots, init=[]
            )
            write = queue.write_port()
            read = queue.read_port(domain="comb")
            m.submodules[f"places{row}"] = places = KeptRegister(len(writes) + len(following_slot))
            m.d.comb += [
                places.i.eq(Cat(writes, following_slot)),
                write.en.eq(places.o[0]),
                write.addr.eq(places.o[1 : len(writes)]),
                write.data.eq(self.acc[row]),
                read.addr.eq(places.o[len(writes) :]),
            ]
            stored.append(read.data)
        for p in range(self.config.mfu_lanes):
            m.submodules[f"choice{p}"] = choice = KeptRegister(len(following))
            chosen = Signal(signed(self.config.acc_bits), name=f"chosen{p}", reset_less=True)
            m.d.comb += [choice.i.eq(following), self.o[p].eq(chosen)]
            with m.Switch(choice.o):
                for k, word in enumerate(stored[p :: self.config.mfu_lanes]):
                    with m.Case(k):
                        m.d.sync += chosen.eq(word)
        return m
