"""The table of trained networks."""

import numpy as np
import pytest
from rich.console import Console

from concord.cli.common import wide_console
from concord.graph.cost import macs
from concord.host import connect
from concord.spec.presets import ECP5_85F
from concord_bench import Results
from concord_bench import networks as bench
from concord_bench.networks import measure_networks, measure_widths
from concord_bench.tasks import TASKS, area_under_curve, binary_accuracy, calibration, folder, load, run, top_one
from support.marked_tasks import marked_tasks
from support.trained import needs_data

#: As counted from the ONNX files by others.
MACS = {
    "ic_resnet8": 12_501_632, "kws_dscnn": 2_656_768, "vww_mobilenetv1_025": 7_489_664, "ad_fc_autoencoder": 264_192,
    "sww_dscnn1d": 826_368, "kws_lstm118": 2_961_800, "kws_gru154": 1_896_048, "kws_crnn": 1_498_848,
    "mnist_cnn": 786_560, "digits_mlp": 6_464, "digits_cnn": 83_264, "digits_lstm64": 148_096, "digits_gru64": 111_232,
    "digits_transformer": 141_632, "silero_vad_16k": 679_552, "silero_vad_16k_core": 415_360,
}  # fmt: skip


@needs_data
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.model)
def test_macs_and_shapes(task):
    graph, inputs, labels = load(task, folder())
    assert macs(graph) == MACS[task.model]
    assert inputs.shape[1:] == graph.sample_shape(graph.inputs[0])
    assert len(inputs) % len(labels) == 0


def test_scores():
    results = np.array([[0.1, 0.9], [0.6, 0.4], [0.2, 0.8]])
    assert top_one(results, results, np.array([1, 0, 0])) == pytest.approx(2 / 3)
    errors = np.array([1.0, 2.0, 3.0, 2.0])[:, None].repeat(4, axis=0)  # four windows a clip
    assert area_under_curve(np.sqrt(errors), 0 * errors, np.array([0, 1, 1, 0])) == pytest.approx((2 + 1.5) / 4)

    assert binary_accuracy(np.array([[0.4], [0.6], [0.7]]), results, np.array([False, True, False])) == pytest.approx(
        2 / 3
    )


@needs_data
def test_a_stream_hands_its_states_on():
    task = next(task for task in TASKS if task.model == "silero_vad_16k_core")
    graph, inputs, _ = load(task, folder())
    left = iter(np.arange(1.0, 7.0))

    def step(given):
        assert set(given) == set(graph.inputs)
        return {"output": given["h"].ravel()[:1], "hn": given["h"] + next(left), "cn": given["c"] - 1}

    given, found = run(task, graph, step, inputs[:4])
    assert [value.ravel()[0] for value in given["h"]] == [0, 1, 3, 6] and found["output"].tolist() == [0, 1, 3, 6]
    assert given["c"][3].max() == -3 and np.array_equal(given[graph.inputs[0]], inputs[:4])


