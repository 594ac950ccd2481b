"""The phase-locked loop of iCE40."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from amaranth import *

from concord_rtl.families.family import ALMOST, Pll, ShiftedClock, nearest

#: Limits of the SB_PLL40 in Hz, and of its dividers.
VCO = (533e6, 1066e6)
PFD = (10e6, 133e6)
OUT_MIN = 16e6
DIVR = 16
DIVF = 128
DIVQ = 7
#: Phase detector frequencies from which on the next loop filter is the right one.
FILTERS = (17e6, 26e6, 44e6, 66e6, 101e6)


@dataclass(frozen=True)
class Ice40Pll(Pll):
    """SB_PLL40 with simple feedback: ``hz = input / (divr + 1) * (divf + 1) / 2**divq``."""

    divr: int
    divf: int
    divq: int
    filter_range: int

    takes_pin = True

    def build(self, m: Module, pin: Value, clk: Value, locked: Value, shifted: ShiftedClock | None = None) -> None:
        if shifted is not None:
            raise ValueError("shifted must be left out: phases of this PLL do not change while it runs")
        m.submodules.pll = Instance(
            "SB_PLL40_PAD",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=Const(self.divr, 4),
            p_DIVF=Const(self.divf, 7),
            p_DIVQ=Const(self.divq, 3),
            p_FILTER_RANGE=Const(self.filter_range, 3),
            i_PACKAGEPIN=pin,
            i_RESETB=Const(1),
            i_BYPASS=Const(0),
            o_PLLOUTGLOBAL=clk,
            o_LOCK=locked,
        )


def ice40_pll(input_hz: float, wanted_hz: float) -> Ice40Pll:
    """Settings for the greatest frequency not above the wanted one.

    Raises
    ------
    ValueError
        If there are none within 5 % below ``wanted_hz``.
    """
    settings = []
    for divr, divq in product(range(DIVR), range(1, DIVQ)):
        pfd = input_hz / (divr + 1)
        divf = int(wanted_hz * (1 << divq) / pfd * ALMOST) - 1
        vco = pfd * (divf + 1)
        hz = vco / (1 << divq)
        pfd_ok = PFD[0] <= pfd <= PFD[1]
        vco_ok = VCO[0] <= vco <= VCO[1]
        if pfd_ok and vco_ok and 0 <= divf < DIVF and hz >= OUT_MIN:
            settings.append(Ice40Pll(hz, divr, divf, divq, 1 + sum(pfd >= limit for limit in FILTERS)))
    return nearest(settings, wanted_hz)
