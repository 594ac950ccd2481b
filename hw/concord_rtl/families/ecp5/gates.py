"""Cells of ECP5: what synthesis makes, and what nextpnr packs it into.

Behaviour as in Lattice's FPGA-TN-02205 (DSP) and the libraries reference, in the modes that occur; others are refused.
What nextpnr leaves unconnected has the value that it writes to the bitstream.
"""

from __future__ import annotations

from functools import lru_cache

from concord_rtl.families.ecp5.gates_ram import block_ram, contents, contents_text, data_pin, set_contents
from concord_rtl.families.family import GateModels
from concord_rtl.netlists.circuit import ONE, ZERO, Clock
from concord_rtl.netlists.lowering import CellLowering, Lowering, Rule, table_of
from concord_rtl.netlists.netlist import Bit, Cell, Netlist, bits_of

MULTIPLIER_BITS = 18


def _lut4(part: CellLowering) -> None:
    pins = [part.pin(port, ONE) for port in "ABCD"]
    part.circuit.function(part.out("Z"), part.number("INIT"), pins)


def _mux(low: str, high: str, select: str) -> Rule:
    def rule(part: CellLowering) -> None:
        pins = [part.pin(low), part.pin(high), part.pin(select)]
        part.circuit.computed(lambda a, b, s: b if s else a, pins, part.out("Z"))

    return rule


@lru_cache
def _carry_tables(init: int, injected: bool) -> tuple[int, int]:
    """Sum and carry of half a carry cell, as functions of A, B, C, D and the carry.

    The lowest four bits of its table, a function of A and B alone, generate the carry.
    """

    def propagates(a: int, b: int, c: int, d: int) -> int:
        return init >> (a | b << 1 | c << 2 | d << 3) & 1

    def total(a: int, b: int, c: int, d: int, carry: int) -> int:
        return propagates(a, b, c, d) ^ (0 if injected else carry)

    def carry_out(a: int, b: int, c: int, d: int, carry: int) -> int:
        generated = 0 if injected else init >> (a | b << 1) & 1
        return carry if propagates(a, b, c, d) else generated

    return table_of(total, 5), table_of(carry_out, 5)


def _half(part: CellLowering, pins: list[int], carry: int, init: int, inject: str, total: int, carry_out: int) -> None:
    tables = _carry_tables(init, inject == "YES")
    for out, table in zip((total, carry_out), tables, strict=True):
        part.circuit.function(out, table, [*pins, carry])


def _ccu2c(part: CellLowering) -> None:
    between = part.circuit.net()
    carries = [part.pin("CIN"), between, part.out("COUT")]
    for k in range(2):
        pins = [part.pin(f"{port}{k}", ONE) for port in "ABCD"]
        inject = part.text(f"INJECT1_{k}", "YES", "NO")
        _half(part, pins, carries[k], part.number(f"INIT{k}"), inject, part.out(f"S{k}"), carries[k + 1])


def _flip_flop(part: CellLowering) -> None:
    part.text("CLKMUX", "CLK")
    part.text("LSRMUX", "LSR")
    part.text("LSRMODE", "LSR")
    part.ignore("GSR")  # the reset of the start: all registers have their values from it
    value = int(part.text("REGSET", "RESET", "SET") == "SET")
    enable = {"1": ONE, "0": ZERO, "CE": None}[part.text("CEMUX", "1", "0", "CE")]
    pin = part.pin("CE", ONE)
    data = part.pin("DI") if part.text("SD", "1", "0") == "1" else part.pin("M")
    reset = part.pin("LSR")
    if part.text("SRMODE", "LSR_OVER_CE", "ASYNC") == "ASYNC" and reset != ZERO:
        raise part.refuse("a reset that does not wait for the clock is not simulated")
    part.circuit.register(
        part.clock("CLK"),
        part.out("Q"),
        data,
        enable=pin if enable is None else enable,
        reset=reset,
        init=value,
        value=value,
    )


def _small_ram(part: CellLowering) -> None:
    part.text("WCKMUX", "WCK")
    init = part.number("INITVAL")
    memory = part.circuit.memory([init >> 4 * k & 15 for k in range(16)])
    enable = {"WRE": None, "1": ONE, "0": ZERO}[part.text("WREMUX", "WRE", "1", "0")]
    pin = part.pin("WRE")
    part.circuit.read(memory, part.pins("RAD"), part.outs("DO"))
    part.circuit.write(part.clock("WCK"), memory, pin if enable is None else enable, part.pins("WAD"), part.pins("DI"))


# Multiplier ------------------------------------------------------------------------------------------------


