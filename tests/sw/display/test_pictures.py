"""The style of pictures: it is that of pages, there while one is drawn and gone behind it; a picture has the same bytes
again."""

import re
from importlib.resources import files

import matplotlib.pyplot
import pytest

from concord.display import pictures
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


def test_colours_are_those_of_pages():
    style = (files("concord.display") / "templates" / "style.css").read_text()
    on_white = dict(re.findall(r"--(\w+): (#\w{6});", style.partition("@media")[0]))
    names = ("ink", "muted", "blue", "teal", "amber", "red")
    assert {name: getattr(pictures, name.upper()) for name in names} == {name: on_white[name] for name in names}
    assert on_white["line"] == GRID
