"""Icepi Zero from version 1.3 on, with an ECP5-25F in the form of a Raspberry Pi Zero."""

from amaranth.build import Attrs, Pins, Resource, Subsignal
from amaranth_boards.icepi_zero import IcepiZero1_3Platform

from concord.spec.boards import BOARD_SPECS
from concord_boards.board import Board
from concord_boards.pins import platform_with, spi_pins
from concord_boards.placements import placements_of

NAME = "icepi-zero"

#: The first of the two connectors of the FPGA. The pull-ups are two pins, G15 of D+ and H14 of D-: so it is in the
#: constraints of the board's project, and in this order in litex-boards. amaranth-boards has both as one signal, in the
#: other order. A device of full speed pulls up D+ alone.
_USB = Resource(
    "usb",
    0,
    Subsignal("d_p", Pins("F15", dir="io")),
    Subsignal("d_n", Pins("E16", dir="io")),
    Subsignal("pullup", Pins("G15", dir="o")),
    Attrs(IO_TYPE="LVCMOS33", DRIVE="4", PULLMODE="NONE"),
)

ICEPI_ZERO = Board(
    name=NAME,
    platform=platform_with(IcepiZero1_3Platform, _USB),
    family="ecp5",
    preset=BOARD_SPECS[NAME].preset,
    oscillator="clk50",
    oscillator_hz=50_000_000,
    leds=(("led", 0), ("led", 1), ("led", 2)),
    place=("--25k", "--package", "CABGA256", "--speed", "6"),
    placements=placements_of(NAME),
    # The pins that a Raspberry Pi has for SPI, but SCLK and MISO, which trade places: of the two, GPIO 9 is one that
    # clocks can come from.
    spi=spi_pins("9", "8", "10", "11", ("gpio", 0)),
)
