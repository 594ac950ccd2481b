"""Choice among several candidates: the one with the least error, but neither by chance nor at the price of flags.

A flag says that values were cut off. Whoever runs the network with ``--strict`` gets no results then, so formats that
raise flags on the samples have to be clearly better than those that raise fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from concord.compiler.calibration.calibration import FormatChoice

#: Share of the error on samples that weights rounded for them may leave, which flatters them; and the share that
#: another table for a function, which costs a chain, may leave of the error of the result.
GAIN = 0.9
#: Share of the error of dynamic exponents, which need no samples, that static ones may leave: less gain is chance.
TIE = 0.98
#: Formats that raise flags must leave less than this of the error of those that raise fewer.
FLAGGED = 0.8


def rank(candidate: FormatChoice) -> float:
    """The error, in proportion to what it may be."""
    formats = candidate.compiled.package.formats
    return candidate.error / (GAIN if formats.weights else 1.0) / (TIE if is_static(candidate) else 1.0)


def is_static(candidate: FormatChoice) -> bool:
    """True if calibration has set the exponents."""
    return candidate.label.startswith("static")


def worth_flags(
    candidate: FormatChoice, others: Sequence[FormatChoice], cost: Callable[[FormatChoice], float] = rank
) -> bool:
    """True if a candidate costs clearly less than each one that raises fewer flags, those of every layer counted.

    Parameters
    ----------
    candidate : FormatChoice
        The candidate.
    others : sequence of FormatChoice
        Other candidates.
    cost : callable
        Number that is to be small: the error in proportion to what it may be, unless something else is asked for.
    """
    quieter = [other for other in others if len(other.flags_by_layer) < len(candidate.flags_by_layer)]
    return all(cost(candidate) < FLAGGED * cost(other) for other in quieter)


def preferred(candidates: Sequence[FormatChoice]) -> FormatChoice:
    """The candidate with the least error whose flags are worth it; one that raises as few as any always is."""
    return min((candidate for candidate in candidates if worth_flags(candidate, candidates)), key=rank)


def flags_text(candidate: FormatChoice) -> str:
    """Numbers of layers in which the samples raise each flag, as text."""
    layers = Counter(flag for _, flag in candidate.flags_by_layer)
    return ", ".join(f"{count} {flag}" for flag, count in sorted(layers.items()))
