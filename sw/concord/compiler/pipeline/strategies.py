"""The ways to compile a network, in the order in which they are tried: the first one that fits is taken.

========================= ===========================================================================================
choice                    in this order
========================= ===========================================================================================
tables                    several per function where that is more exact, then one per function, which takes less
normalisations            for any numbers, then for variances around what is expected, by two look-ups or by one
rows                      all rows of a tensor in memory, then row tiling
window of the first layer unfolded by the host along both axes, along one, not at all
========================= ===========================================================================================

The last choice varies fastest. A normalisation that only the program memory is too small for is given up at once, as
neither row tiling nor the window makes the program shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from rich import box
from rich.table import Table

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lower import Norms
from concord.compiler.lowering.scaled import replaced
from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, ROW_TILING
from concord.graph.ir import Graph
from concord.pipeline.manager import Instrument, State, remark
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

_WINDOW = {Unfold.BOTH: "unfolded", Unfold.HORIZONTAL: "unfolded along rows", Unfold.NONE: "not unfolded"}
_NORMS = {Norms.ANY: "any variance", Norms.TWICE: "variance by two look-ups", Norms.ONCE: "variance by one look-up"}


@dataclass(frozen=True)
class Strategy:
    """One way to compile.

    Parameters
    ----------
    plain : bool
        Whether every function is one table.
    norms : Norms
        How normalisations are computed of which no samples tell the variance.
    tiled : bool
        Whether the first layers are computed in row tiles.
    unfold : Unfold
        How much of a first window the host may unfold.
    """

    plain: bool
    norms: Norms
    tiled: bool
    unfold: Unfold

    @property
    def text(self) -> str:
        """In words; the usual choice of tables and normalisations is left out."""
        parts = ["row tiling" if self.tiled else "one piece", f"window {_WINDOW[self.unfold]}"]
        parts += [_NORMS[self.norms]] if self.norms is not Norms.ANY else []
        return ", ".join([*parts, *(["one table per function"] if self.plain else [])])


class Outcome(Enum):
    """What has become of a strategy."""

    CHOSEN = "chosen"
    REFUSED = "refused"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Considered:
    """A strategy, what has become of it, and why."""

    strategy: Strategy
    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.strategy.text}: {self.outcome.value}{f', {self.reason}' if self.reason else ''}"


def strategies(graph: Graph, plain: bool = False) -> list[Strategy]:
    """Everything that may be tried for a network with one choice of tables, in this order."""
    norms = Norms if any(node.op == "Normalise" for node in graph.nodes) else [Norms.ANY]
    return [
        Strategy(plain, norm, tiled, unfold) for norm in norms for tiled in (False, True) for unfold in reversed(Unfold)
    ]


class Strategies(Instrument):
    """Collects what has been considered.

    Members
    -------
    considered : list of Considered
        In the order in which it was decided.
    """

    def __init__(self) -> None:
        self.considered: list[Considered] = []

    def remarked(self, remark: object) -> None:
        """Note a strategy."""
        if isinstance(remark, Considered):
            self.considered.append(remark)

    def table(self) -> Table:
        """All strategies, for a terminal."""
        shown = Table(title="Strategies", box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
        for column in ("strategy", "outcome"):
            shown.add_column(column, overflow="fold")
        for one in self.considered:
            shown.add_row(one.strategy.text, f"{one.outcome.value}{f': {one.reason}' if one.reason else ''}")
        return shown


@dataclass
class Search:
    """Looks for the first strategy that fits.

    Parameters
    ----------
    graph, config, given, batch
        The network, the configuration, the formats that are asked for, and samples per run.

    Members
    -------
    considered : list of Considered
        All strategies so far, in order.
    """

    graph: Graph
    config: NpuConfig
    given: Formats
    batch: int
    considered: list[Considered] = field(default_factory=list)

    def run(self) -> State:
        """Values behind the passes of the chosen strategy.

        Raises
        ------
        CapacityError
            If no strategy fits, with what the first choice of tables lacks.
        """
        prepared = self._prepared(self.given)
        names = replaced(self.graph, prepared["formats"])
        try:
            return self._first_that_fits(prepared, strategies(self.graph))
        except CapacityError as error:
            if not names:
                raise
            lacking = error
        plain = self._prepared(replace(self.given, plain=(*self.given.plain, *names)))
        try:
            return self._first_that_fits(plain, strategies(self.graph, plain=True))
        except CapacityError:
            raise lacking from None

    def _prepared(self, given: Formats) -> State:
        return PREPARE.run({"graph": self.graph, "config": self.config, "given": given, "batch": self.batch})

    def _first_that_fits(self, prepared: State, choices: list[Strategy]) -> State:
        """As :meth:`run`, for one choice of tables."""
        last = choices[-1].norms
        for norms in dict.fromkeys(choice.norms for choice in choices):
            mine = [choice for choice in choices if choice.norms is norms]
            left = choices[choices.index(mine[-1]) + 1 :]
            try:
                state = self._with_norms(prepared, mine, give_up=norms is not last)
            except CapacityError:
                if norms is last:
                    raise
                continue
            self._leave(left, "an earlier one fits")
            return state
        raise AssertionError("there is always a last way to normalise")

    def _with_norms(self, prepared: State, choices: list[Strategy], give_up: bool) -> State:
        """As :meth:`run`, for one way to normalise; ``give_up`` as soon as only the program is too long."""
        known: dict[Unfold, State] = {}
        failures: dict[bool, list[CapacityError]] = {False: [], True: []}
        for index, choice in enumerate(choices):
            if (reason := self._skipped(choice, known)) is not None:
                self._note(Considered(choice, Outcome.NOT_TRIED, reason))
                continue
            try:
                state = self._tried(choice, prepared, known)
            except CapacityError as error:
                self._note(Considered(choice, Outcome.REFUSED, str(error)))
                failures[choice.tiled].append(error)
                if give_up and set(error.short) <= {RegionId.PROGRAM}:
                    self._leave(choices[index + 1 :], "the program memory stays too small")
                    raise
                continue
            self._note(Considered(choice, Outcome.CHOSEN))
            self._leave(choices[index + 1 :], "an earlier one fits")
            return state
        worst = [min(errors, key=lambda error: error.excess) for errors in failures.values()]
        raise CapacityError("; ".join(map(str, worst)), worst[0].short)

    def _leave(self, choices: list[Strategy], reason: str) -> None:
        for one in choices:
            self._note(Considered(one, Outcome.NOT_TRIED, reason))

    def _note(self, considered: Considered) -> None:
        self.considered.append(considered)
        remark(considered)

    @staticmethod
    def _skipped(choice: Strategy, known: Mapping[Unfold, State]) -> str | None:
        """Why a strategy gives the same layers as an earlier one; ``None`` if it does not."""
        if choice.unfold in known:
            return None
        found = [state["lowered"].unfolded for state in known.values()]
        if not choice.tiled and (not found or choice.unfold.value < found[-1].value):
            return None
        return "the same layers as before, as there is no such window"

    def _tried(self, choice: Strategy, prepared: State, known: dict[Unfold, State]) -> State:
        """Values behind all passes; layers that are ``known`` are taken from there."""
        if choice.unfold not in known:
            values = prepared | {"unfold": choice.unfold, "norms": choice.norms}
            known[choice.unfold] = LOWER.run(values, f"{LOWER.name}, {choice.text}")
        pipeline = ROW_TILING if choice.tiled else ONE_PIECE
        return pipeline.run(known[choice.unfold], choice.text)