def test_without_data_the_table_is_skipped(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    results = Results("")
    measure_networks(None, ECP5_85F, results, lambda what: None)
    measure_widths(ECP5_85F, results, lambda what: None)
    why = "CONCORD_DATA does not name a folder with networks"
    assert results.skipped == {"Networks": why, "Accuracy by mantissa width": why}


class Counting:
    """The emulator with a clock, and with wrong results if asked for."""

    def __init__(self, device, wrong=False):
        self.device, self.wrong, self.load = device, wrong, device.load

    def __getattr__(self, name):
        return getattr(self.device, name)

    def run(self, inputs):
        return {name: values + self.wrong for name, values in self.device.run(inputs).items()}

    def counters(self):
        return {"CYCLES": 1000}


@pytest.mark.slow
@needs_data
def test_a_wrong_result_is_named(monkeypatch):
    monkeypatch.setattr(bench, "TASKS", [task for task in TASKS if task.model == "digits_mlp"])
    results = Results("preset")
    with connect("emulator", ECP5_85F) as device:
        measure_networks(Counting(device, wrong=True), ECP5_85F, results, lambda what: None)
    assert results.rows["Networks"]["digits_mlp"]["RTL"] == "DIFFERS behind the last layer"


@pytest.mark.slow
@needs_data
def test_rows(monkeypatch):
    small = [task for task in TASKS if task.model in ("digits_mlp", "digits_gru64")]
    monkeypatch.setattr(bench, "TASKS", small)
    results, said = Results("preset"), []
    with connect("emulator", ECP5_85F) as device:
        measure_networks(Counting(device), ECP5_85F, results, said.append)
        assert list(results.rows["Networks"]) == [task.model for task in small]
        monkeypatch.setattr(bench, "TASKS", [task for task in TASKS if task.model == "kws_dscnn"])
        measure_networks(Counting(device), ECP5_85F.replace(narrow_depth=256), results, said.append)
    row = results.rows["Networks"]["digits_mlp"]
    assert row["RTL"] == "same" and row["float"] == "0.9833" and row["MAC slots"] == "5.0 %"
    rate = f"{ECP5_85F.clock_hz // 1000:,}"  # of 1,000 cycles
    assert float(row["m=8"]) > 0.975 and row["core, per second"] == rate
    assert "narrow memory has 256 vectors" in results.skipped["kws_dscnn"]
    assert said == [f"network {name}" for name in (*results.rows["Networks"], "kws_dscnn")]
    assert (
        f"| digits_mlp | 0.9833 | {row['m=8']} | {row['in a batch']} | {rate} | 1,000 | 5.0 % |" in results.markdown()
    )
    assert 0 < float(row["in a batch"].replace(",", "")) < float(rate.replace(",", ""))
    assert f"core: per second at {ECP5_85F.clock_hz / 1e6:g} MHz" in results.markdown()
    console = Console(width=120)
    with console.capture() as capture:
        results.show(console)
    assert "digits_mlp" in capture.get() and "5.0 %" in capture.get()


@pytest.mark.slow
@needs_data
def test_widths(monkeypatch):
    assert list(bench.WIDTHS) == [8, 7, 6, 5, 4, 3]
    chosen = [task for task in TASKS if task.model in ("kws_dscnn", "digits_cnn")]
    monkeypatch.setattr(bench, "TASKS", chosen)
    monkeypatch.setattr(bench, "WIDTHS", (8, 6, 3))
    results, said = Results("preset"), []
    measure_widths(ECP5_85F.replace(narrow_depth=256), results, said.append)
    row = results.rows["Accuracy by mantissa width"]["digits_cnn"]
    assert list(row) == ["float", "m=8", "m=6", "m=3"] and row["float"] == "0.9933"
    assert float(row["m=8"]) > 0.988 and float(row["m=3"]) < float(row["m=6"])
    weights = results.rows["Accuracy by width of the weights, activations of 8 bits"]["digits_cnn"]
    assert list(weights) == list(row) and weights["m=8"] == row["m=8"]
    assert float(weights["m=3"]) > float(row["m=3"]) + 0.02, "activations of 8 bits, and weights that make up for it"
    assert "narrow memory has 256 vectors" in results.skipped["kws_dscnn, other widths"]
    assert said == ["widths of kws_dscnn", "widths of digits_cnn"]


@needs_data
@pytest.mark.parametrize("task", marked_tasks())
def test_formats_are_chosen_with_other_samples(task):
    """About a hundred, if there are as many; none that is measured, but for streams, of which there is only one."""
    graph, inputs, _ = load(task, folder())
    (few,) = (
        values for name, values in calibration(task, graph, folder()).items() if values.shape[1:] == inputs.shape[1:]
    )
    known = {sample.tobytes() for sample in inputs}
    shared = sum(sample.tobytes() in known for sample in few)
    assert 30 <= len(few) <= 120 and shared == (len(few) if task.state else 0)


def test_nothing_of_a_row_is_cut_off():
    """Not in a file or a pipe, and in a narrow terminal it is folded."""
    row = {"float": "0.8675", "m=8": "0.8725", "cycles": "105,791", "MAC slots": "92.3 %", "per second": "473",
           "weights": "25 %", "RTL": "same"}  # fmt: skip
    results = Results("preset")
    results.row("Networks", "ad_fc_autoencoder x 4", row)
    for console in (wide_console(), Console(width=60)):
        with console.capture() as capture:
            results.show(console)
        shown = capture.get()
        assert "\u2026" not in shown and "ad_fc_autoencoder x 4" in shown
        assert console.width == 60 or all(text in shown for text in row.values())
    assert wide_console().width >= 120 or wide_console().is_terminal
