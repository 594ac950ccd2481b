"""Devices of the boards: logic, multipliers and memories."""

from __future__ import annotations

from dataclasses import dataclass

#: Shapes of a block RAM of ECP5: words, and bits of a word.
ECP5_RAM_SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))
#: Shapes of a block RAM of iCE40: words, and bits of a word.
ICE40_RAM_SHAPES = ((256, 16), (512, 8), (1024, 4), (2048, 2))
#: Words of a single-port RAM of iCE40 UP, and bits of a word.
SINGLE_PORT_RAM_SHAPE = (16384, 16)


@dataclass(frozen=True)
class FpgaDevice:
    """Resources of a device.

    Parameters
    ----------
    luts : int
        LUTs of four inputs; of an iCE40 logic cells, which have one each.
    multipliers, rams, single_port_rams : int
        Multipliers, block RAMs, and RAMs with a single port.
    """

    luts: int
    multipliers: int
    rams: int
    single_port_rams: int = 0


_SMALL, _MIDDLE, _LARGE = FpgaDevice(24288, 28, 56), FpgaDevice(43848, 72, 108), FpgaDevice(83640, 156, 208)
#: Devices of the boards with an ECP5.
ECP5_DEVICES = {
    "ulx3s-12f": _SMALL,
    "ulx3s-25f": _SMALL,
    "ulx3s-45f": _MIDDLE,
    "ulx3s-85f": _LARGE,
    "orangecrab-25f": _SMALL,
    "orangecrab-85f": _LARGE,
    "icepi-zero": _SMALL,
    "colorlight-i5": _SMALL,
    "colorlight-i9": _MIDDLE,
    "icesugar-pro": _SMALL,
}
#: Devices of the boards with an iCE40.
ICE40_DEVICES = {"icebreaker": FpgaDevice(5280, 8, 30, 4)}
#: Devices of all boards.
DEVICES = ECP5_DEVICES | ICE40_DEVICES

#: Endings of the names of bitstreams.
ECP5_BITSTREAM, ICE40_BITSTREAM = "bit", "bin"
