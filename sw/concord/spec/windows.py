"""Places and lanes of the taps of a sliding depthwise product.

Rows of tile engines keep the last ``window_taps`` elements that were read, the latest in place 0. Windows are read
column by column, so a tap has the same place in every window. A place is wired to a lane: those of the first half to
the even lanes, so that two neighbouring lanes can serve one place for two rows that share their multipliers.
"""

from __future__ import annotations


def place_of(tap: tuple[int, int], window: tuple[int, int]) -> int:
    """Place of tap ``(ky, kx)`` of a window ``(kh, kw)``."""
    return window[0] * window[1] - 1 - (tap[1] * window[0] + tap[0])


def lane_of(place: int, lanes: int) -> int:
    """Lane of a place below ``lanes``, a power of two."""
    half = lanes // 2
    return 2 * place if place < half else 2 * (place - half) + (lanes > 1)


def tap_lanes(window: tuple[int, int], lanes: int) -> list[int]:
    """Lanes of all taps of a window ``(kh, kw)``, row by row."""
    kh, kw = window
    return [lane_of(place_of((ky, kx), window), lanes) for ky in range(kh) for kx in range(kw)]
