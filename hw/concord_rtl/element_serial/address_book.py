"""The addresses of a chain, in block RAM."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from concord.spec.config import NpuConfig
from concord.spec.operations import ADDRESSED
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.pipe.layouts import vector_addr_bits


def book_port(config: NpuConfig) -> wiring.Signature:
    """Entry of the sequencer for a vector operand: its number in ``ADDRESSED``, start and steps."""
    bits = vector_addr_bits(config)
    return wiring.Signature(
        {
            "en": Out(1),
            "port": Out(range(len(ADDRESSED))),
            "start": Out(bits),
            "offset": Out(bits),
            "row": Out(bits),
            "inner": Out(bits),
            "outer": Out(bits),
        }
    )


class AddressBook(NpuUnit):
    """Keeps address and steps of every vector operand of a chain, and follows the outer loops.

    One operand at a time. Entries are made while no chain is walked.

    Parameters
    ----------
    config : NpuConfig
    """

    enter = Input(lambda self: book_port(self.config), "A new operand: its address is ``start + offset``.")
    port = Input(range(len(ADDRESSED)), "The operand wanted.")
    addr = Output(lambda self: vector_addr_bits(self.config), "Its address, one cycle after ``port``.")
    advance = Input(1, "Go to the next vector; ``port`` the same in this cycle and in the one before.")
    last_row = Input(1, "The row of the vector is the last one.")
    last_inner = Input(1, "The inner iteration of the vector is the last one.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits = vector_addr_bits(self.config)
        # Addresses of this vector and of the starts of the inner and of the outer iteration; steps likewise.
        m.submodules.places = places = ColumnMemory([bits] * 3, len(ADDRESSED))
        m.submodules.steps = steps = ColumnMemory([3 * bits], len(ADDRESSED))
        enter = self.enter
        place, step, total = Signal(bits), Signal(bits), Signal(bits)
        with m.If(enter.en):
            m.d.comb += [place.eq(enter.start), step.eq(enter.offset)]
        with m.Else():
            level = Mux(self.last_row, Mux(self.last_inner, 2, 1), 0)
            m.d.comb += [
                place.eq(places.read.data.word_select(level, bits)),
                step.eq(steps.read.data.word_select(level, bits)),
            ]
        m.d.comb += [
            total.eq(place + step),
            self.addr.eq(places.read.data),
            places.read.addr.eq(self.port),
            places.write.addr.eq(Mux(enter.en, enter.port, self.port)),
            places.write.data.eq(total.replicate(3)),
            steps.read.addr.eq(self.port),
            steps.write.en.eq(enter.en),
            steps.write.addr.eq(enter.port),
            steps.write.data.eq(Cat(enter.row, enter.inner, enter.outer)),
        ]
        new_inner = enter.en | (self.advance & self.last_row)
        m.d.comb += places.write.en.eq(
            Cat(enter.en | self.advance, new_inner, enter.en | (new_inner & self.last_inner))
        )
        return m
