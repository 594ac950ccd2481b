"""The style of pictures: it is there while one is drawn and gone behind it, and a picture has the same bytes again."""

import matplotlib.pyplot
import pytest

from concord.display.pictures import GRID, drawing, png


def drawn():
    with drawing() as plt:
        figure, axes = plt.subplots()
        axes.plot([1, 2])
        axes.grid()
        return png(figure, 50)


def test_a_picture_has_the_same_bytes_again():
    assert drawn() == drawn()
    assert drawn()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_style_ends_and_figures_are_closed_also_behind_an_error():
    before = matplotlib.pyplot.rcParams["grid.color"]
    assert before != GRID
    with pytest.raises(ZeroDivisionError), drawing() as plt:
        assert plt.rcParams["grid.color"] == GRID
        plt.figure()
        raise ZeroDivisionError
    assert matplotlib.pyplot.rcParams["grid.color"] == before
    assert matplotlib.pyplot.get_fignums() == []
