"""Colorlight i5 v7.0 and i9 v7.2 on the extension board of Muse Lab, v1.2.

amaranth-boards has neither. The pins are those of the pages and constraints of the project Colorlight-FPGA-Projects,
which documents them, and of litex-boards; both agree. The schematic of the extension board says which pins of its
connectors they are, and that H18 and J17 are at the serial port of its DAPLink.
"""

from typing import ClassVar

from amaranth.build import Attrs, Clock, Connector, Pins, Resource
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import LEDResources, SDRAMResource, UARTResource

from concord.spec.boards import BOARD_SPECS
from concord_boards.board import Board
from concord_boards.pins import spi_pins
from concord_boards.placements import placements_of

_LVCMOS33 = Attrs(IO_TYPE="LVCMOS33")


class _Colorlight(LatticeECP5Platform):
    """Common part of both boards: clock, serial port, memory, and four pins of connector P2 of the extension board.

    Of the 32 data pins of the memory the lower half is here. It is always enabled and selected, and has no masks.
    """

    package = "BG381"
    speed = "6"
    default_clk = "clk25"
    common: ClassVar = [
        Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), _LVCMOS33),
        UARTResource(0, rx="H18", tx="J17", attrs=Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")),
        SDRAMResource(
            0,
            clk="B9",
            we_n="A10",
            ras_n="B10",
            cas_n="A9",
            ba="B11 C8",
            a="B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12",
            dq="B6 A5 A6 A7 C7 B8 B5 A8 D8 D7 E8 D6 C6 D5 E7 C5",
            attrs=Attrs(IO_TYPE="LVCMOS33", SLEWRATE="FAST"),
        ),
    ]
    connectors: ClassVar = [Connector("p", 2, {"16": "J20", "17": "L18", "18": "M18", "19": "N17"})]


class _ColorlightI5(_Colorlight):
    device = "LFE5U-25F"
    resources: ClassVar = [*_Colorlight.common, *LEDResources(pins="U16", invert=True, attrs=_LVCMOS33)]


class _ColorlightI9(_Colorlight):
    """Colorlight i9: the light is at L2, as litex-boards and the constraints say; the page has L20, which is pin 81."""

    device = "LFE5U-45F"
    resources: ClassVar = [*_Colorlight.common, *LEDResources(pins="L2", invert=True, attrs=_LVCMOS33)]


def _colorlight(model: str, size: int, platform: type) -> Board:
    name = f"colorlight-{model}"
    return Board(
        name=name,
        platform=platform,
        family="ecp5",
        preset=BOARD_SPECS[name].preset,
        oscillator="clk25",
        oscillator_hz=25_000_000,
        leds=(("led", 0),),
        place=(f"--{size}k", "--package", "CABGA381", "--speed", "6"),
        placements=placements_of(name),
        spi=spi_pins("16", "17", "18", "19", ("p", 2)),
    )


COLORLIGHT = (_colorlight("i5", 25, _ColorlightI5), _colorlight("i9", 45, _ColorlightI9))