def _staged(part: CellLowering, stage: str, nets: list[int], outs: list[int] | None = None) -> list[int]:
    """Nets after a register stage of a multiplier; ``outs`` if given."""
    choice = part.text(f"REG_{stage}_CLK", "NONE", "CLK0")
    enable, reset = part.text(f"REG_{stage}_CE", "CE0"), part.text(f"REG_{stage}_RST", "RST0")
    if choice == "NONE":
        return nets
    outputs = [part.circuit.net() for _ in nets] if outs is None else outs
    for net, q in zip(nets, outputs, strict=True):
        part.circuit.register(part.clock(choice), q, net, enable=part.pin(enable, ONE), reset=part.pin(reset))
    return outputs


def _multiplier(part: CellLowering) -> None:
    part.ignore("GSR", "RESETMODE", *(f"CLK{k}_DIV" for k in range(4)))
    part.ignore(*(f"{port}{k}" for port in ("CLK", "CE", "RST") for k in range(4)))  # those chosen are asked for
    part.text("MULT_BYPASS", "DISABLED")
    part.text("SOURCEB_MODE", "B_SHIFT")
    part.text("CAS_MATCH_REG", "FALSE")
    part.text("HIGHSPEED_CLK", "NONE")
    factors = []
    for port in "AB":
        part.constant(f"SOURCE{port}", ZERO)
        signed = part.constant(f"SIGNED{port}", ZERO, ONE)
        operand = [data_pin(part, f"{port}{k}") for k in range(MULTIPLIER_BITS)]
        staged = _staged(part, f"INPUT{port}", operand)
        factors.append([*staged, staged[-1] if signed == ONE else ZERO])
    for k in range(MULTIPLIER_BITS):  # operand C belongs to another mode
        data_pin(part, f"C{k}")
    exact = [part.circuit.net() for _ in range(2 * MULTIPLIER_BITS)]
    part.circuit.product(factors[0], factors[1], exact)
    between = _staged(part, "PIPELINE", exact)
    outs = [part.out(f"P{k}") for k in range(2 * MULTIPLIER_BITS)]
    if _staged(part, "OUTPUT", between, outs) is between:
        for net, out in zip(between, outs, strict=True):
            part.circuit.computed(bool, [net], out)


# Pads and clocks -------------------------------------------------------------------------------------------


def _pad(part: CellLowering) -> None:
    if part.text("DIR", "INPUT", "OUTPUT") == "OUTPUT":
        data = part.pin(part.text("DATAMUX_OREG", "I", "IOLDO"))
        off = part.pin(part.text("TRIMUX_TSREG", "T", "IOLTO"))
        part.circuit.computed(lambda data, off: data and not off, [data, off], part.out("B"))
    elif part.carries_clock("B"):
        part.ignore("B")
    else:
        part.circuit.computed(bool, [part.pin("B")], part.out("O"))


def _pad_registers(part: CellLowering) -> None:
    """The registers of a pad for output and its enable."""
    part.text("MODE", "IREG_OREG")
    for name in ("MIDDRX.MODE", "MODDRX.MODE", "MTDDRX.MODE", "IDDRXN.MODE", "ODDRXN.MODE", "IOLTOMUX"):
        part.text(name, "NONE")
    part.text("DELAY.OUTDEL", "DISABLED")
    part.text("CLKOMUX", "CLK")
    part.text("CEOMUX", "CEMUX")
    part.text("LSROMUX", "LSRMUX")
    part.ignore("GSR", "SRMODE", "CLKIMUX", "LSRIMUX", "LSRMUX", "DELAY.WAIT_FOR_EDGE", "DELAY.DEL_VALUE")
    part.ignore("MTDDRX.REGSET", "MTDDRX.DQSW_INVERT", "MIDDRX_MODDRX.WRCLKMUX")
    part.constant("LSR", ZERO)
    enable = part.pin("CE", ONE) if part.text("CEMUX", "1", "CE") == "CE" else ONE
    part.ignore("CE")
    for data, out, kind in (("TXDATA0", "IOLDO", "OUTREG"), ("TSDATA0", "IOLTO", "TSREG")):
        part.text(f"{kind}.OUTREGMODE", "FF")
        value = int(part.text(f"{kind}.REGSET", "RESET", "SET") == "SET")
        part.circuit.register(part.clock("CLK"), part.out(out), part.pin(data), enable=enable, init=value, value=value)


# Cells of slices, as nextpnr packs them --------------------------------------------------------------------


