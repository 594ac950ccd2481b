"""Search for the configuration that computes a network fastest and loses no more than it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from concord.compiler.lowering.lower import Unsupported
from concord.compiler.model import Compiled, compile_graph
from concord.cycles import count
from concord.fit.bounds import is_depthwise, least_cycles
from concord.fit.evidence import Judge, Verdict, numbers
from concord.fit.resources import Use, use_of
from concord.fit.shapes import VECTORS, Shape, shapes_of, smallest, widths, with_memories
from concord.graph.ir import Graph
from concord.networks.window_steps import measured_steps
from concord.program.allocator import CapacityError
from concord.spec.blocks import LEAST_RAM_WORDS
from concord.spec.config import FREE, NpuConfig
from concord.spec.devices import DEVICES
from concord.spec.memmap import RegionId
from concord.spec.presets import presets_of, with_mantissas

#: Widths of mantissas to try, the best first.
MANTISSAS = (8, 7, 6, 5)

Say = Callable[[str], None]


def silent(text: str) -> None:
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
    cycles : int
        Of a run, as the hardware counts them: where windows slide, that of the first sample, and without samples one
        with an assumed number of steps per window.
    tiled : bool
        Whether the first layers are computed in row tiles.
    verdict : Verdict or None
        What the samples say, if there are some.
    """

    config: NpuConfig
    use: Use
    cycles: int
    tiled: bool
    verdict: Verdict | None = None

    @property
    def per_second(self) -> float:
        """Runs per second at the estimated clock."""
        return 1e6 * self.use.clock_mhz / self.cycles

    @property
    def within(self) -> bool:
        """Whether the samples do not speak against it."""
        return self.verdict is None or self.verdict.within

    def text(self, board: str) -> str:
        """The configuration in Python: what has to be changed in the preset of a board."""
        base = presets_of(board)[0]
        mine, theirs = self.config.to_dict(), base.to_dict()
        changes = [f"{name}={value!r}" for name, value in mine.items() if value != theirs[name] and name not in FREE]
        named = ", ".join([f'name="{self.config.name}"', *changes])
        return f'preset("{base.name}")' + (f".replace({named})" if changes else "")


@dataclass(frozen=True)
class Refusal:
    """A configuration that the device has room for, but that does not hold the network."""

    config: NpuConfig
    error: CapacityError


@dataclass
class Race:
    """What a search has found.

    Parameters
    ----------
    candidates : list of Candidate
        Those that hold the network, the fastest first: the ones within the budget, and faster ones that are not.
    refusals : list of Refusal
        Those that do not.
    """

    candidates: list[Candidate] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def kept(self) -> list[Candidate]:
        """Those within the budget."""
        return [one for one in self.candidates if one.within]

    @property
    def nearest(self) -> Refusal | None:
        """The refusal with the least excess of words in the memory that is worst off."""
        return min(self.refusals, key=lambda one: one.error.excess, default=None)


