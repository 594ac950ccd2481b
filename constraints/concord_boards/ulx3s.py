"""Radiona ULX3S with its four sizes of ECP5."""

from amaranth_boards.ulx3s import ULX3S_12F_Platform, ULX3S_25F_Platform, ULX3S_45F_Platform, ULX3S_85F_Platform

from concord.spec.boards import BOARD_PRESETS

from .board import Board


def _ulx3s(size, platform, *, blocked_rows=0):
    name = f"ulx3s-{size}f"
    return Board(
        name=name,
        platform=platform,
        family="ecp5",
        preset=BOARD_PRESETS[name],
        oscillator="clk25",
        oscillator_hz=25_000_000,
        leds=(("led", 0), ("led", 1), ("led", 2)),
        place=(f"--{size}k", "--package", "CABGA381", "--speed", "6"),
        blocked_rows=blocked_rows,
    )


ULX3S = (
    _ulx3s(12, ULX3S_12F_Platform),
    _ulx3s(25, ULX3S_25F_Platform),
    _ulx3s(45, ULX3S_45F_Platform),
    # Half of its LUTs and nearly all of its block RAMs and multipliers: side by side, there are too few wires.
    _ulx3s(85, ULX3S_85F_Platform, blocked_rows=4),
)
