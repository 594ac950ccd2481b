"""Rows and columns of tiles for the matrix memory, from integer chains."""

from __future__ import annotations

from amaranth import signed
from amaranth.lib import data

from concord_rtl.parts.component import NpuInterface, Output


class TilePort(NpuInterface):
    """Writes of a word of a row, or of one lane of a word in all rows, seen from where they come from.

    Parameters
    ----------
    config : NpuConfig
    """

    row_en = Output(1, "Mantissas of ``row`` are written.")
    lane_en = Output(lambda self: self.config.lanes, "The lane that is written in all rows, one bit; else none.")
    addr = Output(lambda self: range(self.config.matrix_depth), "Word.")
    row = Output(lambda self: range(self.config.rows), "Row of the word.")
    row_data = Output(
        lambda self: data.ArrayLayout(signed(self.config.wgt_mant), self.config.lanes), "Mantissas of the row."
    )
    lane_data = Output(
        lambda self: data.ArrayLayout(signed(self.config.wgt_mant), self.config.rows), "Mantissas of the lane, by row."
    )
