"""Facts of a board that the flow needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from amaranth.build import Resource


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Settings of place and route for a configuration that nearly fills a device.

    Parameters
    ----------
    sites : callable or None
        Names of the cells of the netlist -> sites of those that have one, by name.
    placer : tuple of str
        Options of nextpnr for its placer.
    router : tuple of (str, str)
        Settings of nextpnr's ``router2`` for which it has no options, by name and value.
    seeds : tuple of int
        Seeds in the order in which they are tried, if none are asked for.
    aim_hz : int, optional
        Target that place and route begins with, if it is not the clock of the preset. That of the board's own preset is
        in :data:`concord.spec.boards.BOARD_SPECS`.
    short_chains : bool
        Whether carry chains are shortened before, where the family can do that.
    fold_carries : bool
        Whether constant carries are folded into the first bits of chains then, where there is no bit to spare.

    Raises
    ------
    ValueError
        If carries are to be folded in chains that are not shortened.
    """

    sites: Callable[[Iterable[str]], dict[str, str]] | None = None
    placer: tuple[str, ...] = ()
    router: tuple[tuple[str, str], ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    aim_hz: int | None = None
    short_chains: bool = False
    fold_carries: bool = False

    def __post_init__(self) -> None:
        if self.fold_carries and not self.short_chains:
            raise ValueError(f"fold_carries must be False without short_chains, not {self.fold_carries!r}")


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board with one size of FPGA.

    Parameters
    ----------
    name : str
        Name on the command line.
    platform : type
        Platform class with the pins; has the LEDs named below, and ``uart`` 0 and ``usb`` 0 for links of these kinds.
    family : str
        ``ecp5`` or ``ice40``.
    preset : str
        Configuration built when none is named.
    oscillator : str
        Resource of the clock input.
    oscillator_hz : int
        Frequency of the oscillator in hertz.
    leds : tuple of (str, int)
        Resources of the LEDs for done, trapped and busy; fewer where the board has fewer, the last ones being dropped.
    place : tuple of str
        Options that tell nextpnr the device.
    placements : mapping of str to Placement
        By preset, for those that nearly fill the device.
    spi : Resource or None
        Pins for a host with a serial peripheral interface: ``sck``, ``csn``, ``copi`` and ``cipo``.
    """

    name: str
    platform: type
    family: str
    preset: str
    oscillator: str
    oscillator_hz: int
    leds: tuple[tuple[str, int], ...]
    place: tuple[str, ...]
    placements: Mapping[str, Placement] = field(default_factory=dict)
    spi: Resource | None = None
