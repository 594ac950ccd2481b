"""Base of the units of an SDRAM controller."""

from __future__ import annotations

from concord.spec.dram import SdramPart, SdramTiming
from concord_rtl.parts.component import Component


class SdramUnit(Component):
    """A component that a part and its times determine.

    Parameters
    ----------
    part : SdramPart
        Sizes.
    timing : SdramTiming
        Times.
    """

    def __init__(self, part: SdramPart, timing: SdramTiming):
        self.part, self.timing = part, timing
        super().__init__()
