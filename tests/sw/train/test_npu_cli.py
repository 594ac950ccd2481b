"""``concord train --on``."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.spec.config_file import config_text
from concord.spec.presets import ECP5_85F
from concord.train.npu import training_config
from support.npu_training import some_digits

PLAN = """
[model]
input = [1, 8, 8]
layers = [{op = "flatten"}, {op = "dense", outputs = 20}, {op = "relu"}, {op = "dense", outputs = 10}]

[data]
file = "digits.npz"
scale = 0.0625

[train]
epochs = EPOCHS
batch = 40
"""


@pytest.fixture
def plan(tmp_path):
    learned, test = some_digits(104)
    np.savez(tmp_path / "digits.npz", x_train=learned.x, y_train=learned.y, x=test.x, y=test.y)
    (tmp_path / "digits.toml").write_text(PLAN.replace("EPOCHS", "2"))
    (tmp_path / "shorter.toml").write_text(PLAN.replace("EPOCHS", "1"))
    return tmp_path


def run(*args, status=0):
    result = CliRunner().invoke(main, ["train", *map(str, args)])
    assert result.exit_code == status, result.output
    return result.output


def files(folder):
    arrays = dict(np.load(folder / "checkpoint.npz"))
    return {name: array.tobytes() for name, array in arrays.items()}, (folder / "network.onnx").read_bytes()


@pytest.mark.slow
def test_the_emulator_trains_what_the_host_trains(plan):
    run(plan / "digits.toml", "-o", plan / "host")
    text = run(plan / "digits.toml", "-o", plan / "npu", "--on", "emulator")
    assert "epoch 2" in text and "trained" in text
    assert files(plan / "npu") == files(plan / "host")
    histories = [json.loads((plan / name / "history.json").read_text()) for name in ("npu", "host")]
    assert histories[0] == histories[1]


@pytest.mark.slow
@pytest.mark.parametrize("order", [("--on", "emulator"), ()])
def test_a_run_goes_on_elsewhere(plan, order):
    run(plan / "digits.toml", "-o", plan / "host")
    run(plan / "shorter.toml", "-o", plan / "npu", *order)
    run(plan / "digits.toml", "-o", plan / "npu", "--resume", *(() if order else ("--on", "emulator")))
    assert files(plan / "npu") == files(plan / "host")


@pytest.mark.slow
def test_the_npu_can_be_chosen(plan):
    chosen = training_config().replace(name="mine", native=8, lanes=4, mfu_lanes=4)
    (plan / "npu.toml").write_text(config_text(chosen, ECP5_85F))
    run(plan / "shorter.toml", "-o", plan / "host")
    run(plan / "shorter.toml", "-o", plan / "npu", "--on", "emulator", "--config", plan / "npu.toml")
    assert files(plan / "npu") == files(plan / "host")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--on", "emulator", "--preset", "ecp5-85f-256"), "integer_chains, not ecp5-85f-256"),
        (("--on", "emulator", "--workers", "2"), "--on must be given without --workers and --cluster"),
        (("--on", "emulator", "--link", "uart"), "--link must be given with --on rtl or a port"),
        (("--on", "nowhere"), "target must be emulator, rtl or a serial port"),
        (("--preset", "ecp5-85f"), "must be given with --on"),
        (("--link", "uart"), "must be given with --on"),
    ],
)
def test_options_are_refused(plan, options, text):
    assert text in run(plan / "digits.toml", "-o", plan / "out", *options, status=1).replace("\n", " ")
    assert not (plan / "out").exists()


def test_there_is_one_configuration(plan):
    (plan / "npu.toml").write_text(config_text(training_config(), ECP5_85F))
    options = "--on", "emulator", "--preset", "ecp5-85f", "--config", plan / "npu.toml"
    text = run(plan / "digits.toml", "-o", plan / "out", *options, status=1)
    assert "--preset must be given without --config" in text
