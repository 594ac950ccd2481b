"""What is measured of quantised networks on the NPU."""

import pytest

from concord.host import connect
from concord.spec.presets import ECP5_85F
from concord_bench import Results, exact_networks, npu_codes
from support.trained import DATA, needs_data


@needs_data
@pytest.mark.slow
def test_a_row():
    network = exact_networks.quantised(DATA, "sww_dscnn1d", "sww_logmel")
    inputs, classes = npu_codes.recorded(DATA, "sww_logmel")
    with connect("emulator", ECP5_85F) as device, connect("emulator", ECP5_85F) as other:
        row = npu_codes.codes_row(network, inputs[:4], classes[:4], device, other)
    assert row["emulator = definition"] == "yes" and row["RTL = definition"] == "yes, 4 samples"
    assert row["right"] == f"{row['right, network']} of 4"
    assert 5_000 < int(row["cycles"].replace(",", "")) < 50_000


def test_a_missing_folder_is_said(monkeypatch):
    monkeypatch.setattr(npu_codes, "folder", lambda: None)
    results = Results("")
    npu_codes.measure_npu_codes(results, print)
    assert npu_codes.GROUP in results.skipped and not results.rows
