"""The ways to compile a network, in the order in which they are tried.

========================= ===========================================================================================
choice                    in this order
========================= ===========================================================================================
tables                    several per function where that is more exact, then one per function, which takes less
normalisations            for any numbers, then for variances around what is expected, by two look-ups or by one
rows                      all rows of a tensor in memory, then row tiling
window of the first layer unfolded by the host along both axes, along one, not at all
========================= ===========================================================================================

The last choice varies fastest. The first tables and normalisations that fit are taken. With them, the first strategy is
taken if all tensors fit as they are. If they do not, that of those that fit is taken which gives a user of the board
most samples per second over its first link, and of equal ones that with the fewest cycles. A strategy is not tried if
it would take more cycles than a known one from sample to sample, or than one whose inputs travel raw, even in unlimited
memories.

A normalisation that only the program memory is too small for is given up at once, as
neither row tiling nor the window makes the program shorter. Row tiles are not tried where only
the program memory is too small for all rows.

A window that the host does not unfold, or not as far, may ask for what no instruction reads. Then the strategy is
refused like one that does not fit. If the first one is, so is the network: the others ask for more.

Where an instrument asks for estimates, every strategy gets its cost: that of its program if it has led to one, else
that of a program for the largest memories that there can be.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import groupby

from rich.table import Table

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.decomposition import decomposed_nodes
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lowered import Unsupported, VarianceRange
from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, ROW_TILING, TABLES
from concord.compiler.pipeline.costs import Cost, cost_of, estimate, period_of
from concord.compiler.pipeline.states import Batched, Decided, Fed, Prepared, Requested, Submitted, Typed
from concord.display.tables import text_table
from concord.graph.ir import Graph
from concord.pipeline.manager import Instrument, advance, estimating, remark, unobserved
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

_NOT_SHORTER = "row tiling makes no program shorter"
_WINDOW = {Unfold.BOTH: "unfolded", Unfold.HORIZONTAL: "along rows", Unfold.NONE: "not unfolded"}
_FIGURES = ("cycles", "program", "matrix", "narrow", "wide")
_VARIANCES = {
    VarianceRange.ANY: "any",
    VarianceRange.TWO_LOOKUPS: "two look-ups",
    VarianceRange.ONE_LOOKUP: "one look-up",
}


@dataclass(frozen=True)
class Strategy:
    """One way to compile.

    Parameters
    ----------
    plain : bool
        Whether every function is one table.
    variance_range : VarianceRange
        How normalisations are computed of which no samples tell the variance.
    tiled : bool
        Whether the first layers are computed in row tiles.
    unfold : Unfold
        How much of a first window the host may unfold.
    """

    plain: bool
    variance_range: VarianceRange
    tiled: bool
    unfold: Unfold

    @property
    def text(self) -> str:
        """The strategy in words."""
        return f"{'row tiling' if self.tiled else 'one piece'}, {self.of_layers}"

    @property
    def of_layers(self) -> str:
        """Decisions on the layers, in words; the usual choice of tables and normalisations is left out."""
        parts = [f"window {_WINDOW[self.unfold]}"]
        if self.variance_range is not VarianceRange.ANY:
            parts.append(f"variances by {_VARIANCES[self.variance_range]}")
        return ", ".join([*parts, *(["one table per function"] if self.plain else [])])

    @property
    def layers_key(self) -> tuple[bool, VarianceRange, Unfold]:
        """Key of the decisions that its layers depend on."""
        return self.plain, self.variance_range, self.unfold

    @property
    def any_window(self) -> Strategy:
        """Representative of all strategies that differ in the window alone."""
        return replace(self, unfold=Unfold.NONE)


class Outcome(Enum):
    """Result of the search for a strategy."""

    CHOSEN = "chosen"
    SLOWER = "slower"
    REFUSED = "refused"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Considered:
    """A strategy, what has become of it and why, and what it costs.

    Parameters
    ----------
    strategy : Strategy
        The strategy.
    outcome : Outcome
        Whether it was chosen, slower than the chosen one, refused or not tried.
    reason : str
        Why it was not chosen.
    cost : Cost or None
        What it costs; ``None`` unless an instrument asks for estimates, and where nothing can be said.
    """

    strategy: Strategy
    outcome: Outcome
    reason: str = ""
    cost: Cost | None = None

    def __str__(self) -> str:
        why = f", {self.reason}" if self.reason else ""
        cost = "" if self.cost is None else f" ({', '.join(f'{k} {v}' for k, v in asdict(self.cost).items())})"
        return f"{self.strategy.text}: {self.outcome.value}{why}{cost}"


def strategies(graph: Graph, plain: bool) -> list[Strategy]:
    """Everything that may be tried for a network, in this order; ``plain`` if one table per function takes less."""
    ranges = VarianceRange if any(node.op == "Normalise" for node in graph.nodes) else [VarianceRange.ANY]
    return [
        Strategy(tables, variance_range, tiled, unfold)
        for tables in ((False, True) if plain else (False,))
        for variance_range in ranges
        for tiled in (False, True)
        for unfold in reversed(Unfold)
    ]


class Strategies(Instrument):
    """Collects what has been considered.

    Members
    -------
    considered : list of Considered
        In the order in which it was decided.
    """

    estimates = True

    def __init__(self) -> None:
        self.considered: list[Considered] = []

    def remarked(self, remark: object) -> None:
        """Note a strategy."""
        if isinstance(remark, Considered):
            self.considered.append(remark)

    def table(self) -> Table:
        """All strategies, for a terminal; one row for those that differ only in the window."""
        ranges = {attempt.strategy.variance_range for attempt in self.considered}
        plain = {attempt.strategy.plain for attempt in self.considered}
        words = [*(["variances"] if len(ranges) > 1 else []), *(["tables"] if len(plain) > 1 else [])]
        caption = "Cycles of a run, and words of every memory; what was refused is written for unlimited memories."
        columns = ("rows", "window", *words, *_FIGURES, "outcome")
        shown = text_table("Strategies", columns, right=_FIGURES, caption=caption)
        for attempt, group in groupby(
            self.considered, lambda attempt: replace(attempt, strategy=attempt.strategy.any_window)
        ):
            windows = [_WINDOW[each.strategy.unfold] for each in group]
            cells = {
                "variances": _VARIANCES[attempt.strategy.variance_range],
                "tables": "one each" if attempt.strategy.plain else "several",
            }
            figures = asdict(attempt.cost) if attempt.cost is not None else {}
            shown.add_row(
                "tiles" if attempt.strategy.tiled else "all",
                "any" if len(windows) == len(Unfold) else ", ".join(windows),
                *(cells[word] for word in words),
                *(f"{figures[name]:,}" if name in figures else "" for name in _FIGURES),
                f"{attempt.outcome.value}{f': {attempt.reason}' if attempt.reason else ''}",
            )
        return shown


@dataclass(frozen=True)
class _Fitting:
    """A strategy that fits.

    Parameters
    ----------
    state : Fed
        State after its passes.
    cycles : int
        Clock cycles of a run.
    period : int
        Cycles from a run to the next one over the link of the board.
    raw : bool
        Whether inputs travel raw.
    """

    state: Fed
    cycles: int
    period: int
    raw: bool

    @property
    def bound(self) -> int:
        """Strategies that take as many cycles are no better."""
        return self.cycles if self.raw else self.period

    def slower_than(self, other: _Fitting) -> str:
        """Reason for which another strategy is taken."""
        if self.period == other.period:
            return f"{self.cycles:,} cycles, not {other.cycles:,}"
        alone = (self.period, other.period) == (self.cycles, other.cycles)
        return f"{self.period:,} cycles{'' if alone else ' from sample to sample'}, not {other.period:,}"


class Search:
    """Looks for the strategy to take.

    Parameters
    ----------
    graph, config, requested, batch
        The network, the configuration, the formats that are asked for, and samples per run.

    Members
    -------
    considered : list of Considered
        All strategies that have been decided on, in order.
    """

    def __init__(self, graph: Graph, config: NpuConfig, requested: Formats, batch: int):
        self.graph, self.config, self.batch = graph, config, batch
        self.considered: list[Considered] = []
        self._requested, self._all = {False: requested}, list[Strategy]()
        self._common: Prepared | None = None
        self._prepared: dict[bool, Batched] = {}
        self._lowered: dict[tuple[bool, VarianceRange, Unfold], Typed] = {}
        self._unsupported: dict[tuple[bool, VarianceRange, Unfold], Unsupported] = {}

    def run(self) -> Fed:
        """State after the passes of the chosen strategy.

        Raises
        ------
        CapacityError
            If no strategy fits, with what the first choice of tables lacks.
        Unsupported
            If no instructions compute the layers of the first strategy.
        """
        requested = self._requested[False]
        if names := decomposed_nodes(self.graph, self._prepare(False).formats):
            self._requested[True] = replace(requested, plain=(*requested.plain, *names))
        self._all = strategies(self.graph, bool(names))
        errors: list[CapacityError] = []
        for plain in self._requested:
            try:
                state = self._with_tables(plain)
            except CapacityError as error:
                errors.append(error)
                continue
            self._leave(len(self._all), "an earlier one fits")
            return state
        raise errors[0]

    def _with_tables(self, plain: bool) -> Fed:
        """Result of :meth:`run` for one choice of tables."""
        strategies = [strategy for strategy in self._all if strategy.plain is plain]
        *first, last = dict.fromkeys(strategy.variance_range for strategy in strategies)
        for variance_range in first:
            try:
                return self._with_variance_range(plain, variance_range, give_up=True)
            except CapacityError:
                continue
        return self._with_variance_range(plain, last, give_up=False)

    def _with_variance_range(self, plain: bool, variance_range: VarianceRange, give_up: bool) -> Fed:
        """Result of :meth:`run` for one way to normalise; ``give_up`` as soon as only the program is too long."""
        strategies = [
            strategy for strategy in self._all if (strategy.plain, strategy.variance_range) == (plain, variance_range)
        ]
        failures: dict[bool, list[CapacityError]] = {False: [], True: []}
        decided: list[Considered] = []
        fitting: dict[int, _Fitting] = {}
        for choice in strategies:
            if self._is_skipped(choice):
                reason = "the same layers as before: there is no more to unfold"
                decided.append(Considered(choice, Outcome.NOT_TRIED, reason))
                continue
            if (
                choice.tiled
                and all(set(error.short) == {RegionId.PROGRAM} for error in failures[False])
                and not fitting
            ):
                decided.append(Considered(choice, Outcome.NOT_TRIED, _NOT_SHORTER, self._estimate(choice)))
                continue
            try:
                layers = self._layers(choice)
            except Unsupported as error:
                if not decided:
                    raise
                decided.append(Considered(choice, Outcome.REFUSED, "; ".join(error.reasons)))
                continue
            if reason := _too_slow(layers, [other.bound for other in fitting.values()]):
                decided.append(Considered(choice, Outcome.NOT_TRIED, reason, self._estimate(choice)))
                continue
            try:
                state = (ROW_TILING if choice.tiled else ONE_PIECE).run(layers, choice.text)
            except CapacityError as error:
                decided.append(Considered(choice, Outcome.REFUSED, str(error), self._estimate(choice)))
                failures[choice.tiled].append(error)
                if give_up and not fitting and set(error.short) <= {RegionId.PROGRAM}:
                    self._note(decided)
                    self._leave(self._all.index(strategies[-1]) + 1, "the program would be as long")
                    raise
                continue
            final = choice is strategies[0] and not state.plan.streamed
            cost = None if final and not estimating() else cost_of(state.program)
            cycles = cost.cycles if cost is not None else 0
            fitting[len(decided)] = _Fitting(state, cycles, *period_of(cycles, state.image))
            decided.append(Considered(choice, Outcome.CHOSEN, cost=cost if estimating() else None))
            if final:
                break
        if fitting:
            best = min(fitting, key=lambda index: (fitting[index].period, fitting[index].cycles))
            for index in fitting.keys() - {best}:
                reason = fitting[index].slower_than(fitting[best])
                decided[index] = replace(decided[index], outcome=Outcome.SLOWER, reason=reason)
        self._note(decided)
        if fitting:
            return fitting[best].state
        worst = [min(errors, key=lambda error: error.excess) for errors in failures.values() if errors]
        texts = [*map(str, worst), *([] if failures[True] else [_NOT_SHORTER])]
        raise CapacityError("; ".join(texts), worst[0].short)

    def _is_skipped(self, choice: Strategy) -> bool:
        """True if a strategy gives layers that an earlier one has given."""
        known = [key for key in self._lowered if key[:2] == choice.layers_key[:2]]
        if choice.layers_key in (*known, *self._unsupported) or not known:
            return False
        lowered = self._lowered[known[-1]].lowered
        return choice.tiled or choice.unfold.value >= lowered.unfolded.value

    def _prepare(self, plain: bool) -> Batched:
        """State after the passes in front of lowering, for one choice of tables."""
        if self._common is None:
            self._common = PREPARE.run(Submitted(self.graph, self.config, self.batch))
        if plain not in self._prepared:
            title = f"{TABLES.name}{', one per function' if plain else ''}"
            self._prepared[plain] = TABLES.run(
                advance(self._common, Requested, requested=self._requested[plain]), title
            )
        return self._prepared[plain]

    def _layers(self, choice: Strategy) -> Typed:
        """State after the lowering of a strategy, computed once; :class:`Unsupported` if nothing computes it."""
        key = choice.layers_key
        if key in self._unsupported:
            raise self._unsupported[key]
        if key not in self._lowered:
            try:
                self._lowered[key] = self._lower(choice)
            except Unsupported as error:
                self._unsupported[key] = error
                raise
        return self._lowered[key]

    def _lower(self, choice: Strategy) -> Typed:
        tables = self._prepare(choice.plain)
        state = advance(tables, Decided, unfold=choice.unfold, variance_range=choice.variance_range)
        return LOWER.run(state, f"{LOWER.name}, {choice.of_layers}")

    def _leave(self, end: int, reason: str) -> None:
        """Note that the strategies up to the one with index ``end`` are not tried."""
        left = self._all[len(self.considered) : end]
        self._note([Considered(choice, Outcome.NOT_TRIED, reason, self._estimate(choice)) for choice in left])

    def _estimate(self, choice: Strategy) -> Cost | None:
        """The cost of a strategy without a program, if an instrument asks for it."""
        if not estimating():
            return None
        with unobserved():
            known = self._lowered.get(choice.layers_key)
            try:
                return estimate(self._lower(choice) if known is None else known, choice.tiled)
            except Unsupported:
                return None

    def _note(self, decided: list[Considered]) -> None:
        """Note what has become of strategies."""
        self.considered.extend(decided)
        for attempt in decided:
            remark(attempt)


def _too_slow(layers: Typed, known: list[int]) -> str:
    """Reason for which no program of these layers can be faster than ``known`` cycles; empty if one may be."""
    if not known:
        return ""
    with unobserved():
        least = estimate(layers, tiled=False)
    if least is None or least.cycles < min(known):
        return ""
    return f"it would take {least.cycles:,} cycles even in unlimited memories"
