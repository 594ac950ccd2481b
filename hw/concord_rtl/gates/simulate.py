"""From the files of the flow to the simulation of a netlist."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from ..flow.bitstream import NAME, Flow
from ..flow.bram import BlockRams
from ..flow.clocking import RESET_CYCLES
from ..flow.meter import LEAST_WINDOW
from ..link.uart import Uart
from . import ecp5, ice40
from .circuit import Line
from .library import compile_circuit
from .lowering import Lowering
from .netlist import Netlist, NetlistError

#: What is known of each family.
FAMILIES = {"ecp5": ecp5, "ice40": ice40}
#: Cycles of the oscillator in one of the design's clock, at most, where the PLL can be set to anything.
MOST_RATIO = 6
#: The bit rate that the design measures must not be a matter of rounding.
CLEAR = 0.3


class Stage(StrEnum):
    """After which step of the flow."""

    SYNTHESIS = "synthesis"
    ROUTED = "routed"


def netlist_of(flow: Flow, stage: Stage) -> Netlist:
    """The netlist after a step of the flow, with the contents it was built with."""
    if flow.board.family not in FAMILIES:
        raise NetlistError(f"netlists of {flow.board.family} are not simulated")
    path = flow.file("json") if stage is Stage.SYNTHESIS else flow.routed
    if not path.exists():
        raise NetlistError(f"{path} must be there: build the bitstream first")
    netlist = Netlist.load(path, NAME)
    if stage is Stage.ROUTED:
        _check_contents(netlist, flow)
    return netlist


def _check_contents(netlist: Netlist, flow: Flow) -> None:
    """The block RAMs in what becomes the bitstream must be those of the netlist."""
    family = flow.board.family
    if BlockRams(family, flow.placed.read_text()).by_name() != FAMILIES[family].contents(netlist):
        raise NetlistError(f"{flow.placed} must have the block RAMs of {flow.routed}; build the bitstream again")


def fill(netlist: Netlist, family: str, rams: BlockRams) -> None:
    """Give the block RAMs of a netlist the contents of ``rams``, which has them by the same names."""
    FAMILIES[family].set_contents(netlist, rams.by_name())


def contents_text(netlist: Netlist, family: str) -> str:
    """The block RAMs of a netlist as nextpnr writes them."""
    return FAMILIES[family].contents_text(netlist)


def steps(board: Any, hz: float, baud: int, tunable: bool) -> tuple[int, int]:
    """Cycles of the oscillator in a step, and steps per bit.

    The PLL of ECP5 is set after place and route, and the design measures its clock: it is simulated with the slowest
    clock that gives the bit rate, as steps take the time.
    """
    if not tunable:
        return 1, round(hz / baud)
    for ratio in range(MOST_RATIO, 0, -1):
        exact = board.oscillator_hz / ratio / baud
        if round(exact) >= Uart.LEAST_DIVISOR and abs(exact - round(exact)) <= CLEAR:
            return ratio, round(exact)
    raise NetlistError(f"no clock gives {baud} baud clearly")


def library_of(netlist: Netlist, board: Any, hz: float, baud: int, tunable: bool) -> Path:
    """Return the library of a netlist on its board, for :class:`concord.host.rtl.RtlTransport`.

    Raises
    ------
    NetlistError
        If something in it is not simulated.
    """
    family = FAMILIES[board.family]
    clock, rx, tx = f"{board.oscillator}_0__io", "uart_0__rx__io", "uart_0__tx__io"
    lowering = Lowering(netlist, family.RULES, family.PASSING, family.constants(netlist), clock)
    ratio, bit = steps(board, hz, baud, tunable)
    start = RESET_CYCLES + 2 * LEAST_WINDOW + bit * ratio
    return compile_circuit(lowering.circuit.text(Line(lowering.port(rx), lowering.port(tx), bit, ratio, start)))
