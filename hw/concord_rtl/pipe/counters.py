"""Counters whose outcome is known from a register in every cycle."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.parts.component import Component, Input, Output


class Countdown(Component):
    """Turns of a loop that starts again after its last turn.

    Parameters
    ----------
    width : int
        Bits of the number of turns.
    held : bool
        Whether ``turns`` and ``once`` stay as they are until the next ``load``, so that there is no copy of them.
    """

    load = Input(1, "A loop of ``turns`` turns, or of one if ``once``, begins in the next cycle.")
    turns = Input(lambda self: self.width, "See ``load``.")
    once = Input(1, "See ``load``.")
    step = Input(1, "A turn is over.")
    left = Output(lambda self: self.width, "Turns left, this one included, unless ``once``.")
    last = Output(1, "This is the last turn.")

    def __init__(self, width: int, *, held: bool = False):
        self.width = width
        self.held = held
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        only = self.once | (self.turns == 1)
        turns, single = self.turns, only
        if not self.held:
            turns, single = Signal.like(self.turns, name="all_turns"), Signal()
            with m.If(self.load):
                m.d.sync += [turns.eq(self.turns), single.eq(only)]
        with m.If(self.load):
            m.d.sync += [self.left.eq(self.turns), self.last.eq(only)]
        with m.Elif(self.step):
            m.d.sync += [
                self.left.eq(Mux(self.last, turns, self.left - 1)),
                self.last.eq(Mux(self.last, single, self.left == 2)),
            ]
        return m


class Credits(Component):
    """Places at a receiver that are left.

    Parameters
    ----------
    places : int
        Number of places in all.
    """

    take = Input(1, "A place is taken; only if there is ``room``.")
    give = Input(1, "A place becomes free.")
    room = Output(1, "A place is left.", init=1)

    def __init__(self, places: int):
        self.places = places
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        taken = Signal(range(self.places + 1))
        with m.If(self.take & ~self.give):
            m.d.sync += [taken.eq(taken + 1), self.room.eq(taken != self.places - 1)]
        with m.Elif(self.give & ~self.take):
            m.d.sync += [taken.eq(taken - 1), self.room.eq(1)]
        return m
