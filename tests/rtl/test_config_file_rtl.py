"""Configurations from files, all the way to the compiled RTL: the same bits as on the emulator."""

import numpy as np
import pytest

import concord
from concord.fit.shapes import Shape
from concord.spec.config_file import read_config
from support.commands import run, two_products
from support.rtl_configs import EIGHT

#: A file by hand.
BY_HAND = """
preset = "tiny"
native = 8
mfu_lanes = 4
engines = 2
inflight = 4
act_mant = 3
wgt_mant = 12
inbox = 512
matrix_depth = 301
narrow_depth = 77
wide_depth = 67
program_depth = 1071
"""


def compared(folder, path):
    """The compiled network of ``folder`` for a configuration in a file; its results on the RTL are the emulator's."""
    code, output = run("compile", folder / "net.onnx", "--config", path, "-o", folder / "net")
    assert code == 0 and "does not fit" not in output
    network = concord.load(folder / "net")
    assert network.config == read_config(path)
    results = []
    for place in ("emulator", "rtl"):
        code, output = run("run", folder / "net", "-i", folder / "few.npz", "-o", folder / "y.npz", "--on", place)
        assert code == 0, output
        results.append(np.load(folder / "y.npz")["y"])
    assert results[0].shape == (5, 3) and np.array_equal(*results)
    return network


@pytest.fixture
def folder(tmp_path):
    two_products(tmp_path)
    np.savez(tmp_path / "few.npz", x=np.load(tmp_path / "x.npz")["x"][:5])
    return tmp_path


@pytest.mark.slow
def test_a_file_by_hand(folder):
    (folder / "tiny-eight.toml").write_text(BY_HAND)
    assert compared(folder, folder / "tiny-eight.toml").config == EIGHT


@pytest.mark.deep
def test_what_fit_has_found(folder, monkeypatch):
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2),))
    monkeypatch.setattr("concord.fit.candidates.placed", lambda board: [])
    path = folder / "best.toml"
    code, output = run("fit", folder / "net.onnx", "--board", "ulx3s-25f", "--mantissa", "7", "-o", path)
    assert code == 0, output
    config = compared(folder, path).config
    assert (config.native, config.lanes, config.act_mant, config.board) == (8, 2, 7, "ulx3s-25f")
