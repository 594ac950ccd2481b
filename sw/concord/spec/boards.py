"""The boards for which there are bitstreams: the presets of each, its clock and its way to the host."""

from __future__ import annotations

import re
from dataclasses import dataclass

from concord.spec.link import BAUD
from concord.spec.names import unknown_name


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What carries the bytes of a board's serial port to the host, and how long it holds back a reply.

    Latencies are besides the time of the bytes on the line.

    Parameters
    ----------
    name : str
        The chip.
    latency : float
        Seconds of a reply, with the driver set to low latency.
    default_latency : float
        Seconds of a reply, with the driver as it is installed.
    """

    name: str
    latency: float
    default_latency: float


#: USB serial ports of FTDI, as the boards have them. They hold back a short reply until the latency timer of the driver
#: runs out: 16 ms as installed, 1 ms at the least. The timer runs while a request is on the line, which makes the wait
#: shorter; the frames of USB make it up to 1 ms longer. These are assumptions, to be measured on a board. Others have
#: measured 60 KiB/s with 1 KiB a request at 3 Mbit/s and 16 ms, and 220 to 250 KiB/s with 1 ms (illumos issue 14169):
#: that is 13 ms and 0.7 to 1.2 ms a request besides its bytes.
FTDI = Adapter(name="FTDI", latency=1e-3, default_latency=16e-3)


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """What everybody has to know about a board.

    Parameters
    ----------
    presets : tuple of str
        Names of the configurations that are placed and routed for it. The first is the one that is built if nothing
        says which; of a network compiled for the board, the rates decide (:mod:`concord.networks.boards`).
    clock_hz : int
        Base of all rates of the first preset: at most the clock of the bitstream that ``make bitstream`` makes of it
        (docs/flow.md).
    aim_hz : int
        Target that place and route of the first preset begins with.
    baud : int
        Bits per second of its serial port.
    adapter : Adapter
        What is between its serial port and the host.
    """

    presets: tuple[str, ...]
    clock_hz: int
    aim_hz: int
    baud: int = BAUD
    adapter: Adapter = FTDI

    @property
    def preset(self) -> str:
        """The first preset."""
        return self.presets[0]


#: Boards by name; the first is the one if nothing says which. A preset of several is that of the first of them.
BOARD_SPECS: dict[str, BoardSpec] = {
    "ulx3s-85f": BoardSpec(
        presets=("ecp5-85f-256", "ecp5-85f", "ecp5-85f-mlp"),
        clock_hz=81_750_000,
        aim_hz=82_000_000,
        baud=3_000_000,
    ),
    "ulx3s-25f": BoardSpec(presets=("ecp5-25f",), clock_hz=95_750_000, aim_hz=97_000_000, baud=3_000_000),
    "ulx3s-45f": BoardSpec(presets=("ecp5-25f",), clock_hz=50_000_000, aim_hz=97_000_000, baud=3_000_000),
    "ulx3s-12f": BoardSpec(presets=("ecp5-25f",), clock_hz=50_000_000, aim_hz=97_000_000, baud=3_000_000),
    "icebreaker": BoardSpec(presets=("up5k",), clock_hz=24_000_000, aim_hz=24_000_000),
}

#: The board that everything is for if nothing says which.
DEFAULT_BOARD = next(iter(BOARD_SPECS))


def board_spec(name: str) -> BoardSpec:
    """What is known of a board; ``ValueError`` lists the boards, and guesses which one was meant."""
    if name not in BOARD_SPECS:
        raise unknown_name("board", BOARD_SPECS, name)
    return BOARD_SPECS[name]


def boards_with(preset: str) -> list[str]:
    """Names of the boards that a preset is placed for."""
    return [name for name, board in BOARD_SPECS.items() if preset in board.presets]


def preset_of(name: str) -> str:
    """Name of the preset that a configuration with this name was made from; its mantissas or accumulator may differ."""
    return re.sub(r"(-m\d+)?(-a\d+)?$", "", name)


def board_of_name(name: str) -> str:
    """Name of the first board that has the preset a configuration with this name was made from; empty if none has."""
    return next(iter(boards_with(preset_of(name))), "")


def baud_of(board: str) -> int:
    """Bits per second of the serial port of a board; the default if that is not known."""
    return BOARD_SPECS[board].baud if board in BOARD_SPECS else BAUD


def adapter_of(board: str) -> Adapter:
    """Adapter of a board; the usual one if the board is not known."""
    return BOARD_SPECS[board].adapter if board in BOARD_SPECS else FTDI
