"""Placement of dot products on the accumulator grid."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Align(wiring.Component):
    """Shift left by ``shift``, in two stages.

    Does not check the shift: one beyond ``max_shift`` gives an undefined value. One value per cycle, ``LATENCY``
    cycles later.

    Parameters
    ----------
    width : int
        Bits of the value.
    max_shift : int
        Greatest shift.

    Members
    -------
    i : In(signed(width))
        Value.
    shift : In(range(max_shift + 1))
        Shift of this value.
    o : Out(signed(width + max_shift))
        ``i << shift``.
    """

    LATENCY = 2

    def __init__(self, width, max_shift):
        self.width = width
        self.max_shift = max_shift
        super().__init__(
            {
                "i": In(signed(width)),
                "shift": In(range(max_shift + 1)),
                "o": Out(signed(width + max_shift)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # The first stage shifts by less than a group, the second by whole groups.
        fine_bits = (len(self.shift) + 1) // 2
        group = 1 << fine_bits
        fine = Signal(signed(self.width + group - 1), reset_less=True)
        coarse = Signal(len(self.shift) - fine_bits, reset_less=True)
        m.d.sync += [fine.eq(self.i << self.shift[:fine_bits]), coarse.eq(self.shift[fine_bits:])]

        placed = Signal.like(self.o, reset_less=True)
        with m.Switch(coarse):
            for k in range(self.max_shift // group + 1):
                with m.Case(k) if k < self.max_shift // group else m.Default():
                    m.d.sync += placed.eq(fine << k * group)
        m.d.comb += self.o.eq(placed)
        return m
