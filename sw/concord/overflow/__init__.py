"""Counts of overflows of arithmetic by width, observed and for every input [overflow].

Two views: :func:`analyse_machine` counts what the accumulators of a compiled network hold, in the order the machine
makes it; :func:`analyse_integers` maps the ranges of a network on integers of chosen widths and scales them until the
count is within a threshold. ``docs/overflow.md`` shows both.
"""

from concord.overflow.compiled import analyse_machine
from concord.overflow.kinds import KINDS, IntegerSettings, kind_of
from concord.overflow.quantised import analyse_integers
from concord.overflow.ranges import codes_of_range
from concord.overflow.results import Analysis, LayerOverflow, StageFacts
from concord.sums.histogram import Histogram, needed_bits

__all__ = [
    "KINDS",
    "Analysis",
    "Histogram",
    "IntegerSettings",
    "LayerOverflow",
    "StageFacts",
    "analyse_integers",
    "analyse_machine",
    "codes_of_range",
    "kind_of",
    "needed_bits",
]
