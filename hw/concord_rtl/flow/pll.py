"""Divider settings of the phase-locked loops: the greatest frequency not above the wanted one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

#: Limits of the ECP5 EHXPLLL in Hz, and of its dividers.
ECP5_VCO = (400e6, 800e6)
ECP5_PFD_MIN = 10e6
ECP5_DIVIDERS = 128
ECP5_OUT_MAX = 400e6

#: Limits of the iCE40 SB_PLL40 in Hz, and of its dividers.
ICE40_VCO = (533e6, 1066e6)
ICE40_PFD = (10e6, 133e6)
ICE40_OUT_MIN = 16e6
ICE40_DIVR = 16
ICE40_DIVF = 128
ICE40_DIVQ = 7
#: Phase detector frequencies from which on the next loop filter is the right one.
ICE40_FILTERS = (17e6, 26e6, 44e6, 66e6, 101e6)

#: Greatest part of the wanted frequency that may be missing.
TOLERANCE = 0.05
#: Guards the division of one frequency by another against its rounding.
ALMOST = 1 + 1e-9


@dataclass(frozen=True)
class Ecp5Pll:
    """EHXPLLL with one output for feedback: ``vco = input / ref_div * fb_div``, ``hz = vco / out_div``."""

    hz: float
    ref_div: int
    fb_div: int
    out_div: int


@dataclass(frozen=True)
class Ice40Pll:
    """SB_PLL40 with simple feedback: ``hz = input / (divr + 1) * (divf + 1) / 2**divq``."""

    hz: float
    divr: int
    divf: int
    divq: int
    filter_range: int


def ecp5_pll(input_hz: float, wanted_hz: float) -> Ecp5Pll:
    """Settings for ECP5.

    Raises
    ------
    ValueError
        If there are none within 5 % below ``wanted_hz``.
    """
    found = []
    for ref_div, out_div in product(range(1, int(input_hz / ECP5_PFD_MIN) + 1), range(1, ECP5_DIVIDERS + 1)):
        fb_div = int(min(wanted_hz * out_div, ECP5_VCO[1]) * ref_div / input_hz * ALMOST)
        vco = input_hz / ref_div * fb_div
        if 1 <= fb_div <= ECP5_DIVIDERS and ECP5_VCO[0] <= vco <= ECP5_VCO[1]:
            found.append(Ecp5Pll(vco / out_div, ref_div, fb_div, out_div))
    return _best(found, wanted_hz)


def ice40_pll(input_hz: float, wanted_hz: float) -> Ice40Pll:
    """Settings for iCE40.

    Raises
    ------
    ValueError
        If there are none within 5 % below ``wanted_hz``.
    """
    found = []
    for divr, divq in product(range(ICE40_DIVR), range(1, ICE40_DIVQ)):
        pfd = input_hz / (divr + 1)
        divf = int(wanted_hz * (1 << divq) / pfd * ALMOST) - 1
        vco = pfd * (divf + 1)
        hz = vco / (1 << divq)
        pfd_ok = ICE40_PFD[0] <= pfd <= ICE40_PFD[1]
        vco_ok = ICE40_VCO[0] <= vco <= ICE40_VCO[1]
        if pfd_ok and vco_ok and 0 <= divf < ICE40_DIVF and hz >= ICE40_OUT_MIN:
            found.append(Ice40Pll(hz, divr, divf, divq, 1 + sum(pfd >= limit for limit in ICE40_FILTERS)))
    return _best(found, wanted_hz)


def _best(found, wanted_hz):
    """The nearest, and of several the one with the least input divider."""
    best = max(found, key=lambda pll: round(pll.hz), default=None)
    if best is None or best.hz < (1 - TOLERANCE) * wanted_hz:
        raise ValueError(f"clock must be a frequency the PLL can make from the board's, not {wanted_hz!r} Hz")
    return best
