"""A small design for the tests of the flow: a serial echo with memories and a multiplier behind it."""

from __future__ import annotations

import random

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.cells.dsp import Multiplier
from concord_rtl.flow.bram import Store

ATTRS = {"no_rw_check": 1, "ram_style": "block"}


def random_store(name, width, depth, seed):
    """A memory with pseudo-random contents."""
    rng = random.Random(f"{name} {seed}")
    return Store(name, width, [rng.getrandbits(width) for _ in range(depth)])


class Echo(wiring.Component):
    """Echoes bytes; every byte also shifts into a register that addresses, writes and reads all memories.

    ``stores`` become memories that synthesis finds itself; ``matrix`` is a :class:`MatrixMemory` or None.
    """

    def __init__(self, stores, matrix=None):
        self.stores = stores
        self.matrix = matrix
        flags = {"done": Out(1), "trapped": Out(1), "busy": Out(1)}
        super().__init__({"rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8))} | flags)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.tx.payload.eq(self.rx.payload),
            self.tx.valid.eq(self.rx.valid),
            self.rx.ready.eq(self.tx.ready),
            self.busy.eq(self.rx.valid),
        ]
        seen = Signal(64)
        with m.If(self.rx.valid):
            m.d.sync += seen.eq(Cat(self.rx.payload, seen))
        total = Const(0)
        for k, store in enumerate(self.stores):
            ram = memory.Memory(shape=store.width, depth=len(store.words), init=store.words, attrs=ATTRS)
            m.submodules[store.name] = ram
            write, read = ram.write_port(), ram.read_port()
            m.d.comb += [write.addr.eq(seen), write.data.eq(Cat(seen, seen, seen)), write.en.eq(seen[-1])]
            word = Signal(store.width)
            parity = Signal(name=f"parity{k}")
            m.d.comb += [read.addr.eq(seen >> 3), read.en.eq(1)]
            m.d.sync += [word.eq(read.data), parity.eq(word.xor() ^ total)]
            total = parity
        if self.matrix is not None:
            m.submodules.matrix = matrix = self.matrix
            m.d.comb += [matrix.read.addr.eq(seen), matrix.host.addr.eq(seen >> 2), matrix.host.row.eq(seen >> 16)]
            m.d.comb += [matrix.host.sel.eq(seen[-2]), matrix.host.en.eq(seen[-1])]
            m.d.comb += matrix.host.w_data.eq(Cat(seen, seen, seen))
            parity = Signal(name="matrix_parity")
            m.d.sync += parity.eq(Cat(matrix.read.data, matrix.host.data).xor() ^ total)
            total = parity
        m.submodules.multiplier = multiplier = Multiplier(8, 8)
        m.d.comb += [multiplier.a.eq(seen), multiplier.b.eq(seen >> 8), self.trapped.eq(multiplier.o.xor())]
        m.d.comb += self.done.eq(total)
        return m
