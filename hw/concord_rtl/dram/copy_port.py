"""The way of copies from the sequencer to the external memory."""

from __future__ import annotations

from amaranth.lib import data

from concord.spec.config import clog2
from concord.spec.isa import COPY_ROWS_BITS, COPY_UNIT, MATRIX_ADDR_BITS, VECTOR_ADDR_BITS
from concord_rtl.parts.component import Input, Interface, Output

#: Bits of the number of a column.
COLUMN_BITS = MATRIX_ADDR_BITS + clog2(COPY_UNIT)


def place_layout() -> data.StructLayout:
    """Place of vectors: address, memory (0 narrow, 1 wide), and whether a copy goes from there."""
    return data.StructLayout({"addr": VECTOR_ADDR_BITS, "mem": 1, "out": 1})


class CopyPort(Interface):
    """Copies of rows of tiles, and of vectors, seen from the sequencer: one at a time."""

    go = Output(1, "A copy begins. Only if the memory ``works`` and no copy is ``busy``.")
    column = Output(COLUMN_BITS, "Its first column.")
    matrix = Output(MATRIX_ADDR_BITS, "First word of the first tile of rows.")
    count = Output(COPY_ROWS_BITS, "Rows of tiles or vectors, at least one.")
    vectors = Output(1, "It copies vectors, as ``place`` says.")
    place = Output(place_layout(), "Place of the first vector, and the direction.")
    busy = Input(1, "The copy goes on: from the cycle after ``go`` until its last word is on its way to its memory.")
    works = Input(1, "The memory works.")
