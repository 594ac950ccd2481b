"""What is measured of networks in C."""

import pytest

from concord.derive.c.program import compiler
from concord.spec.presets import ECP5_85F, TINY
from concord_bench import Results, c_networks
from support.derived_backends import needs_c
from support.trained import DATA, needs_data


@needs_c
@needs_data
@pytest.mark.slow
def test_a_row(monkeypatch):
    monkeypatch.setattr(c_networks, "SECONDS", 0.0)
    row = c_networks.network_row(ECP5_85F, DATA / "models" / "digits_cnn.onnx", compiler())
    assert row["same bits"] == "yes"
    assert 500 < int(row["RAM, bytes"].replace(",", "")) < 4096 < int(row["ROM, bytes"].replace(",", "")) < 8192


@pytest.mark.parametrize("missing", ["compiler", "folder"])
def test_what_is_missing_is_said(missing, monkeypatch):
    monkeypatch.setattr(c_networks, missing, lambda: None)
    results = Results("")
    c_networks.measure_c_networks(TINY, results, print)
    assert c_networks.GROUP in results.skipped and not results.rows
