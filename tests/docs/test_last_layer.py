"""The program on the page about the last layer runs as it stands there."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import concord_bench.last_layer as example
from concord.train import export_onnx
from support.clothes import network, pictures

PAGE = (Path(__file__).parents[2] / "docs" / "last-layer.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_program_runs(tmp_path, monkeypatch):
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    x, y = pictures(40)
    np.savez(tmp_path / "samples.npz", x=x * example.SCALE, y=y)
    (tmp_path / "clothes.onnx").write_bytes(export_onnx(network()))
    shutil.copy(Path(example.__file__).with_suffix(".toml"), tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(program, names)
    assert names["trainer"].finished and names["scores"].shape == (40, 10)
    assert names["settings"] == example.SETTINGS


def test_the_page_shows_what_the_bench_has():
    assert f"`{example.CONFIG.name}`" in PAGE and "python -m concord_bench.last_layer" in PAGE
