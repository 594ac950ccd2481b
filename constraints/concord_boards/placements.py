"""Settings of place and route for the presets that nearly fill a device."""

from collections.abc import Callable
from functools import partial

from concord.spec.boards import BOARD_SPECS
from concord_boards import floorplan
from concord_boards.board import Placement

#: For a congested device. Wider boxes around nets, and a search that does not hurry to the goal, find ways with fewer
#: wires. The cost of a wire that is used twice grows slowly from round to round, so nets do not just change places.
_PATIENT = (("bbMargin/x", "5"), ("bbMargin/y", "5"), ("estimateWeight", "1.0"), ("currCongWeightMult", "1.0"))


#: Places of registers without regard to clock enables, and rounds each of which counts the places that cells have
#: taken by a little more than the one before.
_SLOW = ("--placer-heap-no-ctrl-set", "--placer-heap-alpha", "0.03")


def _fixed(rows: Callable[[], floorplan.Rules], aim_hz: int | None = None) -> Placement:
    """Rows side by side, and short carry chains."""
    sites = partial(floorplan.sites, rows=rows)
    return Placement(sites=sites, router=_PATIENT, aim_hz=aim_hz, short_chains=True, placer=_SLOW)


#: By preset, on ECP5 devices in any package.
PLACEMENTS = {
    "ecp5-25f": Placement(router=_PATIENT, short_chains=True, placer=_SLOW[1:]),
    "ecp5-85f-256": _fixed(floorplan.pairs),
    "ecp5-85f": _fixed(floorplan.lanes, 60_000_000),
}


def placements_of(board: str) -> dict[str, Placement]:
    """Settings by preset, for the presets of a board that have some."""
    return {name: PLACEMENTS[name] for name in BOARD_SPECS[board].presets if name in PLACEMENTS}
