"""Counters of the hardware after a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Counters of one run, as in the registers of the same names.

    Parameters
    ----------
    cycles : int
        Clock cycles from the start to the end.
    dense_steps, depthwise_steps : int
        Tile steps of dense products, and taps of depthwise products, taps outside the image included.
    chains, vectors : int
        Chains taken, and vectors written.
    hazard_stalls : int
        Cycles in which a read waited for a write.
    """

    cycles: int
    dense_steps: int
    depthwise_steps: int
    chains: int
    vectors: int
    hazard_stalls: int
