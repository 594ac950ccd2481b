"""OrangeCrab r0.2 with its two sizes of ECP5.

Of what this file uses, the files of amaranth-boards and litex-boards, the pin-out of the board's documentation and its
constraints agree. That of amaranth-boards has wrong pins for the DDR3 memory, which are not used here.
"""

from amaranth.build import Attrs
from amaranth_boards.orangecrab_r0_2 import OrangeCrabR0_2_25FPlatform, OrangeCrabR0_2_85FPlatform
from amaranth_boards.resources import LEDResources, UARTResource

from concord.spec.boards import BOARD_SPECS
from concord_boards.board import Board
from concord_boards.pins import platform_with, spi_pins
from concord_boards.placements import placements_of

#: Resources that amaranth-boards does not have.
_MORE = [
    # Red, green and blue of one light.
    *LEDResources(pins="K4 M3 J3", invert=True, attrs=Attrs(IO_TYPE="LVCMOS33")),
    # The pins 0 and 1 of the Feather, its RX and TX: there is no serial port on the board.
    UARTResource(0, rx="0", tx="1", conn=("io", 0), attrs=Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")),
]


def _orangecrab(size: int, platform: type) -> Board:
    name = f"orangecrab-{size}f"
    return Board(
        name=name,
        platform=platform_with(platform, *_MORE),
        family="ecp5",
        preset=BOARD_SPECS[name].preset,
        oscillator="clk",
        oscillator_hz=48_000_000,
        leds=(("led", 1), ("led", 0), ("led", 2)),
        place=(f"--{size}k", "--package", "CSFBGA285", "--speed", "8"),
        placements=placements_of(name),
        # The pins that the Feather has for SPI are none that clocks can come from.
        spi=spi_pins("5", "6", "9", "10", ("io", 0)),
    )


ORANGECRAB = (_orangecrab(25, OrangeCrabR0_2_25FPlatform), _orangecrab(85, OrangeCrabR0_2_85FPlatform))
