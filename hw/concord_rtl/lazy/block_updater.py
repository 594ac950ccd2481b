"""Lazy update of blocks of weights in a memory."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFO

from concord.spec.config import clog2
from concord.spec.training import TRAIN_EXP_MAX
from concord_rtl.lazy.block_tally import BlockTally
from concord_rtl.lazy.first_pass import FirstPass
from concord_rtl.lazy.lazy_update import check_lanes
from concord_rtl.lazy.ports import lanes_in_use, read_port, write_port
from concord_rtl.lazy.second_pass import SecondPass
from concord_rtl.lazy.steps import raw_places
from concord_rtl.lazy.widths import EXPONENT, LazyWidths
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.parts.stages import register


class BlockUpdater(Component):
    """Updates blocks of weights where they are, over one read port and one write port of their memory.

    The first pass reads, updates and writes a word per cycle, one block after the other without a cycle in between. If
    the exponent of a block has to grow, what is still on its way is written first, and a second pass goes over that
    block alone, a word per cycle. The update of a block is final when its result is offered; results come in the order
    of commands.

    Hazards: each pass reads and writes every word of a block once, in order, and blocks share no words. Nothing else
    may write to a block, and no command may name any of its words again, before its result has been offered; that is
    not checked, nor is that a block lies within the memory. Mantissas must be in their symmetric ranges.

    A block of n beats takes n cycles, and n more plus ``GROWTH_CYCLES`` if it grows. Without growth its result is there
    ``LATENCY`` cycles after the last beat of increments. Up to ``places`` commands are under way at a time, enough for
    blocks of one beat in every cycle.

    Parameters
    ----------
    widths : LazyWidths
        Formats.
    lanes : int
        Elements of a word, a power of two.
    depth : int
        Words of the memory, at least 2.
    read_latency : int
        Cycles from the address to the word, at least 1.
    """

    command = Input(
        lambda self: stream_of(
            data.StructLayout(
                {
                    "base": range(self.depth),
                    "final": range(self.depth * self.lanes),
                    "exp": EXPONENT,
                    "change_exp": EXPONENT,
                }
            )
        ),
        "A block: ``base``, its first word; ``final``, its elements less one; ``exp`` and ``change_exp``, the "
        "exponents of its weights and of the update. What its last word has beyond is left alone.",
    )
    increments = Input(
        lambda self: stream_of(data.ArrayLayout(self.widths.increment, self.lanes)),
        "Updates, and their noise where they are rounded stochastically, a word at a time.",
    )
    read = Output(
        read_port,
        "``data``: elements, weight and accumulator each, ``read_latency`` cycles after ``addr``. The word that a "
        "write changes in the same cycle is not used.",
    )
    write = Output(
        write_port,
        "Elements to write, with a bit of ``en`` for each, and ``exp``, the exponent of their block for memories that "
        "keep it with them: the old one in the first pass, the new one in the second.",
    )
    result = Output(
        lambda self: stream_of(
            data.StructLayout(
                {
                    **{"exp": EXPONENT, "grown": range(self.widths.growth_max + 1)},
                    **{"refused": range(self.depth * self.lanes + 1), "vanished": range(self.depth * self.lanes + 1)},
                }
            )
        ),
        "``exp``, the new exponent; ``grown``, by how much it has grown; ``refused`` and ``vanished``, numbers of "
        "elements whose updates were refused in part, or rounded to zero.",
    )

    def __init__(self, widths: LazyWidths, lanes: int, depth: int, read_latency: int = VectorMemory.LATENCY):
        check_lanes(lanes)
        if lanes & lanes - 1:
            raise ValueError(f"lanes must be a power of two, not {lanes!r}")
        if not isinstance(depth, int) or depth < 2:
            raise ValueError(f"depth must be an integer of at least 2, not {depth!r}")
        if not isinstance(read_latency, int) or read_latency < 1:
            raise ValueError(f"read_latency must be a positive integer, not {read_latency!r}")
        self.widths = widths
        self.lanes = lanes
        self.depth = depth
        self.read_latency = read_latency
        addr, final = range(depth), range(depth * lanes)
        counts = {"refused": range(depth * lanes + 1), "vanished": range(depth * lanes + 1)}
        growth = {"exp": EXPONENT, "grown": range(widths.growth_max + 1)}
        self._block = data.StructLayout({"base": addr, "final": final, "exp": EXPONENT})
        self._outcome = data.StructLayout({"base": addr, "final": final, "grows": 1, **growth, **counts})
        super().__init__()

    def _pass(self, kind):
        return kind(self.widths, self.lanes, self.depth, self.read_latency)

    @property
    def LATENCY(self):
        """Cycles from the last increments of a block to its result, if it does not grow."""
        return FirstPass.latency(self.widths, self.read_latency) + BlockTally.LATENCY + 3

    @property
    def GROWTH_CYCLES(self):
        """Cycles beside those of its words by which the result of a block is later if it grows."""
        return SecondPass.latency(self.read_latency) + 2

    @property
    def places(self):
        """Commands that may be under way at a time."""
        return 1 << clog2(self.LATENCY + 2)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.waiting = waiting = SyncFIFO(width=self._block.size, depth=self.places)
        m.submodules.finished = finished = SyncFIFO(width=self._outcome.size, depth=self.places)
        m.submodules.first = first = self._pass(FirstPass)
        m.submodules.second = second = self._pass(SecondPass)
        outcome = data.View(self._outcome, finished.r_data)
        paused = Signal()
        self._issue(m, first, waiting, paused)
        self._conclude(m, first, waiting, finished)
        offers = self._grow(m, first, second, finished, outcome, paused)
        m.d.comb += [self.result.valid.eq(offers), finished.r_en.eq(offers & self.result.ready)]
        for name in self.result.p.shape().members:
            m.d.comb += self.result.p[name].eq(outcome[name])
        return m

    def _issue(self, m, first, waiting, paused):
        """One word per cycle, from one block to the next."""
        inner = self.lanes.bit_length() - 1
        command, free = self.command.p, Signal(range(self.places + 1), init=self.places)
        works, left, tail = Signal(), Signal(len(command.final) - inner), Signal(inner)
        taken, returned = (port.valid & port.ready for port in (self.command, self.result))
        m.d.sync += free.eq(free + returned - taken)

        step, last = works & ~paused & self.increments.valid, left == 0
        m.d.comb += [
            self.increments.ready.eq(works & ~paused),
            self.command.ready.eq((free != 0) & (~works | (step & last))),
            waiting.w_en.eq(taken),
            waiting.w_data.eq(Cat(command.base, command.final, command.exp)),
            first.step.eq(step),
            first.last.eq(last),
            first.active.eq(Cat(lanes_in_use(last, tail, self.lanes))),
            first.increments.eq(self.increments.p),
        ]
        addr, exp, raw = (Signal.like(port, name=f"block_{port.name}") for port in (first.addr, first.exp, first.raw))
        m.d.comb += [first.addr.eq(addr), first.exp.eq(exp), first.raw.eq(raw)]
        with m.If(step):
            m.d.sync += [addr.eq(addr + 1), left.eq(left - 1), works.eq(~last)]
        with m.If(taken):
            m.d.sync += [works.eq(1), addr.eq(command.base), left.eq(command.final[inner:]), tail.eq(command.final)]
            m.d.sync += [exp.eq(command.exp), raw.eq(raw_places(self.widths, command.exp, command.change_exp))]

    def _conclude(self, m, first, waiting, finished):
        """Two cycles from the sums over a block to its outcome: places that it needs, places that there are."""
        block = data.View(self._block, register(m, waiting.r_data, "block"))
        m.d.comb += waiting.r_en.eq(first.done)
        needed = register(m, sum(first.need), "needed")
        grows, counts = register(m, first.need[0], "grows"), register(m, Cat(first.refused, first.vanished), "counts")
        done, late = Signal(), Signal()
        m.d.sync += [done.eq(first.done), late.eq(done)]

        room = TRAIN_EXP_MAX - block.exp
        grown = register(m, Mux(needed > room, room, needed)[: self.widths.growth_max.bit_length()], "grown")
        outcome: Any = Signal(self._outcome)
        m.d.comb += [
            Cat(outcome.base, outcome.final, outcome.grows).eq(
                register(m, Cat(block.base, block.final, grows), "block_late")
            ),
            outcome.exp.eq(register(m, block.exp, "exp") + grown),
            outcome.grown.eq(grown),
            Cat(outcome.refused, outcome.vanished).eq(register(m, counts, "counts_late")),
            finished.w_en.eq(late),
            finished.w_data.eq(outcome),
        ]

    def _grow(self, m, first, second, finished, outcome, paused):
        """Second passes, one at a time, while nothing else is under way; returns whether the oldest block is done."""
        m.d.comb += [
            second.base.eq(outcome.base),
            second.final.eq(outcome.final),
            second.places.eq(outcome.grown),
            second.exp.eq(outcome.exp),
        ]
        grown = Signal()
        with m.FSM():
            with m.State("UPDATE"), m.If(finished.r_rdy & outcome.grows):
                m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += [paused.eq(1), second.start.eq(first.idle)]
                with m.If(first.idle):
                    m.next = "GROW"
            with m.State("GROW"):
                m.d.comb += [paused.eq(1), grown.eq(~second.busy)]
                with m.If(grown & self.result.ready):
                    m.next = "UPDATE"
        moving = second.busy
        m.d.comb += [
            self.read.addr.eq(Mux(moving, second.read.addr, first.read.addr)),
            first.read.data.eq(self.read.data),
            second.read.data.eq(self.read.data),
        ]
        for name in ("en", "addr", "data", "exp"):
            port, of_second, of_first = (Value.cast(getattr(w, name)) for w in (self.write, second.write, first.write))
            m.d.comb += port.eq(Mux(moving, of_second, of_first))
        return finished.r_rdy & (~outcome.grows | grown)
