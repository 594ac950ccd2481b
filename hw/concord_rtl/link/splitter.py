"""Words to bytes."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class WordSplitter(wiring.Component):
    """Send the bytes of a word, the least significant first.

    Does not keep the word: it is taken from ``i`` with its last byte.

    One byte per cycle, latency 1.

    Parameters
    ----------
    width : int
        Bits of the widest word.

    Members
    -------
    size : In
        Bytes of a word, constant while a word is being sent.
    i : In(stream)
        Words.
    o : Out(stream)
        Bytes.
    """

    def __init__(self, width: int):
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width!r}")
        self.width = width
        self.nbytes = (width + 7) // 8
        super().__init__(
            {"size": In(range(self.nbytes + 1)), "i": In(stream.Signature(width)), "o": Out(stream.Signature(8))}
        )

    def elaborate(self, platform):
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
