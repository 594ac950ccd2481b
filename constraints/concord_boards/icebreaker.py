"""1BitSquared iCEBreaker with its iCE40 UP5K."""

from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth_boards.icebreaker import ICEBreakerPlatform

from concord.spec.boards import BOARD_SPECS
from concord.spec.links import SLOW_SPI_HZ
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
    # The lower row of PMOD 1A in the order of the standard: its last pin is one that clocks can come from.
    spi=Resource(
        "spi",
        0,
        Subsignal("csn", Pins("7", dir="i", conn=("pmod", 0)), Attrs(PULLUP=1)),
        Subsignal("copi", Pins("8", dir="i", conn=("pmod", 0))),
        Subsignal("cipo", Pins("9", dir="o", conn=("pmod", 0))),
        Subsignal("sck", Pins("10", dir="i", conn=("pmod", 0)), Clock(2 * SLOW_SPI_HZ), Attrs(GLOBAL=True)),
        Attrs(IO_STANDARD="SB_LVCMOS"),
    ),
)
