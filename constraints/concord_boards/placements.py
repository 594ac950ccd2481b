"""Settings of place and route for the presets that nearly fill a device."""

from collections.abc import Callable, Sequence
from functools import partial

from concord_boards import floorplan
from concord_boards.board import Placement

#: For a congested device. Wider boxes around nets, and a search that does not hurry to the goal, find ways with fewer
#: wires. The cost of a wire that is used twice grows slowly from round to round, so nets do not just change places.
_PATIENT = (("bbMargin/x", "5"), ("bbMargin/y", "5"), ("estimateWeight", "1.0"), ("currCongWeightMult", "1.0"))


def _fixed(
    rows: Callable[[Sequence[str]], floorplan.Rules], aim_hz: int, short_chains: bool = True, alpha: float = 0.1
) -> Placement:
    """Rows side by side, and places of registers without regard to clock enables.

    ``alpha`` is by how much more each round of the placer counts the places that cells have taken.
    """
    return Placement(
        sites=partial(floorplan.sites, rows=rows), router=_PATIENT, aim_hz=aim_hz, short_chains=short_chains,
        placer=("--placer-heap-no-ctrl-set", "--placer-heap-alpha", str(alpha)),
    )  # fmt: skip


#: By preset, on an LFE5U-85F in any package.
PLACEMENTS_85F = {
    "ecp5-85f-256": _fixed(floorplan.pairs, 77_000_000),
    "ecp5-85f-mlp": _fixed(floorplan.pairs, 65_000_000, short_chains=False),
    "ecp5-85f": _fixed(floorplan.lanes, 60_000_000, alpha=0.03),
}
