"""Cells of iCE40: what synthesis makes, and what nextpnr packs it into.

Behaviour as in Lattice's iCE Technology Library, in the modes that occur; others are refused. Of pins with many bits,
synthesis writes one and nextpnr one for each bit.
"""

from __future__ import annotations

import re

import numpy as np

from concord_rtl.families.family import GateModels
from concord_rtl.netlists.circuit import ONE, ZERO, Clock
from concord_rtl.netlists.lowering import CellLowering, Lowering, Rule
from concord_rtl.netlists.netlist import Bit, Cell, Netlist, NetlistError, bits_of

RAM_ROWS, RAM_BITS = 256, 16
SPRAM_WORDS = 16384


def _ins(part: CellLowering, port: str, count: int, default: int = ZERO) -> list[int]:
    """Nets of an input of several bits."""
    if port in part.cell.pins:
        return part.pins(port, default)
    return [part.pin(f"{port}_{k}", default) for k in range(count)]


def _outs(part: CellLowering, port: str, count: int) -> list[int]:
    """Nets of an output of several bits."""
    if port in part.cell.pins:
        return part.outs(port)
    return [part.out(f"{port}_{k}") for k in range(count)]


def _lut4(part: CellLowering) -> None:
    pins = [part.pin(f"I{k}") for k in range(4)]
    part.circuit.function(part.out("O"), part.number("LUT_INIT"), pins)


def _majority(a: int, b: int, c: int) -> bool:
    return a + b + c >= 2


def _carry(part: CellLowering) -> None:
    part.circuit.computed(_majority, [part.pin("I0"), part.pin("I1"), part.pin("CI")], part.out("CO"))


def _flip_flop(enabled: bool, reset: str, value: int) -> Rule:
    """A rule for one kind; set and reset wait for the enable, too, and all start with zero."""

    def rule(part: CellLowering) -> None:
        enable = part.pin("E", ONE) if enabled else ONE
        into = part.all_of([enable, part.pin(reset)]) if reset else ZERO
        part.circuit.register(
            part.clock("C"), part.out("Q"), part.pin("D"), enable=enable, reset=into, init=0, value=value
        )

    return rule


def _logic_cell(part: CellLowering) -> None:
    """A table, half of an adder and a register."""
    if part.number("ASYNC_SR") or part.number("NEG_CLK"):
        raise part.refuse("ASYNC_SR and NEG_CLK must be 0")
    circuit = part.circuit
    pins = [part.pin(f"I{k}") for k in range(4)]
    part.ignore("CIN", "COUT", "CEN", "SR", "CLK", "SET_NORESET", "LUT_INIT", "DFF_ENABLE")
    fixed, high = part.number("CIN_CONST"), part.number("CIN_SET")
    if part.number("CARRY_ENABLE"):
        carry = (ONE if high else ZERO) if fixed else part.pin("CIN")
        circuit.computed(_majority, [pins[1], pins[2], carry], part.out("COUT"))
    out, table = part.out("O"), part.number("LUT_INIT")
    if out in (ZERO, ONE):  # constants are known
        return
    if not part.number("DFF_ENABLE"):
        circuit.function(out, table, pins)
        return
    data, enable = circuit.net(), part.pin("CEN", ONE)
    circuit.function(data, table, pins)
    into = part.all_of([enable, part.pin("SR")])
    value = part.number("SET_NORESET")
    circuit.register(part.clock("CLK"), out, data, enable=enable, reset=into, init=0, value=value)


def constants(netlist: Netlist) -> dict[Bit, int]:
    """Nets that are constant: those of tables that do not depend on what is connected.

    The inputs of such a table may belong to the carry beside it.
    """
    constants: dict[Bit, int] = {}
    for cell in netlist.of_kind("ICESTORM_LC"):
        if cell.parameters["DFF_ENABLE"] != "0":
            continue
        connected = sum(bool(cell.pins.get(f"I{k}")) << k for k in range(4))
        table = bits_of(cell.parameters["LUT_INIT"])
        values = {table >> at & 1 for at in range(16) if not at & ~connected}
        if len(values) == 1:
            constants.update(dict.fromkeys(cell.pins.get("O", []), ONE if values == {1} else ZERO))
    return constants


