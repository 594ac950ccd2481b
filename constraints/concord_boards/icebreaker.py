"""1BitSquared iCEBreaker with its iCE40 UP5K."""

from amaranth_boards.icebreaker import ICEBreakerPlatform

from concord.spec.boards import BOARD_SPECS
from concord_boards.board import Board

NAME = "icebreaker"

ICEBREAKER = Board(
    name=NAME,
    platform=ICEBreakerPlatform,
    family="ice40",
    preset=BOARD_SPECS[NAME].preset,
    oscillator="clk12",
    oscillator_hz=12_000_000,
    leds=(("led_g", 0), ("led_r", 0)),
    place=("--up5k", "--package", "sg48", "--placer", "static"),
)
