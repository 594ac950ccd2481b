"""One row of the matrix memory whose lanes are written by themselves."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.component import Component, Input, Output


class LaneMemory(Component):
    """L mantissas and an exponent per word, each lane in a memory of its own.

    Bit k of the exponent lies beside lane k and is written with it. Does not forward, as :class:`VectorMemory`. One
    word per cycle, ``LATENCY`` cycles after its address.

    Parameters
    ----------
    config : NpuConfig
    init : list of int
        Initial words, as in the matrix region of the memory map; zeros beyond its end.
    """

    addr = Input(lambda self: range(self.config.matrix_depth), "Word to read.")
    r_en = Input(1, "It is read; the word is zero otherwise.")
    data = Output(lambda self: self.config.matrix_row.width, "The word.")
    w_addr = Input(lambda self: range(self.config.matrix_depth), "Word to write.")
    w_en = Input(lambda self: self.config.lanes, "One bit per lane that is written.")
    w_data = Input(lambda self: self.config.matrix_row.width, "What is written.")

    LATENCY = VectorMemory.LATENCY

    def __init__(self, config: NpuConfig, init=()):
        self.config = config
        self.init = [int(word) for word in init]
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        lanes, size = self.config.lanes, self.config.wgt_mant
        exp_bits = self.config.wgt_exp_width
        mantissas, exponents = [], []
        for lane in range(lanes):
            beside = lane < exp_bits
            words = [
                word >> lane * size & (1 << size) - 1 | (word >> lanes * size + lane & 1) << size
                if beside
                else word >> lane * size & (1 << size) - 1
                for word in self.init
            ]
            m.submodules[f"lane{lane}"] = memory = VectorMemory(size + beside, self.config.matrix_depth, words)
            mantissa = self.w_data[lane * size :][:size]
            m.d.comb += [
                memory.read.addr.eq(self.addr),
                memory.read.en.eq(self.r_en),
                memory.write.addr.eq(self.w_addr),
                memory.write.en.eq(self.w_en[lane]),
                memory.write.data.eq(Cat(mantissa, self.w_data[lanes * size + lane]) if beside else mantissa),
            ]
            mantissas.append(memory.read.data[:size])
            exponents += [memory.read.data[size]] if beside else []
        m.d.comb += self.data.eq(Cat(*mantissas, *exponents))
        return m
