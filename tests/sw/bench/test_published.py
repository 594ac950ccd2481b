"""Rates beside those that others have published."""

from concord.bench import Results
from concord.bench.published import BEST, PUBLISHED, beside_published, board_of
from concord.bench.tasks import TASKS
from concord.spec.boards import BOARD_SPECS
from concord.spec.presets import PRESETS, TINY, with_mantissas


def test_the_networks_are_measured():
    assert {*BEST} <= {task.model for task in TASKS}


def test_a_preset_is_known_by_its_board():
    for name, board in BOARD_SPECS.items():
        found = board_of(PRESETS[board.preset])
        assert found is not None and BOARD_SPECS[found].preset == board.preset, name
    assert board_of(with_mantissas(PRESETS[BOARD_SPECS["icebreaker"].preset], 6)) == "icebreaker"
    assert board_of(TINY) is None


def test_the_rate_is_that_of_the_board():
    config = PRESETS[BOARD_SPECS["ulx3s-85f"].preset]
    results = Results("")
    beside_published("ic_resnet8", 0.875, 100_000, 50.0, config, results)
    beside_published("digits_mlp", 0.98, 1000, 50.0, config, results)
    assert [*results.rows[PUBLISHED]] == ["ic_resnet8"]
    row = results.rows[PUBLISHED]["ic_resnet8"]
    rate = config.clock_hz / 100_000
    assert row["per second"] == f"{rate:,.0f}" and row["ratio"] == f"{rate / 2431:.2f}"
    assert row["score"] == "0.8750" and row["MACs busy"] == "50.0 %" and row["published"] == "2,431"
    note = results.notes[PUBLISHED]
    assert "ulx3s-85f" in note and f"{config.clock_hz / 1e6:g} MHz" in note and f"makes {config.macs} mult" in note
    assert "clock of the preset" not in note


def test_without_a_board_the_clock_is_that_of_the_preset():
    results = Results("")
    beside_published("kws_dscnn", 0.9, 1000, 10.0, TINY, results)
    assert "the clock of the preset" in results.notes[PUBLISHED]
    assert results.rows[PUBLISHED]["kws_dscnn"]["per second"] == f"{TINY.clock_hz / 1000:,.0f}"
