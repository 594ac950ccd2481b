"""Netlists as Yosys and nextpnr write them in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: A net by its number, or a constant: ``"0"``, ``"1"``, ``"x"``.
Bit = int | str
#: Kinds of cells without a behaviour.
NOTES = ("$scopeinfo",)


class NetlistError(ValueError):
    """A netlist has something that is not simulated."""


@dataclass
class Cell:
    """One cell.

    Parameters
    ----------
    name : str
        Name in the netlist.
    kind : str
        Its type.
    parameters : dict of str
        Text, or digits of a bit vector, the most significant one first (:func:`text_of` tells them apart).
    attributes : dict of str
        The same for attributes.
    pins : dict of list
        Nets at each port, the least significant one first.
    outputs : set of str
        Ports that drive their nets.
    """

    name: str
    kind: str
    parameters: dict[str, str]
    attributes: dict[str, str]
    pins: dict[str, list[Bit]]
    outputs: set[str]


@dataclass
class Netlist:
    """A flat design.

    Parameters
    ----------
    ports : dict
        Direction and nets of each port.
    cells : dict
        Cells by name.
    """

    ports: dict[str, tuple[str, list[Bit]]]
    cells: dict[str, Cell]

    @classmethod
    def load(cls, path: Path, top: str) -> Netlist:
        """Read the module ``top``, or the only one.

        Raises
        ------
        NetlistError
            If it is not there.
        """
        modules: dict[str, Any] = json.loads(path.read_text())["modules"]
        module = modules.get(top) or (next(iter(modules.values())) if len(modules) == 1 else None)
        if module is None:
            raise NetlistError(f"{path} must have a module {top}, not only {', '.join(list(modules)[:5])}")
        cells = {
            name: Cell(
                name,
                cell["type"],
                dict(cell["parameters"]),
                dict(cell["attributes"]),
                dict(cell["connections"]),
                {port for port, direction in cell["port_directions"].items() if direction == "output"},
            )
            for name, cell in module["cells"].items()
            if cell["type"] not in NOTES
        }
        return cls({name: (port["direction"], port["bits"]) for name, port in module["ports"].items()}, cells)

    def of_kind(self, *kinds: str) -> Iterator[Cell]:
        """Yield the cells of some kinds."""
        return (cell for cell in self.cells.values() if cell.kind in kinds)


def text_of(value: str) -> str | None:
    """The text that a parameter holds, or None if it is a bit vector.

    Text that could be taken for a bit vector has a space at its end.
    """
    if re.fullmatch("[01xz]*", value):
        return None
    return value[:-1] if re.fullmatch("[01xz]* +", value) else value


def bits_of(value: str) -> int:
    """The number that a bit vector holds; unknown bits are zeros."""
    return int(re.sub("[xz]", "0", value) or "0", 2)
