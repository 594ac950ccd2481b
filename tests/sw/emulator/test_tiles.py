"""Where rows of tiles are in the matrix memory and among the tiles that differ from lane to lane."""

import numpy as np
import pytest

from concord.emulator.tiles import Tiles
from concord.spec.presets import TINY


@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("steps", [1, 2])
def test_words_of_rows(engines, steps):
    """With a depth that the words of a tile do not divide, the last word stands for what is missing."""
    config = TINY.replace(engines=engines, lanes=TINY.native // steps, matrix_depth=17)
    tiles = -(-17 // steps)
    rows = np.arange(tiles * config.rows)
    words, row = Tiles(config).words(rows)
    for k in rows:
        tile, place = divmod(int(k), config.rows)
        whole = range(tile * steps, (tile + 1) * steps)
        assert words[k].tolist() == [word if word < config.matrix_depth else config.matrix_depth - 1 for word in whole]
        assert row[k].tolist() == [place] * steps


def test_places_of_rows():
    """A row of all tiles is in one piece."""
    tiles = Tiles(TINY)
    tiles.numbers = np.array([2, 5, 9])
    rows = np.array([5 * TINY.rows + 1, 2 * TINY.rows, 9 * TINY.rows + TINY.rows - 1])
    assert tiles.places(rows).tolist() == [3 + 1, 0, 3 * (TINY.rows - 1) + 2]
