"""The boards for which there are bitstreams: the presets of each, its clock and its way to the host."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from concord.spec.builds import UNROUTED_HZ, rated_hz
from concord.spec.links import CDC_ACM, SLOW_SPI_HZ, SPI_HZ, USB, LinkSpec, spi, uart
from concord.spec.names import unknown_name


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """Facts about a board that everybody has to know.

    Parameters
    ----------
    presets : tuple of str
        Names of the configurations that are placed and routed for it. The first is the one that is built if nothing
        says which; of a network compiled for the board, the rates decide (:mod:`concord.networks.boards`).
    clock_hz : int
        Base of all rates of the first preset: the clock of its record, or of that of another board with the same FPGA
        (:mod:`concord.spec.builds`).
    aim_hz : int
        Target that place and route of the first preset begins with, if its placement on the board has none.
    links : tuple of LinkSpec
        What it can be connected by. The first is the one if nothing says which.
    dram : str
        Name of its external memory in :data:`concord.spec.dram.PARTS`; empty if it has none that the generator drives.
    """

    presets: tuple[str, ...]
    clock_hz: int
    aim_hz: int
    links: tuple[LinkSpec, ...] = (uart(),)
    dram: str = ""

    @property
    def preset(self) -> str:
        """The first preset."""
        return self.presets[0]

    def link(self, name: str | None = None) -> LinkSpec:
        """Link of the board by name, the first without one; ``ValueError`` lists them."""
        for link in self.links:
            if name in (None, link.name):
                return link
        raise unknown_name("link", [link.name for link in self.links], str(name))


#: Links of the boards ULX3S.
_ULX3S = (uart(3_000_000), USB, spi(SPI_HZ))
#: Links of the boards OrangeCrab, which have no serial port of their own: what is at the header is the user's.
_ORANGECRAB = (USB, spi(SPI_HZ), uart())
#: Links of the boards whose serial port is a program in a microcontroller, the debugger DAPLink. Which bit rates it
#: keeps up with nobody says; this one is in use with these boards.
_DAPLINK = (uart(115_200, CDC_ACM), spi(SPI_HZ))

#: External memory of the boards ULX3S, Icepi Zero and iCESugar-Pro, and of the boards Colorlight.
_SDRAM, _HALF_SDRAM = "sdram-32mb", "sdram-4mb"

#: Clock of ``ecp5-25f`` on an LFE5U-25F.
_LFE5U_25F_HZ = rated_hz("ulx3s-25f", "ecp5-25f")
#: An LFE5U-85F on a ULX3S.
_LFE5U_85F = BoardSpec(
    presets=("ecp5-85f-256", "ecp5-85f"),
    clock_hz=rated_hz("ulx3s-85f", "ecp5-85f-256"),
    aim_hz=74_000_000,
    links=_ULX3S,
    dram=_SDRAM,
)

#: Boards by name; the first is the one if nothing says which. A preset of several is that of the first of them.
BOARD_SPECS: dict[str, BoardSpec] = {
    "ulx3s-85f": _LFE5U_85F,
    "ulx3s-25f": BoardSpec(presets=("ecp5-25f",), clock_hz=_LFE5U_25F_HZ, aim_hz=92_000_000, links=_ULX3S, dram=_SDRAM),
    "ulx3s-45f": BoardSpec(presets=("ecp5-25f",), clock_hz=UNROUTED_HZ, aim_hz=92_000_000, links=_ULX3S, dram=_SDRAM),
    "ulx3s-12f": BoardSpec(presets=("ecp5-25f",), clock_hz=UNROUTED_HZ, aim_hz=92_000_000, links=_ULX3S, dram=_SDRAM),
    "icebreaker": BoardSpec(
        presets=("up5k",),
        clock_hz=rated_hz("icebreaker", "up5k"),
        aim_hz=24_000_000,
        links=(uart(6_000_000), spi(SLOW_SPI_HZ)),
    ),
    "orangecrab-25f": BoardSpec(presets=("ecp5-25f",), clock_hz=_LFE5U_25F_HZ, aim_hz=92_000_000, links=_ORANGECRAB),
    "orangecrab-85f": replace(_LFE5U_85F, links=_ORANGECRAB, dram=""),
    "icepi-zero": BoardSpec(
        presets=("ecp5-25f",),
        clock_hz=_LFE5U_25F_HZ,
        aim_hz=92_000_000,
        links=(uart(3_000_000), USB, spi(SPI_HZ)),
        dram=_SDRAM,
    ),
    "colorlight-i5": BoardSpec(
        presets=("ecp5-25f",), clock_hz=_LFE5U_25F_HZ, aim_hz=92_000_000, links=_DAPLINK, dram=_HALF_SDRAM
    ),
    "colorlight-i9": BoardSpec(
        presets=("ecp5-25f",), clock_hz=UNROUTED_HZ, aim_hz=92_000_000, links=_DAPLINK, dram=_HALF_SDRAM
    ),
    "icesugar-pro": BoardSpec(
        presets=("ecp5-25f",), clock_hz=_LFE5U_25F_HZ, aim_hz=92_000_000, links=_DAPLINK, dram=_SDRAM
    ),
}

#: Assumptions about a board that is not known.
_ANY_BOARD = BoardSpec(presets=(), clock_hz=0, aim_hz=0, links=(uart(), USB, spi(SLOW_SPI_HZ)))

#: The board that everything is for if nothing says which.
DEFAULT_BOARD = next(iter(BOARD_SPECS))


def board_spec(name: str) -> BoardSpec:
    """Facts about a board; ``ValueError`` lists the boards, and guesses which one was meant."""
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


def links_of(board: str) -> tuple[LinkSpec, ...]:
    """The links of a board; of one that is not known, a serial port alone."""
    return BOARD_SPECS[board].links if board in BOARD_SPECS else _ANY_BOARD.links[:1]


def link_of(board: str, name: str | None = None) -> LinkSpec:
    """A link of a board, as :meth:`BoardSpec.link`; of a board that is not known, a serial port, USB or SPI."""
    return (BOARD_SPECS[board] if board in BOARD_SPECS else _ANY_BOARD).link(name)
