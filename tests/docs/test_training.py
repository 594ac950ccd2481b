"""The page about training: its first example prints what stands there, and its files are understood."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from concord.spec import docs
from concord.train import described
from concord.train.overflow_settings import OverflowSettings
from concord.train.settings import read_plan

PAGE = (docs.ROOT / "training.md").read_text(encoding="utf-8")
#: Blocks by language, in their order.
PROGRAM, *_ = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
FILES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
(PRINTED,) = re.findall(r"^```\n(epoch 1: .*?)^```", PAGE, re.M | re.S)
DATA = '[data]\nfile = "data.npz"\n'


def words(text):
    """A text without its lines, columns and rules."""
    return text.replace("─", "").split()


@pytest.mark.slow
def test_the_first_training_prints_what_the_page_shows(tmp_path):
    (tmp_path / "digits.py").write_text(PROGRAM)
    (tmp_path / "digits.toml").write_text(FILES[0])
    subprocess.run([sys.executable, "digits.py"], cwd=tmp_path, check=True)
    command = [Path(sys.executable).with_name("concord"), "train", "digits.toml", "-o", "out"]
    environment = os.environ | {"COLUMNS": "118"}
    printed = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=True).stdout
    assert words(printed) == words(PRINTED) and {"epoch", "93.30", "trained;"} <= set(words(printed))
    assert {"checkpoint.npz", "history.json", "network.onnx"} == {path.name for path in (tmp_path / "out").iterdir()}


def understood(text, folder):
    """Read a file of the page, with data if it has none."""
    tables = tomllib.loads(text)
    if "model" not in tables:
        OverflowSettings.read(tables["overflow"], "[overflow]")
        return
    path = folder / "plan.toml"
    path.write_text(text if "data" in tables else text + DATA)
    plan = read_plan(path)
    if "layers" in tables["model"]:
        graph = described(plan.model, plan.input_shape, outputs=plan.outputs)
        assert plan.settings.losses_of(graph.outputs)


@pytest.mark.parametrize("text", FILES, ids=[str(k) for k in range(len(FILES))])
def test_files_are_understood(text, tmp_path):
    understood(text, tmp_path)


def test_there_are_files_of_all_kinds():
    kinds = ("layers = ", "file = ", "[overflow]", "[augment]", "[train.losses]")
    assert len(FILES) == 8 and all(any(kind in text for text in FILES) for kind in kinds)


@pytest.mark.parametrize(
    ("old", "new"), [("[formats]", "[format]"), ("epochs", "epoch"), ('"conv"', '"convolution"')], ids=str
)
def test_a_file_that_is_wrong_is_noticed(old, new, tmp_path):
    assert old in FILES[0]
    with pytest.raises(ValueError, match="must have"):
        understood(FILES[0].replace(old, new), tmp_path)
