"""From the files of the flow to the simulation of a netlist."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from concord_rtl.families import Family, family_named
from concord_rtl.families.family import GateModels
from concord_rtl.flow.bitstream import NAME, Flow
from concord_rtl.flow.bram import BlockRams
from concord_rtl.flow.clocking import RESET_CYCLES
from concord_rtl.flow.gates.library import compile_circuit
from concord_rtl.flow.meter import LEAST_WINDOW
from concord_rtl.link.uart import Uart
from concord_rtl.netlists.circuit import Line
from concord_rtl.netlists.lowering import Lowering
from concord_rtl.netlists.netlist import Netlist, NetlistError

#: Cycles of the oscillator in one of the design's clock, at most, where the PLL can be set to anything.
MOST_RATIO = 6
#: The bit rate that the design measures must not be a matter of rounding.
CLEAR = 0.3


class NetlistStage(StrEnum):
    """After which step of the flow."""

    SYNTHESIS = "synthesis"
    ROUTED = "routed"


def models_of(family: Family) -> GateModels:
    """Models of the cells of a family; :class:`NetlistError` if there are none."""
    if family.gates is None:
        raise NetlistError(f"netlists of {family.name} are not simulated")
    return family.gates


def netlist_of(flow: Flow, stage: NetlistStage) -> Netlist:
    """The netlist after a step of the flow, with the contents it was built with."""
    models_of(flow.family)
    path = flow.file("json") if stage is NetlistStage.SYNTHESIS else flow.routed
    if not path.exists():
        raise NetlistError(f"{path} must be there: build the bitstream first")
    netlist = Netlist.load(path, NAME)
    if stage is NetlistStage.ROUTED:
        _check_contents(netlist, flow)
    return netlist


def _check_contents(netlist: Netlist, flow: Flow) -> None:
    """The block RAMs in what becomes the bitstream must be those of the netlist."""
    rams = BlockRams(flow.family.geometry, flow.placed.read_text())
    if rams.by_name() != models_of(flow.family).contents(netlist):
        raise NetlistError(f"{flow.placed} must have the block RAMs of {flow.routed}; build the bitstream again")


def fill(netlist: Netlist, family: Family, rams: BlockRams) -> None:
    """Give the block RAMs of a netlist the contents of ``rams``, which has them by the same names."""
    models_of(family).set_contents(netlist, rams.by_name())


def contents_text(netlist: Netlist, family: Family) -> str:
    """The block RAMs of a netlist as nextpnr writes them."""
    return models_of(family).contents_text(netlist)


def steps(board: Any, hz: float, baud: int, tunable: bool) -> tuple[int, int]:
    """Cycles of the oscillator in a step, and steps per bit.

    A PLL that can be tuned is set after place and route, and the design measures its clock: it is simulated with the
    slowest clock that gives the bit rate, as steps take the time.
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
    models = models_of(family_named(board.family))
    clock, rx, tx = f"{board.oscillator}_0__io", "uart_0__rx__io", "uart_0__tx__io"
    lowering = Lowering(netlist, models.passing, models.constants(netlist), clock)
    lowering.lower(models.rules)
    ratio, bit = steps(board, hz, baud, tunable)
    start = RESET_CYCLES + 2 * LEAST_WINDOW + bit * ratio
    return compile_circuit(lowering.circuit.text(Line(lowering.port(rx), lowering.port(tx), bit, ratio, start)))
