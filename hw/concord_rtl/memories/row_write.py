"""Rows of tiles on their way from the external to the matrix memory."""

from __future__ import annotations

from concord_rtl.parts.component import NpuInterface, Output


class RowWrite(NpuInterface):
    """Writes of one row of a word of the matrix memory, seen from where they come from.

    Parameters
    ----------
    config : NpuConfig
    """

    en = Output(1, "A row is written.")
    addr = Output(lambda self: range(self.config.matrix_depth), "Word.")
    row = Output(lambda self: range(self.config.rows), "Row of the word.")
    data = Output(lambda self: self.config.matrix_row.width, "The row, as the host writes it.")
