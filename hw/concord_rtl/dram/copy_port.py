"""The way of copies from the sequencer to the external memory."""

from __future__ import annotations

from concord.spec.isa import COPY_ROWS_BITS, MATRIX_ADDR_BITS
from concord_rtl.parts.component import Input, Interface, Output


class CopyPort(Interface):
    """Copies of rows of tiles, seen from the sequencer: one at a time."""

    go = Output(1, "A copy begins. Only if the memory ``works`` and no copy is ``busy``.")
    dram = Output(MATRIX_ADDR_BITS, "Its first column, in units of ``COPY_UNIT``.")
    matrix = Output(MATRIX_ADDR_BITS, "First word of its first tile.")
    rows = Output(COPY_ROWS_BITS, "Rows of tiles, at least one.")
    busy = Input(1, "The copy goes on: from the cycle after ``go`` until its last row is on its way to its memory.")
    works = Input(1, "The memory works.")
