"""Places of a queue, as a sender sees them."""

from __future__ import annotations

from collections.abc import Sequence

#: Later than everything.
UNKNOWN = 1 << 62


class Places:
    """Places of a queue whose sender decides in the cycle before, and leaves two of them free then.

    Parameters
    ----------
    depth : int
        Number of places.

    Attributes
    ----------
    entered : int
        Number of entries so far.
    latest : bool
        The sender has sent its latest item here.
    left : list of int
        When the entries left, as far as that is known.
    """

    def __init__(self, depth: int):
        self.depth = depth
        self.entered = 0
        self.latest = False
        self.left: list[int] = []

    def enter(self, enters: bool) -> None:
        """The sender has sent an item, here or elsewhere."""
        self.entered += enters
        self.latest = enters

    def free(self, at_once: bool) -> int:
        """First cycle in which another entry may come; ``UNKNOWN`` as long as that is not known.

        ``at_once``: right after the latest item of the sender, when the decision is made without it.
        """
        index = self.entered - self.depth + 1 - (at_once and self.latest)
        if index < 0:
            return 0
        return self.left[index] + 2 if index < len(self.left) else UNKNOWN


def entry(receivers: Sequence[Places], latest: int, earliest: int) -> int | None:
    """First cycle from ``earliest`` on in which all receivers have room; ``None`` if that is not known yet.

    ``latest``: when the sender has sent its latest item.
    """
    if earliest == latest + 1:
        free = max(places.free(True) for places in receivers)
        if free <= earliest or free == UNKNOWN:
            return None if free == UNKNOWN else earliest
        earliest += 1
    free = max(places.free(False) for places in receivers)
    return None if free == UNKNOWN else max(earliest, free)
