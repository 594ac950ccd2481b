"""The demonstration of training, with the emulator in the place of the RTL, and its failure."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from concord.demo import training
from concord.spec.presets import ECP5_85F


@pytest.fixture
def emulated_rtl(monkeypatch):
    """Let the emulator stand in for the RTL; the result says which values to spoil."""
    spoiled, connect = {}, training.connect
    outputs = training._outputs

    def fake(on, compiled, samples, count, console):
        found = {name: values.copy() for name, values in outputs(on, compiled, samples, count, console).items()}
        for index, value in spoiled.items() if on == "rtl" else ():
            next(iter(found.values()))[index] = value
        return found

    monkeypatch.setattr(training, "_outputs", fake)
    monkeypatch.setattr(training, "connect", lambda on, config: connect("emulator", config))
    return spoiled


def run(folder, images=5):
    text = io.StringIO()
    settings = replace(training.SETTINGS, epochs=1)
    console = Console(file=text, width=100)
    return training.run_training_demo(ECP5_85F, folder, images, console, settings), text.getvalue()


@pytest.mark.slow
def test_the_whole_run(emulated_rtl, tmp_path):
    outcome, text = run(tmp_path)
    assert outcome.comparison.passed and "emulator = RTL: PASS (50 values)" in text
    assert outcome.accuracy > 0.4 and "test accuracy on the NPU" in text
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "digits_cnn.onnx").is_file() and (tmp_path / "digits_cnn_ecp5-85f").is_dir()


@pytest.mark.slow
def test_a_wrong_value_is_found(emulated_rtl, tmp_path):
    emulated_rtl[2, 3] = np.float32(99)
    outcome, text = run(tmp_path)
    assert not outcome.comparison.passed and "emulator = RTL: FAIL" in text and "of sample 2" in text


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [False, True])
def test_an_npu_trains_and_this_machine_checks_it(emulated_rtl, tmp_path, monkeypatch, spoil):
    numbers = training._numbers

    def counted(trainer):
        found = numbers(trainer)
        if spoil and hasattr(trainer, "device"):
            next(iter(found.values()))[5] += 1
        return found

    monkeypatch.setattr(training, "_numbers", counted)
    text = io.StringIO()
    settings = replace(training.SETTINGS, epochs=1)
    outcome = training.run_training_demo(ECP5_85F, tmp_path, 5, Console(file=text, width=100), settings, on="emulator")
    assert outcome.comparison.passed and outcome.passed == (not spoil)
    verdict = "FAIL (" if spoil else "PASS (6570 weights)"
    assert f"trained on the NPU = trained here: {verdict}" in text.getvalue()
    assert (tmp_path / "digits_mlp.onnx").is_file()
