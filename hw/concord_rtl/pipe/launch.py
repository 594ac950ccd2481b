"""Start of a vector's trip through the fixed-latency part of the pipe."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.operations import OPERANDS
from concord_rtl.arith.narrow_to_binary16 import NarrowToBinary16
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.control import ReduceMode
from concord_rtl.parts.shapes import stream_of
from concord_rtl.parts.stages import delay
from concord_rtl.pipe.layouts import Reduction, launch_layout
from concord_rtl.pipe.source import source_layout


def beat_layout() -> data.StructLayout:
    """Control of one beat on its way from the launcher to the reduction unit."""
    return data.StructLayout(
        {
            "valid": 1,
            "head": 1,  # first beat of a vector
            "result": 1,  # elements come from the tile engines
            "wide": 1,  # elements come from the wide memory
            "mode": ReduceMode,
            "start": 1,
            "emit": 1,
            "skip": 1,
        }
    )


class Launcher(Component):
    """Sends vectors into the pipe, in order, as soon as source and operands are there.

    Throughput: one vector of N/P beats every N/P cycles, which are two at least: a vector that has come to the head of
    its queue starts in the cycle after next at the earliest. A maximum takes one trip per tap, of which only the last
    gives an output; a maximum over all elements takes one more, which carries no data. A vector that leaves the
    multifunction units early starts late enough to leave after those in front of it.

    Parameters
    ----------
    config : NpuConfig
    latency : int
        Cycles from ``result_launch`` to the first beat on ``result``; the other sources are delayed to match, so
        beats leave ``latency`` cycles after their launch.
    """

    tokens = Input(lambda self: stream_of(launch_layout(self.config)), "Vectors, in order.")
    result_ready = Input(1, "The result queue of the tile engines has a vector.")
    result_launch = Output(1, "Take it.")
    result = Input(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "Beat of the result queue.")
    queue = Input(lambda self: stream_of(source_layout(self.config)), "Vectors that skip the tile engines.")
    queue_soon = Output(1, "``queue.ready`` of the next cycle.")
    available = Input(len(OPERANDS), "Operands that are there, one bit per port.")
    reserve = Output(len(OPERANDS), "Operands that are taken, one bit per port.")
    emitted = Output(1, "A vector that will leave the pipe is launched; ``token`` is valid.")
    token = Output(lambda self: launch_layout(self.config), "Its controls.")
    coming = Output(beat_layout(), "To the reduction unit: controls of the next cycle.")
    control = Output(beat_layout(), "To the reduction unit: controls of this cycle.")
    beat = Output(
        lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "To the reduction unit: P elements."
    )

    def __init__(self, config: NpuConfig, *, latency: int):
        self.config = config
        self.latency = latency
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        start, starts, soon = Signal(), Signal(), Signal()  # ``starts`` is ``start`` of the next cycle
        m.d.sync += start.eq(starts)
        control = self._decide(m, start, starts, soon)
        running, beat = self._beats(m, start, soon)
        held = Signal(beat_layout())
        with m.If(start):
            m.d.sync += held.eq(control)

        now: Any = Signal(beat_layout())
        m.d.comb += [now.eq(held), now.valid.eq(running), now.head.eq(running & (beat == 0))]
        m.d.comb += self.coming.eq(delay(m, now, self.latency - 2, "control", reset_less=False))
        m.d.sync += self.control.eq(self.coming)
        self._elements(m, starts)
        return m

    def _decide(self, m, start, starts, soon):
        """Start of the vector at the head in the next cycle, and controls of the one that starts in this cycle."""
        token, entry = self.tokens.p, self.queue.p
        reduction = token.reduction
        needed = Cat(
            token.unit0.mul, token.unit0.add.as_value().any(), token.unit1.mul, token.unit1.add.as_value().any()
        )
        broadcast = Signal()  # all taps of a maximum over all elements are in
        product, emit, source_ok = Signal(), Signal(), Signal()
        # What a start means is found out in the cycle before it, as the start itself.
        emits, from_result, from_queue = Signal(), Signal(), Signal()
        control: Any = Signal(beat_layout())
        m.d.comb += [
            product.eq(reduction == Reduction.PRODUCT),
            emit.eq(Mux(reduction == Reduction.MAX_ALL, broadcast, product | entry.last)),
            source_ok.eq(Mux(product, self.result_ready, broadcast | self.queue.valid)),
            self.result_launch.eq(from_result),
            self.queue.ready.eq(from_queue),
            self.tokens.ready.eq(self.emitted),
            self.token.eq(token),
            self.reserve.eq(Mux(self.emitted, needed, 0)),
            control.result.eq(product),
            control.wide.eq(entry.wide_source),
            control.start.eq(entry.first & ~broadcast),
            control.emit.eq(emits),
            control.skip.eq(entry.outside),
        ]
        operands_ok = ~emit | ~((needed & ~self.available).any() | (token.early & self._overtakes(m)))
        m.d.comb += starts.eq(soon & self.tokens.valid & source_ok & operands_ok)
        m.d.comb += self.queue_soon.eq(starts & ~product & ~broadcast)
        m.d.sync += [
            emits.eq(emit),
            self.emitted.eq(starts & emit),
            from_result.eq(starts & product),
            from_queue.eq(self.queue_soon),
        ]
        with m.Switch(reduction):
            with m.Case(Reduction.MAX):
                m.d.comb += control.mode.eq(ReduceMode.MAX)
            with m.Case(Reduction.MAX_ALL):
                m.d.comb += control.mode.eq(ReduceMode.LANES)
            with m.Default():
                m.d.comb += control.mode.eq(ReduceMode.PASS)
        with m.If(start):
            m.d.sync += broadcast.eq((reduction == Reduction.MAX_ALL) & ~broadcast & entry.last)
        return control

    def _overtakes(self, m):
        """Bit that is set if a vector that starts in the next cycle and leaves early would overtake one that does not.

        Nothing starts in the cycle in which ``emitted`` is set, so that one does not count.
        """
        cycles = self.config.beats + timing.mfu_latency(early=False) - timing.mfu_latency(early=True)
        left, overtakes = Signal(range(cycles)), Signal()
        late = self.emitted & ~self.tokens.p.early
        with m.If(late):
            m.d.sync += [left.eq(cycles - 2), overtakes.eq(1)]
        with m.Elif(overtakes):
            m.d.sync += [left.eq(left - 1), overtakes.eq(left != 1)]
        return overtakes

    def _beats(self, m, start, soon):
        """Beat counter: a vector may start in the last beat of the one before, which is ``soon`` the next cycle."""
        beats = self.config.beats
        running, beat = Signal(), Signal(range(beats))
        last = beat == beats - 1
        m.d.comb += soon.eq(~start & (~running | last | (beat == beats - 2)))
        with m.If(start):
            m.d.sync += [running.eq(1), beat.eq(0)]
        with m.Elif(last):
            m.d.sync += [running.eq(0), beat.eq(0)]
        with m.Elif(running):
            m.d.sync += beat.eq(beat + 1)
        return running, beat

    def _elements(self, m, starts):
        """Beats of the queue's vectors, delayed to arrive with those of the tile engines.

        The lanes are all over the device: each has registers of its own for what it does.
        """
        config, entry = self.config, self.queue.p
        for lane in range(config.mfu_lanes):
            m.submodules[f"start_{lane}"] = start = KeptRegister(1)
            m.d.comb += start.i.eq(starts)
            elements = range(lane, config.native, config.mfu_lanes)
            wide = self._shifted(m, start.o, [entry.wide.as_value().word_select(k, 16) for k in elements])
            narrow = self._shifted(m, start.o, [entry.narrow.mant[k] for k in elements])
            exponent = Signal.like(entry.narrow.exp, name=f"exponent_{lane}")
            with m.If(start.o):
                m.d.sync += exponent.eq(entry.narrow.exp)
            m.submodules[f"convert_{lane}"] = convert = NarrowToBinary16(config)
            m.d.comb += [convert.mant.eq(narrow), convert.exp.eq(exponent)]
            exact = delay(m, convert.o, self.latency - 1 - convert.LATENCY, f"exact_{lane}")
            plain = delay(m, wide, self.latency - 1, f"plain_{lane}")
            m.submodules[f"choice_{lane}"] = choice = KeptRegister(2)
            m.d.comb += choice.i.eq(Cat(self.coming.result, self.coming.wide))
            from_result, from_wide = choice.o
            m.d.comb += self.beat[lane].eq(Mux(from_result, self.result[lane], Mux(from_wide, plain, exact)))

    @staticmethod
    def _shifted(m, start, elements) -> Value:
        """The elements of a lane, one per cycle after ``start``; the last one stays."""
        places = [Signal.like(element, name=f"place_{k}", reset_less=True) for k, element in enumerate(elements)]
        for k, (place, element) in enumerate(zip(places, elements, strict=True)):
            with m.If(start):
                m.d.sync += place.eq(element)
            if k + 1 < len(places):
                with m.Else():
                    m.d.sync += place.eq(places[k + 1])
        return places[0]
