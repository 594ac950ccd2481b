"""Muse Lab iCESugar-Pro with its ECP5-25F."""

from amaranth.build import Attrs
from amaranth_boards.icesugar_pro import ICESugarProPlatform
from amaranth_boards.resources import LEDResources

from concord.spec.boards import BOARD_SPECS
from concord_boards.board import Board
from concord_boards.pins import platform_with, spi_pins
from concord_boards.placements import placements_of

NAME = "icesugar-pro"

#: The light in the order red, green, blue that the schematic (v1.3) and litex-boards have; in amaranth-boards it is
#: A11, A12, B11. Its anodes are at the pins, so it is on where they are high; the names of litex-boards say low.
_LIGHT = LEDResources(pins="B11 A11 A12", attrs=Attrs(IO_TYPE="LVCMOS33"))

ICESUGAR_PRO = Board(
    name=NAME,
    platform=platform_with(ICESugarProPlatform, *_LIGHT),
    family="ecp5",
    preset=BOARD_SPECS[NAME].preset,
    oscillator="clk25",
    oscillator_hz=25_000_000,
    leds=(("led", 1), ("led", 0), ("led", 2)),
    place=("--25k", "--package", "CABGA256", "--speed", "6"),
    placements=placements_of(NAME),
    # Pins 27, 28, 26 and 25 of connector P2 of the extension board, by their numbers at the module.
    spi=spi_pins("51", "41", "59", "63", ("sodimm", 0)),
)
