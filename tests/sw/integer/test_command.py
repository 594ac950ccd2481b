"""``concord run --exact`` and ``concord compile --exact``: a quantised network on codes from the command line."""

import json

import numpy as np
import pytest

from support.commands import run
from support.onnx_models import model, node
from support.quantised_nets import relu_of_codes


@pytest.fixture
def folder(tmp_path):
    """A network with one table, and samples with labels beside them."""
    (tmp_path / "net.onnx").write_bytes(relu_of_codes().SerializeToString())
    (tmp_path / "floats.onnx").write_bytes(model([node("Relu", ["x"], ["y"])], {"x": ["N", 4]}).SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.float32([[1, -1, 0, 99]]), y=np.zeros(1))
    return tmp_path


def test_codes_are_written_with_what_they_stand_for(folder):
    code, output = run("run", folder / "net.onnx", "--exact", "-i", folder / "x.npz", "-o", folder / "y.npz")
    assert code == 0, output
    assert "tables: 1 sites, 1 tables, 256 bytes" in output
    assert output.endswith("y.npz: y (1, 4) uint8, zero point 3, scale 0.125\n")
    codes = np.load(folder / "y.npz")["y"]
    assert codes.dtype == np.uint8 and codes.tolist() == [[11, 3, 3, 255]]


def test_a_network_of_floats_is_refused(folder):
    code, output = run("run", folder / "floats.onnx", "--exact", "-i", folder / "x.npz", "-o", folder / "y.npz")
    assert code == 1 and "floats.onnx cannot be executed in integers" in output
    assert "Relu 'y': must read codes, not the floats 'x'; put QuantizeLinear" in output
    assert not (folder / "y.npz").exists()


@pytest.mark.parametrize("words", [["--on", "rtl"], ["--strict"], ["--workers", "2"], ["--link", "usb"]])
def test_what_is_of_an_npu_is_refused(folder, words):
    code, output = run("run", folder / "net.onnx", "--exact", "-i", folder / "x.npz", "-o", folder / "y.npz", *words)
    assert code == 1 and f"a network on codes must be given without {words[0]}" in output


def test_inputs_that_are_missing_are_named(folder):
    np.savez(folder / "other.npz", other=np.zeros((1, 4)))
    code, output = run("run", folder / "net.onnx", "--exact", "-i", folder / "other.npz", "-o", folder / "y.npz")
    assert code == 1 and "inputs must be ['x'], not []" in output


def compiled(folder):
    code, output = run("compile", folder / "net.onnx", "--exact")
    assert code == 0, output
    return folder / "net", output


def test_a_compiled_network_runs_without_the_model(folder):
    net, output = compiled(folder)
    assert "tables: 1 sites, 1 tables, 256 bytes" in output and output.endswith("net: net.program, net.tables\n")
    assert sorted(path.name for path in net.iterdir()) == ["manifest.json", "model.onnx", "net.program", "net.tables"]
    assert (net / "model.onnx").read_bytes() == (folder / "net.onnx").read_bytes()
    (folder / "net.onnx").unlink()
    for words in ([], ["--exact"]):
        code, output = run("run", net, "-i", folder / "x.npz", "-o", folder / "y.npz", *words)
        assert code == 0 and output.endswith("y.npz: y (1, 4) uint8, zero point 3, scale 0.125\n")
        assert np.load(folder / "y.npz")["y"].tolist() == [[11, 3, 3, 255]]


def test_a_part_of_a_model_is_compiled(folder):
    code, output = run("compile", folder / "net.onnx", "--exact", "--outputs", "d", "-o", folder / "part")
    assert code == 0 and "0 operations" in output
    code, output = run("run", folder / "part", "-i", folder / "x.npz", "-o", folder / "y.npz")
    assert code == 0 and np.load(folder / "y.npz")["d"].tolist() == [[11, 0, 3, 255]]


@pytest.mark.parametrize(
    "words", [["--accumulator", "auto"], ["--calibrate", "net.onnx"], ["--batch", "2"], ["--verbose"]]
)
def test_what_is_of_an_npu_is_not_compiled_exactly(folder, words, monkeypatch):
    monkeypatch.chdir(folder)
    code, output = run("compile", "net.onnx", "--exact", *words)
    assert code == 1 and f"a network on codes must be given without {words[0]}" in output
    assert not (folder / "net").exists()


def test_what_is_in_a_compiled_network(folder):
    net, _ = compiled(folder)
    code, output = run("inspect", net)
    assert code == 0, output
    assert "on codes, 1 operations, 0 bytes of constants; 1 sites, 1 tables of 256 bytes, 0 bytes saved" in output
    assert "CodeTable" in output and "uint8, zero point 3, scale 0.125" in output and "any x 4" in output
    code, output = run("inspect", net, "--only", "ports")
    assert code == 0 and "Inputs and outputs" in output and "CodeTable" not in output
    code, output = run("inspect", net, "--only", "program")
    assert code == 1 and "--only must be one of layers, ports, memory for a network on codes, not program" in output
    code, output = run("inspect", net, "--link", "spi")
    assert code == 1 and "must be given without --link" in output


def test_a_report_of_a_compiled_network(folder):
    net, _ = compiled(folder)
    code, output = run("report", net, "-i", folder / "x.npz")
    assert code == 0 and "report.html, report.json: 1 operations" in output
    facts = json.loads((net / "report.json").read_text())
    assert facts["operations"][0]["used"] == {
        "sizes": [1, 4],
        "least": 3,
        "greatest": 255,
        "at_low": 0.0,
        "at_high": 0.25,
    }
    assert facts["tables"] == [{"codes": 256, "type": "uint8", "nbytes": 256, "saved": 0, "sites": ["b"]}]
    page = (net / "report.html").read_text()
    assert "3 to 255" in page and "25.0 %" in page and "saved by sharing" in page
    assert run("run", net, "-i", folder / "x.npz", "-o", folder / "y.npz")[0] == 0
    assert compiled(folder)[0].exists()  # with the report in it
    code, output = run("report", net, "-i", folder / "x.npz", "--on", "rtl")
    assert code == 1 and "must be given without --on" in output
