"""What the devices of the boards have: logic, multipliers and block RAMs."""

from __future__ import annotations

from dataclasses import dataclass

#: Shapes of a block RAM of ECP5: words, and bits of a word.
ECP5_RAM_SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))


@dataclass(frozen=True)
class Device:
    """LUTs, multipliers and block RAMs of a device."""

    luts: int
    multipliers: int
    rams: int


_SMALL = Device(24288, 28, 56)
#: Devices of the boards with an ECP5.
ECP5_DEVICES = {
    "ulx3s-12f": _SMALL,
    "ulx3s-25f": _SMALL,
    "ulx3s-45f": Device(43848, 72, 108),
    "ulx3s-85f": Device(83640, 156, 208),
}
