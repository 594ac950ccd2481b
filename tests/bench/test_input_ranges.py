"""Inputs unlike the samples are noticed on the recorded data of every trained network, and held-out samples are not."""

from functools import partial

import numpy as np
import pytest

from concord.compiler.ir.input_record import InputRecord
from concord.graph import execute
from concord_bench.tasks import calibration, folder, load, run
from support.marked_tasks import marked_tasks
from support.trained import needs_data

#: Samples of a batch in which a factor of 4 is noticed nearly always; speech is as loud as it likes.
FEW = {"silero_vad_16k": 24, "silero_vad_16k_core": 24}
pytestmark = [needs_data, pytest.mark.parametrize("task", marked_tasks())]


def data_of(task):
    """Calibration samples and held-out ones by input, those of a stream with its states."""
    graph, inputs, _ = load(task, folder())
    few = calibration(task, graph, folder())
    if not task.state:
        (name,) = graph.inputs
        return few, {name: inputs[:: max(1, len(inputs) // 500)]}
    return few, run(task, graph, partial(execute.run, graph), inputs[:120])[0]


def batches(x, size, rng):
    """Some that follow each other, and random ones."""
    for start in range(0, len(x) - size + 1, max(1, len(x) // 40)):
        yield x[start : start + size]
    for _ in range(20):
        yield rng.permutation(x)[:size]


def test_held_out_samples_are_not_told_and_a_factor_is(task):
    rng = np.random.default_rng(0)
    samples, held = data_of(task)
    for name, values in samples.items():
        record = InputRecord.of_samples(values)
        for size in (1, 2, 4, 16):
            assert [found for x in batches(held[name], size, rng) if (found := record.mismatch(x))] == []
    name = max(samples, key=lambda name: samples[name][0].size)
    record, x = InputRecord.of_samples(samples[name]), held[name]
    size = FEW.get(task.model, 8)
    for factor in (4.0, 0.25, 255.0, 1 / 255):
        found = [record.mismatch(factor * rng.permutation(x)[:size]) is not None for _ in range(20)]
        assert np.mean(found) >= 0.9
    quiet = np.array(rng.permutation(x)[:16])
    quiet[::2] = 0
    assert record.mismatch(quiet) is None
