"""Carry chains without the cells that nextpnr puts at their ends.

A CCU2C takes two LUTs of a slice and adds two bits. Yosys begins a chain with a constant carry, and leaves the carry
out of its last cell on a net that nothing reads. For each of the two nextpnr adds a cell: one brings the carry in from
the fabric, the other takes it out. Here a carry out that nothing reads is disconnected, and a chain whose last cell has
a bit to spare makes its first carry in its own first bit instead. The sums stay what they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

#: The cell, and the names of what each of its bits has, without the number of the bit.
CELL = "CCU2C"
_INPUTS, _SUM, _TABLE, _INJECT = "ABCD", "S", "INIT", "INJECT1_"
#: Table of a bit whose carry out is its input A, whatever comes in, where the other inputs are 1.
_CARRY_IS_A = f"{0b1010:016b}"
#: What Yosys writes where nothing is connected; nextpnr refuses a cell without the port.
_OPEN = ["x"]


def shorten(module: dict[str, Any]) -> int:
    """Shorten the carry chains of a module, in place, and return how many cells nextpnr need not add for them.

    Parameters
    ----------
    module : dict
        A flat module of a netlist, as Yosys writes it for nextpnr.
    """
    cells = module["cells"]
    readers = _readers(module)
    saved = 0
    for chain in list(_chains(cells, readers)):
        last = cells[chain[-1]]
        if readers[_net(last, "COUT")]:
            continue
        if isinstance(_net(last, "COUT"), int):
            saved += 1
        last["connections"]["COUT"] = _OPEN
        first = cells[chain[0]]
        if _net(first, "CIN") in ("0", "1") and not readers[_net(last, f"{_SUM}1")]:
            _begin_in_first_bit([cells[name] for name in chain])
            saved += 1
    return saved


def _net(cell: dict[str, Any], port: str) -> int | str | None:
    """The net, or constant, at a port of one bit; None if nothing is connected."""
    bits = cell["connections"].get(port)
    return bits[0] if bits else None


def _readers(module: dict[str, Any]) -> Counter[int | str | None]:
    """Number of inputs of cells and of outputs of the module by net."""
    uses: Counter[int | str | None] = Counter()
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) != "output":
                uses.update(bits)
    for port in module["ports"].values():
        uses.update(port["bits"])
    return uses


def _chains(cells: dict[str, Any], readers: Counter[int | str | None]) -> Iterator[list[str]]:
    """Names of the cells of every chain, from the first bits to the last.

    A chain ends where its carry is read by more than the next cell.
    """
    names = [name for name, cell in cells.items() if cell["type"] == CELL]
    takes = {_net(cells[name], "CIN"): name for name in names}
    makes = {_net(cells[name], "COUT") for name in names}
    for name in names:
        carry = _net(cells[name], "CIN")
        if carry in makes and readers[carry] == 1:
            continue
        chain = [name]
        while readers[out := _net(cells[chain[-1]], "COUT")] == 1 and out in takes:
            chain.append(takes[out])
        yield chain


def _begin_in_first_bit(chain: list[dict[str, Any]]) -> None:
    """Move all bits up by one, over the last bit, and make the constant carry in the first."""
    carry = _net(chain[0], "CIN")
    chain[0]["connections"]["CIN"] = _OPEN
    before = {_TABLE: _CARRY_IS_A, _INJECT: "NO", "A": [carry], "B": ["1"], "C": ["1"], "D": ["1"], _SUM: _OPEN}
    for cell in chain:
        for k in range(2):
            now = _taken(cell, k)
            _give(cell, k, before)
            before = now


def _taken(cell: dict[str, Any], k: int) -> dict[str, Any]:
    """What a bit of a cell has, by name without the number of the bit."""
    parameters, connections = cell["parameters"], cell["connections"]
    pins = {name: connections.get(f"{name}{k}", _OPEN) for name in (*_INPUTS, _SUM)}
    return pins | {name: parameters[f"{name}{k}"] for name in (_TABLE, _INJECT)}


def _give(cell: dict[str, Any], k: int, bit: dict[str, Any]) -> None:
    """Replace a bit of a cell."""
    cell["connections"] |= {f"{name}{k}": bit[name] for name in (*_INPUTS, _SUM)}
    cell["parameters"] |= {f"{name}{k}": bit[name] for name in (_TABLE, _INJECT)}
