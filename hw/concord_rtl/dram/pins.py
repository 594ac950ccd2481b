"""Pins of an SDR SDRAM, and its commands."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from concord.spec.dram import SdramPart
from concord.spec.operations import Op
from concord_rtl.parts.component import Input, Interface, Output
from concord_rtl.parts.shapes import stream_of


class Command(IntEnum):
    """Commands by the levels of RAS, CAS and WE, in this order from bit 0 on; all are low when active."""

    MODE = 0b000
    REFRESH = 0b100
    PRECHARGE = 0b010
    ACTIVATE = 0b110
    WRITE = 0b001
    READ = 0b101
    NONE = 0b111


#: Steps of the memory clock that are a period in simulations; that are a period or more on boards, whose PLL makes
#: eight steps in a period of an oscillator of 400 to 800 MHz.
PHASES, BOARD_PHASES = 16, 128
#: Address bit that a precharge of all banks has set.
ALL_BANKS = 10


class SdramPins(Interface):
    """Pins of an SDRAM that is always selected and clocked, seen from the controller.

    Parameters
    ----------
    part : SdramPart
    """

    command = Output(3, "Levels of RAS, CAS and WE.", init=Command.NONE)
    bank = Output(lambda self: self.part.bank_bits, "Bank.")
    addr = Output(lambda self: self.part.row_bits, "Row, column or mode.")
    dq_o = Output(lambda self: self.part.width, "Data to write.")
    oe = Output(1, "Data are driven.")
    mask = Output(lambda self: self.part.width // 8, "Bytes that are not written.")
    dq_i = Input(lambda self: self.part.width, "Data as the registers of the pads have taken them.")

    def __init__(self, part: SdramPart) -> None:
        self.part = part
        super().__init__()


class SdramPort(Interface):
    """An SDRAM and its clock, seen from the controller.

    Parameters
    ----------
    part : SdramPart
    """

    pins = Output(lambda self: SdramPins(self.part), "Pins.")
    step = Output(stream_of(1), "The clock of the memory is to be one phase later, for 1 earlier; moved when it is.")

    def __init__(self, part: SdramPart) -> None:
        self.part = part
        super().__init__()


def sdram_port() -> Any:
    """Port to the external memory of a component with a ``config``; none where that has no such memory."""
    return Output(
        lambda self: SdramPort(self.config.sdram),
        "The external memory. Only with one.",
        when=lambda self: self.config.has(Op.COPY),
    )
