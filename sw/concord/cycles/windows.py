"""The window unit: steps that the windows of sliding products take, and when it makes them."""

from __future__ import annotations

import numpy as np

from concord.program.chains import Chain
from concord.program.trace import Trace
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.multipliers import paired
from concord.spec.windows import place_of
from concord.utils.arrays import Bools, Ints

#: Steps per window where exponents are not known. Three columns of three are read in three cycles, and the windows of
#: keyword, image and wake word networks have 2.0 to 2.8 exponents on average.
ASSUMED_STEPS = 3


def window_steps(chain: Chain, exponents: Ints, config: NpuConfig) -> Ints:
    """Steps of the tile engines for every window of a sliding product.

    One for each exponent of the elements inside the image. Where rows share their multipliers, the second element of a
    pair of lanes has a step of its own if both have the same exponent. At least one.

    Parameters
    ----------
    chain : Chain
        A sliding product.
    exponents : array
        Of the words that the windows read, ``[outer, inner, taps]``; those outside the image do not count.
    config : NpuConfig
        What executes it.

    Returns
    -------
    array
        ``[outer, inner]``.
    """
    window = chain.window.kh, chain.window.kw
    places = [place_of((ky, kx), window) for ky in range(window[0]) for kx in range(window[1])]
    inside, of_place = np.empty_like(chain.inside()), np.empty_like(exponents)
    inside[..., places], of_place[..., places] = chain.inside(), exponents
    late = np.zeros_like(inside)
    half = config.lanes // 2
    if paired(config) and len(places) > half:
        same = of_place[..., half:] == of_place[..., :-half]
        late[..., half:] = inside[..., half:] & inside[..., :-half] & same
    return np.asarray(np.maximum(1, _different(of_place, inside) + _different(of_place, late)))


def _different(values: Ints, counts: Bools) -> Ints:
    """Numbers of different values among those that count, along the last axis."""
    lowest = int(values.min()) - 1
    ordered = np.sort(np.where(counts, values, lowest), axis=-1)
    return np.asarray((np.diff(ordered, axis=-1, prepend=lowest) != 0).sum(axis=-1))


def assumed_steps(trace: Trace) -> list[Ints]:
    """Steps of the windows of every sliding product of a run: :data:`ASSUMED_STEPS`, but no more than taps."""
    return [
        np.full((chain.outer, chain.inner), min(ASSUMED_STEPS, chain.window.taps))
        for chain in trace.chains
        if chain.sliding
    ]


class Windows:
    """Times at which vectors enter their window, and at which the steps of a window are made.

    Attributes
    ----------
    ends : int
        Cycle of the last step of the latest window.
    """

    def __init__(self) -> None:
        self.ends = self._copied = -1
        self._pushed: list[int] = []

    def place(self) -> int:
        """First cycle in which there is a place for one more vector in the queue."""
        full = len(self._pushed) - timing.WINDOW_PLACES
        return self._pushed[full] + 1 if full >= 0 else 0

    def enter(self, time: int) -> None:
        """The vector comes that follows the latest one."""
        self._pushed.append(max(time + timing.QUEUE, self._copied, self._pushed[-1] + 1 if self._pushed else 0))

    def complete(self, steps: int) -> None:
        """The window of the latest vector is complete; so many steps follow its copy."""
        self._copied = max(self._pushed[-1] + 1, self.ends)
        self.ends = self._copied + steps
