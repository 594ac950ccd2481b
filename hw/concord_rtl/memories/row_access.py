"""Access of the host to the rows of a matrix memory."""

from __future__ import annotations

from concord.spec.config import NpuConfig
from concord_rtl.parts.component import Input, Interface, Output


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
