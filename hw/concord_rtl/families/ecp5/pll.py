"""The phase-locked loop of ECP5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from amaranth import *

from concord_rtl.families.family import ALMOST, Pll, ShiftedClock, UsbPll, nearest

#: Limits of the EHXPLLL in Hz, and of its dividers.
VCO = (400e6, 800e6)
PFD_MIN = 10e6
DIVIDERS = 128
OUT_MAX = 400e6


@dataclass(frozen=True)
class Ecp5Pll(Pll):
    """EHXPLLL with one output for feedback: ``vco = input / ref_div * fb_div``, ``hz = vco / out_div``."""

    ref_div: int
    fb_div: int
    out_div: int

    def build(self, m: Module, pin: Value, clk: Value, locked: Value, shifted: ShiftedClock | None = None) -> None:
        feedback = Signal()
        more = {} if shifted is None else self._shifted(shifted)
        m.submodules.pll = _ehxplll(
            pin,
            feedback,
            locked,
            p_FEEDBK_PATH="CLKOS",
            p_CLKI_DIV=self.ref_div,
            p_CLKFB_DIV=1,
            p_CLKOP_DIV=self.out_div,
            p_CLKOP_CPHASE=self.out_div - 1,
            p_CLKOS_DIV=self.fb_div,
            p_CLKOS_CPHASE=self.fb_div - 1,
            o_CLKOP=clk,
            o_CLKOS=feedback,
            **more,
        )

    def _shifted(self, shifted: ShiftedClock) -> dict[str, Any]:
        """Settings of CLKOS2, which is divided as the clock is, with a phase that changes."""
        return {
            "p_CLKOS2_ENABLE": "ENABLED",
            "p_CLKOS2_DIV": self.out_div,
            "p_CLKOS2_CPHASE": self.out_div - 1,
            "p_DPHASE_SOURCE": "ENABLED",
            "i_ENCLKOS2": Const(0),
            "i_PHASESEL0": Const(1),
            "i_PHASESEL1": Const(0),
            "i_PHASEDIR": shifted.earlier,
            "i_PHASESTEP": shifted.step,
            "o_CLKOS2": shifted.clk,
        }


class Ecp5UsbPll(UsbPll):
    """EHXPLLL whose VCO runs at 480 MHz, the input divided by ``ref_div`` times ``fb_div`` and ``fb_out_div``.

    From 25 MHz no phase detector above ``PFD_MIN`` gives 12 and 48 MHz. These are the settings that the platform files
    of luna have for the ULX3S, with 5 MHz there. From 48 and 50 MHz it has 12 and 10 MHz.

    Parameters
    ----------
    input_hz : float
        One of ``DIVIDERS_OF``.
    """

    DIVIDERS_OF: ClassVar[Mapping[float, tuple[int, int, int]]] = {
        25e6: (5, 2, 48),
        48e6: (4, 1, 40),
        50e6: (5, 1, 48),
    }
    USB_IO_DIV, USB_DIV = 10, 40

    def __init__(self, input_hz: float):
        if input_hz not in self.DIVIDERS_OF:
            known = ", ".join(f"{hz / 1e6:g}" for hz in self.DIVIDERS_OF)
            raise ValueError(f"oscillator must have one of {known} MHz for USB, not {input_hz / 1e6:g}")
        self.ref_div, self.fb_div, self.fb_out_div = self.DIVIDERS_OF[input_hz]

    def build(self, m: Module, pin: Value, usb: Value, usb_io: Value, locked: Value) -> None:
        feedback = Signal()
        m.submodules.pll = _ehxplll(
            pin,
            feedback,
            locked,
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=self.ref_div,
            p_CLKFB_DIV=self.fb_div,
            p_CLKOP_DIV=self.fb_out_div,
            p_CLKOP_CPHASE=self.fb_out_div - 1,
            p_CLKOS_DIV=self.USB_IO_DIV,
            p_CLKOS_CPHASE=self.USB_IO_DIV - 1,
            p_CLKOS2_ENABLE="ENABLED",
            p_CLKOS2_DIV=self.USB_DIV,
            p_CLKOS2_CPHASE=self.USB_IO_DIV - 1,  # as late as the other one
            p_OUTDIVIDER_MUXC="DIVC",
            i_ENCLKOS2=Const(0),
            o_CLKOP=feedback,
            o_CLKOS=usb_io,
            o_CLKOS2=usb,
        )


def _ehxplll(pin: Value, feedback: Value, locked: Value, **settings: Any) -> Instance:
    """The PLL with its outputs CLKOP and CLKOS, which run all the time; phases stay if nothing else is said."""
    still = {"i_PHASESEL0": 0, "i_PHASESEL1": 0, "i_PHASEDIR": 1, "i_PHASESTEP": 1}
    phases = {name: settings.pop(name, Const(level)) for name, level in still.items()}
    return Instance(
        "EHXPLLL",
        a_ICP_CURRENT="12",
        a_LPF_RESISTOR="8",
        a_MFG_ENABLE_FILTEROPAMP="1",
        a_MFG_GMCREF_SEL="2",
        p_CLKOP_ENABLE="ENABLED",
        p_CLKOS_ENABLE="ENABLED",
        p_OUTDIVIDER_MUXA="DIVA",
        p_OUTDIVIDER_MUXB="DIVB",
        i_CLKI=pin,
        i_CLKFB=feedback,
        i_RST=Const(0),
        i_STDBY=Const(0),
        i_ENCLKOP=Const(0),
        i_ENCLKOS=Const(0),
        **phases,
        i_PHASELOADREG=Const(1),
        i_PLLWAKESYNC=Const(0),
        o_LOCK=locked,
        **settings,
    )


def ecp5_pll(input_hz: float, wanted_hz: float) -> Ecp5Pll:
    """Settings for the greatest frequency not above the wanted one.

    Raises
    ------
    ValueError
        If there are none within 5 % below ``wanted_hz``.
    """
    settings = []
    for ref_div, out_div in product(range(1, int(input_hz / PFD_MIN) + 1), range(1, DIVIDERS + 1)):
        fb_div = int(min(wanted_hz * out_div, VCO[1]) * ref_div / input_hz * ALMOST)
        vco = input_hz / ref_div * fb_div
        if 1 <= fb_div <= DIVIDERS and VCO[0] <= vco <= VCO[1]:
            settings.append(Ecp5Pll(vco / out_div, ref_div, fb_div, out_div))
    return nearest(settings, wanted_hz)
