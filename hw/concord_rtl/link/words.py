"""Words to bytes and back, the least significant byte first."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of


class _Words(Component):
    """Common part of both directions: streams from ``i`` to ``o``, and the number of bytes of a word."""

    size = Input(lambda self: range(self.nbytes + 1), "Bytes of a word, constant while one is under way.")
    i = Input(lambda self: stream_of(self.i_bits), "Bytes or words in.")
    o = Output(lambda self: stream_of(self.o_bits), "Words or bytes out.")

    def __init__(self, width: int, i: int, o: int):
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width!r}")
        self.width, self.i_bits, self.o_bits = width, i, o
        self.nbytes = (width + 7) // 8
        super().__init__()


class WordAssembler(_Words):
    """Collect the bytes of a word; bits above the last byte are zero.

    One byte per cycle, and two cycles until the word waits on ``o``.

    Parameters
    ----------
    width : int
        Bits of the widest word.
    """

    def __init__(self, width: int):
        super().__init__(width, 8, width)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        index, full = Signal(range(self.nbytes)), Signal()
        taken = Signal()  # the word has been taken in the cycle before: no byte of the next one is there yet
        byte, place = Signal(8), Signal(self.nbytes)  # the latest byte, and where it belongs, one bit per byte
        m.d.comb += self.i.ready.eq(~full)
        m.d.sync += [place.eq(0), self.o.valid.eq(full)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [byte.eq(self.i.payload), place.eq(1 << index), index.eq(index + 1)]
            with m.If(index + 1 == self.size):
                m.d.sync += [index.eq(0), full.eq(1)]
        for n in range(self.nbytes):
            with m.If(place[n]):
                m.d.sync += self.o.payload[8 * n : 8 * (n + 1)].eq(byte)
        m.d.sync += taken.eq(self.o.valid & self.o.ready)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [full.eq(0), self.o.valid.eq(0)]
        with m.If(taken):
            m.d.sync += self.o.payload.eq(0)
        return m


class WordSplitter(_Words):
    """Send the bytes of a word.

    Does not keep the word: it is taken from ``i`` with its last byte.

    One byte per cycle, latency 1.

    Parameters
    ----------
    width : int
        Bits of the widest word.
    """

    def __init__(self, width: int):
        super().__init__(width, width, 8)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        index = Signal(range(self.nbytes))
        free = Signal()
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        with m.If(free):
            m.d.sync += self.o.valid.eq(self.i.valid)
            m.d.sync += self.o.payload.eq(self.i.payload.word_select(index, 8))
            with m.If(self.i.valid):
                m.d.sync += index.eq(index + 1)
                with m.If(index + 1 == self.size):
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += index.eq(0)
        return m