def _comb(part: CellLowering) -> None:
    """One table of a slice: a function, half of a carry cell, or a bit of a small memory; and a multiplexer."""
    mode = part.text("MODE", "LOGIC", "CCU2", "DPRAM", "RAMW_BLOCK")
    part.ignore("WCKMUX", "CCU2_INJECT1", "WREMUX")
    if mode == "RAMW_BLOCK":  # the place of the inputs of a TRELLIS_RAMW
        part.ignore("INITVAL", *part.cell.pins)
        return
    init = part.number("INITVAL")
    pins = [part.pin(port, ONE) for port in "ABCD"]
    total = part.out("F")
    if mode == "CCU2":
        _half(part, pins, part.pin("FCI"), init, part.text("CCU2_INJECT1", "NO", "YES"), total, part.out("FCO"))
    elif mode == "DPRAM":
        _bit_of_small_ram(part, init, pins, total)
    elif total not in (ZERO, ONE):  # constants are known
        part.circuit.function(total, init, pins)
    for source, other in (("F1", None), ("FXB", "FXA")):
        if part.connected(source) or (other and part.connected(other)):
            low = total if other is None else part.pin(other)
            part.circuit.computed(
                lambda a, b, s: b if s else a, [low, part.pin(source), part.pin("M")], part.out("OFX")
            )
    part.ignore("M", "OFX")


def _bit_of_small_ram(part: CellLowering, init: int, pins: list[int], out: int) -> None:
    part.text("WCKMUX", "WCK")
    part.text("WREMUX", "WRE")
    memory = part.circuit.memory([init >> k & 1 for k in range(16)])
    a, b, c, d = pins
    part.circuit.read(memory, [d, b, c, a], [out])
    written = [part.pin(f"WAD{k}") for k in range(4)]
    part.circuit.write(part.clock("WCK"), memory, part.pin("WRE"), written, [part.pin("WD")])


def _small_ram_inputs(part: CellLowering) -> None:
    """Passes the inputs of a small memory through the tables of the next slice."""
    ways = {"WADO0": "D0", "WADO1": "B0", "WADO2": "C0", "WADO3": "A0", "WDO0": "C1", "WDO1": "A1", "WDO2": "D1"}
    for out, port in (ways | {"WDO3": "B1"}).items():
        if part.connected(out):
            part.circuit.computed(bool, [part.pin(port)], part.out(out))
        part.ignore(out, port)


def constants(netlist: Netlist) -> dict[Bit, int]:
    """Nets that are constant: those of tables without inputs."""
    constants: dict[Bit, int] = {}
    for cell in netlist.of_kind("TRELLIS_COMB"):
        value = bits_of(cell.parameters.get("INITVAL", "0"))
        if "MODE" not in cell.parameters and value in (0, 0xFFFF) and not any(map(cell.pins.get, "ABCD")):
            constants.update(dict.fromkeys(cell.pins.get("F", []), ONE if value else ZERO))
    return constants


# Clocks ----------------------------------------------------------------------------------------------------


def _pll(part: CellLowering) -> None:
    """Writes a PLL, whose frequencies the netlist ignores: an output is a clock, and it has locked."""
    part.ignore(*part.cell.parameters, *part.cell.pins)
    part.circuit.computed(lambda: True, [], part.out("LOCK"))


def _gate(part: CellLowering) -> None:
    part.ignore("CLKI", "CE")


def _gated(lowering: Lowering, cell: Cell) -> Clock:
    """A clock gate; it opens and closes between two edges."""
    clock, enable = lowering.clock(cell.pins["CLKI"][0]), cell.pins.get("CE") or ["1"]
    return clock if enable == ["1"] else Clock(clock.slow, (*clock.gates, lowering.used(enable[0], cell, "CE")))


PASSING = {
    ("TRELLIS_IO", "O"): lambda lowering, cell: lowering.clock(cell.pins["B"][0]),
    ("EHXPLLL", "CLKOP"): lambda lowering, cell: Clock(slow=True),
    ("DCCA", "CLKO"): _gated,
}
RULES = {
    "LUT4": _lut4,
    "PFUMX": _mux("BLUT", "ALUT", "C0"),
    "L6MUX21": _mux("D0", "D1", "SD"),
    "CCU2C": _ccu2c,
    "TRELLIS_FF": _flip_flop,
    "TRELLIS_DPR16X4": _small_ram,
    "DP16KD": block_ram,
    "MULT18X18D": _multiplier,
    "TRELLIS_IO": _pad,
    "EHXPLLL": _pll,
    "DCCA": _gate,
    "TRELLIS_COMB": _comb,
    "TRELLIS_RAMW": _small_ram_inputs,
    "IOLOGIC": _pad_registers,
}

#: Models of the cells, for the family.
MODELS = GateModels(RULES, PASSING, constants, contents, set_contents, contents_text)
