"""Access of host and pipe to the rows of a matrix memory."""

from __future__ import annotations

from amaranth import signed
from amaranth.lib import data

from concord.spec.config import NpuConfig
from concord_rtl.parts.component import Input, Interface, NpuInterface, Output


class RowAccess(Interface):
    """Reads and writes of single rows, seen from the host.

    Parameters
    ----------
    config : NpuConfig
    waits : bool
        A row takes some cycles to the memory.
    """

    sel = Output(1, "The host has the memory in this cycle.")
    addr = Output(lambda self: range(self.config.matrix_depth), "Word wanted.")
    row = Output(lambda self: range(self.config.rows), "Row of this word.")
    en = Output(1, "Write ``w_data`` to the row, only with ``sel`` and, where rows take some cycles, ``ready``.")
    w_data = Output(
        lambda self: self.config.matrix_row.width, "Row to write, the same as long as ``sel`` has been set."
    )
    data = Input(lambda self: self.config.matrix_row.width, "Row read, ``HOST_LATENCY`` cycles of the memory later.")
    ready = Input(1, "The row to write has come to the memory.", when=lambda self: self.waits)

    def __init__(self, config: NpuConfig, *, waits: bool) -> None:
        self.config = config
        self.waits = waits
        super().__init__()


class RowPort(NpuInterface):
    """Rows of tiles for the matrix memory, seen from where they come from: P mantissas at a time.

    Parameters
    ----------
    config : NpuConfig
    """

    valid = Output(1, "More mantissas of a row are there. Those of one row come in successive cycles.")
    beat = Output(lambda self: range(self.config.beats), "Which ones.")
    row = Output(lambda self: self.config.matrix_row_bits, "Number of the row, counted from the first tile.")
    mant = Output(
        lambda self: data.ArrayLayout(signed(self.config.wgt_mant), self.config.lanes),
        "The latest mantissas: those of the last L/P cycles.",
    )
    exp = Output(lambda self: self.config.wgt_exp_width, "Exponent of the row minus ``wgt_exp_min``.")
