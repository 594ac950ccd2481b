"""Block RAM with its output register."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..dsp import primitives_of


class BlockRam(wiring.Component):
    """One read port, one write port, registered output.

    Does not forward: a read in the cycle of a write to the same address gives an undefined word. One word per cycle,
    ``LATENCY`` cycles after its address.

    On ECP5 the ``DP16KD`` are instantiated, because synthesis does not use their output registers, without which they
    answer late: 5.8 ns instead of 1 ns after the edge. Small memories are left to synthesis.

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Words, 2 to ``MOST``.
    init : list
        Initial words, as integers; zeros beyond its end.

    Members
    -------
    addr : In(range(depth))
        Address to read.
    data : Out(width)
        Word read.
    w_en : In(1)
        Write ``w_data`` at the edge.
    w_addr, w_data : In
        Address and word to write.
    """

    LATENCY = 2
    #: Greatest depth: the bits of a DP16KD.
    MOST = 16384
    #: Least words for which block RAM is worth it.
    ECP5_LEAST = 128
    #: Bits of an address in a DP16KD, counted in bits of data.
    ECP5_ADDR_BITS = 14
    #: Shapes of a DP16KD: greatest depth and its width.
    ECP5_SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (MOST, 1))
    #: Bits of a port, of which wide words take both.
    ECP5_PORT = 18

    def __init__(self, width, depth, init=()):
        if not isinstance(depth, int) or not 2 <= depth <= self.MOST:
            raise ValueError(f"depth must be in 2..{self.MOST}, not {depth!r}")
        self.width = width
        self.depth = depth
        self.init = list(init)
        super().__init__(
            {
                "addr": In(range(depth)),
                "data": Out(width),
                "w_en": In(1),
                "w_addr": In(range(depth)),
                "w_data": In(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if primitives_of(platform) == "ecp5" and self.depth >= self.ECP5_LEAST:
            size = next(width for depth, width in self.ECP5_SHAPES if depth >= self.depth)
            for k, start in enumerate(range(0, self.width, size)):
                m.submodules[f"column{k}"] = self._ecp5(m, size, start)
            return m
        # Collisions need no care: their outcome is undefined.
        m.submodules.store = store = memory.Memory(
            shape=unsigned(self.width), depth=self.depth, init=self.init, attrs={"no_rw_check": 1}
        )
        read = store.read_port()
        write = store.write_port()
        word = Signal(self.width, reset_less=True)
        m.d.comb += [
            read.addr.eq(self.addr),
            write.addr.eq(self.w_addr),
            write.data.eq(self.w_data),
            write.en.eq(self.w_en),
            self.data.eq(word),
        ]
        m.d.sync += word.eq(read.data)
        return m

    def _ecp5(self, m, size, start):
        """One DP16KD for ``size`` bits from ``start``; port A writes, port B reads."""
        drop = (size - size // 9).bit_length() - 1  # address bits below a word; ninth bits do not count
        low = Const(0, drop)
        w_addr = Cat(low, self.w_addr, Const(0, self.ECP5_ADDR_BITS))[: self.ECP5_ADDR_BITS]
        addr = Cat(low, self.addr, Const(0, self.ECP5_ADDR_BITS))[: self.ECP5_ADDR_BITS]
        # In wide shapes the lowest bits of the address enable the bytes.
        enables = size // 9 if size > 9 else 0
        w_addr = Cat(Const((1 << enables) - 1, enables), w_addr[enables:])
        piece = Cat(self.w_data[start : start + size], Const(0, 2 * self.ECP5_PORT))
        out = Signal(2 * self.ECP5_PORT, name=f"out{start}")
        m.d.comb += self.data[start : start + size].eq(out)
        ports = {}
        for k in range(self.ECP5_ADDR_BITS):
            ports |= {f"i_ADA{k}": w_addr[k], f"i_ADB{k}": addr[k]}
        for k in range(self.ECP5_PORT):
            ports |= {f"i_DIA{k}": piece[k], f"i_DIB{k}": piece[self.ECP5_PORT + k]}
            if size > self.ECP5_PORT:
                ports |= {f"o_DOA{k}": out[k], f"o_DOB{k}": out[self.ECP5_PORT + k]}
            else:
                ports[f"o_DOB{k}"] = out[k]
        for port in "AB":
            ports |= {f"i_CE{port}": Const(1), f"i_OCE{port}": Const(1), f"i_RST{port}": Const(0)}
            ports |= {f"i_CLK{port}": ClockSignal()} | {f"i_CS{port}{k}": Const(0) for k in range(3)}
            ports |= {f"p_DATA_WIDTH_{port}": size, f"p_REGMODE_{port}": "OUTREG", f"p_CSDECODE_{port}": "0b000"}
            ports |= {f"p_CLK{port}MUX": f"CLK{port}", f"p_WRITEMODE_{port}": "NORMAL"}
        return Instance(
            "DP16KD",
            p_RESETMODE="SYNC",
            p_ASYNC_RESET_RELEASE="SYNC",
            p_GSR="DISABLED",
            i_WEA=self.w_en,
            i_WEB=Const(0),
            **ports,
            **self._initial(size, start),
        )

    def _initial(self, size, start) -> dict:
        """Contents as parameters: nine bits per byte, of which shapes below 9 leave the highest unused."""
        bits = []
        for word in self.init:
            bits += [word >> start + k & 1 for k in range(min(size, self.width - start))]
            bits += [0] * (size - min(size, self.width - start))
        used = 9 if size >= 9 else 8
        numbers = []  # 18 bits in every 20 of a parameter
        for at in range(0, len(bits), 2 * used):
            chunk = bits[at : at + 2 * used]
            low, high = (sum(bit << k for k, bit in enumerate(half)) for half in (chunk[:used], chunk[used:]))
            numbers.append(low | high << 9)
        return {
            f"p_INITVAL_{k:02X}": Const(sum(n << 20 * i for i, n in enumerate(numbers[16 * k : 16 * k + 16])), 320)
            for k in range(64)
        }
