"""The column of passes: the page shows it as it is, and a pass that is added is observed like the others."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from concord.compiler.ir.tensor_formats import DEFAULT
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lowered import VarianceRange
from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, ROW_TILING, TABLES
from concord.compiler.pipeline.levels import LEVELS
from concord.compiler.pipeline.states import Decided, Requested, Submitted, Typed
from concord.compiler.pipeline.strategies import strategies
from concord.frontend.importer import IMPORT
from concord.pipeline.instruments import Dump, PassError, Timings
from concord.pipeline.manager import Level, Pass, Pipeline, advance, instrumented
from support.compiled_nets import residual
from support.expressions import ROOMY

PAGE = Path(__file__).parents[4] / "docs" / "compiler-design.md"
PIPELINES = (IMPORT, PREPARE, TABLES, LOWER, ONE_PIECE, ROW_TILING)


def test_the_page_has_every_pass_in_order():
    rows = re.findall(r"^\| ([a-z ]+) \| ([a-z-]+(?: [a-z]+)*) \| (.+) \| (.*) \|$", PAGE.read_text(), re.M)
    passes = [
        (pipeline.name, one.name, one.does.replace("``", "`"), ", ".join(f"`{name}`" for name in one.values))
        for pipeline in PIPELINES
        for one in pipeline.passes
        if pipeline is not ROW_TILING or one not in ONE_PIECE.passes
    ]
    names = {pipeline.name for pipeline in PIPELINES}
    assert [row for row in rows if row[0] in names] == passes


def test_passes_say_what_they_do():
    for pipeline in PIPELINES:
        assert all(re.fullmatch(r"[A-Z].*\.", one.does) for one in pipeline.passes), pipeline.name


def typed(graph, lower=LOWER):
    """The state behind lowering by the usual strategy."""
    state = TABLES.run(advance(PREPARE.run(Submitted(graph, ROOMY, 1)), Requested, requested=DEFAULT))
    return lower.run(advance(state, Decided, unfold=Unfold.BOTH, variance_range=VarianceRange.ANY))


def test_values_of_every_level_are_made():
    state = ONE_PIECE.run(typed(residual()))
    assert {level.kind for level in LEVELS} <= {type(value) for value in vars(state).values()}


def test_the_page_has_the_choices_of_a_strategy():
    text = PAGE.read_text()
    assert "Compiled.strategies" in text and len(strategies(residual(), plain=True)) == 12


class Costs(dict):
    """A value that only a made-up pass makes."""


@dataclass(frozen=True)
class Counted(Typed):
    macs: Costs


def counted(state: Typed) -> Counted:
    return advance(state, Counted, macs=Costs({layer.name: layer.macs for layer in state.lowered.layers}))


def negative(state: Typed) -> Counted:
    return advance(state, Counted, macs=Costs(a=-1))


COSTS = Level(
    Costs, "costs", len, lambda costs: [f"{name}: {count}" for name, count in costs.items()],
    lambda costs, state: [f"{name} must not be negative" for name, count in costs.items() if count < 0],
)  # fmt: skip


def with_made_up(run):
    made_up = Pass("multiply-accumulates", run, "Count what layers multiply.")
    return typed(residual(), Pipeline(LOWER.name, Decided, Counted, (*LOWER.passes, made_up), (*LEVELS, COSTS)))


def test_a_pass_that_is_added_is_timed_dumped_and_checked(tmp_path):
    timings = Timings()
    with instrumented(timings, Dump(tmp_path)):
        state = with_made_up(counted)
    assert state.macs["dense"] > 0 and state.macs["pool"] == 0
    assert (timings.rows[-1].name, timings.rows[-1].after) == ("multiply-accumulates", "5 costs")
    assert "first: " in max(tmp_path.glob("*.txt")).read_text()
    with pytest.raises(
        PassError, match=r"^pass multiply-accumulates must make a consistent macs: a must not be negative$"
    ):
        with_made_up(negative)
