"""Registers that stay where they are wanted."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .dsp import primitives_of


class KeptRegister(wiring.Component):
    """A register without reset that synthesis does not join with others of the same contents.

    Copies of an address near their block RAMs, all over the device, would otherwise become one register with long wires
    to all of them. On ECP5 each bit is a ``TRELLIS_FF``, elsewhere a register like any other. Latency 1.

    Parameters
    ----------
    width : int
        Bits, at least 1.

    Members
    -------
    i, o : In, Out
        Value, and the value of the cycle before.
    """

    def __init__(self, width: int):
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width!r}")
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        if primitives_of(platform) == "ecp5":
            for k in range(len(self.i)):
                m.submodules[f"bit{k}"] = Instance(
                    "TRELLIS_FF",
                    p_GSR="AUTO",
                    p_CEMUX="1",
                    p_CLKMUX="CLK",
                    p_LSRMUX="LSR",
                    p_REGSET="RESET",
                    i_CLK=ClockSignal(),
                    i_LSR=Const(0),
                    i_DI=self.i[k],
                    o_Q=self.o[k],
                )
        else:
            kept = Signal.like(self.o, reset_less=True)
            m.d.sync += kept.eq(self.i)
            m.d.comb += self.o.eq(kept)
        return m
