"""Radiona ULX3S with its four sizes of ECP5."""

from amaranth_boards.ulx3s import ULX3S_12F_Platform, ULX3S_25F_Platform, ULX3S_45F_Platform, ULX3S_85F_Platform

from concord.spec.boards import BOARD_SPECS
from concord_boards.board import Board
from concord_boards.pins import spi_pins
from concord_boards.placements import placements_of


def _ulx3s(size: int, platform: type) -> Board:
    name = f"ulx3s-{size}f"
    return Board(
        name=name,
        platform=platform,
        family="ecp5",
        preset=BOARD_SPECS[name].preset,
        oscillator="clk25",
        oscillator_hz=25_000_000,
        leds=(("led", 0), ("led", 1), ("led", 2)),
        place=(f"--{size}k", "--package", "CABGA381", "--speed", "6"),
        placements=placements_of(name),
        # The first four pins of J1.
        spi=spi_pins("0+", "0-", "1+", "1-", ("gpio", 0)),
    )


ULX3S = (
    _ulx3s(85, ULX3S_85F_Platform),
    _ulx3s(25, ULX3S_25F_Platform),
    _ulx3s(45, ULX3S_45F_Platform),
    _ulx3s(12, ULX3S_12F_Platform),
)
