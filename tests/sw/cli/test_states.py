"""States on the command line: what stays is told, a batch is a sequence, and reports and counts know the states."""

import numpy as np
import onnx
import pytest

from concord.networks.folder import load_package
from support.commands import run
from support.stateful_nets import cell_model, moving_line_model

STATES = ("--state", "h=h2", "--state", "c=c2")


@pytest.fixture
def files(tmp_path):
    """A model and samples for it, states left out."""
    model, samples = tmp_path / "cell.onnx", tmp_path / "x.npz"
    onnx.save(cell_model("LSTM"), model)
    np.savez(samples, x=np.random.default_rng(0).normal(size=(8, 1, 6)))
    return model, samples, tmp_path / "net"


@pytest.mark.slow
def test_a_cell_from_file_to_report(files, tmp_path):
    model, samples, net = files
    code, text = run("compile", model, "--preset", "tiny", *STATES, "--calibrate", samples, "--quick", "-o", net)
    assert code == 0, text
    plain = " ".join(text.split())
    assert "stays on the NPU, zero in the first run: h (h2 of the run before), c (c2 of the run before)" in plain
    assert load_package(net).arrangement.state_results == {"h": "h2", "c": "c2"}
    code, text = run("inspect", net)
    assert code == 0 and [line.split()[:2] for line in text.splitlines() if line.strip().startswith("stays")] == [
        ["stays", "h"],
        ["stays", "c"],
    ]
    code, text = run("run", net, "-i", samples, "-o", tmp_path / "y.npz")
    assert code == 0, text
    y = np.load(tmp_path / "y.npz")
    assert set(y) == {"y"} and len(np.unique(y["y"].round(3), axis=0)) == 8
    code, text = run("report", net, "-i", samples, "-o", tmp_path / "page.html")
    assert code == 0 and "stays on the NPU, h2 of the run before" in (tmp_path / "page.html").read_text()
    code, text = run("overflow", net, "-i", samples)
    assert code == 0, text


@pytest.mark.slow
def test_sums_are_bounded_by_the_range_of_the_state(files):
    """A state that may be large makes sums large: it is no constant."""
    model, samples, net = files
    code, text = run("compile", model, "--preset", "tiny", *STATES, "--calibrate", samples, "--quick", "-o", net)
    assert code == 0, text
    small, large = (
        run("overflow", net, "-i", samples, "--input-range", f"h={limits}") for limits in ("-1,1", "-900,900")
    )
    assert small[0] == large[0] == 0 and small[1] != large[1]


@pytest.mark.slow
def test_rounding_is_told(tmp_path):
    model, net = tmp_path / "line.onnx", tmp_path / "net"
    onnx.save(moving_line_model(), model)
    code, text = run("compile", model, "--preset", "ecp5-25f", "--state", "past=next", "-o", net)
    assert code == 0 and "rounded as in front of a product when it is written: past" in " ".join(text.split())


@pytest.mark.parametrize("words, message", [
    (("--state", "h"), "state must be INPUT=OUTPUT, each input once, not 'h'"),
    (("--state", "h=y"), "state h must become an output with its shape"),
    (("--state", "z=h2"), "a state must be an input of the NPU, x, h, c, not z"),
    ((*STATES, "--batch", "2"), "batch must be 1 for a network with states, not 2"),
])  # fmt: skip
def test_what_is_refused(files, words, message):
    model, _, net = files
    code, text = run("compile", model, "--preset", "tiny", *words, "-o", net)
    assert code == 1 and message in " ".join(text.split()) and not net.exists()
