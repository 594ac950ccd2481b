"""The clock of a placed and routed design for ECP5: read from the settings of its PLL, and replaced."""

from __future__ import annotations

import re
from typing import Any

from amaranth import Instance, Value

from concord_rtl.families.ecp5.pll import DIVIDERS, OUT_MAX, Ecp5Pll
from concord_rtl.families.family import Pll, Tuning

#: Settings in the text that nextpnr writes, and what each holds: a divider, or the phase that goes with it, minus 1.
WORDS = {
    "CLKI_DIV": "ref_div",
    "CLKOP_DIV": "out_div",
    "CLKOP_CPHASE": "out_div",
    "CLKOS_DIV": "fb_div",
    "CLKOS_CPHASE": "fb_div",
}
#: Those of an output whose phase changes, in a PLL that has one.
SHIFTED_WORDS = {"CLKOS2_DIV": "out_div", "CLKOS2_CPHASE": "out_div"}
SHIFTED = "enum: DPHASE_SOURCE ENABLED"
WIDTH = (DIVIDERS - 1).bit_length()
#: Settings of a PLL with the feedback that :class:`Ecp5Pll` has; that of a link has another one.
GROUP = re.compile(r"(?m)^\.tile_group .*\n(?:\w+: .*\n)*?enum: FEEDBK_PATH CLKOS\n(?:\w+: .*\n)*")


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?m)^(word: {name} )([01]{{{WIDTH}}})$")


def _words(group: str) -> dict[str, str]:
    """Settings of a PLL, by name."""
    return WORDS | (SHIFTED_WORDS if SHIFTED in group else {})


def tuning(text: str, input_hz: float) -> Ecp5Pll:
    """Settings of the PLL in ``text``.

    Raises
    ------
    ValueError
        If there is not exactly one PLL, or one that :class:`concord_rtl.flow.clocking.Clocking` does not make.
    """
    groups = GROUP.findall(text)
    if len(groups) != 1:
        raise ValueError(f"the design must have one PLL with feedback from CLKOS, not {len(groups)}")
    dividers: dict[str, int] = {}
    for name, part in _words(groups[0]).items():
        words = _pattern(name).findall(groups[0])
        if len(words) != 1:
            raise ValueError(f"the PLL must have one {name}, not {len(words)}")
        value = int(words[0][1], 2) + 1
        if dividers.setdefault(part, value) != value:
            raise ValueError(f"{name} must be that of divider {dividers[part]}, not of {value}")
    hz = input_hz / dividers["ref_div"] * dividers["fb_div"] / dividers["out_div"]
    return Ecp5Pll(hz, **dividers)


def tuned(text: str, pll: Ecp5Pll, input_hz: float) -> str:
    """``text`` with the settings ``pll``; :class:`ValueError` as from :func:`tuning`."""
    tuning(text, input_hz)

    def replaced(group: re.Match[str]) -> str:
        settings = group[0]
        for name, part in _words(settings).items():
            settings = _pattern(name).sub(rf"\g<1>{getattr(pll, part) - 1:0{WIDTH}b}", settings)
        return settings

    return GROUP.sub(replaced, text)


class Ecp5Tuning(Tuning):
    """Dividers in the text of a placed design; a ``DCCA`` stops the clock until the PLL has locked."""

    most_hz = OUT_MAX
    settings = *WORDS, *SHIFTED_WORDS

    def read(self, text: str, input_hz: float) -> Ecp5Pll:
        return tuning(text, input_hz)

    def write(self, text: str, pll: Pll, input_hz: float) -> str:
        if not isinstance(pll, Ecp5Pll):
            raise TypeError(f"pll must be an Ecp5Pll, not {pll!r}")
        return tuned(text, pll, input_hz)

    def gate(self, clk: Value, enable: Value, o: Value) -> Any:
        return Instance("DCCA", i_CLKI=clk, i_CE=enable, o_CLKO=o)
