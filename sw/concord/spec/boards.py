"""Boards by name, and the preset that fills each."""

from __future__ import annotations

#: Preset of every board for which there is a bitstream.
BOARD_PRESETS: dict[str, str] = {
    "ulx3s-12f": "ecp5-25f",
    "ulx3s-25f": "ecp5-25f",
    "ulx3s-45f": "ecp5-25f",
    "ulx3s-85f": "ecp5-85f",
    "icebreaker": "up5k",
}
