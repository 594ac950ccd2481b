"""Settings of place and route for the presets that nearly fill a device."""

from dataclasses import replace

from concord_boards import floorplan
from concord_boards.board import Placement

#: For a congested device. Wider boxes around nets, and a search that does not hurry to the goal, find ways with fewer
#: wires. The cost of a wire that is used twice grows slowly from round to round, so nets do not just change places.
_PATIENT = (("bbMargin/x", "5"), ("bbMargin/y", "5"), ("estimateWeight", "1.0"), ("currCongWeightMult", "1.0"))

#: For 256 multiply-accumulates per cycle: rows side by side, and places of registers without regard to clock enables.
_FIXED = Placement(sites=floorplan.ecp5_85f, placer=("--placer-heap-no-ctrl-set",), router=_PATIENT)

#: By preset, on an LFE5U-85F in any package.
PLACEMENTS_85F = {
    "ecp5-85f-256": replace(_FIXED, short_chains=True, aim_hz=77_000_000, minutes=36),
    "ecp5-85f-mlp": replace(_FIXED, aim_hz=65_000_000),
    "ecp5-85f-train": replace(
        _FIXED, sites=floorplan.ecp5_85f_integers, short_chains=True, seeds=(1,), aim_hz=64_000_000
    ),
    # Half of its LUTs and nearly all of its block RAMs and multipliers: side by side, there are too few wires.
    "ecp5-85f": Placement(blocked_rows=4, router=_PATIENT, seeds=(2, 1, 3), aim_hz=73_750_000),
}