# Memories ----------------------------------------------------------------------------------------------------


def _bits(cell: Cell) -> np.ndarray:
    """Contents of a block RAM: 256 rows of 16 bits."""
    text = "".join(f"{bits_of(cell.parameters.get(f'INIT_{k:X}', '0')):0256b}"[::-1] for k in range(16))
    return np.frombuffer(text.encode(), dtype=np.uint8) - ord("0")


def _named(netlist: Netlist) -> dict[str, Cell]:
    """The block RAMs by where nextpnr has put them, or just numbered before that."""
    cells = {}
    for k, cell in enumerate(netlist.of_kind("SB_RAM40_4K", "ICESTORM_RAM")):
        place = re.fullmatch(r"X(\d+)/Y(\d+)/ram", cell.attributes.get("NEXTPNR_BEL", ""))
        cells[f"{place[1]} {place[2]}" if place else f"0 {k}"] = cell
    return cells


def contents(netlist: Netlist) -> dict[str, bytes]:
    """The contents of each block RAM, a byte per bit."""
    return {name: _bits(cell).tobytes() for name, cell in _named(netlist).items()}


def set_contents(netlist: Netlist, contents: dict[str, bytes]) -> None:
    """Replace them."""
    for name, cell in _named(netlist).items():
        for k, row in enumerate(np.frombuffer(contents[name], dtype=np.uint8).reshape(16, 256)):
            cell.parameters[f"INIT_{k:X}"] = "".join(map(str, row[::-1]))


def contents_text(netlist: Netlist) -> str:
    """Them as nextpnr writes them."""
    lines = []
    for name, cell in _named(netlist).items():
        rows = (bits_of(cell.parameters.get(f"INIT_{k:X}", "0")) for k in range(16))
        lines += [f".ram_data {name}", *(f"{row:064x}" for row in rows), ""]
    return "\n".join(lines)


