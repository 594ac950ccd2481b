"""The block RAM of ECP5: its contents, and what it does as ports of one clock each.

Behaviour as in Lattice's FPGA-TN-02204, in the modes that occur; others are refused. A read in the cycle of a write to
the same word by the other port gives the old word, which the device does not promise.
"""

from __future__ import annotations

import numpy as np

from concord_rtl.netlists.circuit import ONE, ZERO, Clock
from concord_rtl.netlists.lowering import CellLowering
from concord_rtl.netlists.netlist import Cell, Netlist, bits_of

#: Bytes of nine bits in a block RAM.
BRAM_BYTES = 2048


def initial_bytes(cell: Cell) -> list[int]:
    """Contents of a DP16KD: two bytes of nine bits in every 20 bits of a parameter."""
    words = []
    for k in range(BRAM_BYTES // 32):
        value = bits_of(cell.parameters.get(f"INITVAL_{k:02X}", "0"))
        words += [value >> 20 * (j // 2) + 9 * (j % 2) & 511 for j in range(32)]
    return words


def _named(netlist: Netlist) -> dict[str, Cell]:
    """The block RAMs by the number that nextpnr gives them, or just numbered before that."""
    cells = netlist.of_kind("DP16KD")
    return {
        str(bits_of(cell.attributes["WID"]) if "WID" in cell.attributes else k): cell for k, cell in enumerate(cells)
    }


def contents(netlist: Netlist) -> dict[str, bytes]:
    """The contents of each block RAM, a byte per bit."""
    contents = {}
    for name, cell in _named(netlist).items():
        rows = np.array(initial_bytes(cell))[:, None] >> np.arange(9) & 1
        contents[name] = rows.astype(np.uint8).tobytes()
    return contents


def set_contents(netlist: Netlist, contents: dict[str, bytes]) -> None:
    """Replace them."""
    for name, cell in _named(netlist).items():
        rows = np.frombuffer(contents[name], dtype=np.uint8).reshape(-1, 2, 9)
        pairs = np.zeros((len(rows), 20), dtype=np.uint8)  # of which 18 bits are used
        pairs[:, :18] = rows.reshape(-1, 18)
        for k, bits in enumerate(pairs.reshape(BRAM_BYTES // 32, -1)):
            cell.parameters[f"INITVAL_{k:02X}"] = "".join(map(str, bits[::-1]))


def contents_text(netlist: Netlist) -> str:
    """Them as nextpnr writes them."""
    lines = []
    for name, cell in _named(netlist).items():
        words = [f"{byte:03x}" for byte in initial_bytes(cell)]
        lines += [f".bram_init {name}", *(" ".join(words[at : at + 8]) for at in range(0, len(words), 8)), ""]
    return "\n".join(lines)


def _control(part: CellLowering, port: str) -> int:
    """A control input of a block RAM: where it is not connected the multiplexer makes a constant of a one."""
    choice = part.text(f"{port}MUX", port, "INV")
    if part.connected(port) and choice == "INV":
        raise part.refuse(f"{port}MUX must be {port}")
    return part.pin(port, ZERO if choice == "INV" else ONE)


def data_pin(part: CellLowering, port: str) -> int:
    """A data input of a block: where it is not connected its multiplexer is the constant."""
    return part.pin(port, ONE if part.text(f"{port}MUX", "0", "1", port) == "1" else ZERO)


def block_ram(part: CellLowering) -> None:
    """Port A writes; a port reads where something is connected; words of 36 bits have their lower half at port A."""
    width = part.number("DATA_WIDTH_A", 18)
    if part.number("DATA_WIDTH_B", 18) != width or width not in (1, 2, 4, 9, 18, 36):
        raise part.refuse("both ports must have the same width")
    part.ignore("GSR", "RESETMODE", "ASYNC_RESET_RELEASE", "INIT_DATA")
    part.ignore(*(f"INITVAL_{k:02X}" for k in range(64)))
    sides = {side: _Side(part, side) for side in "AB"}
    if sides["B"].write != ZERO:
        raise part.refuse("WEB must be 0 for good")
    memories = _store(part, width, sides["A"], [*sides["A"].data, *sides["B"].data])
    if width == 36:
        sides["B"].outs, sides["A"].outs = [*sides["A"].outs, *sides["B"].outs], []
    for side in sides.values():
        side.read(memories, width)


class _Side:
    """One port of a block RAM."""

    def __init__(self, part: CellLowering, name: str):
        self.part = part
        self.name = name
        part.text(f"CSDECODE_{name}", "0b000")
        self.write, enable, self.late_enable, reset, *chip = (
            _control(part, port)
            for port in (f"WE{name}", f"CE{name}", f"OCE{name}", f"RST{name}", *(f"CS{name}{k}" for k in range(3)))
        )
        if reset != ZERO:
            raise part.refuse(f"RST{name} must be 0 for good")
        self.enable = part.all_of([enable], chip)
        self.addr = [data_pin(part, f"AD{name}{k}") for k in range(14)]
        self.data = [data_pin(part, f"DI{name}{k}") for k in range(18)]
        outs = [f"DO{name}{k}" for k in range(18)]
        self.outs = [part.out(port) if part.connected(port) else None for port in outs]
        self.late = part.text(f"REGMODE_{name}", "NOREG", "OUTREG") == "OUTREG"
        self.mode = part.text(f"WRITEMODE_{name}", "NORMAL", "READBEFOREWRITE")
        inverted = part.text(f"CLK{name}MUX", f"CLK{name}", "INV") == "INV"
        part.ignore(f"CLK{name}")
        if self.is_clocked and inverted:
            raise part.refuse(f"CLK{name}MUX must be CLK{name}")

    @property
    def is_clocked(self) -> bool:
        """True if the port is used: else its clock is a constant."""
        return isinstance((self.part.cell.pins.get(f"CLK{self.name}") or [""])[0], int)

    def clock(self) -> Clock:
        return self.part.clock(f"CLK{self.name}")

    def read(self, memories: list[int], width: int) -> None:
        """The word read, in a latch that keeps its value in a write with mode NORMAL."""
        circuit = self.part.circuit
        if not self.is_clocked or all(net is None for net in self.outs):
            return
        still = [self.write] if self.mode == "NORMAL" else []
        enable = self.part.all_of([self.enable], still)
        for k, memory in enumerate(memories):
            size = min(width, 9)
            word = [circuit.net() for _ in range(size)]
            circuit.read(memory, self.addr[_below(width) :], word)
            for net, out in zip(word, self.outs[9 * k : 9 * k + size], strict=True):
                if out is None:
                    continue
                latch = circuit.net() if self.late else out
                circuit.register(self.clock(), latch, net, enable=enable)
                if self.late:
                    circuit.register(self.clock(), out, latch, enable=self.late_enable)


def _below(width: int) -> int:
    """Bits of an address below that of a word: ninth bits do not count."""
    return (width - width // 9).bit_length() - 1


def _store(part: CellLowering, width: int, side: _Side, data: list[int]) -> list[int]:
    """Memories for the bytes of a word, with their writes; in wide words the lowest bits of the address enable them."""
    count, size = max(1, width // 9), min(width, 9)
    contents, memories = initial_bytes(part.cell), []
    for k in range(count):
        if size == 9:
            words = contents[k::count]
        else:
            words = [byte >> at & (1 << size) - 1 for byte in contents for at in range(0, 8, size)]
        memories.append(part.circuit.memory(words))
        enable = part.all_of([side.write, side.enable, *([side.addr[k]] if count > 1 else [])])
        if enable != ZERO:
            part.circuit.write(
                side.clock(), memories[-1], enable, side.addr[_below(width) :], data[9 * k : 9 * k + size]
            )
    return memories
