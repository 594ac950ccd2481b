"""FPGA families: one object each, through which everything is reached that differs between them.

A family is a package here, or a module, and its entry in :data:`FAMILIES`.
"""

from __future__ import annotations

from typing import Any

from concord_rtl.families.ecp5.family import ECP5
from concord_rtl.families.family import Family, Target
from concord_rtl.families.ice40.family import ICE40
from concord_rtl.families.primitives import Primitives

__all__ = ["ECP5", "FAMILIES", "ICE40", "Family", "Primitives", "Target", "family_named", "primitives_of"]

#: The families by the name that boards have for them.
FAMILIES: dict[str, Family] = {family.name: family for family in (ECP5, ICE40)}
_PLAIN = Primitives()


def family_named(name: str) -> Family:
    """Return a family; ``ValueError`` lists the names."""
    if name not in FAMILIES:
        raise ValueError(f"family must be one of {sorted(FAMILIES)}, not {name!r}")
    return FAMILIES[name]


def primitives_of(platform: Any) -> Primitives:
    """The cells to instantiate on a platform of Amaranth or a :class:`Target`; plain logic if it is of no family."""
    for family in FAMILIES.values():
        if getattr(platform, "family", None) == family.platform_family:
            return family.primitives(platform.device)
    return _PLAIN
