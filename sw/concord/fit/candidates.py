"""Search for the configuration with which a user gets most samples per second, and that loses no more than it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph, expecting
from concord.fit.bounds import is_depthwise, least_cycles
from concord.fit.evidence import Judge, Verdict, numbers
from concord.fit.resources import Use, use_of
from concord.fit.shapes import VECTORS, Shape, shape_of, shapes_of, smallest, widths, with_memories
from concord.graph.ir import Graph
from concord.host.rates import Rates, rates
from concord.networks.boards import by_rates
from concord.networks.window_steps import measured_steps
from concord.program.allocator import CapacityError
from concord.spec.blocks import LEAST_RAM_WORDS
from concord.spec.boards import board_spec
from concord.spec.config import FREE, NpuConfig
from concord.spec.config_file import changes_of, config_text
from concord.spec.devices import DEVICES
from concord.spec.memmap import RegionId
from concord.spec.presets import PRESETS, presets_of, with_mantissas

#: Widths of mantissas to try, the best first.
MANTISSAS = (8, 7, 6, 5)

Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Candidate:
    """A configuration that fits and holds the network.

    Parameters
    ----------
    config : NpuConfig
        The configuration.
    use : Use
        What it takes.
    rates : Rates
        What a user gets over the link of the board, and what the core computes, at the clock of the configuration.
        Cycles are those of a run, as the hardware counts them: where windows slide, that of the first sample, and
        without samples one with an assumed number of steps per window.
    tiled : bool
        Whether the first layers are computed in row tiles.
    verdict : Verdict or None
        What the samples say, if there are some.
    """

    config: NpuConfig
    use: Use
    rates: Rates
    tiled: bool
    verdict: Verdict | None = None

    @property
    def cycles(self) -> int:
        """Clock cycles of a run."""
        return self.rates.cycles

    @property
    def computed_per_second(self) -> float:
        """Samples per second that the core computes."""
        return 1 / self.rates.compute_seconds

    @property
    def is_preset(self) -> bool:
        """True if the configuration is a preset, which was placed and routed."""
        return self.config.name in PRESETS

    @property
    def within(self) -> bool:
        """True if the loss on the samples is within the budget, or was not measured."""
        return self.verdict is None or self.verdict.within

    def text(self, board: str) -> str:
        """The configuration in words: what differs from the first preset of a board."""
        if self.is_preset:
            return f"preset {self.config.name}"
        base = presets_of(board)[0]
        changes = changes_of(self.config, base).items()
        parts = [f"{name}={value}" for name, value in changes if name not in FREE]
        return f"{self.config.name}: {base.name} with {', '.join(parts)}"

    def file(self, board: str) -> str:
        """The configuration as a file (:mod:`concord.spec.config_file`)."""
        return config_text(self.config, PRESETS[presets_of(board)[0].name])


@dataclass(frozen=True)
class ConfigRefusal:
    """A configuration that the device has room for, but that does not hold the network."""

    config: NpuConfig
    error: CapacityError


@dataclass
class Race:
    """Candidates and refusals that a search has found.

    Parameters
    ----------
    candidates : list of Candidate
        Those that hold the network, the best first: the ones within the budget, and better ones that are not.
    refusals : list of ConfigRefusal
        Those that do not.
    """

    candidates: list[Candidate] = field(default_factory=list)
    refusals: list[ConfigRefusal] = field(default_factory=list)

    @property
    def kept(self) -> list[Candidate]:
        """Candidates within the budget, the best first."""
        return [candidate for candidate in self.candidates if candidate.within]

    @property
    def nearest(self) -> ConfigRefusal | None:
        """The refusal with the least excess of words in the memory that is worst off."""
        return min(self.refusals, key=lambda refusal: refusal.error.excess, default=None)


def search(
    graph: Graph,
    board: str,
    mantissas: Sequence[int] = MANTISSAS,
    judge: Judge | None = None,
    *,
    most: int = 5,
    least_mhz: float = 0.0,
    link: str | None = None,
    say: Say = say_nothing,
) -> Race:
    """Configurations for a board that hold a network, the best first: by what the link lets through, then by the core.

    Rates over the link that are nearly the same count as equal (:func:`concord.networks.boards.by_rates`). A shape that
    would be too slow even if nothing ever waited (:mod:`concord.fit.bounds`) is not tried. Every other one
    is compiled for with the widest mantissas of ``mantissas`` with which the network fits, with small and large vector
    memories, and with as much matrix memory as the device has left. Narrower mantissas are tried where they leave room
    for vectors that wider ones do not, and not where wider ones lose too much with the same native dimension.

    Parameters
    ----------
    graph : Graph
        The network.
    board : str
        Name in :data:`concord.spec.devices.DEVICES`.
    mantissas : sequence of int
        Widths to try, the best first.
    judge : Judge, optional
        Measures what is lost; without it everything is within the budget.
    most : int
        Number of configurations to find.
    least_mhz : float
        Least clock that the estimate must reach.
    link : str, optional
        Name of the link of the board that rates are those over; its first one if left out.
    say : callable
        Gets what is being tried.

    Raises
    ------
    ValueError
        If there is nothing known of the board, it has no such link, or no shape has the clock.
    Unsupported
        If no configuration can compute the network.
    """
    if board not in DEVICES:
        raise ValueError(f"board must be one of {', '.join(DEVICES)}, not {board!r}")
    board_spec(board).link(link)
    return _Search(graph, board, mantissas, judge, most, least_mhz, link, say).run()


class _Search:
    """The state of one search; parameters are those of :func:`search`."""

    def __init__(
        self,
        graph: Graph,
        board: str,
        mantissas: Sequence[int],
        judge: Judge | None,
        most: int,
        least_mhz: float,
        link: str | None,
        say: Say,
    ):
        self.graph, self.board, self.mantissas, self.judge = graph, board, mantissas, judge
        self.most, self.least_mhz, self.link, self.say = most, least_mhz, link, say
        self.race = Race()
        self.unsupported: Unsupported | None = None
        #: Native dimension and mantissas that lose too much.
        self.lost: list[NpuConfig] = []

    def run(self) -> Race:
        """Try all shapes that can be among the fastest."""
        limits = {shape: self._limit(shape) for shape in self._possible()}
        for candidate in self._of_presets():
            if self._is_among(candidate):
                self._take(candidate)
        for shape, limit in sorted(limits.items(), key=lambda item: -item[1]):
            if limit <= self._to_beat:
                break
            for candidate in self._of_shape(shape):
                known = any(other.config.fingerprint == candidate.config.fingerprint for other in self.race.candidates)
                if not known and self._is_among(candidate):
                    self._take(candidate)
        race = self.race
        if self.unsupported is not None and not race.candidates and not race.refusals:
            raise self.unsupported
        ranked = self._sorted(race.candidates)
        kept = [number for number, entry in enumerate(ranked) if entry.within]
        race.candidates = ranked[: kept[self.most - 1] + 1] if len(kept) >= self.most else ranked
        return race

    def _of_presets(self) -> Iterator[Candidate]:
        """The presets of the board that hold the network."""
        for config in presets_of(self.board):
            wanted = config.act_mant in self.mantissas and config.clock_hz >= 1e6 * self.least_mhz
            if wanted and (candidate := self._compiled(config)) is not None:
                yield candidate

    def _is_among(self, candidate: Candidate) -> bool:
        """True if a candidate would be among the ``most`` best of those within the budget."""
        return candidate in self._sorted([*self.race.kept, candidate])[: self.most]

    def _take(self, candidate: Candidate) -> None:
        """Add a candidate with what the samples say."""
        if self.judge is not None:
            verdict = self.judge.verdict(candidate.config, lambda text: self.say(f"measuring {text}"))
            candidate = replace(candidate, verdict=verdict)
            if not verdict.within:
                self.lost.append(candidate.config)
        self.race.candidates.append(candidate)

    def _loses(self, config: NpuConfig) -> bool:
        """True if mantissas that are as wide or wider lose too much."""
        return any(
            loser.native == config.native and loser.act_mant >= config.act_mant and loser.wgt_mant >= config.wgt_mant
            for loser in self.lost
        )

    @staticmethod
    def _sorted(candidates: list[Candidate]) -> list[Candidate]:
        """The best first, of equal ones that with the widest mantissas."""
        return by_rates(
            sorted(candidates, key=lambda candidate: (-candidate.config.act_mant, -candidate.config.wgt_mant))
        )

    @property
    def _to_beat(self) -> float:
        """Samples per second that a core must exceed to be among the best; 0 if there is room for more.

        A slower core is better if its link lets more through. It does not if inputs of the best ones travel raw: then
        there are no fewer bytes, and what the link lets through is the same.
        """
        kept = self._sorted(self.race.kept)[: self.most]
        if len(kept) < self.most:
            return 0.0
        raw = all(candidate.rates.raw for candidate in kept)
        return min(candidate.computed_per_second if raw else candidate.rates.per_second for candidate in kept)

    def _possible(self) -> list[Shape]:
        """Shapes that the device has room for and that may have the clock."""
        uses = {}
        for shape in shapes_of(self.board, _slides(self.graph)):
            configs = [config for mantissa in self.mantissas for config in widths(self.board, shape, mantissa)]
            rooms = [config for config in configs if with_memories(config, self.board, VECTORS[0]) is not None]
            if rooms:
                uses[shape] = max(use_of(config).clock_mhz for config in rooms)
        if not uses:
            bits = ", ".join(map(str, self.mantissas))
            raise ValueError(f"mantissa must be narrower for {self.board}, not {bits}: no configuration fits there")
        if max(uses.values()) < self.least_mhz:
            most = f"{max(uses.values()):.0f} MHz, the most that is expected on {self.board}"
            raise ValueError(f"clock must be at most {most}, not {self.least_mhz:g}")
        return [shape for shape, mhz in uses.items() if mhz >= self.least_mhz]

    def _limit(self, shape: Shape) -> float:
        """Samples per second that the core of a shape cannot exceed."""
        config = smallest(self.board, shape, min(self.mantissas))
        same = [preset for preset in presets_of(self.board) if shape_of(preset) == shape]
        fastest = max([1e6 * use_of(config).clock_mhz, *(preset.clock_hz for preset in same)])
        return fastest / max(least_cycles(self.graph, config), 1)

    def _of_shape(self, shape: Shape) -> Iterator[Candidate]:
        """The best candidate of a shape, and with narrower mantissas those that are better still."""
        done: set[tuple[int, int]] = set()
        best: Candidate | None = None
        for mantissa in self.mantissas:
            for config in widths(self.board, shape, mantissa):
                candidate = None if self._loses(config) else self._with_vectors(config, done)
                if candidate is not None and (best is None or self._sorted([best, candidate])[0] is candidate):
                    best = candidate
                    yield candidate

    def _with_vectors(self, config: NpuConfig, done: set[tuple[int, int]]) -> Candidate | None:
        """The best candidate with vector memories that are not ``done``; those that hold the network are then."""
        best: Candidate | None = None
        for vectors in VECTORS:
            if vectors in done or (whole := with_memories(config, self.board, vectors)) is None:
                continue
            if (candidate := self._compiled(whole) or self._a_bit_deeper(whole)) is None:
                continue
            done.add(vectors)
            if best is None or by_rates([best, candidate])[0] is candidate:
                best = candidate
            elif not candidate.tiled:
                done.update(VECTORS)  # more vectors make nothing faster
        return best

    def _a_bit_deeper(self, config: NpuConfig) -> Candidate | None:
        """The candidate with the few words of matrix memory more that a refused one needs, which are logic."""
        refusals = self.race.refusals
        if not refusals or refusals[-1].config is not config:
            return None
        have, need = refusals[-1].error.short.get(RegionId.MATRIX, (0, 0))
        if config.serial or not 0 < need - have < LEAST_RAM_WORDS:
            return None
        deeper = config.replace(matrix_depth=need)
        return self._compiled(deeper) if use_of(deeper).fits(DEVICES[self.board]) else None

    def _compiled(self, config: NpuConfig) -> Candidate | None:
        """A candidate, if a configuration holds the network."""
        self.say(f"trying {config.name}: {numbers(config)}")
        clocked = self._clocked(config)
        try:
            compiled = compile_graph(self.graph, clocked)
        except CapacityError as error:
            self.race.refusals.append(ConfigRefusal(config, error))
            return None
        except Unsupported as error:
            self.unsupported = error
            return None
        if self.judge is not None:
            compiled = expecting(compiled, self.judge.inputs)
        steps = None if self.judge is None else measured_steps(compiled, self.judge.inputs)
        speed = rates(compiled.image, 1, steps, self.link, installed=False)
        return Candidate(clocked, use_of(config), speed, compiled.row_tiling is not None)

    def _clocked(self, config: NpuConfig) -> NpuConfig:
        """A configuration with the clock that is expected of it; the preset, if it is one."""
        same = (preset for preset in presets_of(self.board) if preset.fingerprint == config.fingerprint)
        hz = round(1e6 * use_of(config).clock_mhz)
        return next(same, config.replace(clock_hz=hz, board=self.board))


def boards_for(graph: Graph, beside: str, mantissa: int) -> list[str]:
    """Boards with presets that hold a network, perhaps with mantissas of so many bits, and larger than ``beside``."""

    @cache
    def holds(name: str) -> bool:
        return any(_holds(graph, config) for config in (PRESETS[name], with_mantissas(PRESETS[name], mantissa)))

    larger = [board for board, device in DEVICES.items() if device.luts > DEVICES[beside].luts]
    return [board for board in larger if holds(board_spec(board).preset)]


def _holds(graph: Graph, config: NpuConfig) -> bool:
    try:
        compile_graph(graph, config)
    except (CapacityError, Unsupported):
        return False
    return True


def _slides(graph: Graph) -> bool:
    """True if windows may slide: if there are depthwise convolutions."""
    return any(is_depthwise(node) for node in graph.nodes)
