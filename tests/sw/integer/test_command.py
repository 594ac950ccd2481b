"""``concord run --exact``: codes of a quantised network from the command line."""

import numpy as np
import pytest

from support.commands import run
from support.onnx_models import model, node


@pytest.fixture
def folder(tmp_path):
    """A network with one table, and samples with labels beside them."""
    constants = {"s": np.float32(0.125), "z": np.uint8(3)}
    pairs = [node(op, [x, "s", "z"], [y]) for op, x, y in (
        ("QuantizeLinear", "x", "q"), ("DequantizeLinear", "q", "d"), ("QuantizeLinear", "a", "b"),
        ("DequantizeLinear", "b", "y"),
    )]  # fmt: skip
    proto = model([*pairs[:2], node("Relu", ["d"], ["a"]), *pairs[2:]], {"x": ["N", 4]}, constants=constants)
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    (tmp_path / "floats.onnx").write_bytes(model([node("Relu", ["x"], ["y"])], {"x": ["N", 4]}).SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.float32([[1, -1, 0, 99]]), y=np.zeros(1))
    return tmp_path


def test_codes_are_written_with_what_they_stand_for(folder):
    code, output = run("run", folder / "net.onnx", "--exact", "-i", folder / "x.npz", "-o", folder / "y.npz")
    assert code == 0, output
    assert "tables: 1 sites, 1 tables, 256 bytes" in output
    assert output.endswith("y.npz: y (1, 4) uint8, (code - 3) * 0.125\n")
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
    assert code == 1 and "--exact must be given without --on, --link, --strict" in output


def test_inputs_that_are_missing_are_named(folder):
    np.savez(folder / "other.npz", other=np.zeros((1, 4)))
    code, output = run("run", folder / "net.onnx", "--exact", "-i", folder / "other.npz", "-o", folder / "y.npz")
    assert code == 1 and "inputs must be ['x'], not []" in output
