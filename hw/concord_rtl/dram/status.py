"""State of the external memory, as the register STATUS shows it."""

from __future__ import annotations

from concord.spec.dram import PHASE_BITS
from concord_rtl.parts.component import Interface, Output


class DramStatus(Interface):
    """Result of the search for the clock phase, and writes, seen from the memory."""

    searching = Output(1, "The clock phase is being searched.")
    works = Output(1, "The search has come to its end, and the memory works.")
    late = Output(1, "Data read come a cycle later than they can at the earliest.")
    phase = Output(PHASE_BITS, "Phase that was chosen, in steps.")
    width = Output(PHASE_BITS, "Number of neighbouring phases that work.")
    written = Output(1, "The host writes.")
