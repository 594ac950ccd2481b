"""What is measured of quantised networks in C."""

import sys

import pytest

from concord.derive.c.program import compiler
from concord.frontend.codes import load
from concord_bench import Results, c_networks, exact_networks
from support.derived_backends import needs_c
from support.frameworks import needs
from support.trained import DATA, needs_data


@needs_c
@needs_data
@pytest.mark.slow
def test_a_row(monkeypatch):
    monkeypatch.setattr(c_networks, "SECONDS", 0.0)
    row = exact_networks.exact_row(exact_networks.quantised(DATA, "sww_dscnn1d", "sww_logmel"), compiler())
    assert row["same codes"] == "yes"
    assert 4096 < int(row["RAM, bytes"].replace(",", "")) < 16384 < int(row["ROM, bytes"].replace(",", "")) < 65536


@needs_c
@needs_data
@needs("tflite")
def test_a_row_of_a_file(monkeypatch):
    monkeypatch.setattr(c_networks, "SECONDS", 0.0)
    model = DATA / "models" / "tflite_int8" / "ad_fc_autoencoder_int8.tflite"
    row = exact_networks.exact_row(load(model), compiler())
    assert row["same codes"] == "yes" and int(row["RAM, bytes"].replace(",", "")) < 2048


@pytest.mark.parametrize("missing", ["compiler", "folder"])
def test_what_is_missing_is_said(missing, monkeypatch):
    monkeypatch.setattr(exact_networks, missing, lambda: None)
    results = Results("")
    exact_networks.measure_exact_networks(results, print)
    assert exact_networks.GROUP in results.skipped and not results.rows


def test_tflite_micro_may_be_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tflite_micro.python.tflite_micro", None)
    assert exact_networks.tflite_micro(tmp_path / "net.tflite") is None
