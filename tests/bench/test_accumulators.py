"""Accumulators of few bits in the bench: networks, and cells by width."""

import json

import pytest

from concord.spec.presets import ECP5_85F, ECP5_85F_256, UP5K
from concord_bench import WITHOUT_RTL, Results, accumulators, overflow
from support.trained import needs_data


@needs_data
@pytest.mark.parametrize(
    ("model", "config", "bits"),
    [
        pytest.param("digits_mlp", ECP5_85F, 32, marks=pytest.mark.slow),
        pytest.param("ad_fc_autoencoder", ECP5_85F_256, accumulators.BITS, marks=pytest.mark.deep),
    ],
    ids=("digits_mlp", "ad_fc_autoencoder"),
)
def test_a_network_keeps_its_bits(model, config, bits, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(overflow, "MODELS", (model,))
    monkeypatch.setattr(accumulators, "SAMPLES", 4)
    monkeypatch.setattr(accumulators, "BITS", bits)
    results = Results("")
    accumulators.measure_accumulators(config, results, lambda text: None)
    row = results.rows[f"Accumulators of {bits} bits"][model]
    assert (row["changed"], row["flags"]) == ("0", "none")
    assert int(row["observed"]) <= bits < int(row["any input"])
    assert "no accumulators.json" in results.skipped["Cells by width"]


def test_what_has_no_narrower_one_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CONCORD_DATA", str(tmp_path))
    (tmp_path / "models").mkdir()
    results = Results("")
    WITHOUT_RTL["accumulators"](UP5K, results, lambda text: None)
    assert results.skipped["Accumulators of 44 bits"] == "up5k has no narrower accumulator"


def test_cells_that_were_counted(tmp_path):
    (tmp_path / "one").mkdir()
    widths = [{"bits": 68, "cells": {"LUT4": 1234}}, {"bits": 44, "cells": {"LUT4": 999}, "mhz": 81.5}]
    widths.append({"bits": 24, "cells": {"LUT4": 9}, "mhz": 120, "slowest": "row"})
    (tmp_path / "one" / "accumulators.json").write_text(json.dumps({"of": "tile engines of tiny", "widths": widths}))
    results = Results("")
    accumulators.cells_by_width(results, tmp_path)
    rows = results.rows["Cells by width of the accumulator: tile engines of tiny"]
    assert rows == {
        "68 bits": {"LUT4": "1,234"},
        "44 bits": {"LUT4": "999", "MHz": "81.50"},
        "24 bits": {"LUT4": "9", "MHz": "120.00", "slowest unit": "row"},
    }
