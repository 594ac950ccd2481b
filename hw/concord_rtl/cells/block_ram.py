"""Block RAM with its output register."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord_rtl.families import primitives_of
from concord_rtl.families.primitives import RamPorts
from concord_rtl.parts.component import Component, Input, Output


class BlockRam(Component):
    """One read port, one write port, registered output.

    Does not forward: a read in the cycle of a write to the same address gives an undefined word. One word per cycle,
    ``LATENCY`` cycles after its address.

    Where synthesis does not use the output registers of block RAMs, the family instantiates them
    (:mod:`concord_rtl.families`).

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Words, 2 to ``MOST``.
    init : list
        Initial words, as integers; zeros beyond its end.
    """

    addr = Input(lambda self: range(self.depth), "Address to read.")
    data = Output(lambda self: self.width, "Word read.")
    w_en = Input(1, "Write ``w_data`` at the edge.")
    w_addr = Input(lambda self: range(self.depth), "Address to write.")
    w_data = Input(lambda self: self.width, "Word to write.")

    LATENCY = timing.BLOCK_RAM
    #: Greatest depth.
    MOST = 16384
    #: Least words for which a memory is in block RAM, so that the contents can be replaced in a bitstream.
    LEAST = 128

    def __init__(self, width, depth, init=()):
        if not isinstance(depth, int) or not 2 <= depth <= self.MOST:
            raise ValueError(f"depth must be in 2..{self.MOST}, not {depth!r}")
        self.width = width
        self.depth = depth
        self.init = list(init)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        ports = RamPorts(self.addr, self.data, self.w_en, self.w_addr, self.w_data, self.depth, self.init)
        primitives_of(platform).block_ram(m, ports)
        return m
