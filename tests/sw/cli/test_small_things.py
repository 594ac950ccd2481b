"""Small things that a user of the command meets: folders that are made, numbers, texts of options and messages."""

import numpy as np
import pytest

from concord.api.options import budget_of, input_ranges
from concord.cli.common import NumberRange
from concord.compiler.memory.row_tiling import RowTiling, TiledLayers, TileRows
from concord.examples import softmax
from concord.spec.presets import TINY
from support.commands import run
from support.compiled_nets import perceptron


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "net.image"
    softmax(TINY).image().save(path)
    return path


@pytest.mark.parametrize("name", ["net.py", "net.c", "net.asm", "y.npz"])
def test_outputs_go_to_folders_that_are_made(image, tmp_path, name):
    output = tmp_path / "new" / "newer" / name
    if name == "y.npz":
        np.savez(tmp_path / "x.npz", x=softmax(TINY).samples(1))
        words = ["run", image, "-i", tmp_path / "x.npz"]
    else:
        words = ["disasm" if name == "net.asm" else "derive", image]
    code, text = run(*words, "-o", output)
    assert code == 0, text
    assert output.exists()


def test_options_of_numbers_are_called_numbers():
    _, text = run("live", "--help")
    assert "--scale NUMBERS" in text and "--mean NUMBERS" in text and "_NUMBERS" not in text


@pytest.mark.parametrize(("text", "value"), [("1/16", 0.0625), ("0.5", 0.5)])
def test_numbers_of_options_may_be_fractions(text, value):
    assert NumberRange(min=0, min_open=True)(text) == value
    graph = perceptron(4, 3)
    assert budget_of(f"{text}%", graph, False).points == value
    assert input_ranges([f"-{text},{text}"], graph) == {"x": (-value, value)}


def test_numbers_out_of_range_are_refused():
    code, text = run("live", __file__, "--source", "camera", "--hop", "-1/2")
    assert code == 2 and "-0.5 is not in the range x>0" in text
    code, text = run("fit", __file__, "--board", "ulx3s-85f", "--clock", "-1/2")
    assert code == 2 and "-0.5 is not in the range x>=0" in text
    code, text = run("fit", __file__, "--board", "ulx3s-85f", "--clock", "fast")
    assert code == 2 and "'fast' is not a valid float" in text


def test_a_single_layer_in_row_tiles():
    tiles = tuple({None: TileRows(row, row, stop)} for row, stop in ((0, 1), (1, 2)))

    def text(layers, rows, tiles):
        return RowTiling((TiledLayers(0, layers, rows, None, (), (), (), tiles),)).text

    assert text(1, 1, tiles) == "first layer in 2 row tiles of a row of the input"
    assert text(2, 3, tiles) == "first 2 layers in 2 row tiles of 3 rows of the input"
    even = text(2, 3, (*tiles, {None: TileRows(2, 2, 2)}))
    assert even == "first 2 layers in 2 row tiles of 3 rows of the input, and 1 without"
