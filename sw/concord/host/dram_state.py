"""The state of the external memory of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DramState:
    """Result of the search for the phase of the memory's clock.

    Parameters
    ----------
    works : bool
        The memory works.
    late : bool
        Its data come at the later of two cycles.
    phase : int
        The phase that was chosen, in steps of the PLL.
    width : int
        Neighbouring phases that work with that cycle; 0 where the memory works without a clock, in software.
    kept : bool
        Nothing was written since the host said that the memory holds what it should.
    """

    works: bool
    late: bool
    phase: int
    width: int
    kept: bool = False

    @property
    def text(self) -> str:
        """The state in words."""
        if not self.works:
            return f"does not work: at most {self.width} neighbouring phases of its clock do"
        if not self.width:
            return "works; its clock is not simulated"
        return f"phase {self.phase}, in the middle of {self.width}; data come {'late' if self.late else 'early'}"

    @classmethod
    def of(cls, status: Mapping[str, int]) -> DramState:
        """The state that the fields of the register STATUS tell."""
        works, late, phase, width, kept = (
            status[f"dram_{name}"] for name in ("works", "late", "phase", "width", "kept")
        )
        return cls(bool(works), bool(late), phase, width, bool(kept))


#: State of a memory without a clock.
UNTIMED = DramState(works=True, late=False, phase=0, width=0)
