"""What the flow has to know about a board."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board with one size of FPGA.

    Parameters
    ----------
    name : str
        Name on the command line.
    platform : type
        Platform class with the pins; has ``uart`` 0 and the LEDs named below.
    family : str
        ``ecp5`` or ``ice40``.
    preset : str
        Configuration built when none is named.
    oscillator : str
        Resource of the clock input.
    oscillator_hz : int
        Its frequency.
    leds : tuple of (str, int)
        Resources of the LEDs for done, trapped and busy; fewer where the board has fewer, the last ones being dropped.
    place : tuple of str
        Options that tell nextpnr the device.
    blocked_rows : int
        With the configuration that fills the board, one of so many rows of logic stays empty; 0: none.
    router : tuple of (str, str)
        With that configuration, settings of nextpnr's ``router2`` for which it has no options, by name and value.
    """

    name: str
    platform: type
    family: str
    preset: str
    oscillator: str
    oscillator_hz: int
    leds: tuple[tuple[str, int], ...]
    place: tuple[str, ...]
    blocked_rows: int = 0
    router: tuple[tuple[str, str], ...] = ()
