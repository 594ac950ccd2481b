"""Single-port memory of iCE40 UP devices."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..dsp import primitives_of


class Spram(wiring.Component):
    """Words of 16 bits in one ``SB_SPRAM256KA``.

    Cannot be initialised: the contents are undefined until written. Reads and writes share the address; data appears
    ``LATENCY`` cycles after its address, one less if not ``registered``, and is undefined for the cycle of a write. On
    other platforms than iCE40 UP this is plain memory.

    Parameters
    ----------
    registered : bool
        Whether there is an output register; without it ``r_en`` has no effect.

    Members
    -------
    addr : In(14)
        Word address.
    r_en : In(1)
        If not set, ``data`` is zero instead of the word at this cycle's address.
    w_en : In(1)
        Write ``w_data`` at the edge.
    w_data : In(16)
        Word to write.
    data : Out(16)
        Word read.
    """

    LATENCY = 2
    WIDTH = 16
    DEPTH = 1 << 14
    #: Memories in a device.
    COUNT = 4

    def __init__(self, *, registered=True):
        self.registered = registered
        super().__init__(
            {
                "addr": In(range(self.DEPTH)),
                "r_en": In(1, init=1),
                "w_en": In(1),
                "w_data": In(self.WIDTH),
                "data": Out(self.WIDTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word = Signal(self.WIDTH)
        if self.registered:
            register = Signal(self.WIDTH, reset_less=True)
            enabled = Signal()
            m.d.sync += [enabled.eq(self.r_en), register.eq(Mux(enabled, word, 0))]
            m.d.comb += self.data.eq(register)
        else:
            m.d.comb += self.data.eq(word)
        if primitives_of(platform) == "up5k":
            m.submodules.ram = Instance(
                "SB_SPRAM256KA",
                i_CLOCK=ClockSignal(),
                i_ADDRESS=self.addr,
                i_DATAIN=self.w_data,
                i_MASKWREN=Const(0b1111, 4),
                i_WREN=self.w_en,
                i_CHIPSELECT=Const(1),
                i_STANDBY=Const(0),
                i_SLEEP=Const(0),
                i_POWEROFF=Const(1),  # active low
                o_DATAOUT=word,
            )
        else:
            m.submodules.ram = ram = memory.Memory(shape=self.WIDTH, depth=self.DEPTH, init=[])
            read = ram.read_port()
            write = ram.write_port()
            m.d.comb += [
                read.addr.eq(self.addr),
                read.en.eq(~self.w_en),
                write.addr.eq(self.addr),
                write.data.eq(self.w_data),
                write.en.eq(self.w_en),
                word.eq(read.data),
            ]
        return m
