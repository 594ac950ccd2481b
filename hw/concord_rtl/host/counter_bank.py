"""Event counters in block RAM."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory
from amaranth.lib.wiring import In

from concord_rtl.parts.component import Component, Input, Output

#: Cycles in which one counter is read and written.
TURN = 2


class CounterBank(Component):
    """Counts events in words of 32 bits, one word after the other.

    Events wait in small counters for the turn of their word, so a word is up to ``settle`` cycles old.

    Each event that is not in ``carries`` has a port of its name: it occurs in this cycle.

    Parameters
    ----------
    names : list of str
        Names of the events; the word of an event has its number.
    carries : dict
        Events that are the overflow of another one's word: name of the event to name of the other.
    """

    clear = Input(1, "All words begin again at zero.")
    addr = Input(lambda self: range(self.words), "Word wanted.")
    data = Output(32, "A word.")
    valid = Output(
        1,
        "``data`` is the word that was wanted in the cycle before: at most ``TURN`` cycles after ``addr``.",
    )

    def __init__(self, names, carries):
        self.names = list(names)
        self.carries = dict(carries)
        # One word more is always zero: what a word reads as before its first turn.
        self.words = 1 << len(self.names).bit_length()
        attrs = {"ram_style": "block"}
        self.store = memory.Memory(shape=unsigned(32), depth=self.words, init=[], attrs=attrs)
        super().__init__({name: In(1) for name in self.names if name not in self.carries})

    @property
    def settle(self) -> int:
        """Cycles after which an event is in its word."""
        return TURN * (self.words + 1)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        zero = len(self.names)
        m.submodules.store = store = self.store
        read, write = store.read_port(), store.write_port()
        turn, writes, fresh = Signal(range(self.words)), Signal(), Signal(self.words)
        wanted = Mux(writes, self.addr, turn)
        begins = Signal()  # the word was read as zero
        m.d.sync += [writes.eq(~writes), begins.eq(fresh.bit_select(wanted, 1))]
        with m.If(writes):
            m.d.sync += turn.eq(turn + 1)
        total, pending = Signal(33), Signal(range(self.settle))
        m.d.comb += [
            read.addr.eq(Mux(fresh.bit_select(wanted, 1), zero, wanted)),
            self.data.eq(read.data),
            self.valid.eq(~writes),
            total.eq(read.data + pending),
            write.addr.eq(turn),
            write.data.eq(total),
            write.en.eq(writes & (turn < zero)),
        ]
        for k, name in enumerate(self.names):
            writing = writes & (turn == k)
            if name in self.carries:
                event = writes & (turn == self.names.index(self.carries[name])) & total[32]
            else:
                event = getattr(self, name)
            waiting = Signal(range(self.settle), name=f"{name}_waiting")
            with m.If(turn == k):
                m.d.comb += pending.eq(waiting)
            m.d.sync += waiting.eq(waiting + event)
            with m.If(writing | self.clear):
                m.d.sync += waiting.eq(event)
            with m.If(writing & begins):
                m.d.sync += fresh[k].eq(0)
        with m.If(self.clear):
            m.d.sync += fresh.eq((1 << zero) - 1)
        return m
