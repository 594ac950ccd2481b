"""Radiona ULX3S with its four sizes of ECP5."""

from dataclasses import replace

from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth_boards.ulx3s import ULX3S_12F_Platform, ULX3S_25F_Platform, ULX3S_45F_Platform, ULX3S_85F_Platform

from concord.spec.boards import BOARD_SPECS
from concord.spec.links import SPI_HZ
from concord_boards import floorplan
from concord_boards.board import Board, Placement

#: For a congested device. Wider boxes around nets, and a search that does not hurry to the goal, find ways with fewer
#: wires. The cost of a wire that is used twice grows slowly from round to round, so nets do not just change places.
_PATIENT = (("bbMargin/x", "5"), ("bbMargin/y", "5"), ("estimateWeight", "1.0"), ("currCongWeightMult", "1.0"))

#: For 256 multiply-accumulates per cycle: rows side by side, and places of registers without regard to clock enables.
_FIXED = Placement(sites=floorplan.ecp5_85f, placer=("--placer-heap-no-ctrl-set",), router=_PATIENT)

#: The first four pins of J1: gp0 is a pin that clocks can come from.
_SPI = Resource(
    "spi",
    0,
    Subsignal("sck", Pins("0+", dir="i", conn=("gpio", 0)), Clock(2 * SPI_HZ)),
    Subsignal("csn", Pins("0-", dir="i", conn=("gpio", 0)), Attrs(PULLMODE="UP")),
    Subsignal("copi", Pins("1+", dir="i", conn=("gpio", 0))),
    Subsignal("cipo", Pins("1-", dir="o", conn=("gpio", 0)), Attrs(SLEWRATE="FAST")),
    Attrs(IO_TYPE="LVCMOS33"),
)


def _ulx3s(size: int, platform: type, **placements: Placement) -> Board:
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
        placements=placements,
        spi=_SPI,
    )


ULX3S = (
    _ulx3s(
        85,
        ULX3S_85F_Platform,
        **{
            "ecp5-85f-256": replace(_FIXED, short_chains=True, aim_hz=77_000_000),
            "ecp5-85f-mlp": replace(_FIXED, aim_hz=65_000_000),
            # Half of its LUTs and nearly all of its block RAMs and multipliers: side by side, there are too few wires.
            "ecp5-85f": Placement(blocked_rows=4, router=_PATIENT, seeds=(2, 1, 3), aim_hz=73_750_000),
        },
    ),
    _ulx3s(25, ULX3S_25F_Platform),
    _ulx3s(45, ULX3S_45F_Platform),
    _ulx3s(12, ULX3S_12F_Platform),
)
