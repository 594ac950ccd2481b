"""The table of calibrations."""

import numpy as np
import pytest

from concord.spec.presets import ECP5_85F
from concord_bench import Results
from concord_bench import calibration as bench
from concord_bench.tasks import TASKS, calibration, folder, load
from support.trained import needs_data


def test_without_data_the_table_is_skipped(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    results = Results("")
    bench.measure_calibration(ECP5_85F, results, lambda what: None)
    assert results.skipped == {"Calibration": "CONCORD_DATA does not name a folder with networks"}


@needs_data
@pytest.mark.slow
def test_one_row(monkeypatch):
    tasks = [task for task in TASKS if task.model == "digits_mlp"]
    monkeypatch.setattr(bench, "TASKS", tasks)
    results = Results("")
    bench.measure_calibration(ECP5_85F, results, lambda what: None)
    row = results.rows["Calibration"]["digits_mlp"]
    assert list(row) == [
        "samples", "candidates", "seconds", "error", "agreement", "seconds, quick", "error, quick", "agreement, quick"
    ]  # fmt: skip
    assert int(row["samples"]) >= 100 and int(row["candidates"]) >= 4
    assert 0 < float(row["error"].rstrip(" %")) < 2 and float(row["agreement"].rstrip(" %")) > 98


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_mlp", "silero_vad_16k_core"])
def test_other_samples_are_others(name):
    task = next(task for task in TASKS if task.model == name)
    graph, inputs, _ = load(task, folder())
    few = calibration(task, graph, folder())
    found = bench.others(task, graph, inputs, few)
    assert set(found) == set(graph.inputs) and len({len(values) for values in found.values()}) == 1
    first = max(found, key=lambda name: found[name].size)
    assert 100 < len(found[first]) <= bench.OTHERS
    known = {sample.tobytes() for sample in few[first]}
    assert not any(sample.tobytes() in known for sample in found[first])
    assert all(np.isfinite(values).all() for values in found.values())
