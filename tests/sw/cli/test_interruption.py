"""Ctrl-C ends the command with one line and status 130, whatever it is doing."""

import signal
import time

import pytest

from concord.networks.folder import load_package
from concord.spec.presets import ECP5_85F_256
from support.commands import begin, two_products


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.05, 0.1, 0.2, 0.3, 0.6])
def test_one_line_at_any_time(tmp_path, delay):
    """At the beginning modules are imported, then numbers are computed."""
    model = two_products(tmp_path) / "net.onnx"
    process = begin("compile", model, "--calibrate", tmp_path / "x.npz", "--mantissa", "auto")
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    if delay >= 0.3 and process.returncode in (0, -signal.SIGINT):  # it was over, or about to end: everything is there
        assert not errors and load_package(tmp_path / "net").image.program
        return
    assert (process.returncode, errors.splitlines()[-1:]) == (130, [b"interrupted"])
    assert b"Traceback" not in errors and b"Aborted" not in errors
    assert not list(tmp_path.glob(".net*"))
    if (tmp_path / "net").exists():  # it was written, but not yet told: then it is whole
        assert delay >= 0.3 and load_package(tmp_path / "net").image.program


@pytest.mark.slow
def test_what_goes_on_in_the_background_is_not_interrupted(tmp_path):
    model = two_products(tmp_path) / "net.onnx"
    process = begin("compile", model, on_interrupt=signal.SIG_IGN)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 0 and errors.count(b"\n") == 1 and errors.startswith(b"warning: no samples of")
    assert load_package(tmp_path / "net").config == ECP5_85F_256
