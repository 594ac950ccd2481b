"""The boards for which there are bitstreams: the preset that fills each, its clock and its serial port."""

from __future__ import annotations

import re
from dataclasses import dataclass

from concord.spec.link import BAUD


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """What everybody has to know about a board.

    Parameters
    ----------
    preset : str
        Name of the configuration that fills the board.
    clock_hz : int
        Base of all rates: at most the clock of the bitstream that ``make bitstream`` makes of it (docs/flow.md).
    aim_hz : int
        Target that place and route of the preset begins with.
    baud : int
        Bits per second of its serial port.
    others : tuple of str
        Other presets made for it.
    """

    preset: str
    clock_hz: int
    aim_hz: int
    baud: int = BAUD
    others: tuple[str, ...] = ()


#: Boards by name.
BOARD_SPECS: dict[str, BoardSpec] = {
    "ulx3s-12f": BoardSpec(preset="ecp5-25f", clock_hz=50_000_000, aim_hz=97_000_000, baud=3_000_000),
    "ulx3s-25f": BoardSpec(preset="ecp5-25f", clock_hz=95_750_000, aim_hz=97_000_000, baud=3_000_000),
    "ulx3s-45f": BoardSpec(preset="ecp5-25f", clock_hz=50_000_000, aim_hz=97_000_000, baud=3_000_000),
    "ulx3s-85f": BoardSpec(
        preset="ecp5-85f-256",
        clock_hz=82_750_000,
        aim_hz=82_000_000,
        baud=3_000_000,
        others=("ecp5-85f", "ecp5-85f-mlp"),
    ),
    "icebreaker": BoardSpec(preset="up5k", clock_hz=24_000_000, aim_hz=24_000_000),
}

#: Preset of every board for which there is a bitstream.
BOARD_PRESETS: dict[str, str] = {name: board.preset for name, board in BOARD_SPECS.items()}


def preset_of(name: str) -> str:
    """Name of the preset that a configuration with this name was made from; its mantissas or accumulator may differ."""
    return re.sub(r"(-m\d+)?(-a\d+)?$", "", name)


def baud_of(preset: str) -> int:
    """Bits per second of the board with a configuration made from the preset with this name; else the default."""
    name = preset_of(preset)
    return next((board.baud for board in BOARD_SPECS.values() if name in (board.preset, *board.others)), BAUD)