def search(
    graph: Graph,
    board: str,
    mantissas: Sequence[int] = MANTISSAS,
    judge: Judge | None = None,
    *,
    most: int = 5,
    least_mhz: float = 0.0,
    say: Say = silent,
) -> Race:
    """Configurations for a board that hold a network, the fastest first.

    A shape that would be too slow even if nothing ever waited (:mod:`concord.fit.bounds`) is not tried. Every other one
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
    say : callable
        Gets what is being tried.

    Raises
    ------
    ValueError
        If there is nothing known of the board, or no shape has the clock.
    Unsupported
        If no configuration can compute the network.
    """
    if board not in DEVICES:
        raise ValueError(f"board must be one of {', '.join(DEVICES)}, not {board!r}")
    return _Search(graph, board, mantissas, judge, most, least_mhz, say).run()


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
        say: Say,
    ):
        self.graph, self.board, self.mantissas, self.judge = graph, board, mantissas, judge
        self.most, self.least_mhz, self.say = most, least_mhz, say
        self.race = Race()
        self.unsupported: Unsupported | None = None
        #: Native dimension and mantissas that lose too much.
        self.lost: list[NpuConfig] = []

    def run(self) -> Race:
        """Try all shapes that can be among the fastest."""
        limits = {shape: self._limit(shape) for shape in self._possible()}
        for shape, limit in sorted(limits.items(), key=lambda item: -item[1]):
            if limit <= self._to_beat:
                break
            for found in self._of_shape(shape):
                if found.per_second > self._to_beat:
                    self._take(found)
        race, last = self.race, self._to_beat
        if self.unsupported is not None and not race.candidates and not race.refusals:
            raise self.unsupported
        race.candidates = [one for one in self._sorted(race.candidates) if one.per_second >= last]
        return race

    def _take(self, found: Candidate) -> None:
        """Add a candidate with what the samples say."""
        if self.judge is not None:
            verdict = self.judge.verdict(found.config, lambda text: self.say(f"measuring {text}"))
            found = replace(found, verdict=verdict)
            if not verdict.within:
                self.lost.append(found.config)
        self.race.candidates.append(found)

    def _loses(self, config: NpuConfig) -> bool:
        """Whether mantissas that are as wide or wider lose too much."""
        return any(
            one.native == config.native and one.act_mant >= config.act_mant and one.wgt_mant >= config.wgt_mant
            for one in self.lost
        )

    @staticmethod
    def _sorted(candidates: list[Candidate]) -> list[Candidate]:
        """The fastest first, of equally fast ones that with the widest mantissas."""
        return sorted(candidates, key=lambda one: (-one.per_second, -one.config.act_mant, -one.config.wgt_mant))

    @property
    def _to_beat(self) -> float:
        """Runs per second of the last candidate that there is room for; 0 if there is room for more."""
        kept = self._sorted(self.race.kept)
        return kept[self.most - 1].per_second if len(kept) >= self.most else 0.0

    def _possible(self) -> list[Shape]:
        """Shapes that the device has room for and that may have the clock."""
        uses = {}
        for shape in shapes_of(self.board, _slides(self.graph)):
            configs = [one for mantissa in self.mantissas for one in widths(self.board, shape, mantissa)]
            rooms = [one for one in configs if with_memories(one, self.board, VECTORS[0]) is not None]
            if rooms:
                uses[shape] = max(use_of(one).clock_mhz for one in rooms)
        if not uses:
            bits = ", ".join(map(str, self.mantissas))
            raise ValueError(f"mantissa must be narrower for {self.board}, not {bits}: no configuration fits there")
        if max(uses.values()) < self.least_mhz:
            most = f"{max(uses.values()):.0f} MHz, the most that is expected on {self.board}"
            raise ValueError(f"clock must be at most {most}, not {self.least_mhz:g}")
        return [shape for shape, mhz in uses.items() if mhz >= self.least_mhz]

    def _limit(self, shape: Shape) -> float:
        """Runs per second that a shape cannot exceed."""
        config = smallest(self.board, shape, min(self.mantissas))
        return 1e6 * use_of(config).clock_mhz / max(least_cycles(self.graph, config), 1)

    def _of_shape(self, shape: Shape) -> Iterator[Candidate]:
        """The fastest candidate of a shape, and with narrower mantissas those that are faster still."""
        done: set[tuple[int, int]] = set()
        best: Candidate | None = None
        for mantissa in self.mantissas:
            for config in widths(self.board, shape, mantissa):
                found = None if self._loses(config) else self._with_vectors(config, done)
                if found is not None and (best is None or found.cycles < best.cycles):
                    best = found
                    yield found

    def _with_vectors(self, config: NpuConfig, done: set[tuple[int, int]]) -> Candidate | None:
        """The fastest candidate with vector memories that are not ``done``; those that hold the network are then."""
        best: Candidate | None = None
        for vectors in VECTORS:
            if vectors in done or (whole := with_memories(config, self.board, vectors)) is None:
                continue
            if (found := self._compiled(whole) or self._a_bit_deeper(whole)) is None:
                continue
            done.add(vectors)
            if best is None or found.cycles < best.cycles:
                best = found
            elif not found.tiled:
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
        try:
            compiled = compile_graph(self.graph, config)
        except CapacityError as error:
            self.race.refusals.append(Refusal(config, error))
            return None
        except Unsupported as error:
            self.unsupported = error
            return None
        return Candidate(config, use_of(config), self._cycles(compiled), compiled.row_tiling is not None)

    def _cycles(self, compiled: Compiled) -> int:
        """Cycles of a run: where windows slide that of the first sample, if there is one."""
        image, judge = compiled.image, self.judge
        phases = image.schedule()
        found = None if judge is None else measured_steps(compiled, judge.inputs)
        steps = [None] * len(phases) if found is None else found
        return sum(
            count(image.program, image.config, phase.pc, one).cycles for phase, one in zip(phases, steps, strict=True)
        )


def boards_for(graph: Graph, beside: str, mantissa: int) -> list[str]:
    """Boards with presets that hold a network, perhaps with mantissas of so many bits, and larger than ``beside``."""
    found = []
    for board, device in DEVICES.items():
        base = presets_of(board)[0]
        if device.luts > DEVICES[beside].luts and any(
            _holds(graph, config) for config in (base, with_mantissas(base, mantissa))
        ):
            found.append(board)
    return found


def _holds(graph: Graph, config: NpuConfig) -> bool:
    try:
        compile_graph(graph, config)
    except (CapacityError, Unsupported):
        return False
    return True


def _slides(graph: Graph) -> bool:
    """Whether windows may slide: whether there are depthwise convolutions."""
    return any(is_depthwise(node) for node in graph.nodes)
