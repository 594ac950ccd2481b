"""A queue whose places are given away before anything arrives."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class ReservedQueue(wiring.Component):
    """Keeps what arrives until it is taken.

    Whoever pushes has made sure that there is room, with :class:`concord_rtl.pipe.counters.Credits` say. So pushes do
    not depend on the level, which may lie far from the write port of a wide memory.

    Throughput one transfer per cycle; what is pushed shows in the next cycle.

    Parameters
    ----------
    shape : shape
        Payload.
    depth : int
        Places.

    Members
    -------
    push : In(1)
        ``p`` arrives; never beyond ``depth``.
    p : In
        Payload.
    o : Out(stream)
        The oldest, from distributed memory.
    """

    def __init__(self, shape, depth: int):
        self.shape = shape
        self.depth = depth
        super().__init__({"push": In(1), "p": In(shape), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.shape, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        level, taken = Signal(range(self.depth + 1)), Signal()
        m.d.comb += [
            write.data.eq(self.p),
            write.en.eq(self.push),
            self.o.p.eq(read.data),
            self.o.valid.eq(level != 0),
            taken.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += level.eq(level + self.push - taken)
        with m.If(self.push):
            m.d.sync += write.addr.eq(self._after(write.addr))
        with m.If(taken):
            m.d.sync += read.addr.eq(self._after(read.addr))
        return m

    def _after(self, place):
        """The next place, the first one behind the last."""
        return Mux(place == self.depth - 1, 0, place + 1)
