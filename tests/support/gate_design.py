"""A small design for gate level: one byte in, one out, with every kind of cell the NPU is made of in between."""

from __future__ import annotations

import random

from amaranth import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.cells.dsp import Multiplier

DEPTH, WIDTH = 512, 18
SMALL = 16
SUM_BITS = 24


def words(seed, width=WIDTH, depth=DEPTH):
    """Pseudo-random contents of a memory."""
    rng = random.Random(f"{seed} {width}")
    return [rng.getrandbits(width) for _ in range(depth)]


class Mixer(wiring.Component):
    """Mixes bytes with what it has kept of those before them.

    A byte moves an address. The words there of two block RAMs, one instantiated and one found by synthesis, and one of
    a small memory go into a product and a sum, and change. The reply is a byte of the sum.
    """

    def __init__(self, init, more):
        self.init = init
        self.more = more
        flags = {"done": Out(1), "trapped": Out(1), "busy": Out(1)}
        super().__init__({"rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8))} | flags)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = BlockRam(WIDTH, DEPTH, self.init)
        m.submodules.found = found = memory.Memory(
            shape=unsigned(WIDTH), depth=DEPTH, init=self.more, attrs={"no_rw_check": 1, "ram_style": "block"}
        )
        m.submodules.small = small = memory.Memory(shape=unsigned(8), depth=SMALL, init=[])
        m.submodules.multiplier = multiplier = Multiplier(8, 8)
        found_read, found_write = found.read_port(), found.write_port()
        small_read, small_write = small.read_port(domain="comb"), small.write_port()
        addr, taken = Signal(range(DEPTH)), Signal(8)
        total, wait = Signal(signed(SUM_BITS)), Signal(range(8))
        write = Signal()
        mixed = Signal(WIDTH)
        m.d.comb += [
            ram.addr.eq(addr),
            ram.w_addr.eq(addr),
            ram.w_data.eq(mixed),
            ram.w_en.eq(write),
            found_read.addr.eq(addr),
            found_read.en.eq(1),
            found_write.addr.eq(addr),
            found_write.data.eq(mixed + ram.data),
            found_write.en.eq(write),
            small_read.addr.eq(addr[:4]),
            small_write.addr.eq(addr[:4]),
            small_write.data.eq(taken ^ total[8:16]),
            small_write.en.eq(write),
            mixed.eq(Cat(total[:10], found_read.data[8:])),
            multiplier.a.eq(taken),
            multiplier.b.eq(ram.data[:8] ^ found_read.data[:8]),
            self.tx.payload.eq(total[16:] ^ total[8:16] ^ total[:8]),
            self.busy.eq(wait != 0),
        ]
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.rx.ready.eq(1)
                with m.If(self.rx.valid):
                    m.d.sync += [taken.eq(self.rx.payload), addr.eq(addr + self.rx.payload), wait.eq(7)]
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.sync += total.eq(total + multiplier.o + Mux(taken[0], small_read.data, -small_read.data))
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += write.eq(1)
                m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += self.tx.valid.eq(1)
                with m.If(self.tx.ready):
                    m.next = "TAKE"
        return m


def _signed(value, width):
    value &= (1 << width) - 1
    return value - (value >> width - 1 << width)


class MixerModel:
    """The same in integers."""

    def __init__(self, init, more):
        self.ram, self.found, self.small = list(init), list(more), [0] * SMALL
        self.addr = self.total = 0

    def replies(self, data):
        """Bytes that answer ``data``."""
        found = bytearray()
        for byte in data:
            self.addr = (self.addr + byte) % DEPTH
            word, other = self.ram[self.addr], self.found[self.addr]
            product = _signed(byte, 8) * _signed((word ^ other) & 255, 8)
            kept = self.small[self.addr % SMALL]
            self.total = _signed(self.total + product + (kept if byte & 1 else -kept), SUM_BITS)
            mixed = self.total & 1023 | (other >> 8) << 10
            self.ram[self.addr] = mixed
            self.found[self.addr] = (mixed + word) % (1 << WIDTH)
            self.small[self.addr % SMALL] = byte ^ self.total >> 8 & 255
            found.append((self.total >> 16 ^ self.total >> 8 ^ self.total) & 255)
        return bytes(found)
