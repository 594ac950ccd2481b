"""A queue of words that are spread over the device."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import memory

from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.parts.component import Component, Input, Output


class WideQueue(Component):
    """Queue in distributed memory with a register behind it, which hands a word out in parts.

    What moves the words is known a cycle before, and is in registers of its own for every ``GROUP`` bits of a part. A
    word that arrives in cycle t can be on ``o`` in t + 2; one part per cycle. Does not check that there is a place.

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Words in the memory, at least 2; the one on ``o`` is not among them.
    parts : int
        Parts of a word, a power of two; the lowest bits leave first.
    """

    coming = Input(1, "``word`` arrives in the next cycle.")
    word = Input(lambda self: self.width, "A word.")
    soon = Input(1, "The part on ``o`` is consumed in the next cycle.")
    arrives = Output(1, "``word`` arrives in this cycle.")
    valid = Output(1, "There is a part on ``o``.")
    o = Output(lambda self: self.width // self.parts, "A part.")
    freed = Output(1, "The last part of a word leaves the memory in this cycle.")

    #: Bits of a part that share their registers of control.
    GROUP = 32

    def __init__(self, width: int, depth: int, *, parts: int = 1):
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        if width % parts:
            raise ValueError(f"width must be a multiple of parts={parts}, not {width!r}")
        self.width = width
        self.depth = depth
        self.parts = parts
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        load = Signal()
        part, read, write = Signal(range(self.parts)), Signal(range(self.depth)), Signal(range(self.depth))
        m.d.comb += self.freed.eq(load & (part == self.parts - 1))
        following = {
            "push": self.coming,
            "load": self._loads(m, load),
            "part": Mux(load, part + 1, part)[: len(part)],
            "read": Mux(self.freed, self._next(read), read)[: len(read)],
            "write": Mux(self.arrives, self._next(write), write)[: len(write)],
        }
        for now, value in zip((self.arrives, load, part, read, write), following.values(), strict=True):
            m.d.sync += now.eq(value)
        for start in range(0, len(self.o), self.GROUP):
            self._bits(m, start, min(start + self.GROUP, len(self.o)), following)
        return m

    def _next(self, place) -> Value:
        return Mux(place == self.depth - 1, 0, place + 1)

    def _loads(self, m, load) -> Value:
        """Bit that is set if the next cycle loads a part: a word is there, and the part before is none or consumed."""
        level = Signal(range(self.depth + 1))
        some, more, take = Signal(), Signal(), Signal()  # the level is not 0; not 0 or 1
        there = self.arrives | Mux(self.freed, more, some)
        filled = load | (self.valid & ~take)
        m.d.sync += [take.eq(self.soon), some.eq(there), self.valid.eq(filled)]
        m.d.sync += level.eq(level + self.arrives - self.freed)
        with m.If(self.arrives & ~self.freed):
            m.d.sync += more.eq(some)
        with m.Elif(self.freed & ~self.arrives):
            m.d.sync += more.eq(more & (level != 2))
        return there & (~filled | self.soon)

    def _bits(self, m, start, end, following):
        """Memory and output register of some bits of a part."""
        m.submodules[f"control{start}"] = kept = KeptRegister(sum(len(value) for value in following.values()))
        m.d.comb += kept.i.eq(Cat(following.values()))
        here, at = {}, 0
        for name, value in following.items():
            here[name], at = kept.o[at : at + len(value)], at + len(value)
        parts = [self.word[k * len(self.o) :][start:end] for k in range(self.parts)]
        shape = unsigned((end - start) * self.parts)
        m.submodules[f"store{start}"] = store = memory.Memory(shape=shape, depth=self.depth, init=[])
        w_port, r_port = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [
            w_port.en.eq(here["push"]),
            w_port.addr.eq(here["write"]),
            w_port.data.eq(Cat(parts)),
            r_port.addr.eq(here["read"]),
        ]
        with m.If(here["load"]):
            m.d.sync += self.o[start:end].eq(r_port.data.word_select(here["part"], end - start))
