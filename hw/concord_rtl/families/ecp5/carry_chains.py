"""Carry chains without the cells that nextpnr puts at their ends.

A CCU2C takes two LUTs of a slice and adds two bits. Yosys begins a chain with a constant carry, and leaves the carry
out of its last cell on a net that nothing reads. For each of the two nextpnr adds a cell: one brings the carry in from
the fabric, the other takes it out. Here a carry out that nothing reads is disconnected, and a chain whose last cell has
a bit to spare makes its first carry in its own first bit instead. In other chains a constant carry can be folded into
the first bit, whose carry out then is a function of its terms alone. The sums stay what they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

#: The cell, and the pins and parameters of each of its bits, without the number of the bit.
CELL = "CCU2C"
#: A lookup table by itself, and its ports.
LUT, _LUT_PORTS = "LUT4", {**dict.fromkeys("ABCD", "input"), "Z": "output"}
_INPUTS, _SUM, _TABLE, _INJECT = "ABCD", "S", "INIT", "INJECT1_"
#: Table of a bit whose carry out is its input A, whatever comes in, where the other inputs are 1.
_CARRY_IS_A = f"{0b1010:016b}"
#: Net that Yosys writes where nothing is connected; nextpnr refuses a cell without the port.
_OPEN = ["x"]
_CONSTANTS = ("0", "1")


def shorten(module: dict[str, Any], *, fold: bool = False) -> int:
    """Shorten the carry chains of a module, in place, and return how many cells nextpnr need not add for them.

    Parameters
    ----------
    module : dict
        A flat module of a netlist, as Yosys writes it for nextpnr.
    fold : bool
        Fold constant carries into first bits, too, where there is no bit to spare. A sum of the first bit that is read
        needs a lookup table of its own then, half of the cell that is saved.
    """
    cells = module["cells"]
    readers = _readers(module)
    saved = 0
    for chain in list(_chains(cells, readers)):
        first, last = cells[chain[0]], cells[chain[-1]]
        constant = _net(first, "CIN") in _CONSTANTS
        if not readers[_net(last, "COUT")]:
            if isinstance(_net(last, "COUT"), int):
                saved += 1
            last["connections"]["COUT"] = _OPEN
            if constant and not readers[_net(last, f"{_SUM}1")]:
                _begin_in_first_bit([cells[name] for name in chain])
                saved += 1
                continue
        if fold and constant and (folded := _folded(first)) is not None:
            if readers[_net(first, f"{_SUM}0")]:
                cells[f"{chain[0]}_{_SUM}0"] = _sum_of_first_bit(first)
            _give(first, 0, folded)
            first["connections"]["CIN"] = _OPEN
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


def _folded(cell: dict[str, Any]) -> dict[str, Any] | None:
    """First bit of a chain with its constant carry folded in, but for its sum, which then means nothing.

    None if the carry out depends on more than two inputs: the cell has no such function.
    """
    bit = _taken(cell, 0)
    nets = [bit[name][0] for name in _INPUTS]
    terms = [net for net in dict.fromkeys(nets) if net not in _CONSTANTS]
    if len(terms) > 2:
        return None
    passes, table = _first_carry(cell), bit[_TABLE][::-1]
    outs = ""
    for k in range(4):
        values = {"0": 0, "1": 1} | {net: k >> n & 1 for n, net in enumerate(terms)}
        place = sum(values[net] << n for n, net in enumerate(nets))
        other = int(table[place & 3]) & (bit[_INJECT] == "NO")
        outs = f"{passes if table[place] == '1' else other}{outs}"
    pins = {name: [net] for name, net in zip(_INPUTS, [*terms, *["1"] * (4 - len(terms))], strict=True)}
    # Where the table is 0 the carry out is the function of the first two inputs that its first four places are.
    return pins | {_TABLE: outs.zfill(len(table)), _INJECT: "NO", _SUM: _OPEN}


def _first_carry(cell: dict[str, Any]) -> int:
    """The constant carry that the first bit of a chain meets."""
    return int(_net(cell, "CIN") == "1" and cell["parameters"][f"{_INJECT}0"] == "NO")


def _sum_of_first_bit(cell: dict[str, Any]) -> dict[str, Any]:
    """A lookup table for the sum of the first bit of a chain, whose carry is a constant."""
    bit, carry = _taken(cell, 0), _first_carry(cell)
    return {
        "hide_name": 1,
        "type": LUT,
        "parameters": {"INIT": "".join(str(int(value) ^ carry) for value in bit[_TABLE])},
        "attributes": {},
        "port_directions": _LUT_PORTS,
        "connections": {name: bit[name] for name in _INPUTS} | {"Z": bit[_SUM]},
    }


def _taken(cell: dict[str, Any], k: int) -> dict[str, Any]:
    """Pins and parameters of a bit of a cell, by name without the number of the bit."""
    parameters, connections = cell["parameters"], cell["connections"]
    pins = {name: connections.get(f"{name}{k}", _OPEN) for name in (*_INPUTS, _SUM)}
    return pins | {name: parameters[f"{name}{k}"] for name in (_TABLE, _INJECT)}


def _give(cell: dict[str, Any], k: int, bit: dict[str, Any]) -> None:
    """Replace a bit of a cell."""
    cell["connections"] |= {f"{name}{k}": bit[name] for name in (*_INPUTS, _SUM)}
    cell["parameters"] |= {f"{name}{k}": bit[name] for name in (_TABLE, _INJECT)}
