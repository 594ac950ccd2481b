"""Cycles of large cells without an NPU of that size."""

import pytest

from concord.cycles import count
from concord.examples.recurrent import gru
from concord.spec.presets import TINY
from concord_bench import Results, large_cells


def test_rows(monkeypatch):
    monkeypatch.setattr(large_cells, "CELLS", {"GRU": (gru, (1024,))})
    results = Results("")
    large_cells.measure_large_cells(TINY, results, lambda what: None)
    (row,) = results.rows[large_cells.GROUP].values()
    # Two tiles of rows and three of columns of six products fill half of the six engines for ten cycles each.
    assert row["least"] == f"{6 * 3 * 10}"
    share = 100 * 6 * 1024 * 1024 / (int(row["cycles of a step"]) * 96_000)
    assert row["MACs busy"] == f"{share:.1f} %"
    assert "96,000 multiply-accumulates per cycle" in results.notes[large_cells.GROUP]


@pytest.mark.parametrize("hidden", [400, 1024])
def test_every_step_takes_as_long(hidden):
    """The difference of two runs is that of any two."""
    runs = [gru(large_cells.BRAINWAVE, hidden=hidden, inputs=hidden, steps=n, seed=None).words() for n in (6, 7, 12)]
    cycles = [count(words, large_cells.BRAINWAVE).cycles for words in runs]
    assert cycles[2] - cycles[0] == 6 * (cycles[1] - cycles[0])