def _block_ram(part: CellLowering) -> None:
    """Narrow words have their bits 2, 4 or 8 apart, and the upper bits of the address choose among those between."""
    mode = part.number("READ_MODE")
    if part.number("WRITE_MODE") != mode or part.number("NEG_CLK_R") or part.number("NEG_CLK_W"):
        raise part.refuse("READ_MODE and WRITE_MODE must be the same, and both clocks rising ones")
    part.ignore(*(f"INIT_{k:X}" for k in range(16)))
    apart, circuit = 1 << mode, part.circuit
    origin, to = (_ins(part, port, 11)[: 8 + mode] for port in ("RADDR", "WADDR"))
    data, mask, out = _ins(part, "WDATA", RAM_BITS), _ins(part, "MASK", RAM_BITS), _outs(part, "RDATA", RAM_BITS)
    reads = part.all_of([part.pin("RE"), part.pin("RCLKE", ONE)])
    writes = [part.pin("WE"), part.pin("WCLKE", ONE)]
    rows = _bits(part.cell).reshape(RAM_ROWS, RAM_BITS)
    for column in range(RAM_BITS // apart):
        pin = column * apart + (0, 0, 1, 3)[mode]
        memory = circuit.memory(rows[:, column * apart : (column + 1) * apart].T.reshape(-1).tolist())
        read = circuit.net()
        circuit.read(memory, origin, [read])
        circuit.register(part.clock("RCLK"), out[pin], read, enable=reads)
        enable = part.all_of(writes, [mask[pin]] if mode == 0 else [])
        if enable != ZERO:
            circuit.write(part.clock("WCLK"), memory, enable, to, [data[pin]])


def _large_ram(part: CellLowering) -> None:
    """16,384 words of 16 bits, written by four; a write leaves the output undefined: here the word before."""
    for port, value in (("STANDBY", ZERO), ("SLEEP", ZERO), ("POWEROFF", ONE)):
        part.constant(port, value, default=value)
    addr, data, mask = _ins(part, "ADDRESS", 14), _ins(part, "DATAIN", 16), _ins(part, "MASKWREN", 4)
    out, circuit = _outs(part, "DATAOUT", 16), part.circuit
    select, write = part.pin("CHIPSELECT"), part.pin("WREN")
    clock, reads = part.clock("CLOCK"), part.all_of([select], [write])
    for k in range(4):
        memory = circuit.memory([0] * SPRAM_WORDS)
        read = [circuit.net() for _ in range(4)]
        circuit.read(memory, addr, read)
        for net, q in zip(read, out[4 * k : 4 * k + 4], strict=True):
            circuit.register(clock, q, net, enable=reads)
        circuit.write(clock, memory, part.all_of([select, write, mask[k]]), addr, data[4 * k : 4 * k + 4])


# Multiplier ---------------------------------------------------------------------------------------------------


def _multiplier(part: CellLowering) -> None:
    """The product of 16 by 16 bits, or two of 8 by 8, with their registers."""
    circuit = part.circuit
    halves = part.number("MODE_8x8")
    output = 2 if halves else 3
    if part.number("TOPOUTPUT_SELECT") != output or part.number("BOTOUTPUT_SELECT") != output:
        raise part.refuse("outputs must be those of the product")
    unused = ["C_REG", "D_REG", "PIPELINE_16x16_MULT_REG1"]
    unused += ["PIPELINE_16x16_MULT_REG2"] if halves else ["TOP_8x8_MULT_REG", "BOT_8x8_MULT_REG"]
    for name in unused:
        if part.number(name):
            raise part.refuse(f"{name} must be 0")
    for half in ("TOP", "BOT"):
        part.ignore(*(f"{half}ADDSUB_{name}" for name in ("CARRYSELECT", "UPPERINPUT", "LOWERINPUT")))
        for port in (f"IRST{half}", f"ORST{half}", f"OLOAD{half}", f"ADDSUB{half}", f"OHOLD{half}"):
            part.constant(port, ZERO)
    if part.number("NEG_TRIGGER"):
        raise part.refuse("NEG_TRIGGER must be 0")
    for port in ("AHOLD", "BHOLD", "CHOLD", "DHOLD", "CI", "ACCUMCI", "SIGNEXTIN"):
        part.constant(port, ZERO)
    for port in "CD":
        _ins(part, port, 16)
    clock, enable = part.clock("CLK"), part.pin("CE", ONE)

    def late(nets: list[int], outs: list[int]) -> list[int]:
        for net, q in zip(nets, outs, strict=True):
            circuit.register(clock, q, net, enable=enable)
        return outs

    def product(first: int, count: int, out: list[int], registered: bool) -> None:
        """Writes the product of ``count`` bits of both operands."""
        factors = []
        for nets, signed in operands:
            nets = nets[first : first + count]
            factors.append([*nets, nets[-1] if signed else ZERO])
        exact = [circuit.net() for _ in out] if registered else out
        circuit.product(factors[0], factors[1], exact)
        if registered:
            late(exact, out)

    operands = []
    for port in "AB":
        nets = _ins(part, port, 16)
        if part.number(f"{port}_REG"):
            nets = late(nets, [circuit.net() for _ in nets])
        operands.append((nets, part.number(f"{port}_SIGNED")))
    out = _outs(part, "O", 32)
    if halves:
        product(0, 8, out[:16], bool(part.number("BOT_8x8_MULT_REG")))
        product(8, 8, out[16:], bool(part.number("TOP_8x8_MULT_REG")))
    else:
        product(0, 16, out, bool(part.number("PIPELINE_16x16_MULT_REG2")))


# Pads and clocks ----------------------------------------------------------------------------------------------


def _pad(part: CellLowering) -> None:
    """An input as it is, or an output with a register for value and enable; one that is not driven is pulled up."""
    kind = part.number("PIN_TYPE")
    part.ignore("IO_STANDARD", "PULLUP", "CLOCK_ENABLE", "INPUT_CLK", "OUTPUT_CLK", "PACKAGE_PIN")
    if part.number("NEG_TRIGGER"):
        raise part.refuse("NEG_TRIGGER must be 0")
    if kind == 0b000001:
        if part.connected("D_IN_0") and not part.carries_clock("PACKAGE_PIN"):
            pad = part.out("PACKAGE_PIN")
            part.circuit.source(pad)
            part.circuit.computed(bool, [pad], part.out("D_IN_0"))
        return
    if kind != 0b110101:
        raise part.refuse(f"PIN_TYPE must be 000001 or 110101, not {kind:06b}")
    part.constant("CLOCK_ENABLE", ONE, default=ONE)
    clock, data, on = part.clock("OUTPUT_CLK"), part.circuit.net(), part.circuit.net()
    part.circuit.register(clock, data, part.pin("D_OUT_0"))
    part.circuit.register(clock, on, part.pin("OUTPUT_ENABLE"))
    part.circuit.computed(lambda data, on: data or not on, [data, on], part.out("PACKAGE_PIN"))


def _pll(part: CellLowering) -> None:
    """Writes a PLL, whose frequency the netlist ignores: its output is the clock, and it has locked."""
    part.ignore(*part.cell.parameters, *part.cell.pins)
    part.circuit.computed(lambda: True, [], part.out("LOCK"))


def _buffer(part: CellLowering) -> None:
    """A clock, or anything else that many cells share."""
    port = "USER_SIGNAL_TO_GLOBAL_BUFFER"
    if _is_of_pll(part.cell):
        return
    try:
        part.clock(port)
    except NetlistError:
        part.circuit.computed(bool, [part.pin(port)], part.out("GLOBAL_BUFFER_OUTPUT"))


def _is_of_pll(cell: Cell) -> bool:
    """True if a global buffer has the output of the PLL beside it as its input, to which no net leads."""
    return cell.attributes.get("FOR_PAD_IN", "").strip() == "1" and not cell.pins["USER_SIGNAL_TO_GLOBAL_BUFFER"]


def _shared(lowering: Lowering, cell: Cell) -> Clock:
    if _is_of_pll(cell):
        return Clock()
    return lowering.clock(cell.pins["USER_SIGNAL_TO_GLOBAL_BUFFER"][0])


def _made(lowering: Lowering, cell: Cell) -> Clock:
    return Clock()


PASSING = {
    ("SB_PLL40_PAD", "PLLOUTGLOBAL"): _made,
    ("ICESTORM_PLL", "PLLOUT_A"): _made,
    ("ICESTORM_PLL", "PLLOUT_A_GLOBAL"): _made,
    ("SB_IO", "D_IN_0"): lambda lowering, cell: lowering.clock(cell.pins["PACKAGE_PIN"][0]),
    ("SB_GB", "GLOBAL_BUFFER_OUTPUT"): _shared,
}
RULES = {
    "SB_LUT4": _lut4,
    "SB_CARRY": _carry,
    "SB_DFF": _flip_flop(False, "", 0),
    "SB_DFFE": _flip_flop(True, "", 0),
    "SB_DFFSR": _flip_flop(False, "R", 0),
    "SB_DFFSS": _flip_flop(False, "S", 1),
    "SB_DFFESR": _flip_flop(True, "R", 0),
    "SB_DFFESS": _flip_flop(True, "S", 1),
    "SB_RAM40_4K": _block_ram,
    "SB_SPRAM256KA": _large_ram,
    "SB_MAC16": _multiplier,
    "SB_IO": _pad,
    "SB_GB": _buffer,
    "SB_PLL40_PAD": _pll,
    "ICESTORM_LC": _logic_cell,
    "ICESTORM_RAM": _block_ram,
    "ICESTORM_SPRAM": _large_ram,
    "ICESTORM_DSP": _multiplier,
    "ICESTORM_PLL": _pll,
}

#: Models of the cells, for the family.
MODELS = GateModels(RULES, PASSING, constants, contents, set_contents, contents_text)
