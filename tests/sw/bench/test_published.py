"""Rates beside those that others have published."""

from contextlib import contextmanager

import pytest

from concord.bench import Results, published
from concord.bench.networks import Measured
from concord.bench.published import BEST, BOARD, PUBLISHED, beside, candidates, fastest, measure_published
from concord.bench.tasks import TASKS
from concord.compiler.lowering.lower import Unsupported
from concord.spec.boards import BOARD_SPECS
from concord.spec.presets import PRESETS, TINY
from support.trained import DATA, needs_data


def task_of(model):
    return next(task for task in TASKS if task.model == model)


def test_the_networks_are_measured():
    assert {*BEST} <= {task.model for task in TASKS}


def test_candidates_have_a_bitstream_of_the_board():
    spec = BOARD_SPECS[BOARD]
    assert [config.name for config in candidates()] == list(spec.presets)


def test_the_rate_is_that_of_the_preset():
    config = PRESETS[BOARD_SPECS[BOARD].preset]
    found = Measured(exact=0.88, score=0.875, cycles=100_000.0, busy=50.0, weights=10.0, verdict="same")
    row = beside(BEST["ic_resnet8"], found, config)
    rate = config.clock_hz / 100_000
    assert row["per second"] == f"{rate:,.0f}" and row["ratio"] == f"{rate / 2431:.2f}"
    assert row["float"] == "0.8800" and row["m=8"] == "0.8750" and row["MACs busy"] == "50.0 %"
    assert row["published"] == "2,431" and row["preset"] == config.name and row["MHz"] == f"{config.clock_hz / 1e6:g}"
    assert row["cycles"] == "100,000" and row["RTL"] == "same"
    assert list(row) == list(beside(BEST["ad_fc_autoencoder"], found, config)), "columns of all rows"


@needs_data
def test_the_autoencoder_is_on_the_preset_for_dense_layers():
    assert fastest(task_of("ad_fc_autoencoder"), DATA).name == "ecp5-85f-mlp"


@needs_data
@pytest.mark.slow
def test_all_row_tiles_of_a_network_count(monkeypatch):
    """With a wide memory of 2,048 vectors ResNet-8 needs no row tiles and takes fewer cycles than all tiles."""
    whole = PRESETS["ecp5-85f-256"]
    tiled = whole.replace(wide_depth=1024)
    monkeypatch.setattr(published, "candidates", lambda: [tiled, whole])
    assert fastest(task_of("ic_resnet8"), DATA) == whole


@needs_data
def test_a_network_that_no_candidate_computes(monkeypatch):
    monkeypatch.setattr(published, "candidates", lambda: [TINY])
    with pytest.raises(Unsupported, match="products in a sum on tiny"):
        fastest(task_of("ad_fc_autoencoder"), DATA)


@needs_data
def test_every_network_has_a_row(monkeypatch):
    class Fake:
        device = "the RTL"

    @contextmanager
    def opened(config):
        opens.append(config.name)
        yield Fake()

    def measured(task, device, config, data):
        assert device == Fake.device
        return Measured(exact=0.9, score=0.9, cycles=1000.0, busy=50.0, weights=10.0, verdict="same")

    opens = []
    two = {"kws_dscnn": PRESETS["ecp5-85f-256"], "ad_fc_autoencoder": PRESETS["ecp5-85f-mlp"]}
    monkeypatch.setattr(published.Rtl, "open", opened)
    monkeypatch.setattr(published, "measure_network", measured)
    monkeypatch.setattr(published, "BEST", {model: BEST[model] for model in two})
    monkeypatch.setattr(published, "fastest", lambda task, data: two[task.model])
    results = Results("")
    measure_published(TINY, results, lambda what: None)
    assert opens == ["ecp5-85f-256", "ecp5-85f-mlp"]
    rows = results.rows[PUBLISHED]
    assert {model: row["preset"] for model, row in rows.items()} == {m: config.name for m, config in two.items()}
    assert BOARD in results.notes[PUBLISHED]


def test_without_data_the_table_is_skipped(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    results = Results("")
    measure_published(TINY, results, lambda what: None)
    assert results.skipped == {PUBLISHED: "CONCORD_DATA does not name a folder with networks"}
