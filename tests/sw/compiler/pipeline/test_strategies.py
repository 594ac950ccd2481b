"""Strategies of the compiler: their order, which one is chosen, why others are refused, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lowered import VarianceRange
from concord.compiler.model import compile_graph
from concord.compiler.pipeline.strategies import Outcome, Strategies, Strategy, strategies
from concord.cycles import count
from concord.host.rates import rates
from concord.pipeline.manager import instrumented
from concord.program.allocator import CapacityError
from concord.spec.memmap import RegionId
from concord.spec.presets import PRESETS, TINY
from support.compiled_nets import normalised, perceptron, residual, scaled_functions
from support.expressions import ROOMY, check, network, tensor, whole
from support.row_tiled_nets import random_net, separable

CHOSEN, SLOWER, REFUSED, NOT_TRIED = Outcome.CHOSEN, Outcome.SLOWER, Outcome.REFUSED, Outcome.NOT_TRIED


#: Memories in which a small MobileNet needs row tiles.
SMALL = TINY.replace(narrow_depth=64, wide_depth=96, program_depth=1024)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "inbox", "unfold", "reason"),
    [
        ("", 0, Unfold.BOTH, "3,067 cycles, not 2,467"),
        ("ulx3s-85f", 0, Unfold.BOTH, "2,183,067 cycles from sample to sample, not 1,470,467"),
        ("ulx3s-85f", 128, Unfold.HORIZONTAL, "1,470,467 cycles from sample to sample, not 48,000"),
    ],
    ids=["cycles alone", "laid out by the host", "raw"],
)
def test_the_link_of_the_board_decides(board, inbox, unfold, reason):
    """What takes more cycles is taken where its inputs take less time on the line."""
    graph = separable(24)
    compiled = compile_graph(graph, SMALL.replace(board=board, inbox=inbox))
    image, tried = compiled.image, compiled.strategies
    (chosen,) = (one for one in tried if one.outcome is CHOSEN)
    assert chosen.strategy.unfold is unfold
    assert any(one.reason == reason for one in tried if one.outcome is SLOWER)
    if board:
        other = replace(compile_graph(graph, SMALL.replace(inbox=inbox)).image, config=image.config)
        assert rates(image).per_second >= (2 if inbox else 1) * rates(other).per_second
    if board and not inbox:
        assert int(reason.split()[-1].replace(",", "")) == pytest.approx(rates(image).period, rel=0.03)


def considered(graph, config):
    """What becomes of strategies with estimates; the same must become of them without."""
    seen, found = Strategies(), ()
    try:
        found = compile_graph(graph, config).strategies
    except CapacityError as error:
        with instrumented(seen), pytest.raises(CapacityError) as again:
            compile_graph(graph, config)
        assert str(again.value) == str(error)
        return seen
    with instrumented(seen):
        compiled = compile_graph(graph, config)
    plain = [(one.strategy, one.outcome, one.reason) for one in found]
    assert [(one.strategy, one.outcome, one.reason) for one in seen.considered] == plain
    assert list(compiled.strategies) == seen.considered
    assert {one.cost for one in found} == {None}
    return seen


def outcomes(seen):
    return [one.outcome for one in seen.considered]


def test_the_order():
    plain = strategies(residual(), plain=False)
    windows = list(reversed(Unfold))
    assert plain == [Strategy(False, VarianceRange.ANY, tiled, unfold) for tiled in (False, True) for unfold in windows]
    assert windows[0] is Unfold.BOTH
    both = strategies(normalised(), plain=True)
    assert len(both) == len(set(both)) == 6 * 3 * 2
    assert [one.variance_range for one in both[::6]] == [*VarianceRange, *VarianceRange]
    assert [one.plain for one in both] == [False] * 18 + [True] * 18


def test_the_first_that_fits_is_chosen():
    seen = considered(residual(), ROOMY)
    assert outcomes(seen) == [CHOSEN, *[NOT_TRIED] * 5]
    assert {one.reason for one in seen.considered[1:]} == {"an earlier one fits"}
    window = [one.cost.cycles for one in seen.considered[:3]]
    assert window == sorted(window) and window[0] < window[2]


def test_costs_are_those_of_the_program():
    seen = Strategies()
    with instrumented(seen):
        compiled = compile_graph(residual(), ROOMY)
    (cost,) = (one.cost for one in seen.considered if one.outcome is CHOSEN)
    assert cost.cycles == count(compiled.image.program, ROOMY).cycles
    assert cost.program == len(compiled.image.program)
    used = dict.fromkeys(RegionId, 0)
    for item in compiled.allocations.values():
        used[item.region] += item.count
    assert (cost.matrix, cost.narrow, cost.wide) == tuple(
        used[r] for r in (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE)
    )


@pytest.mark.slow
def test_row_tiling_where_nothing_else_fits():
    seen = considered(separable(24), TINY.replace(matrix_depth=256, program_depth=512, narrow_depth=64))
    assert REFUSED in outcomes(seen)[:3] and CHOSEN in outcomes(seen)[3:]
    for one in seen.considered:
        if one.outcome is REFUSED and not one.strategy.tiled:
            assert "narrow memory has 64 vectors" in one.reason and one.cost.narrow > 64
    (chosen,) = (one for one in seen.considered if one.outcome is CHOSEN)
    assert chosen.strategy.tiled and chosen.cost.narrow <= 64
    assert chosen.cost.cycles > seen.considered[0].cost.cycles


@pytest.mark.slow
@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        (192, [REFUSED, CHOSEN, NOT_TRIED, SLOWER, NOT_TRIED, NOT_TRIED]),
        (80, [REFUSED, REFUSED, REFUSED, SLOWER, CHOSEN, SLOWER]),
    ],
)
def test_of_those_that_fit_the_fastest_is_chosen(narrow, expected):
    seen = considered(separable(24), TINY.replace(matrix_depth=256, program_depth=512, narrow_depth=narrow))
    assert outcomes(seen) == expected
    (best,) = (one.cost.cycles for one in seen.considered if one.outcome is CHOSEN)
    for one in seen.considered:
        if one.outcome is SLOWER:
            assert one.cost.cycles > best and one.reason == f"{one.cost.cycles:,} cycles, not {best:,}"
        if one.outcome is NOT_TRIED:
            assert one.cost.cycles >= best and one.reason.endswith("cycles even in unlimited memories")


def test_a_window_that_is_not_there_is_not_tried_again():
    graph = perceptron(8, 64, 4)
    seen = considered(graph, TINY.replace(matrix_depth=16))
    assert outcomes(seen) == [REFUSED, NOT_TRIED, NOT_TRIED, REFUSED, NOT_TRIED, NOT_TRIED]
    skipped = [one for one in seen.considered if one.outcome is NOT_TRIED]
    assert {one.reason for one in skipped} == {"the same layers as before: there is no more to unfold"}


def far_apart(height):
    """A window whose elements are 40 positions apart, so that the host has to bring them together."""
    return network(tensor(1, 2, height, 100).conv(whole(4, 2, 1, 3), dilations=(1, 40), name="far"))


def test_a_window_that_nothing_computes_has_no_cost():
    seen = considered(far_apart(2), ROOMY)
    assert outcomes(seen) == [CHOSEN, *[NOT_TRIED] * 5]
    assert [one.cost is None for one in seen.considered] == [
        one.strategy.unfold is Unfold.NONE for one in seen.considered
    ]


@pytest.mark.parametrize(("narrow", "tiles"), [(64, CHOSEN), (16, REFUSED)])
def test_a_window_that_nothing_computes_leaves_the_other_strategies(narrow, tiles):
    """What does not fit in one piece may fit in row tiles; if it does not, it is memory that lacks, not a dilation."""
    config = TINY.replace(matrix_depth=256, narrow_depth=narrow, wide_depth=512)
    seen = considered(far_apart(8), config)
    assert outcomes(seen) == [REFUSED, NOT_TRIED, REFUSED, tiles, NOT_TRIED, REFUSED]
    assert {seen.considered[k].reason for k in (2, 5)} == {"Conv 'far': dilation must be at most 31, not 40"}
    if tiles is CHOSEN:
        check(far_apart(8), np.random.default_rng(2), config)
    else:
        with pytest.raises(
            CapacityError, match=r"^does not fit into tiny: narrow memory .*; row tiles need 40 vectors"
        ):
            compile_graph(far_apart(8), config)


@pytest.mark.slow
def test_normalisations_that_only_the_program_is_too_long_for():
    seen = considered(normalised(), TINY.replace(program_depth=70))
    any_variance = [one for one in seen.considered if one.strategy.variance_range is VarianceRange.ANY]
    assert [one.outcome for one in any_variance] == [REFUSED, *[NOT_TRIED] * 5]
    assert {one.reason for one in any_variance[1:]} == {"the program would be as long"}
    (chosen,) = (one for one in seen.considered if one.outcome is CHOSEN)
    assert (
        chosen.strategy.variance_range is VarianceRange.TWO_LOOKUPS
        and chosen.cost.program <= 70 < any_variance[0].cost.program
    )


@pytest.mark.slow
def test_row_tiles_do_not_make_a_program_shorter():
    """They are not tried where only the program memory is too small for all rows."""
    config = TINY.replace(matrix_depth=256, program_depth=512)
    in_tiles, whole = (compile_graph(separable(24), config.replace(narrow_depth=depth)) for depth in (80, 2048))
    assert in_tiles.row_tiling and not whole.row_tiling and len(in_tiles.image.program) >= len(whole.image.program)
    seen = considered(separable(24), TINY.replace(matrix_depth=256, program_depth=20, narrow_depth=2048))
    assert outcomes(seen) == [REFUSED, REFUSED, REFUSED, NOT_TRIED, NOT_TRIED, NOT_TRIED]
    assert {one.reason for one in seen.considered[3:]} == {"row tiling makes no program shorter"}
    message = "program memory has 20 words, but .* are needed; row tiling makes no program shorter"
    with pytest.raises(CapacityError, match=message):
        compile_graph(separable(24), TINY.replace(matrix_depth=256, program_depth=20, narrow_depth=2048))


@pytest.mark.slow
def test_one_table_per_function_comes_last():
    roomy = compile_graph(scaled_functions(), TINY)
    assert not roomy.strategies[0].strategy.plain
    seen = considered(scaled_functions(), TINY.replace(program_depth=len(roomy.image.program) - 1))
    assert len(seen.considered) == 12
    (chosen,) = (one for one in seen.considered if one.outcome is CHOSEN)
    assert chosen.strategy.plain and chosen is seen.considered[6]
    assert chosen.cost.program < seen.considered[0].cost.program


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["tiny", "up5k"])
def test_estimates_change_nothing(seed, name):
    assert sum(one is CHOSEN for one in outcomes(considered(random_net(seed), PRESETS[name]))) <= 1


def test_the_table_joins_what_differs_in_the_window_alone():
    seen = considered(perceptron(8, 8, 4), TINY)
    table = seen.table()
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert [column.header for column in table.columns][:3] == ["rows", "window", "cycles"]
    assert [row[:2] for row in rows] == [("all", "unfolded"), ("all", "along rows, not unfolded"), ("tiles", "any")]
    assert rows[0][-1] == "chosen" and rows[1][-1] == "not tried: an earlier one fits"


def test_a_strategy_in_a_line():
    strategy = Strategy(True, VarianceRange.ONE_LOOKUP, True, Unfold.NONE)
    text = "row tiling, window not unfolded, variances by one look-up, one table per function"
    assert strategy.text == text
