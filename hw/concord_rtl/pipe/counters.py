"""Counters whose outcome is known from a register in every cycle."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Countdown(wiring.Component):
    """Turns of a loop that starts again after its last turn.

    Parameters
    ----------
    width : int
        Bits of the number of turns.

    Members
    -------
    load : In(1)
        A loop of ``turns`` turns, or of one if ``once``, begins in the next cycle.
    turns, once : In
        See ``load``.
    step : In(1)
        A turn is over.
    left : Out
        Turns left, this one included, unless ``once``.
    last : Out(1)
        This is the last turn.
    """

    load: Signal
    turns: Any
    once: Signal
    step: Signal
    left: Any
    last: Signal

    def __init__(self, width: int):
        super().__init__(
            {"load": In(1), "turns": In(width), "once": In(1), "step": In(1), "left": Out(width), "last": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        turns, single = Signal.like(self.turns, name="all_turns"), Signal()
        only = self.once | (self.turns == 1)
        with m.If(self.load):
            m.d.sync += [turns.eq(self.turns), single.eq(only), self.left.eq(self.turns), self.last.eq(only)]
        with m.Elif(self.step):
            m.d.sync += [
                self.left.eq(Mux(self.last, turns, self.left - 1)),
                self.last.eq(Mux(self.last, single, self.left == 2)),
            ]
        return m


class Credits(wiring.Component):
    """Places at a receiver that are left.

    Parameters
    ----------
    places : int
        Places in all.

    Members
    -------
    take : In(1)
        A place is taken; only if there is ``room``.
    give : In(1)
        A place becomes free.
    room : Out(1)
        A place is left.
    """

    take: Signal
    give: Signal
    room: Signal

    def __init__(self, places: int):
        self.places = places
        super().__init__({"take": In(1), "give": In(1), "room": Out(1, init=1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        taken = Signal(range(self.places + 1))
        with m.If(self.take & ~self.give):
            m.d.sync += [taken.eq(taken + 1), self.room.eq(taken != self.places - 1)]
        with m.Elif(self.give & ~self.take):
            m.d.sync += [taken.eq(taken - 1), self.room.eq(1)]
        return m
