"""Training for accumulators of few bits in the bench."""

import pytest

from concord.spec.presets import TINY
from concord_bench import WITHOUT_RTL, Results, overflow_training
from support.trained import needs_data

GROUP = "Training for accumulators of few bits"


@pytest.mark.slow
@needs_data
def test_a_row_per_method_and_grid(monkeypatch):
    monkeypatch.setattr(overflow_training, "EPOCHS", 1)
    monkeypatch.setattr(overflow_training, "SEEDS", (1,))
    monkeypatch.setattr(overflow_training, "WIDTHS", (32, 10))
    results = Results("")
    WITHOUT_RTL["overflow_training"](TINY, results, lambda text: None)
    rows = results.rows[GROUP]
    assert [name.partition(",")[0] for name in rows] == ["plain", "evidence", "bound"] * 2
    for name, row in rows.items():
        assert set(row) == {"32 bits", "10 bits"} and bool(row["32 bits"]) == name.startswith("plain")
        assert ("%" in row["10 bits"]) >= name.startswith("plain") and not (
            name.startswith("bound") and "%" in str(row)
        )


def test_without_data_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CONCORD_DATA", str(tmp_path))
    results = Results("")
    WITHOUT_RTL["overflow_training"](TINY, results, lambda text: None)
    assert GROUP in results.skipped
