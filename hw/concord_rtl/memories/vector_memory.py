"""Memory with one read and one write port, split into banks whose depths are powers of two."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.parts.component import Component, Input


def bank_depths(depth, least, most) -> list[int]:
    """Split ``depth`` into powers of two up to ``most``, greatest first, none below ``least`` but the last.

    A depth that is not a power of two would otherwise be rounded up by the block RAMs.
    """
    banks = []
    while depth > 0:
        size = min(most, 1 << (depth.bit_length() - 1))
        if size < least:
            size = depth
        banks.append(size)
        depth -= size
    return banks


def port_signature(shape, depth):
    """Read and write port of a memory, seen from its user."""
    addr = range(depth)
    return (
        wiring.Signature({"addr": Out(addr), "en": Out(1, init=1), "data": In(shape)}),
        wiring.Signature({"en": Out(1), "addr": Out(addr), "data": Out(shape)}),
    )


class VectorMemory(Component):
    """Words of one shape in block RAM: one read port, one write port.

    Does not forward: a read in the cycle of a write to the same address gives an undefined word. Data appears
    ``LATENCY`` cycles after its address, one word per cycle, and a write is seen by reads from the next cycle on.

    The bank is chosen behind the registers of the block RAMs: its output is a gate away from them.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a word.
    depth : int
        Words, at least 2.
    init : list
        Initial words, as integers; zeros beyond its end.
    """

    read = Input(
        lambda self: port_signature(self.shape, self.depth)[0],
        "Address, and the word ``LATENCY`` cycles later; zero instead of the word if not ``en``, which is 1 where "
        "it is left unconnected.",
    )
    write = Input(lambda self: port_signature(self.shape, self.depth)[1], "Writes ``data`` at the edge if ``en``.")

    LATENCY = BlockRam.LATENCY
    #: Words of the shallowest block RAM shape of ECP5.
    LEAST_BANK = 512

    def __init__(self, shape, depth, init=()):
        if not isinstance(depth, int) or depth < 2:
            raise ValueError(f"depth must be an integer of at least 2, not {depth!r}")
        if len(init) > depth:
            raise ValueError(f"init must have at most depth={depth} words, not {len(init)}")
        self.shape = shape
        self.depth = depth
        self.init = [int(word) for word in init]
        self.banks = bank_depths(depth, self.LEAST_BANK, BlockRam.MOST)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        base = 0
        chosen = Signal(range(len(self.banks)))
        chosen_now = Signal.like(chosen)
        chosen_late = Signal.like(chosen)
        m.d.sync += [chosen_now.eq(chosen), chosen_late.eq(chosen_now)]
        enabled_now, enabled_late = Signal(init=1), Signal(init=1)  # constant where ``en`` is left unconnected
        m.d.sync += [enabled_now.eq(self.read.en), enabled_late.eq(enabled_now)]
        words = []
        for k, size in enumerate(self.banks):
            words.append(self._bank(m, k, base, size))
            base += size
            if k + 1 < len(self.banks):
                with m.If(self.read.addr >= base):
                    m.d.comb += chosen.eq(k + 1)
        with m.Switch(chosen_late):
            for k, word in enumerate(words):
                with m.Case(k):
                    m.d.comb += Value.cast(self.read.data).eq(Mux(enabled_late, word, 0))
        return m

    def _bank(self, m, k, base, size) -> Value:
        """Words from ``base`` on. Banks come greatest first: the base of each is a multiple of its size rounded up."""
        width = Shape.cast(self.shape).width
        m.submodules[f"bank{k}"] = bank = BlockRam(width, size, self.init[base : base + size])
        m.d.comb += [
            bank.addr.eq(self.read.addr),
            bank.w_addr.eq(self.write.addr),
            bank.w_data.eq(self.write.data),
            bank.w_en.eq(self.write.en & (self.write.addr >= base) & (self.write.addr < base + size)),
        ]
        return bank.data
