"""Choice of the preset of a board with which a user of the board gets most samples per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy.typing as npt

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled, compile_graph, expecting
from concord.graph.ir import Graph
from concord.host.rates import Rates, rates, spoken
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.grouping import by_key

#: Presets whose rates are within this share of the best one have equal rates: what the core computes decides then.
#: As much depends on how the requests of a batch fall.
TIE = 0.03


class Rated(Protocol):
    """Candidate that has rates."""

    @property
    def rates(self) -> Rates:
        """Rates that a user gets."""


R = TypeVar("R", bound=Rated)


@dataclass(frozen=True)
class PresetCandidate:
    """A preset that takes a network.

    Parameters
    ----------
    config : NpuConfig
        The preset.
    compiled : Compiled
        The network, with the formats that the ranking was made with.
    batch : int
        Samples per run.
    link : str or None
        Name of a link of the board; ``None`` for its first one.
    """

    config: NpuConfig
    compiled: Compiled
    batch: int = 1
    link: str | None = None

    @cached_property
    def rates(self) -> Rates:
        """Rates that a user gets."""
        return rates(self.compiled.image, self.batch, link=self.link, installed=False)


@dataclass(frozen=True)
class PresetRefusal:
    """A preset that does not take a network, and why.

    Parameters
    ----------
    config : NpuConfig
        The preset.
    error : ValueError
        Why.
    """

    config: NpuConfig
    error: ValueError

    @property
    def short(self) -> str:
        """The main reason in a few words."""
        if isinstance(self.error, CapacityError) and self.error.short:
            memories = self.error.short.items()
            return ", ".join(f"{mem.name.lower()} memory has {have} words of {need}" for mem, (have, need) in memories)
        if isinstance(self.error, Unsupported):
            first, *others = self.error.reasons
            return f"{first.split(';')[0]}{f', and {len(others)} more reasons' if others else ''}"
        return str(self.error).splitlines()[0]


@dataclass(frozen=True)
class Ranking:
    """Presets of a board for a network.

    Parameters
    ----------
    candidates : tuple of PresetCandidate
        Presets that take the network, the best first.
    refusals : tuple of PresetRefusal
        The others.
    """

    candidates: tuple[PresetCandidate, ...] = ()
    refusals: tuple[PresetRefusal, ...] = ()

    def compiled(self, config: NpuConfig) -> Compiled | None:
        """The network for a configuration, if that is a candidate."""
        return next((candidate.compiled for candidate in self.candidates if candidate.config == config), None)

    def text(self, board: str, taken: NpuConfig, refusals: Sequence[PresetRefusal]) -> str:
        """Line about the preset of a board that was taken, and why; ``refusals`` are those that were tried."""
        refused = {refusal.config for refusal in refusals}
        left = [candidate for candidate in self.candidates if candidate.config not in refused]
        shorts = by_key((refusal.short, refusal.config.name) for refusal in refusals)
        reasons = [f"{' and '.join(names)} refused: {short}" for short, names in shorts.items()]
        start = f"preset {taken.name} of {board}"
        if len(left) < 2:
            return "; ".join([f"{start}, the only one that takes the network", *reasons])
        first, *others = left
        rest = ", ".join(f"{other.config.name} {spoken(other.rates.per_second)}" for other in others)
        why = f"{spoken(first.rates.per_second)} samples/s over its link ({rest})"
        if any(are_equal(other.rates, first.rates) for other in others):
            core = 1 / first.rates.compute_seconds
            why += f", and of equal rates the fastest core ({spoken(core)}/s)"
        return "; ".join([f"{start}: {why}", *reasons])


def rank(
    graph: Graph,
    configs: Sequence[NpuConfig],
    formats: Formats,
    batch: int = 1,
    samples: Mapping[str, npt.ArrayLike] | None = None,
    link: str | None = None,
) -> Ranking:
    """Compile a network for every preset of a board, and rank them by the samples per second that a user gets.

    Of rates within :data:`TIE` of the best one, the core that computes most samples per second is the first. Where one
    preset alone takes the network, no rates are asked for.

    Parameters
    ----------
    graph : Graph
        The network.
    configs : sequence of NpuConfig
        The presets.
    formats : Formats
        Formats to rank with; they need not be those of the result, for they hardly change a rate.
    batch : int
        Samples per run.
    samples : mapping of str to array, optional
        They say as how many bytes inputs travel.
    link : str, optional
        Name of a link of the board; its first one if left out.
    """
    taken, refused = [], []
    for config in configs:
        try:
            compiled = compile_graph(graph, config, formats, batch=batch)
        except (CapacityError, Unsupported) as error:
            refused.append(PresetRefusal(config, error))
            continue
        if samples is not None:
            compiled = expecting(compiled, samples)
        taken.append(PresetCandidate(config, compiled, batch, link))
    return Ranking(tuple(by_rates(taken)) if len(taken) > 1 else tuple(taken), tuple(refused))


def by_rates(candidates: Iterable[R]) -> list[R]:
    """The best first: again and again the fastest core of those whose rates are equal to the best that is left.

    Of equally fast cores the first one comes first.

    Parameters
    ----------
    candidates : iterable of Rated
        What has rates.
    """
    left, ranked = list(candidates), []
    while left:
        best = max(left, key=lambda candidate: candidate.rates.per_second)
        equal = [candidate for candidate in left if are_equal(candidate.rates, best.rates)]
        ranked.append(min(equal, key=lambda candidate: candidate.rates.compute_seconds))
        left.remove(ranked[-1])
    return ranked


def are_equal(first: Rates, second: Rates) -> bool:
    """True if a user cannot tell two rates apart: they differ by :data:`TIE` at most."""
    return abs(first.per_second - second.per_second) <= TIE * max(first.per_second, second.per_second)


def refused_by_all(graph: Graph, board: str | None, refusals: Sequence[PresetRefusal]) -> ValueError:
    """The error for a network that no preset of a board takes: every preset with its reasons.

    Parameters
    ----------
    graph : Graph
        The network.
    board : str or None
        The board; without one there is one refusal.
    refusals : sequence of PresetRefusal
        Why each of them does not.

    Returns
    -------
    CapacityError or Unsupported
        The first if a preset is only too small, with the memories of the one that lacks least.
    """
    first, *others = refusals
    if not others:
        error = first.error
        return Unsupported(graph.name, error.reasons, first.config.name) if isinstance(error, Unsupported) else error
    presets = by_key((_reasons(refusal), refusal.config.name) for refusal in refusals)
    lines = [f"{', '.join(names)}: " + "\n    ".join(reasons) for reasons, names in presets.items()]
    if (least := nearest(refusals)) is None:
        return Unsupported(graph.name, lines, str(board))
    text = "".join(f"\n  {line}" for line in lines)
    return CapacityError(f"{graph.name} fits into no preset of {board}:{text}", least[1].short)


def nearest(refusals: Sequence[PresetRefusal]) -> tuple[NpuConfig, CapacityError] | None:
    """Configuration that is too small by the least excess of words, in the memory that is worst off, and its error."""
    small = [(refusal.config, refusal.error) for refusal in refusals if isinstance(refusal.error, CapacityError)]
    return min(small, key=lambda pair: pair[1].excess, default=None)


def _reasons(refusal: PresetRefusal) -> tuple[str, ...]:
    """Every reason, a text each, without the name of the preset."""
    if isinstance(refusal.error, Unsupported):
        return tuple(refusal.error.reasons)
    return (str(refusal.error).removeprefix(f"does not fit into {refusal.config.name}: "),)
