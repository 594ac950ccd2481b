"""Rates beside those that others have published."""

import re
from contextlib import contextmanager

import pytest

from concord.compiler.lowering.lowered import Unsupported
from concord.host.rates import Rates, spoken
from concord.spec.boards import BOARD_SPECS
from concord.spec.builds import in_brackets
from concord.spec.devices import DEVICES
from concord.spec.presets import PRESETS, TINY, note_of, presets_of
from concord_bench import Results, published
from concord_bench.networks import Measured
from concord_bench.published import (
    BOARD,
    OURS,
    PUBLISHED,
    RESULTS,
    ZEDBOARD,
    BoardClass,
    beside,
    candidates,
    class_of,
    fastest,
    measure_published,
    ours,
)
from concord_bench.tasks import TASKS
from support.trained import DATA, needs_data


def task_of(model):
    return next(task for task in TASKS if task.model == model)


def test_the_networks_are_measured():
    assert {*RESULTS} <= {task.model for task in TASKS}


def test_results_of_others():
    """Each has its round, and is in the class of its device; none of a class is left out for being faster."""
    for model, found in RESULTS.items():
        rates = [one.per_second for one in found]
        assert rates == sorted(rates, reverse=True), model
        for one in found:
            assert re.fullmatch(r"v\d\.\d (closed|open)", one.source)
            assert one.multipliers is None or one.multipliers <= one.machine.multipliers
            assert (one.multipliers is None) == (one.machine.multipliers is None or one.source.endswith("open"))
    assert RESULTS["ic_resnet8"][1].per_second == 6789.6 and RESULTS["vww_mobilenetv1_025"][1].mhz == 320
    classes = [class_of(count) for count in (80, 156, 220, 900)]
    assert classes == [BoardClass.SMALL, BoardClass.MIDDLE, BoardClass.MIDDLE, BoardClass.LARGE]
    assert ZEDBOARD.board_class == class_of(DEVICES[BOARD].multipliers), "what the board is compared with"


def test_candidates_have_a_bitstream_of_the_board():
    spec = BOARD_SPECS[BOARD]
    assert [config.name for config in candidates()] == list(spec.presets)


FOUND = Measured(exact=0.88, score=0.875, cycles=20_000.0, busy=50.0, weights=10.0, verdict="same")
LINK = Rates(
    900, 100, 5, 20_000, 770_000, 770_000, 1, 50_000_000, 1_000_000, reply_seconds=1e-3,
    at_default=Rates(900, 100, 5, 20_000, 4_520_000, 4_520_000, 1, 50_000_000, 1_000_000, reply_seconds=16e-3),
)  # fmt: skip


def test_the_rate_over_the_link_stands_before_that_of_the_core():
    config = PRESETS[BOARD_SPECS[BOARD].preset]
    row = ours(FOUND, LINK, "8.2 on ecp5-85f", config)
    rate = spoken(config.clock_hz / 20_000)
    assert row["in a batch"] == "64.9" and row["batch, as installed"] == "11.1" and row["core, per second"] == rate
    assert row["best batch"] == "8.2 on ecp5-85f"
    assert [*row].index("in a batch") < [*row].index("core, per second")
    assert row["float"] == "0.8800" and row["m=8"] == "0.8750" and row["MACs busy"] == "50.0 %"
    assert row["preset"] == config.name and row["MHz"] == f"{config.clock_hz / 1e6:g}{in_brackets(note_of(config))}"
    assert row["cycles"] == "20,000" and row["RTL"] == "same"


def test_the_board_stands_where_its_core_does():
    config = PRESETS[BOARD_SPECS[BOARD].preset]
    rows = beside("ic_resnet8", FOUND, LINK, config)
    names = [name.split(": ")[1].split(",")[0] for name in rows]
    assert names == ["Qualcomm", "fpgaConvNet", "Concord", "fpgaConvNet", "fpgaConvNet", "Renesas"]
    board = next(row for name, row in rows.items() if "Concord" in name)
    assert board["over the serial port"] == "64.9" and board["core or accelerator"] == spoken(config.clock_hz / 20_000)
    assert board["multipliers"] == "136 of 156" and board["class"] == BoardClass.MIDDLE.value
    zedboard = rows["ic_resnet8: fpgaConvNet, ZedBoard, XC7Z020, v1.1 closed"]
    assert zedboard["multipliers"] == "211 of 220" and zedboard["MHz"] == "143"
    assert zedboard["core or accelerator"] == "2,431" and zedboard["over the serial port"] == ""
    for model in RESULTS:
        for row in beside(model, FOUND, LINK, config).values():
            assert list(row) == list(board), "columns of all rows"


@needs_data
@pytest.mark.slow
def test_the_autoencoder_is_on_the_preset_for_inference():
    assert fastest(task_of("ad_fc_autoencoder"), DATA).name == "ecp5-85f-256"


@needs_data
@pytest.mark.deep
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
    two = {"kws_dscnn": PRESETS["ecp5-85f"], "ad_fc_autoencoder": PRESETS["ecp5-85f-256"]}
    monkeypatch.setattr(published.Rtl, "open", opened)
    monkeypatch.setattr(published, "measure_network", measured)
    monkeypatch.setattr(published, "RESULTS", {model: RESULTS[model] for model in two})
    monkeypatch.setattr(published, "rates_of", lambda task, config, data: (None, None, LINK))
    monkeypatch.setattr(published, "fastest", lambda task, data: two[task.model])
    results = Results("")
    measure_published(TINY, results, lambda what: None)
    assert opens == ["ecp5-85f", "ecp5-85f-256"]
    rows = results.rows[OURS]
    assert {model: row["preset"] for model, row in rows.items()} == {m: config.name for m, config in two.items()}
    assert {row["best batch"] for row in rows.values()} == {f"{spoken(LINK.per_second)} on {presets_of(BOARD)[0].name}"}
    assert len(results.rows[PUBLISHED]) == 2 + sum(len(RESULTS[model]) for model in two)
    assert BOARD in results.notes[PUBLISHED]


def test_without_data_the_table_is_skipped(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    results = Results("")
    measure_published(TINY, results, lambda what: None)
    assert results.skipped == dict.fromkeys((OURS, PUBLISHED), "CONCORD_DATA does not name a folder with networks")
